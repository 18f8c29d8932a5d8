import assert from "node:assert/strict";
import { test } from "node:test";
import { PictureMemory } from "../../lib/agent/picture_memory.ts";

const MEBIBYTE = 1_048_576;
const picture = (sha256: string) => ({ sha256, media_type: "image/png", bytes: 0, width: 1, height: 1 }) as const;

test("a request gets the newest pictures that fit, each once", () => {
  const memory = new PictureMemory();
  for (const name of ["a", "b", "c", "d"]) memory.keep(name, new Uint8Array(4 * MEBIBYTE));
  const loaded = memory.load(["a", "b", "c", "d", "d", "gone"].map(picture));
  assert.deepEqual([...loaded.keys()], ["d", "c", "b"]);
  const many = new PictureMemory();
  const names = Array.from({ length: 30 }, (_, i) => `p${i}`);
  for (const name of names) many.keep(name, new Uint8Array([1]));
  assert.deepEqual([...many.load(names.map(picture)).keys()], names.slice(10).toReversed());
});

test("the pictures that were used longest ago make room", () => {
  const memory = new PictureMemory();
  for (let i = 0; i < 8; i++) memory.keep(`p${i}`, new Uint8Array(4 * MEBIBYTE));
  memory.keep("p0", new Uint8Array(4 * MEBIBYTE));
  memory.keep("new", new Uint8Array(4 * MEBIBYTE));
  const isKept = (name: string) => memory.load([picture(name)]).size === 1;
  assert.deepEqual(["p0", "p1", "p2", "new"].map(isKept), [true, false, true, true]);
});
