import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { DocumentError } from "../../../lib/documents/document_error.ts";
import { fileSource, memorySource } from "../../../lib/documents/image/byte_source.ts";
import type { ImageProperties } from "../../../lib/documents/image/image_properties.ts";
import { readImage } from "../../../lib/documents/image/read_image.ts";
import { documentFixture } from "../../support/document_fixtures.ts";
import { PROJECT_ROOT } from "../../support/source_files.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

const NAMES = readdirSync(join(PROJECT_ROOT, "fixtures/documents/images")).sort();

const read = (bytes: Uint8Array) => readImage(memorySource(new DataView(bytes.buffer, bytes.byteOffset, bytes.length)));
const image = (name: string) => read(documentFixture(`images/${name}`));
const readText = (text: string) => read(new TextEncoder().encode(text));
const refusal = async (bytes: Uint8Array | string): Promise<DocumentError> => {
  const error = await read(typeof bytes === "string" ? Buffer.from(bytes, "latin1") : bytes).catch((thrown) => thrown);
  assert.ok(error instanceof DocumentError, JSON.stringify(error));
  return error;
};

test("a photo's size, density and EXIF data are told in text and in data", () =>
  withWorkspace({ "photo.jpg": documentFixture("images/photo.jpg") }, async ({ root }) => {
    const { result } = await createToolBench({ root }).call("image_info", "photo.jpg");
    assert.equal(
      result.output,
      [
        "format: JPEG",
        "size: 40 x 30 pixels",
        "shown: turned, as 30 x 40 pixels",
        "file size: 1223 bytes",
        "colours: rgb, 8 bits",
        "transparency: no",
        "density: 300 x 300 dpi",
        "orientation: 6",
        "make: Acme",
        "model: Gate Cam 3",
        "lens: 50mm F2.8",
        "taken: 2026:05:04 03:02:01",
        "changed: 2026:05:04 03:02:01",
        "exposure seconds: 0.004",
        "f number: 2.8",
        "iso: 400",
        "focal length mm: 50",
        "latitude: 52.52",
        "longitude: -13.4",
        "altitude m: 34.5",
      ].join("\n"),
    );
    const { exif, ...data } = result.data as { exif: Record<string, unknown> };
    assert.deepEqual(data, {
      path: "photo.jpg",
      size: 1223,
      format: "JPEG",
      width: 40,
      height: 30,
      bits_per_sample: 8,
      colour: "rgb",
      alpha: false,
      frames: 1,
      dpi: [300, 300],
    });
    assert.deepEqual([exif["orientation"], exif["iso"], exif["longitude"]], [6, 400, -13.4]);
  }));

test("every format made by a real program is read", async () => {
  const expected: Readonly<Record<string, Partial<ImageProperties>>> = {
    "alpha.png": { format: "PNG", colour: "rgb", alpha: true, frames: 1 },
    "cmyk.jpg": { format: "JPEG", colour: "cmyk" },
    "gray.jpg": { format: "JPEG", colour: "gray" },
    "lossless.webp": { format: "WebP", frames: 1 },
    "moving.gif": { format: "GIF", colour: "palette", frames: 3 },
    "moving.png": { format: "PNG", frames: 2 },
    "moving.webp": { format: "WebP", frames: 2 },
    "palette.png": { format: "PNG", colour: "palette" },
    "photo.avif": { format: "AVIF", bitsPerSample: 8 },
    "photo.jpg": { format: "JPEG", dpi: [300, 300] },
    "photo.png": { format: "PNG", dpi: [72, 72] },
    "photo.tiff": { format: "TIFF", frames: 2, dpi: [150, 150], exif: { orientation: 3, make: "Acme" } },
    "photo.webp": { format: "WebP", alpha: false },
    "picture.bmp": { format: "BMP", dpi: [96, 96] },
    "still.gif": { format: "GIF", frames: 1 },
  };
  assert.deepEqual(Object.keys(expected), NAMES);
  for (const name of NAMES) {
    const found = await image(name);
    assert.deepEqual({ ...found, ...expected[name] }, found, name);
    assert.deepEqual([found.width, found.height], [40, 30], name);
  }
});

