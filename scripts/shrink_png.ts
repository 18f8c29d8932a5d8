/** Writes a picture of a page with a palette, which takes a third of the bytes: `node scripts/shrink_png.ts <file>`. */
import { Buffer } from "node:buffer";
import { readFileSync, writeFileSync } from "node:fs";
import process from "node:process";
import { crc32, deflateSync, inflateSync } from "node:zlib";

const COLOURS = 256;
/** Bytes of a pixel: red, green and blue */
const PIXEL = 3;

/** Returns a PNG with the same picture in at most 256 colours. @param png 8 bits for each of three colours, not interlaced, as Chromium writes it */
export function shrinkPng(png: Buffer): Buffer {
  const parts = new Map<string, Buffer>();
  for (let at = 8; at < png.length; at += 12 + png.readUInt32BE(at)) {
    const [type, end] = [png.toString("latin1", at + 4, at + 8), at + 8 + png.readUInt32BE(at)];
    parts.set(type, Buffer.concat([parts.get(type) ?? Buffer.alloc(0), png.subarray(at + 8, end)]));
  }
  const head = Buffer.from(parts.get("IHDR") ?? "");
  if (head[8] !== 8 || head[9] !== 2 || head[12] !== 0) {
    throw new Error("Cannot shrink the picture: it has another form");
  }
  const [width, height] = [head.readUInt32BE(0), head.readUInt32BE(4)];
  const pixels = unfiltered(inflateSync(parts.get("IDAT") ?? ""), width * PIXEL);
  const counts = new Map<number, number>();
  const colourAt = (pixel: number) => pixels.readUIntBE(pixel * PIXEL, PIXEL);
  for (let i = 0; i < width * height; i++) counts.set(colourAt(i), (counts.get(colourAt(i)) ?? 0) + 1);
  const { palette, places } = choosePalette(counts);
  const rows = Buffer.alloc((width + 1) * height);
  for (let i = 0; i < width * height; i++) rows[Math.floor(i / width) + i + 1] = places.get(colourAt(i)) ?? 0;
  head[9] = 3;
  const colours = Buffer.alloc(palette.length * PIXEL);
  for (const [i, colour] of palette.entries()) colours.writeUIntBE(colour, i * PIXEL, PIXEL);
  const packed = deflateSync(rows, { level: 9, memLevel: 9 });
  const chunks = [["IHDR", head], ["PLTE", colours], ["IDAT", packed], ["IEND", Buffer.alloc(0)]] as const;
  return Buffer.concat([png.subarray(0, 8), ...chunks.map(([type, data]) => chunk(type, data))]);
}

/** Undoes the filter of each row. Source: https://www.w3.org/TR/png-3/#9Filter-types */
function unfiltered(bytes: Buffer, rowBytes: number): Buffer {
  const pixels = Buffer.alloc(bytes.length / (rowBytes + 1) * rowBytes);
  for (let at = 0; at < pixels.length; at++) {
    const row = Math.floor(at / rowBytes);
    const isFirst = at % rowBytes < PIXEL;
    const left = isFirst ? 0 : pixels[at - PIXEL] ?? 0;
    const up = pixels[at - rowBytes] ?? 0;
    const corner = isFirst ? 0 : pixels[at - rowBytes - PIXEL] ?? 0;
    const [toLeft, toUp, toCorner] = [up - corner, left - corner, left + up - 2 * corner].map(Math.abs) as [
      number,
      number,
      number,
    ];
    const nearest = toLeft <= toUp && toLeft <= toCorner ? left : toUp <= toCorner ? up : corner;
    const filters = [0, left, up, (left + up) >> 1, nearest];
    pixels[at] = (bytes[at + row + 1] ?? 0) + (filters[bytes[row * (rowBytes + 1)] ?? 0] ?? 0);
  }
  return pixels;
}

/** Chooses colours, each time the one that is missed most, by how often it occurs and how far the nearest chosen one is. */
function choosePalette(counts: ReadonlyMap<number, number>) {
  const palette: number[] = [];
  const missed = [...counts].map(([colour, count]) => ({ colour, count, distance: Infinity, place: 0 }));
  while (palette.length < Math.min(COLOURS, missed.length)) {
    const weight = ({ count, distance }: { readonly count: number; readonly distance: number }) =>
      Math.min(distance, 1e6) * Math.sqrt(count);
    const { colour: next } = missed.reduce((one, other) => weight(other) > weight(one) ? other : one);
    for (const one of missed) {
      const distance = [16, 8, 0].reduce(
        (sum, bits) => sum + ((one.colour >> bits & 255) - (next >> bits & 255)) ** 2,
        0,
      );
      if (distance < one.distance) Object.assign(one, { distance, place: palette.length });
    }
    palette.push(next);
  }
  return { palette, places: new Map(missed.map(({ colour, place }) => [colour, place])) };
}

function chunk(type: string, data: Buffer): Buffer {
  const named = Buffer.concat([Buffer.from(type, "latin1"), data]);
  const whole = Buffer.alloc(named.length + 8);
  whole.writeUInt32BE(data.length, 0);
  named.copy(whole, 4);
  whole.writeUInt32BE(crc32(named), named.length + 4);
  return whole;
}

if (import.meta.main) {
  const [file = ""] = process.argv.slice(2);
  writeFileSync(file, shrinkPng(readFileSync(file)));
}
