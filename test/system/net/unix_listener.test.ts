import assert from "node:assert/strict";
import { test } from "node:test";
import { type ListenerOptions, listenOnDeno } from "../../../lib/system/net/unix_listener.ts";

/** Runs `use` where `Deno.listen` gives a listener whose accept does what it is told. */
async function withListener(accept: () => Promise<never>, use: () => Promise<void>): Promise<void> {
  const before = Object.getOwnPropertyDescriptor(globalThis, "Deno");
  const stub = { listen: () => ({ accept, close: () => {} }) };
  Object.defineProperty(globalThis, "Deno", { configurable: true, writable: true, value: stub });
  try {
    await use();
  } finally {
    if (before === undefined) Reflect.deleteProperty(globalThis, "Deno");
    else Object.defineProperty(globalThis, "Deno", before);
  }
}

test("a listener that can take no connection says so, waits, and tries again until it is closed", async () => {
  let tries = 0;
  const errors: string[] = [];
  const accept = () => Promise.reject(new Error(`Too many open files ${++tries}`));
  await withListener(accept, async () => {
    const paused = Promise.withResolvers<void>();
    let pauses = 0;
    const options: ListenerOptions = {
      onConnection: () => assert.fail("there is none"),
      onError: (error) => void errors.push((error as Error).message),
      pause() {
        if (++pauses < 3) return Promise.resolve();
        paused.resolve();
        return Promise.withResolvers<void>().promise;
      },
    };
    const listener = listenOnDeno("/nowhere", options);
    await paused.promise;
    listener?.close();
    assert.deepEqual(errors, ["Too many open files 1", "Too many open files 2", "Too many open files 3"]);
  });
});

test("a listener that is closed ends without an error", async () => {
  const { promise, reject } = Promise.withResolvers<never>();
  await withListener(() => promise, async () => {
    const listener = listenOnDeno("/nowhere", {
      onConnection: () => {},
      onError: () => assert.fail("it was closed"),
      pause: () => assert.fail("it was closed"),
    });
    listener?.close();
    reject(new Error("closed"));
    await promise.catch(() => {});
  });
});
