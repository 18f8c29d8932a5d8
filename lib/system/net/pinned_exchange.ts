import { type ClientRequest, type IncomingMessage, request as sendPlain } from "node:http";
import { request as sendOverTls } from "node:https";
import { isIP } from "node:net";
import type { Readable } from "node:stream";
import { createBrotliDecompress, createGunzip, createInflate } from "node:zlib";
import { hostAndPort, isSameAddress } from "./address.ts";
import { ATTEMPT_MS, lookupOf, PinError, tunnelToFirst } from "./pinned_connection.ts";

/** Request to one of these addresses and no other. */
export interface PinnedRequest {
  readonly url: URL;
  /** Addresses of the host's name, which were checked. They are tried in this order. */
  readonly addresses: readonly string[];
  readonly method: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | Uint8Array | undefined;
  /** Ends it at once, in whatever state it is */
  readonly signal: AbortSignal;
  /** Limit for the body, decompressed. */
  readonly maxBytes: number;
  /** As `http://proxy.example:3128`: connects to the address in our place. undefined: none */
  readonly proxy?: string | undefined;
}

/** Reply of a server at a checked address. */
export interface PinnedReply {
  readonly status: number;
  /** Names in lower case */
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
  /** The body was longer than `maxBytes`, and the connection was given up */
  readonly truncated: boolean;
}

/**
 * Sends one request over a connection of its own and reads the reply, decompressed where the server compresses unasked.
 *
 * The name is not looked up again: the socket gets the addresses that were checked, whatever the name means by now; TLS still
 * checks the certificate against the name. Redirects are a reply like any other; their body is not read.
 * @throws {PinError}; what the network or the runtime throws; nothing is retried
 */
export async function pinnedExchange(request: PinnedRequest): Promise<PinnedReply> {
  const { proxy } = request;
  return await exchange(proxy === undefined ? openDirect(request) : await openThrough(proxy, request), request);
}

function exchange(
  outgoing: ClientRequest,
  { addresses, body, maxBytes, proxy }: PinnedRequest,
): Promise<PinnedReply> {
  return new Promise((resolve, reject) => {
    let answered = false;
    outgoing.on("error", reject);
    // A server that switches protocols unasked gives neither reply nor error
    outgoing.on("close", () => answered || reject(new PinError("the connection was closed without a reply")));
    outgoing.on("response", (incoming: IncomingMessage) => {
      answered = true;
      const at = proxy === undefined ? incoming.socket?.remoteAddress : undefined;
      if (at !== undefined && !addresses.some((address) => isSameAddress(address, at))) {
        outgoing.destroy();
        return reject(new PinError(`the connection led to ${at}, which was not checked`));
      }
      const reply = { status: incoming.statusCode ?? 0, headers: headersOf(incoming) };
      const end = (read: { readonly body: Uint8Array; readonly truncated: boolean }) => {
        outgoing.destroy();
        resolve({ ...reply, ...read });
      };
      if (isRedirect(reply.status) && reply.headers["location"] !== undefined) {
        incoming.on("error", () => {});
        return end({ body: new Uint8Array(), truncated: false });
      }
      readBody(incoming, maxBytes).then(end, reject);
    });
    outgoing.end(body);
  });
}

function openDirect(request: PinnedRequest): ClientRequest {
  const { url, addresses } = request;
  const { host, port } = hostAndPort(url);
  const isTls = url.protocol === "https:";
  const connection = { lookup: lookupOf(addresses), autoSelectFamilyAttemptTimeout: ATTEMPT_MS };
  return (isTls ? sendOverTls : sendPlain)({
    ...partsOf(request),
    host,
    port,
    agent: false,
    ...connection,
    ...(isTls && isIP(host) === 0 ? { servername: host } : {}),
  });
}

async function openThrough(proxy: string, request: PinnedRequest): Promise<ClientRequest> {
  const { url, addresses, signal } = request;
  const { host, port } = hostAndPort(url);
  const tlsName = url.protocol === "https:" ? host : undefined;
  const socket = await tunnelToFirst({ proxy, addresses, port, tlsName, signal });
  // TLS is inside the socket already; without an agent the request takes it
  return sendPlain({ ...partsOf(request), setHost: false, createConnection: () => socket });
}

function partsOf({ url, method, headers, body, signal }: PinnedRequest) {
  const length = body === undefined ? {} : { "content-length": String(Buffer.byteLength(body)) };
  return { path: url.pathname + url.search, method, headers: { host: url.host, ...headers, ...length }, signal };
}

/** Tells whether a reply with this status may point elsewhere. */
export function isRedirect(status: number): boolean {
  return status === 301 || status === 302 || status === 303 || status === 307 || status === 308;
}

function headersOf({ headers }: IncomingMessage): Readonly<Record<string, string>> {
  const entries = Object.entries(headers).map((
    [name, value],
  ) => [name, Array.isArray(value) ? value.join(", ") : value]);
  return Object.fromEntries(entries.filter(([, value]) => value !== undefined));
}

async function readBody(
  incoming: IncomingMessage,
  maxBytes: number,
): Promise<{ readonly body: Uint8Array; readonly truncated: boolean }> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  const decoded = decode(incoming);
  try {
    for await (const part of decoded) {
      const chunk = part as Uint8Array; // byte streams without an encoding give bytes
      parts.push(chunk);
      bytes += chunk.length;
      if (bytes > maxBytes) return { body: Buffer.concat(parts).subarray(0, maxBytes), truncated: true };
    }
    return { body: Buffer.concat(parts), truncated: false };
  } finally {
    decoded.destroy();
    incoming.on("error", () => {});
    incoming.destroy();
  }
}

/** A server may compress although it was asked not to. The output is bounded by its reader, so that a bomb costs no more than that. */
function decode(incoming: IncomingMessage): Readable {
  const decoder = DECODERS[incoming.headers["content-encoding"]?.trim().toLowerCase() ?? ""]?.();
  if (decoder === undefined) return incoming;
  incoming.on("error", (error) => decoder.destroy(error));
  // A connection that breaks off gives no error on every runtime
  incoming.on("close", () => {
    if (!incoming.complete) decoder.destroy(new PinError("the connection was closed"));
  });
  return incoming.pipe(decoder);
}

const DECODERS: Readonly<Record<string, () => ReturnType<typeof createGunzip>>> = {
  gzip: createGunzip,
  "x-gzip": createGunzip,
  deflate: createInflate,
  br: createBrotliDecompress,
};