test("a count of frames that the file has no room for is none", async () => {
  for (const [count, frames] of [[2, 2], [0, undefined], [0xffffffff, undefined], [1_000_000, undefined]] as const) {
    const png = Buffer.from(documentFixture("images/moving.png"));
    png.writeUInt32BE(count, png.indexOf("acTL") + 4);
    assert.equal((await read(png)).frames, frames, String(count));
  }
});

test("AVIF and HEIC are told by their brands, the general ones by what they are compatible with", async () => {
  const branded = async (brand: string) => {
    const bytes = documentFixture("images/photo.avif");
    bytes.set(Buffer.from(brand), 8);
    return (await read(bytes)).format;
  };
  assert.deepEqual([await branded("avif"), await branded("mif1"), await branded("heic")], ["AVIF", "AVIF", "HEIC"]);
  await assert.rejects(branded("mp42"), { code: "document_unsupported" });
});

test("EXIF data is found in every format that carries it", async () => {
  for (const name of ["photo.avif", "photo.jpg", "photo.png", "photo.webp"]) {
    const { exif } = await image(name);
    assert.deepEqual([exif?.model, exif?.f_number, exif?.latitude], ["Gate Cam 3", 2.8, 52.52], name);
  }
});

test("a file is told by its content, not by its name", () =>
  withWorkspace({ "photo.gif": documentFixture("images/photo.jpg"), "notes.png": "notes\n" }, async ({ root }) => {
    const { call } = createToolBench({ root });
    assert.match((await call("image_info", "photo.gif")).result.output, /^format: JPEG\n/);
    const { result } = await call("image_info", "notes.png");
    assert.deepEqual([result.isError, result.output], [
      true,
      'Cannot read "notes.png": it is none of the images that are read: PNG, JPEG, GIF, WebP, AVIF, HEIC, SVG, TIFF, BMP, ICO and PSD',
    ]);
  }));

test("a JPEG is read although bytes stand between its segments", async () => {
  const jpeg = Buffer.from(documentFixture("images/photo.jpg"));
  const plain = await read(jpeg);
  const after = 4 + jpeg.readUInt16BE(4);
  const between = (bytes: Uint8Array) => read(Buffer.concat([jpeg.subarray(0, after), bytes, jpeg.subarray(after)]));
  const fills = Buffer.alloc(5000, 0xff);
  const garbage = Buffer.from("made by a gate\0\xff\0 and more", "latin1");
  const alone = Buffer.from("\xff\xd0\xff\x01", "latin1");
  for (const bytes of [fills, garbage, alone, Buffer.alloc(1_000_000, 7), Buffer.concat([garbage, fills])]) {
    assert.deepEqual(await between(bytes), plain, `${bytes.length} bytes`);
  }
  assert.equal(plain.exif?.model, "Gate Cam 3");
  await assert.rejects(between(Buffer.alloc(1_100_000, 7)), { code: "document_invalid" });
  await assert.rejects(read(jpeg.subarray(0, after)), { code: "document_invalid" });
});

