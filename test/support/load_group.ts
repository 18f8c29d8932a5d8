import assert from "node:assert/strict";
import process from "node:process";
import { test } from "node:test";

/** Loads test files into this process, and adds a test that their tests leave the process as it was. @param urls of the files */
export async function loadGroup(urls: readonly string[]): Promise<void> {
  const before = sharedState();
  for (const url of urls) await import(url);
  test("the tests of the group leave the process as it was", () => assert.deepEqual(sharedState(), before));
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
