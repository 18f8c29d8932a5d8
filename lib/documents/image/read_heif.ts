import { asciiOf, type ByteSource, memorySource } from "./byte_source.ts";
import { damaged, type Exif, type ImageProperties, requireSize } from "./image_properties.ts";
import { MAX_EXIF_BYTES, readExif } from "./read_tiff.ts";

const MAX_BOXES = 1000;
const MAX_ITEMS = 10_000;
/** As EXIF counts them, by quarter turns against the clock */
const ORIENTATIONS = [1, 8, 3, 6] as const;

/** A part of the file: where its content starts and how long it is. */
interface Box {
  readonly name: string;
  readonly at: number;
  readonly length: number;
}

/**
 * Reads the header of an AVIF or HEIC file. Source: ISO/IEC 14496-12, section 8.11; ISO/IEC 23008-12, section 6; AV1 Image File Format 1.1
 */
export async function readHeif(source: ByteSource, format: "AVIF" | "HEIC"): Promise<ImageProperties> {
  const meta = (await boxesIn(source, { name: "", at: 0, length: source.size })).find(({ name }) => name === "meta");
  if (meta === undefined) throw damaged("it has no description of its pictures");
  const boxes = await boxesIn(source, { ...meta, at: meta.at + 4, length: meta.length - 4 });
  const inside = async (name: string, parent: readonly Box[]) => {
    const box = parent.find((candidate) => candidate.name === name);
    return box === undefined ? undefined : await source.part(box.at, box.length);
  };
  const described = boxes.find(({ name }) => name === "iprp");
  const parts = described === undefined ? [] : await boxesIn(source, described);
  const container = parts.find(({ name }) => name === "ipco");
  const properties = container === undefined ? [] : await boxesIn(source, container);
  const primary = primaryItem(await inside("pitm", boxes));
  const own = propertiesOf(await inside("ipma", parts), primary);
  const find = (name: string) => own.map((index) => properties[index - 1]).find((box) => box?.name === name);
  const sizeBox = find("ispe");
  if (sizeBox === undefined) throw damaged("its picture has no size");
  const size = await source.part(sizeBox.at, 12);
  const depth = find("pixi");
  const bitsPerSample = depth === undefined || depth.length < 6
    ? undefined
    : (await source.part(depth.at, 6)).getUint8(5);
  const exif = await findExif(source, { items: await inside("iinf", boxes), places: await inside("iloc", boxes) });
  const turn = find("irot");
  const orientation = turn === undefined ? undefined : ORIENTATIONS[(await source.part(turn.at, 1)).getUint8(0) & 3];
  return {
    format,
    ...requireSize(size.getUint32(4), size.getUint32(8)),
    bitsPerSample,
    colour: "rgb",
    frames: 1,
    // The turn of the file itself is the one that counts
    exif: orientation === undefined ? exif : { ...exif, orientation },
  };
}

async function boxesIn(source: ByteSource, parent: Box): Promise<Box[]> {
  const boxes: Box[] = [];
  const end = parent.at + parent.length;
  for (let at = parent.at; at + 8 <= end && boxes.length < MAX_BOXES;) {
    const head = await source.part(at, Math.min(16, source.size - at));
    const short = head.getUint32(0);
    const long = short === 1 && head.byteLength === 16;
    const length = long ? Number(head.getBigUint64(8)) : short === 0 ? end - at : short;
    const headBytes = long ? 16 : 8;
    if (length < headBytes || at + length > end) break;
    boxes.push({ name: asciiOf(head, 4, 4), at: at + headBytes, length: length - headBytes });
    at += length;
  }
  return boxes;
}

function primaryItem(view: DataView | undefined): number {
  if (view === undefined) return 1;
  return view.getUint8(0) === 0 ? view.getUint16(4) : view.getUint32(4);
}

/** Numbers, from 1, of the properties of an item. */
function propertiesOf(view: DataView | undefined, item: number): number[] {
  if (view === undefined) return [];
  const wideIds = view.getUint8(0) > 0;
  const wideNumbers = (view.getUint8(3) & 1) === 1;
  const entries = Math.min(view.getUint32(4), MAX_ITEMS);
  let at = 8;
  for (let i = 0; i < entries; i++) {
    const id = wideIds ? view.getUint32(at) : view.getUint16(at);
    at += wideIds ? 4 : 2;
    const count = view.getUint8(at++);
    const start = at;
    at += count * (wideNumbers ? 2 : 1);
    if (id !== item) continue;
    return Array.from(
      { length: count },
      (_, index) => wideNumbers ? view.getUint16(start + index * 2) & 0x7fff : view.getUint8(start + index) & 0x7f,
    );
  }
  return [];
}

/** EXIF data is an item like a picture; undefined when there is none, or it is damaged. */
async function findExif(
  source: ByteSource,
  { items, places }: { readonly items: DataView | undefined; readonly places: DataView | undefined },
): Promise<Exif | undefined> {
  try {
    const id = items === undefined ? undefined : exifItem(items);
    const place = id === undefined || places === undefined ? undefined : placeOf(places, id);
    if (place === undefined || place.length > MAX_EXIF_BYTES) return undefined;
    const item = await source.part(place.at, place.length);
    // A number of bytes to skip stands before the data
    const skip = 4 + item.getUint32(0);
    return await readExif(memorySource(new DataView(item.buffer, item.byteOffset + skip, place.length - skip)));
  } catch {
    return undefined;
  }
}

function exifItem(view: DataView): number | undefined {
  const wide = view.getUint8(0) > 0;
  let at = wide ? 8 : 6;
  for (let i = 0; i < MAX_ITEMS && at + 20 <= view.byteLength; i++) {
    const wideId = view.getUint8(at + 8) > 2;
    const id = wideId ? view.getUint32(at + 12) : view.getUint16(at + 12);
    if (asciiOf(view, at + (wideId ? 18 : 16), 4) === "Exif") return id;
    at += Math.max(view.getUint32(at), 8);
  }
  return undefined;
}

function placeOf(view: DataView, item: number): { readonly at: number; readonly length: number } | undefined {
  const version = view.getUint8(0);
  const [offsetBytes, lengthBytes] = [view.getUint8(4) >> 4, view.getUint8(4) & 15];
  const [baseBytes, indexBytes] = [view.getUint8(5) >> 4, version === 0 ? 0 : view.getUint8(5) & 15];
  let at = version < 2 ? 8 : 10;
  const number = (bytes: number) => {
    at += bytes;
    if (bytes === 8) return Number(view.getBigUint64(at - 8));
    return bytes === 4 ? view.getUint32(at - 4) : bytes === 2 ? view.getUint16(at - 2) : 0;
  };
  const count = Math.min(version < 2 ? view.getUint16(6) : view.getUint32(6), MAX_ITEMS);
  for (let i = 0; i < count; i++) {
    const id = number(version < 2 ? 2 : 4);
    const construction = version === 0 ? 0 : number(2) & 15;
    at += 2;
    const base = number(baseBytes);
    const extents = number(2);
    for (let extent = 0; extent < extents; extent++) {
      at += indexBytes;
      const offset = number(offsetBytes);
      const length = number(lengthBytes);
      // Data in one piece of the file itself, as every program writes it
      if (id === item && construction === 0 && extents === 1) return { at: base + offset, length };
    }
  }
  return undefined;
}
