import { constants, inflateRawSync, inflateSync } from "node:zlib";
import { systemCodeOf } from "../../base/errors.ts";
import { DocumentError } from "../document_error.ts";
import type { WorkBudget } from "../work_budget.ts";
import { decodeLzw, undoPredictor } from "./compression.ts";
import {
  EMPTY_DICT,
  isKind,
  type PdfDict,
  type PdfObject,
  type PdfReader,
  type PdfStream,
  toDict,
} from "./pdf_object.ts";
import { latin1 } from "./pdf_parser.ts";

const MAX_FILTERS = 8;
/** The largest part that is taken out at once */
const MAX_STREAM_BYTES = 67_108_864;

/**
 * The content of a stream, its filters undone.
 * @throws {DocumentError} `document_invalid` when it is damaged, `document_unsupported` for the filters of pictures,
 * `document_too_large`
 * Source: ISO 32000-2, section 7.4
 */
export function decodeStream(stream: PdfStream, reader: PdfReader, budget: WorkBudget): Uint8Array {
  const filters = listOf(reader.get(stream.dict, "Filter"));
  const parameters = listOf(reader.get(stream.dict, "DecodeParms"));
  // Decrypting and undoing take time of their own, and the clock must be looked at between two streams
  budget.step(4096);
  if (filters.length > MAX_FILTERS) throw new DocumentError("document_invalid", "a part of it has too many filters");
  return filters.reduce<Uint8Array>((bytes, filter, i) => {
    const name = reader.resolve(filter);
    const own = toDict(reader.resolve(parameters[i])) ?? EMPTY_DICT;
    return undo(isKind(name, "name") ? name.name : "", bytes, { parameters: own, reader, budget });
  }, stream.raw());
}

interface Filter {
  readonly parameters: PdfDict;
  readonly reader: PdfReader;
  readonly budget: WorkBudget;
}

function undo(name: string, bytes: Uint8Array, { parameters, reader, budget }: Filter): Uint8Array {
  const limit = Math.min(MAX_STREAM_BYTES, budget.inflatable);
  // Undoing takes time of its own, and the clock must be looked at between two parts
  budget.step(4096);
  switch (name) {
    case "FlateDecode":
    case "Fl":
      return undoPredictor(counted(inflate(bytes, limit), budget), parameters, { reader, budget });
    case "LZWDecode":
    case "LZW": {
      const earlyChange = reader.number(parameters, "EarlyChange") !== 0;
      const decoded = counted(decodeLzw(bytes, { earlyChange, limit, budget }), budget);
      return undoPredictor(decoded, parameters, { reader, budget });
    }
    case "ASCIIHexDecode":
    case "AHx":
      return counted(decodeHex(bytes), budget);
    case "ASCII85Decode":
    case "A85":
      return counted(decodeAscii85(bytes, limit), budget);
    case "RunLengthDecode":
    case "RL":
      return counted(decodeRunLength(bytes, limit), budget);
    case "Crypt":
      return bytes;
    default:
      throw new DocumentError("document_unsupported", `a part of it has the filter "${name.slice(0, 40)}"`);
  }
}

function counted(bytes: Uint8Array, budget: WorkBudget): Uint8Array {
  budget.inflated(bytes.length);
  return bytes;
}

function inflate(bytes: Uint8Array, limit: number): Uint8Array {
  // A stream that is cut off, or whose checksum is wrong, is read as far as it goes
  const options = { maxOutputLength: Math.max(1, limit), finishFlush: constants.Z_SYNC_FLUSH };
  try {
    return inflateSync(bytes, options);
  } catch (error) {
    if (isTooLarge(error)) throw tooLarge(limit);
  }
  try {
    return inflateRawSync(bytes.subarray(2), options);
  } catch (error) {
    if (isTooLarge(error)) throw tooLarge(limit);
    throw new DocumentError("document_invalid", "a compressed part of it is damaged");
  }
}

function isTooLarge(error: unknown): boolean {
  return error instanceof RangeError ||
    systemCodeOf(error) === "ERR_BUFFER_TOO_LARGE";
}

/** The error for a part that holds more than is taken out. */
function tooLarge(limit: number): DocumentError {
  return new DocumentError(
    "document_too_large",
    `a compressed part of it holds more than the ${limit} bytes that are read`,
  );
}

function decodeHex(bytes: Uint8Array): Uint8Array {
  const text = latin1(bytes).split(">", 1).join("").replace(/[^0-9a-fA-F]/g, "");
  return Buffer.from(text.length % 2 === 0 ? text : `${text}0`, "hex");
}

function decodeAscii85(bytes: Uint8Array, limit: number): Uint8Array {
  const decoded = new Uint8Array(Math.min(bytes.length * 4 + 4, limit + 8));
  let length = 0;
  let value = 0;
  let count = 0;
  const put = (size: number) => {
    for (let i = 0; i < size; i++) decoded[length++] = (value >>> (24 - i * 8)) & 255;
    value = 0;
    count = 0;
  };
  for (const code of bytes) {
    if (length > limit) throw tooLarge(limit);
    if (code === 0x7e) break;
    if (code === 0x7a && count === 0) put(4);
    if (code < 0x21 || code > 0x75) continue;
    value = (value * 85 + code - 0x21) >>> 0;
    if (++count === 5) put(4);
  }
  if (count > 1) {
    const size = count - 1;
    for (; count < 5; count++) value = (value * 85 + 84) >>> 0;
    put(size);
  }
  return decoded.subarray(0, length);
}

function decodeRunLength(bytes: Uint8Array, limit: number): Uint8Array {
  const length = runLength(bytes);
  if (length > limit) throw tooLarge(limit);
  const decoded = new Uint8Array(length);
  for (let at = 0, to = 0; at < bytes.length;) {
    const code = bytes[at++] ?? 128;
    if (code === 128) break;
    if (code < 128) {
      for (const end = Math.min(at + code + 1, bytes.length); at < end;) decoded[to++] = bytes[at++] ?? 0;
    } else {
      decoded.fill(bytes[at++] ?? 0, to, to + 257 - code);
      to += 257 - code;
    }
  }
  return decoded;
}

/** Returns how many bytes the runs stand for. */
function runLength(bytes: Uint8Array): number {
  let length = 0;
  for (let at = 0; at < bytes.length;) {
    const code = bytes[at++] ?? 128;
    if (code === 128) break;
    length += code < 128 ? Math.min(code + 1, bytes.length - at) : 257 - code;
    at += code < 128 ? code + 1 : 1;
  }
  return length;
}

function listOf(object: PdfObject): readonly PdfObject[] {
  return object === null ? [] : Array.isArray(object) ? object : [object];
}
