import { PassThrough, pipeline } from "node:stream";
import { HttpError, refuse } from "../../lib/base/errors.ts";
import { lazily } from "../../lib/base/lazily.ts";
import { findEncodings, openDecoder } from "../../lib/system/net/reply_body.ts";
import { type BodyExpansion, tooLarge } from "../request_context.ts";
import { CODINGS, unknownCoding } from "./guards.ts";

/** Codings that this runtime undoes and whose truncation it notices. Deno 2.9 takes the beginning of a zstd stream for all of it. */
const findCodings = lazily(async () => {
  const noticed = await findEncodings();
  return CODINGS.filter((coding) => coding !== "zstd" || noticed.includes(coding));
});

/**
 * Opens the expansion of a body that was compressed in these ways, the first one first.
 * @param maxBytes bound of the body, and of what is between two codings
 * @throws {HttpError} 415 unsupported_media_type for a coding that this runtime lacks
 */
export async function expandBody(codings: readonly string[], maxBytes: number): Promise<BodyExpansion> {
  const known = await findCodings();
  if (!codings.every((coding) => known.includes(coding))) throw unknownCoding(known);
  return new Expansion(codings.toReversed(), maxBytes);
}

class Expansion implements BodyExpansion {
  readonly bytes: Promise<Uint8Array>;
  readonly fail: (error: Error) => void;
  readonly #resolve: (bytes: Uint8Array) => void;
  readonly #codings: readonly string[];
  readonly #maxBytes: number;
  /** Input of the expansion, from the first byte on: no bytes are an empty body, as clients send one with any headers */
  #input: PassThrough | undefined;
  #taken = 0;

  constructor(codings: readonly string[], maxBytes: number) {
    const { promise, resolve, reject } = Promise.withResolvers<Uint8Array>();
    this.bytes = promise;
    // Fails unheard where the reader has failed first, or has met no byte: that would end the process
    promise.catch(() => undefined);
    this.#resolve = resolve;
    this.#codings = codings;
    this.#maxBytes = maxBytes;
    this.fail = (error) => {
      reject(error);
      this.#input?.destroy();
    };
  }

  take(chunk: Uint8Array): void {
    if (chunk.length === 0) return;
    this.#input ??= this.#open();
    this.#taken += chunk.length;
    if (!this.#input.destroyed) this.#input.write(chunk);
  }

  end(): void {
    if (this.#input === undefined) this.#resolve(new Uint8Array(0));
    else this.#input.end();
  }

  #open(): PassThrough {
    const input = new PassThrough();
    this.#expand(input).then(this.#resolve, (error) => this.fail(error instanceof HttpError ? error : damaged(error)));
    return input;
  }

  async #expand(input: PassThrough): Promise<Uint8Array> {
    let expanded: Expanded = { source: input, bytes: () => this.#taken };
    for (const coding of this.#codings) expanded = decode(expanded, coding, this.#maxBytes);
    const parts: Uint8Array[] = [];
    for await (const part of expanded.source) parts.push(part);
    return Buffer.concat(parts);
  }
}

/** Bytes behind one coding, and how many have come. */
interface Expanded {
  readonly source: AsyncIterable<Uint8Array>;
  readonly bytes: () => number;
}

function decode({ source, bytes: given }: Expanded, coding: string, maxBytes: number): Expanded {
  const decoder = openDecoder(coding);
  let bytes = 0;
  // The decoder is read to its end or destroyed, and has the error then
  const decoded: AsyncIterable<Uint8Array> = pipeline(source, decoder, () => {});
  async function* bounded() {
    for await (const part of decoded) {
      bytes += part.length;
      if (bytes > maxBytes) throw tooLarge(maxBytes);
      yield part;
    }
    // Bytes behind the end of the compressed ones would be dropped in silence
    if (decoder.bytesWritten < given()) throw damaged(undefined);
  }
  return { source: bounded(), bytes: () => bytes };
}

function damaged(cause: unknown): HttpError {
  const code = cause instanceof Error && "code" in cause ? ` (${cause.code})` : "";
  return refuse(
    "invalid_request",
    `Cannot read the request body: it is not whole in the form that its header Content-Encoding names${code}`,
    { cause },
  );
}
