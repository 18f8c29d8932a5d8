import { Buffer } from "node:buffer";
import { refuse } from "../../lib/base/errors.ts";

/** Parts of a form at most */
const MAX_PARTS = 16;
/** Boundary of a form, by the signs that one may have. Source: RFC 2046 section 5.1.1 */
const BOUNDARY =
  /^multipart\/form-data\s*;(?:.*;)?\s*boundary=(?:"([\w'()+,./:=? -]{1,70})"|([\w'+./:=?-]{1,70}))\s*(?:;|$)/i;

/** Fields of a form: texts by their names, and files with theirs. */
export interface ReadForm {
  readonly texts: ReadonlyMap<string, string>;
  readonly files: ReadonlyMap<string, { readonly name: string; readonly bytes: Uint8Array }>;
}

/**
 * Reads a form of a body whose length is bounded already, by the runtime's own reader. Parts are counted before, since each costs memory.
 * @throws {HttpError} 400 `invalid_request` for a form that cannot be read, has too many parts, or a field twice
 */
export async function readForm(bytes: Uint8Array<ArrayBuffer>, contentType: string): Promise<ReadForm> {
  const boundary = boundaryOf(contentType);
  if (boundary === undefined) throw invalid("its Content-Type names no boundary");
  if (countOf(bytes, `--${boundary}`) > MAX_PARTS + 1) throw invalid(`it has more than ${MAX_PARTS} parts`);
  // Deno's reader takes a form that is cut off as far as it came
  if (countOf(bytes, `--${boundary}--`) === 0) throw invalid("it is cut off, or not a form");
  const texts = new Map<string, string>();
  const files = new Map<string, { readonly name: string; readonly bytes: Uint8Array }>();
  let form: FormData;
  try {
    // Attack: of two boundaries the runtime's reader may take another one than that by which the parts were counted
    const headers = { "content-type": `multipart/form-data; boundary="${boundary}"` };
    form = await new Response(bytes, { headers }).formData();
  } catch {
    throw invalid("it is cut off, or not a form");
  }
  for (const [name, value] of form) {
    if (texts.has(name) || files.has(name)) throw invalid("it has a field twice");
    if (typeof value === "string") texts.set(name, value);
    else files.set(name, { name: value.name, bytes: new Uint8Array(await value.arrayBuffer()) });
  }
  return { texts, files };
}

/**
 * Returns a form in the pieces that a repeat of its request has too: whoever writes it again chooses another boundary. What stands behind the
 * most parts that a form may have is one piece.
 */
export function piecesOfForm(bytes: Uint8Array, contentType: string): readonly Uint8Array[] {
  const boundary = boundaryOf(contentType);
  const pieces: Uint8Array[] = [];
  let from = 0;
  while (boundary !== undefined && pieces.length <= MAX_PARTS + 1) {
    const at = bufferOf(bytes).indexOf(boundary, from);
    if (at < 0) break;
    pieces.push(bytes.subarray(from, at));
    from = at + boundary.length;
  }
  return [...pieces, bytes.subarray(from)];
}

function boundaryOf(contentType: string): string | undefined {
  const match = BOUNDARY.exec(contentType);
  return match?.[1] ?? match?.[2];
}

function bufferOf({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

function countOf(bytes: Uint8Array, text: string): number {
  const buffer = bufferOf(bytes);
  let count = 0;
  for (let at = buffer.indexOf(text); at >= 0 && count <= MAX_PARTS + 1; at = buffer.indexOf(text, at + text.length)) {
    count++;
  }
  return count;
}

function invalid(reason: string) {
  return refuse("invalid_request", `Cannot read the form of the request body: ${reason}`);
}
