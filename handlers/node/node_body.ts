import { Buffer } from "node:buffer";
import { CancelError } from "../../lib/base/cancel.ts";
import { batchPerTick } from "../../lib/base/tick.ts";
import {
  type BodyExpansion,
  type BodyReader,
  bodyTaken,
  type ClientWatch,
  type PendingBody,
  readWebBody,
  tooLarge,
  watchSignal,
} from "../request_context.ts";

/** Parts of a request of Node that tell of its body. */
interface BodyHead {
  readonly httpVersion: string;
  readonly headers: {
    readonly "content-length"?: string | undefined;
    readonly "transfer-encoding"?: string | undefined;
    readonly expect?: string;
  };
}

/** Tells whether a request has no body. In HTTP/2 a body needs no header that says so. */
export function hasNoBody({ httpVersion, headers }: BodyHead): boolean {
  const length = headers["content-length"];
  if (length !== undefined) return length === "0";
  return headers["transfer-encoding"] === undefined && httpVersion !== "2.0";
}

/** Members of Node's request stream that this file uses. */
interface BodyStream extends BodyHead {
  readonly readableDidRead?: boolean;
  readonly destroyed?: boolean;
  on(event: string, listener: (value: never) => void): unknown;
}

/** Members of Node's reply under way that this file uses. */
interface ReplyStream {
  /** True once `100 Continue` was sent: Node does so by itself where its server has no listener for `checkContinue` */
  readonly _sent100?: boolean;
  writeContinue(): void;
  readonly destroyed: boolean;
  on(event: "close", listener: () => void): unknown;
  off(event: "close", listener: () => void): unknown;
}

/** Watches Node's own reply for a `close` before its end: the client has gone. An abort signal would cost several times as much. */
export const watchNodeClient: ClientWatch = (request, onGone) => {
  // srvx hands on the objects of Node; a request of another server has none
  const reply = (request as { runtime?: { node?: { res?: ReplyStream } } }).runtime?.node?.res;
  if (reply === undefined) return watchSignal(request, onGone);
  reply.on("close", onGone);
  if (reply.destroyed) onGone();
  return () => reply.off("close", onGone);
};

/**
 * Creates the reader of request bodies of one server. It reads from Node's own stream: the web stream over it would cost tens of
 * microseconds more. Finished bodies are handed over 16 in each tick, since most of them start a request to a model, which is much
 * work at once.
 */
export function createNodeBodyReader(): BodyReader {
  const giveLater = batchPerTick<Reading>(16, ({ resolve, chunks }) => {
    resolve(chunks.length === 1 ? (chunks[0] as Uint8Array) : Buffer.concat(chunks)); // length was checked
  });
  return (request, maxBytes, expansion) => readNodeBody(request, { maxBytes, giveLater, expansion });
}

function readNodeBody(
  request: Request,
  { maxBytes, giveLater, expansion }: {
    readonly maxBytes: number;
    readonly giveLater: (reading: Reading) => void;
    readonly expansion: BodyExpansion | undefined;
  },
): PendingBody {
  // As in watchNodeClient
  const node = (request as { runtime?: { node?: { req?: BodyStream; res?: ReplyStream } } }).runtime?.node;
  const stream = node?.req;
  if (stream === undefined) return readWebBody(request, maxBytes, expansion);
  if (hasNoBody(stream)) return EMPTY;
  if (request.bodyUsed) return failed(bodyTaken());
  // Another middleware has the bytes: srvx knows where, such as in a clone of the request
  if (stream.readableDidRead) return readWebBody(request, maxBytes, expansion);
  if (stream.destroyed) return failed(new CancelError("client_gone"));
  // A request that its headers condemn has been refused before: the client may send the body now
  if (stream.headers.expect && stream.httpVersion === "1.1" && !node?.res?._sent100) node?.res?.writeContinue();
  const { promise: bytes, resolve, reject } = Promise.withResolvers<Uint8Array>();
  // Undefined once the body has been read: a reply may go on for minutes, and the listeners keep what they refer to in memory
  let reading: Reading | undefined = { resolve, reject, chunks: [], size: 0, expansion };
  const fail = (error: Error) => {
    reading?.reject(error);
    reading?.expansion?.fail(error);
    reading = undefined;
  };
  // Listeners are never removed: they go with the request, and to remove them costs as much as to read
  stream.on("data", (chunk: Uint8Array) => {
    if (reading === undefined) return;
    reading.size += chunk.length;
    if (reading.size > maxBytes) fail(tooLarge(maxBytes));
    else if (reading.expansion === undefined) reading.chunks.push(chunk);
    else reading.expansion.take(chunk);
  });
  stream.on("end", () => {
    if (reading === undefined) return;
    const { resolve, expansion } = reading;
    if (expansion === undefined) giveLater(reading);
    else {
      expansion.end();
      resolve(expansion.bytes);
    }
    reading = undefined;
  });
  // Without a listener for errors Node reports one as the end of the connection
  stream.on("close", () => {
    if (reading !== undefined) fail(new CancelError("client_gone"));
  });
  // A bomb ends the reading
  expansion?.bytes.catch(fail);
  return { bytes, fail };
}

/** Body that is being read. */
interface Reading {
  readonly resolve: (body: Uint8Array | Promise<Uint8Array>) => void;
  readonly reject: (error: Error) => void;
  readonly chunks: Uint8Array[];
  readonly expansion: BodyExpansion | undefined;
  size: number;
}

const EMPTY: PendingBody = { bytes: Promise.resolve(new Uint8Array(0)), fail() {} };

function failed(error: Error): PendingBody {
  return { bytes: Promise.reject(error), fail() {} };
}