test("a BigTIFF is read as a TIFF is, in both orders of bytes", async () => {
  for (const little of [true, false]) {
    const bytes = Buffer.alloc(400);
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    bytes.write(little ? "II" : "MM", "latin1");
    view.setUint16(2, 43, little);
    view.setUint16(4, 8, little);
    view.setBigUint64(8, 16n, little);
    const put = (at: number, next: number, fields: readonly (readonly [number, number, number, number | bigint])[]) => {
      view.setBigUint64(at, BigInt(fields.length), little);
      fields.forEach(([tag, type, count, value], i) => {
        const from = at + 8 + i * 20;
        view.setUint16(from, tag, little);
        view.setUint16(from + 2, type, little);
        view.setBigUint64(from + 4, BigInt(count), little);
        if (typeof value === "bigint") view.setBigUint64(from + 12, value, little);
        else if (type === 3) view.setUint16(from + 12, value, little);
        else view.setUint32(from + 12, value, little);
      });
      view.setBigUint64(at + 8 + fields.length * 20, BigInt(next), little);
    };
    const size = [[0x100, 16, 1, 70_000n], [0x101, 4, 1, 30], [0x102, 3, 1, 8], [0x106, 3, 1, 2]] as const;
    put(16, 200, [...size, [0x10f, 2, 12, 380n]]);
    put(200, 0, size);
    bytes.write("Gate camera\0", 380);
    const { format, width, height, bitsPerSample, colour, frames, exif } = await read(bytes);
    assert.deepEqual([format, width, height, bitsPerSample, colour, frames, exif?.make], [
      ...["TIFF", 70_000, 30, 8, "rgb", 2, "Gate camera"],
    ]);
    view.setBigUint64(8, 0xffff_ffff_ffff_ffffn, little);
    assert.equal((await refusal(bytes)).code, "document_invalid");
    view.setUint16(4, 4, little);
    assert.equal((await refusal(bytes)).code, "document_invalid");
  }
});

function makeIcon(pictures: readonly { readonly side: number; readonly bits: number; readonly data: Uint8Array }[]) {
  const head = Buffer.alloc(6 + pictures.length * 16);
  head.writeUInt16LE(1, 2);
  head.writeUInt16LE(pictures.length, 4);
  let offset = head.length;
  pictures.forEach(({ side, bits, data }, i) => {
    head.set([side & 255, side & 255], 6 + i * 16);
    head.writeUInt16LE(bits, 12 + i * 16);
    head.writeUInt32LE(data.length, 14 + i * 16);
    head.writeUInt32LE(offset, 18 + i * 16);
    offset += data.length;
  });
  return Buffer.concat([head, ...pictures.map(({ data }) => data)]);
}

test("an icon tells the sizes of all its pictures, and that of the largest as its own", () => {
  const bitmap = Buffer.alloc(64, 40);
  const icon = makeIcon([
    { side: 16, bits: 8, data: bitmap },
    { side: 256, bits: 32, data: bitmap },
    { side: 0, bits: 32, data: documentFixture("images/photo.png") },
  ]);
  return withWorkspace({ "gate.ico": icon }, async ({ root }) => {
    const { result } = await createToolBench({ root }).call("image_info", "gate.ico");
    assert.equal(
      result.output,
      `format: ICO\nsize: 256 x 256 pixels\nfile size: ${icon.length} bytes\ncolours: rgb, 8 bits\ntransparency: yes\n` +
        "pictures: 3\nsizes: 16 x 16, 256 x 256, 40 x 30",
    );
    const { sizes, frames } = result.data as { sizes: unknown; frames: unknown };
    assert.deepEqual([sizes, frames], [[[16, 16], [256, 256], [40, 30]], 3]);
    assert.equal((await refusal(icon.subarray(0, 40))).code, "document_invalid");
    assert.equal((await refusal(`\0\0\x01\0\0\0${"\0".repeat(60)}`)).code, "document_invalid");
  });
});

test("a Photoshop document tells its size, depth and colours", async () => {
  const make = (mode: number, channels: number, version = 1) => {
    const bytes = Buffer.alloc(40);
    bytes.write("8BPS", "latin1");
    bytes.writeUInt16BE(version, 4);
    bytes.writeUInt16BE(channels, 12);
    bytes.writeUInt32BE(30, 14);
    bytes.writeUInt32BE(40, 18);
    bytes.writeUInt16BE(16, 22);
    bytes.writeUInt16BE(mode, 24);
    return bytes;
  };
  const { format, width, height, bitsPerSample, colour, alpha } = await read(make(3, 4));
  assert.deepEqual([format, width, height, bitsPerSample, colour, alpha], ["PSD", 40, 30, 16, "rgb", true]);
  assert.deepEqual([(await read(make(4, 4, 2))).colour, (await read(make(4, 4, 2))).alpha], ["cmyk", false]);
  assert.equal((await refusal(make(3, 3, 3))).code, "document_invalid");
  assert.equal((await refusal(make(3, 3).subarray(0, 20))).code, "document_invalid");
});

