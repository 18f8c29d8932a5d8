import type { IncomingMessage } from "node:http";
import { pipeline, Readable } from "node:stream";
import * as zlib from "node:zlib";
import { cancelError } from "../../base/cancel.ts";
import { PinError } from "./network_error.ts";

/** Place that a body goes to piece by piece, so that it is never whole in memory. */
export interface BodySink {
  /** Takes the next bytes, decompressed. The next piece is read once this has resolved. Whatever it throws ends the fetch as it is. */
  write(bytes: Uint8Array): Promise<void> | void;
  /** Runs exactly once, whatever happened before: the place is closed, and with `failed` what was written is of no use. */
  close(outcome: "whole" | "truncated" | "failed"): Promise<void> | void;
}

/** Body of a reply that was read to its end or to its bound. */
export interface ReadBody {
  /** Empty when a sink took the bytes. */
  readonly body: Uint8Array;
  /** Length of the body as far as it was read, decompressed. */
  readonly bytes: number;
  /** The body was longer than `maxBytes`, and the connection was given up. */
  readonly truncated: boolean;
}

/** Bounds of a body, and where it goes. */
export interface ReadBodyOptions {
  /** Limit for the body, decompressed. */
  readonly maxBytes: number;
  /** Takes the bytes in place of memory. */
  readonly sink?: BodySink | undefined;
  /** Encodings that are read, as `findEncodings` gives them; gzip and deflate always are. */
  readonly encodings: readonly string[];
  readonly signal: AbortSignal;
}

/** A sink failed. The cause is what it threw. */
export class SinkFailure extends Error {
  override readonly name = "SinkFailure";
}

/** A body that grows more than this is made to fill memory or disk: gzip reaches 1,032 at most. */
const MAX_RATIO = 2_000;
/** A body is looked at for its ratio once this many bytes of it have come out. */
const RATIO_FROM_BYTES = 1_048_576;
/** Bytes that compression may add to a body that cannot be made smaller. */
const SLACK_BYTES = 65_536;

/**
 * Reads a body within its bounds, decompressed. The connection is closed in every case, and so is the sink.
 * @throws {PinError} broken off, truncated or damaged, compressed in a way that is not read, or growing too much
 * @throws {SinkFailure}; what the network throws
 */
export async function readBody(incoming: IncomingMessage, options: ReadBodyOptions): Promise<ReadBody> {
  const reading = new BodyReading(options);
  let outcome: "whole" | "truncated" | "failed" = "failed";
  try {
    const isWhole = await reading.readAll(incoming);
    outcome = isWhole ? "whole" : "truncated";
  } finally {
    incoming.on("error", () => {});
    incoming.destroy();
    await reading.close(outcome);
  }
  return reading.result(outcome === "truncated");
}

class BodyReading {
  readonly #options: ReadBodyOptions;
  readonly #parts: Uint8Array[] = [];
  #bytes = 0;
  #compressedBytes = 0;

  constructor(options: ReadBodyOptions) {
    this.#options = options;
  }

