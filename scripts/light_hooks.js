/**
 * Makes `node:test` follow timers, sockets and files, and no promises: preloaded for a run of the whole suite.
 *
 * The runner keeps a record for each promise of a test, by which it knows which test an uncaught error belongs to. These records take a
 * seventh of the processor time of test processes. Without them an uncaught error still fails its file, but names no test: the file run
 * by its name does.
 */
import asyncHooks from "node:async_hooks";

const { createHook } = asyncHooks;
asyncHooks.createHook = (callbacks) => createHook({ ...callbacks, trackPromises: false });