test("an SVG has the size of its root element, else of its view box, and nothing of it is run or fetched", async () => {
  const size = async (text: string) => {
    const { format, width, height } = await readText(text);
    assert.equal(format, "SVG");
    return [width, height];
  };
  assert.deepEqual(await size('<svg width="20" height="10px"/>'), [20, 10]);
  assert.deepEqual(await size('\ufeff <?xml version="1.0"?><!-- <svg> --><svg width="1in" height="2.54cm"/>'), [
    96,
    96,
  ]);
  assert.deepEqual(await size('<svg viewBox="0 0 30 40" width="100%">'), [30, 40]);
  assert.deepEqual(await size('<s:svg xmlns:s="x" viewBox="0,0,3,4"/>'), [3, 4]);
  assert.deepEqual(await size("<svg/>"), [undefined, undefined]);
  const laughs = '<!DOCTYPE svg [<!ENTITY a "1"><!ENTITY b "&a;&a;"><!ENTITY x SYSTEM "file:///etc/passwd">]>';
  assert.deepEqual(await size(`${laughs}<svg width="&b;" height="&x;"/>`), [undefined, undefined]);
  assert.equal((await refusal("<html><svg/></html>")).code, "document_unsupported");
  assert.equal((await refusal('<svg width="5')).code, "document_invalid");
  assert.equal((await refusal(`<${"<".repeat(100_000)}`)).code, "document_unsupported");
});

test("what a header claims is not believed where it cannot be", async () => {
  const png = documentFixture("images/palette.png");
  const changed = (at: number, values: readonly number[]) => {
    const bytes = png.slice();
    bytes.set(values, at);
    return bytes;
  };
  assert.match((await refusal(changed(16, [0, 0, 0, 0]))).message, /its size is 0 x 30 pixels/);
  assert.match((await refusal(changed(25, [9]))).message, /colour type/);
  assert.equal((await read(changed(33, [0xff, 0xff, 0xff, 0xff]))).width, 40);
  assert.equal((await refusal(png.slice(0, 20))).code, "document_invalid");
  assert.equal((await refusal("BM" + "\0".repeat(60))).code, "document_invalid");
  assert.equal((await refusal("\xff\xd8\xff\xe0\0\x10JFIF")).code, "document_invalid");
  assert.equal((await refusal("RIFF\0\0\0\0WEBPVP8X")).code, "document_invalid");
  assert.equal((await refusal("\0\0\0\x0cftypavif\0\0\0\x01meta")).code, "document_invalid");
  assert.equal((await refusal("")).code, "document_unsupported");
});

test("directories that lead in a circle or nowhere end", async () => {
  const tiff = Buffer.alloc(80);
  tiff.write("II*\0", "latin1");
  tiff.writeUInt32LE(8, 4);
  tiff.writeUInt16LE(3, 8);
  const field = (index: number, tag: number, value: number) => {
    tiff.writeUInt16LE(tag, 10 + index * 12);
    tiff.writeUInt16LE(4, 12 + index * 12);
    tiff.writeUInt32LE(1, 14 + index * 12);
    tiff.writeUInt32LE(value, 18 + index * 12);
  };
  field(0, 0x100, 7);
  field(1, 0x101, 5);
  field(2, 0x8769, 8);
  tiff.writeUInt32LE(8, 46);
  const { width, height, frames } = await read(tiff);
  assert.deepEqual([width, height, frames], [7, 5, 1000]);
  tiff.writeUInt32LE(0xfffffff0, 46);
  assert.equal((await read(tiff)).frames, 1);
});