  /** @returns whether the whole body was within its bound */
  async readAll(incoming: IncomingMessage): Promise<boolean> {
    const encoding = encodingOf(incoming);
    const decoded = encoding === undefined ? incoming : this.#decode(incoming, encoding);
    try {
      for await (const part of decoded) {
        // Byte streams without an encoding give bytes
        if (!await this.#take(part as Uint8Array)) return false;
        if (encoding !== undefined) this.#checkRatio(encoding);
      }
      return true;
    } catch (error) {
      const damage = damageOf(error, encoding);
      // A reply without a body, as to HEAD, tells how its body would be compressed
      if (damage instanceof CutError && this.#compressedBytes === 0) return true;
      throw damage;
    } finally {
      decoded.destroy();
    }
  }

  /** Takes as much as the bound allows. @returns false once there is more */
  async #take(part: Uint8Array): Promise<boolean> {
    const { maxBytes, sink, signal } = this.#options;
    const fits = part.subarray(0, maxBytes - this.#bytes);
    this.#bytes += fits.length;
    if (sink === undefined) this.#parts.push(fits);
    else if (fits.length > 0) await untilAborted(signal, async () => await sink.write(fits));
    return fits.length === part.length;
  }

  #decode(incoming: IncomingMessage, encoding: string): Readable {
    const isRead = ALWAYS_READ.includes(encoding) || this.#options.encodings.includes(encoding);
    const decoder = isRead ? DECODERS[encoding]?.() : undefined;
    if (decoder === undefined) throw new PinError(`its body is compressed as "${encoding}", which is not read here`);
    // The decoder is read to its end or destroyed, and has the error then
    return pipeline(Readable.from(this.#countCompressed(incoming)), decoder, () => {});
  }

  async *#countCompressed(incoming: IncomingMessage): AsyncGenerator<Uint8Array> {
    const most = this.#options.maxBytes + SLACK_BYTES;
    for await (const part of incoming) {
      this.#compressedBytes += part.length;
      if (this.#compressedBytes > most) throw new PinError(`its compressed body is longer than ${most} bytes`);
      yield part;
    }
    // A connection that breaks off gives no error on every runtime
    if (!incoming.complete) throw new PinError("the connection was closed in the middle of the reply");
  }

  #checkRatio(encoding: string): void {
    if (this.#bytes < RATIO_FROM_BYTES || this.#bytes <= this.#compressedBytes * MAX_RATIO) return;
    throw new PinError(`its ${encoding} body grows more than ${MAX_RATIO} times when it is decompressed`);
  }

  async close(outcome: "whole" | "truncated" | "failed"): Promise<void> {
    const { sink } = this.#options;
    try {
      await sink?.close(outcome);
    } catch (error) {
      // A failure that came before says more
      if (outcome !== "failed") throw new SinkFailure("The place of the body failed", { cause: error });
    }
  }

  result(truncated: boolean): ReadBody {
    return { body: Buffer.concat(this.#parts), bytes: this.#bytes, truncated };
  }
}

/** Waits for a sink, but not after the signal. */
async function untilAborted(signal: AbortSignal, write: () => Promise<void>): Promise<void> {
  const aborted = Promise.withResolvers<never>();
  const abort = () => aborted.reject(cancelError(signal));
  aborted.promise.catch(() => {});
  if (signal.aborted) abort();
  signal.addEventListener("abort", abort, { once: true });
  const writing = write().catch((error) => {
    throw new SinkFailure("The place of the body failed", { cause: error });
  });
  try {
    await Promise.race([writing, aborted.promise]);
  } finally {
    writing.catch(() => {});
    signal.removeEventListener("abort", abort);
  }
}

/** Returns how a body is compressed; undefined for a plain one. @throws {PinError} it is compressed more than once */
function encodingOf({ headers }: IncomingMessage): string | undefined {
  const names = (headers["content-encoding"] ?? "").toLowerCase().split(",").map((name) => name.trim());
  const encodings = names.filter((name) => name !== "" && name !== "identity");
  if (encodings.length <= 1) return encodings[0]?.slice(0, 40);
  throw new PinError(
    `its body is compressed more than once ("${encodings.join(", ").slice(0, 80)}"), which is not read`,
  );
}

class CutError extends PinError {}

function damageOf(error: unknown, encoding: string | undefined): unknown {
  if (error instanceof PinError) return error;
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  if (code === "ECONNRESET") {
    return new PinError("the connection was closed in the middle of the reply", { cause: error });
  }
  if (encoding === undefined) return error;
  const isCut = code === "Z_BUF_ERROR";
  // Deno's zstd has no codes
  const isDamaged = code.startsWith("Z_") || code.startsWith("ERR__ERROR_") || code.startsWith("ZSTD_") ||
    code.startsWith("ERR_BROTLI") || /decompress/i.test(String(error));
  if (isCut) return new CutError(`its ${encoding} body ends in the middle`, { cause: error });
  return isDamaged ? new PinError(`its ${encoding} body is damaged (${code || "no code"})`, { cause: error }) : error;
}

type Decoder = ReturnType<typeof zlib.createGunzip>;

/** Opens a decoder. @throws {TypeError} the runtime has none for this encoding */
export function openDecoder(encoding: string): Decoder {
  const decoder = DECODERS[encoding]?.();
  if (decoder === undefined) throw new TypeError("Cannot decompress: there is no decoder for this encoding");
  return decoder;
}

/** Largest window of zstd, as a power of 2: 8 MiB. A frame may ask for 128 MiB of memory before its first byte. Source: RFC 9659 */
const ZSTD_WINDOW = 23;

/** Decoders by the name of their encoding. A null object: a server chooses the name. */
const DECODERS: Readonly<Record<string, (() => Decoder) | undefined>> = Object.assign(Object.create(null), {
  gzip: zlib.createGunzip,
  "x-gzip": zlib.createGunzip,
  deflate: zlib.createInflate,
  br: zlib.createBrotliDecompress,
  // Not in every runtime
  zstd: (zlib.createZstdDecompress as typeof zlib.createZstdDecompress | undefined) &&
    (() => zlib.createZstdDecompress({ params: { [zlib.constants.ZSTD_d_windowLogMax]: ZSTD_WINDOW } })),
});

const ALWAYS_READ = ["gzip", "x-gzip", "deflate"];

/** First bytes of a stream in each encoding that may be asked for. */
const BEGINNINGS: Readonly<Record<string, readonly number[]>> = {
  gzip: [0x1f, 0x8b, 0x08],
  br: [0x0b, 0x02, 0x80],
  zstd: [0x28, 0xb5, 0x2f, 0xfd],
};

/**
 * Returns the encodings that this runtime decodes and whose truncation it notices, in the order in which they are offered.
 * Deno 2.9 takes the beginning of a br or zstd stream for all of it: nothing but gzip is asked for there.
 */
export async function findEncodings(): Promise<readonly string[]> {
  const names = Object.keys(BEGINNINGS);
  const noticed = await Promise.all(names.map((name) => noticesCut(DECODERS[name], BEGINNINGS[name] ?? [])));
  return names.filter((_, index) => noticed[index]);
}

async function noticesCut(open: (() => Decoder) | undefined, beginning: readonly number[]): Promise<boolean> {
  if (open === undefined) return false;
  const decoder = open();
  decoder.end(Uint8Array.from(beginning));
  try {
    for await (const _ of decoder);
    return false;
  } catch {
    return true;
  }
}
