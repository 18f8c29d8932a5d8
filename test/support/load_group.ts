import assert from "node:assert/strict";
import process from "node:process";
import { before, test } from "node:test";

/** Loads test files into this process, and adds a test that their tests leave the process as it was. @param urls of the files */
export async function loadGroup(urls: readonly string[]): Promise<void> {
  const state = sharedState();
  const loaded = Promise.withResolvers<void>();
  // Node takes the tests for over when those of the first files end before the next file is loaded
  if (!("Deno" in globalThis)) before(() => loaded.promise);
  for (const url of urls) await import(url);
  test("the tests of the group leave the process as it was", () => assert.deepEqual(sharedState(), state));
  loaded.resolve();
}

/** Returns what one test file could leave to the next. */
function sharedState() {
  return {
    folder: process.cwd(),
    environment: { ...process.env },
    listeners: ["SIGINT", "SIGTERM", "SIGHUP", "exit"].map((name) => [
      name,
      process.listenerCount(name),
    ]),
  };
}