/** A TIFF of numbers of 64 bits (DOUBLE) by tag. */
function tiffOf(numbers: Readonly<Record<number, number>>): Buffer {
  const fields = Object.entries(numbers);
  const tiff = Buffer.alloc(14 + fields.length * 20);
  tiff.write("II*\0", "latin1");
  tiff.writeUInt32LE(8, 4);
  tiff.writeUInt16LE(fields.length, 8);
  for (const [i, [tag, value]] of fields.entries()) {
    const [at, place] = [10 + i * 12, 14 + fields.length * 12 + i * 8];
    tiff.writeUInt16LE(Number(tag), at);
    tiff.writeUInt16LE(12, at + 2);
    tiff.writeUInt32LE(1, at + 4);
    tiff.writeUInt32LE(place, at + 8);
    tiff.writeDoubleLE(value, place);
  }
  return tiff;
}

test("a TIFF has no size and no depth that is no whole number", async () => {
  assert.deepEqual([(await read(tiffOf({ 256: 7, 257: 5 }))).width, (await read(tiffOf({ 256: 7, 257: 5 }))).height], [
    7,
    5,
  ]);
  for (const value of [Number.NaN, Number.POSITIVE_INFINITY, 5.5, 1e300, 0, -1]) {
    for (const tag of [256, 257, 258].slice(0, value === 1e300 ? 2 : 3)) {
      assert.equal(
        (await refusal(tiffOf({ 256: 7, 257: 5, [tag]: value }))).code,
        "document_invalid",
        `${tag}: ${value}`,
      );
    }
  }
});

test("a density of a TIFF that is no number of dots is left out", async () => {
  assert.deepEqual((await read(tiffOf({ 256: 7, 257: 5, 282: 300, 283: 299.9 }))).dpi, [300, 300]);
  for (const value of [Number.NaN, Number.POSITIVE_INFINITY, 0, -300, 1e300]) {
    assert.equal((await read(tiffOf({ 256: 7, 257: 5, 282: 300, 283: value }))).dpi, undefined, String(value));
  }
});

test("EXIF text cannot make lines of its own", async () => {
  const bytes = documentFixture("images/photo.jpg");
  const at = Buffer.from(bytes).indexOf("Gate Cam 3");
  bytes.set(Buffer.from("Gate\nx:\x1b\x1b3"), at);
  assert.equal((await read(bytes)).exif?.model, "Gate x: 3");
});

test("a file with endless parts is read up to a bound, and a cancellation is heard", async () => {
  const size = 300_000_000;
  const block = new Uint8Array(65_536).fill(255);
  let reads = 0;
  const controller = new AbortController();
  const endless = {
    size,
    read(buffer: Uint8Array, position: number) {
      reads++;
      buffer.set(block.subarray(0, buffer.length));
      if (position === 0) buffer.set(Buffer.from("GIF89a\x01\0\x01\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02", "latin1"));
      return Promise.resolve(buffer.length);
    },
    close: () => Promise.resolve(),
  };
  const { width, frames } = await readImage(fileSource(endless, { signal: controller.signal }));
  assert.deepEqual([width, frames], [1, undefined]);
  assert.ok(reads < 8192);
  controller.abort();
  await assert.rejects(readImage(fileSource(endless, { signal: controller.signal })), { name: "CancelError" });
});

test("any damage to a real image is a DocumentError or a reading", async () => {
  const images = NAMES.map((name) => documentFixture(`images/${name}`));
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...images),
      fc.array(fc.record({ at: fc.nat(), value: fc.nat(255) }), { minLength: 1, maxLength: 8 }),
      fc.option(fc.nat()),
      async (original, changes, end) => {
        const bytes = original.slice(0, end === null ? undefined : end % original.length);
        for (const { at, value } of changes) if (bytes.length > 0) bytes[at % Math.min(bytes.length, 600)] = value;
        try {
          const { width = 1, height = 1 } = await read(bytes);
          assert.ok(width > 0 && height > 0);
        } catch (error) {
          assert.ok(error instanceof DocumentError, String(error));
        }
      },
    ),
    { numRuns: 200 },
  );
});
