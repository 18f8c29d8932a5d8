import assert from "node:assert/strict";
import process from "node:process";
import { test } from "node:test";
import { memoryOf } from "../../../lib/system/browser/memory_of.ts";

test("memory is what a process holds for itself, in bytes", {
  skip: process.platform === "linux" ? false : "there is no /proc",
}, async () => {
  const before = await memoryOf(process.pid);
  const held = new Uint8Array(200_000_000).fill(1);
  const grown = await memoryOf(process.pid) - before;
  assert.ok(before > 1_000_000, `${before} bytes before`);
  assert.ok(grown > 150_000_000 && grown < 400_000_000, `${grown} bytes more for ${held.length}`);
  assert.equal(await memoryOf(2 ** 22 + 1), 0);
});
