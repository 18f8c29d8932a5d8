/**
 * Makes `node:test` follow timers, sockets and files, and no promises: preloaded for a run of the whole suite.
 *
 * The runner keeps a record for each promise of a test, by which it knows which test an uncaught error belongs to. These records take a
 * seventh of the processor time of test processes. Without them an uncaught error still fails its file, but names no test: the file run
 * by its name does.
 */
import asyncHooks from "node:async_hooks";
import process from "node:process";

// The runner takes the function as it is when it is loaded: afterwards this module would do nothing, and nobody would see it
if (process.moduleLoadList.includes("NativeModule internal/test_runner/harness")) {
  throw new Error("light_hooks.js comes too late: preload it before the modules that import node:test");
}
const { createHook } = asyncHooks;
asyncHooks.createHook = (callbacks) => createHook({ ...callbacks, trackPromises: false });
