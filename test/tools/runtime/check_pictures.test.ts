import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { createRedactor } from "../../../lib/base/redact.ts";
import { checkPictures } from "../../../lib/tools/runtime/check_pictures.ts";

const file = (name: string) =>
  new Uint8Array(readFileSync(new URL(`../../../fixtures/documents/images/${name}`, import.meta.url)));
const NOTHING_KNOWN = createRedactor();

/** A copy with bytes after the end of the picture. */
function padded(bytes: Uint8Array, length: number): Uint8Array {
  const longer = new Uint8Array(length);
  longer.set(bytes);
  return longer;
}

test("the bytes decide the media type", async () => {
  const names = ["photo.png", "photo.jpg", "photo.webp", "still.gif"];
  const { pictures, notes } = await checkPictures(names.map((name) => ({ bytes: file(name) })), NOTHING_KNOWN);
  assert.deepEqual(notes, []);
  assert.deepEqual(
    pictures.map(({ picture }) => picture.media_type),
    ["image/png", "image/jpeg", "image/webp", "image/gif"],
  );
  assert.deepEqual(pictures.map(({ picture: { bytes } }) => bytes), names.map((name) => file(name).length));
});

test("what is no picture for a model is left out, with the reason", async () => {
  const wide = file("photo.png");
  new DataView(wide.buffer).setUint32(16, 8001);
  const secret = createRedactor(["a-secret-of-the-user"]);
  const bad: readonly (readonly [Uint8Array, RegExp])[] = [
    [file("photo.avif"), /no whole PNG, JPEG, WebP or GIF/],
    [new TextEncoder().encode("<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>"), /no whole PNG/],
    [file("photo.png").subarray(0, 12), /no whole PNG/],
    [new Uint8Array(0), /no whole PNG/],
    [padded(file("photo.png"), 3_932_161), /has 3932161 bytes, and models are shown at most 3932160/],
    [wide, /8001 x \d+ pixels/],
    [new Uint8Array([...file("photo.png"), ...new TextEncoder().encode("a-secret-of-the-user")]), /holds a secret/],
  ];
  for (const [bytes, reason] of bad) {
    const { pictures, notes: [note = ""] } = await checkPictures([{ bytes }], secret);
    assert.equal(pictures.length, 0);
    assert.match(note, reason);
  }
});

test("a result has four pictures and 8 MiB of them at most, and says what was left out", async () => {
  const png = { bytes: file("photo.png") };
  const five = await checkPictures([png, png, png, png, png], NOTHING_KNOWN);
  assert.equal(five.pictures.length, 4);
  assert.deepEqual(five.notes, ["[Picture 5 of 5 was left out: a result has at most 4 pictures]"]);
  const large = { bytes: padded(png.bytes, 3_932_160) };
  const three = await checkPictures([large, large, large], NOTHING_KNOWN);
  assert.equal(three.pictures.length, 2);
  assert.match(
    three.notes.join(),
    /^\[Picture 3 of 3 was left out: the pictures of a result have at most 8388608 bytes\]$/,
  );
});
