import { type IncomingMessage, request as sendPlain, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { type Duplex, pipeline, type Readable } from "node:stream";
import type { Clock } from "../../base/clock.ts";
import { PinError } from "./network_error.ts";

/** Clock and bounds of moving bytes. */
export interface PumpOptions {
  readonly clock: Clock;
  /** Milliseconds without a byte in either direction, after which both ends are closed */
  readonly idleMs: number;
  /** Receives each piece that moves */
  readonly onBytes: (bytes: number) => void;
}

/** Moves bytes between two connections until both have ended, one breaks, or both are silent. */
export function joinSockets(client: Duplex, upstream: Socket, options: PumpOptions): void {
  const end = () => {
    idle.stop();
    client.destroy();
    upstream.destroy();
  };
  const idle = watchSilence([client, upstream], { ...options, onSilence: end });
  for (const [from, to] of [[client, upstream], [upstream, client]] as const) {
    from.on("error", end);
    // Bytes that came before the end still go out. On Deno a destroyed stream does not call back
    from.on("close", () => to.destroyed ? end() : to.end(() => end()));
    from.pipe(to);
  }
}

/** Request of a client with the connection that it goes out on. */
export interface ForwardedRequest {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly upstream: Socket;
  /** Address that was checked: its host becomes the host header, whatever the client sent */
  readonly url: URL;
  readonly method: string;
}

/** Headers that belong to one connection. Source: RFC 9110 section 7.6.1 */
const HOP_BY_HOP = /^(?:connection|keep-alive|te|trailer|transfer-encoding|upgrade|expect|proxy-.*)$/;

/**
 * Sends a request on to its server and the reply back, as streams. Headers of one connection stay behind; the body keeps its framing.
 * @param options.onFailure told when there is no reply
 */
export function forwardRequest(
  { request, response, upstream, url, method }: ForwardedRequest,
  { onFailure, ...options }: PumpOptions & { readonly onFailure: (error: unknown) => void },
): void {
  const fail = (error: unknown) => {
    idle.stop();
    upstream.destroy();
    onFailure(error);
  };
  const idle = watchSilence([request], {
    ...options,
    onSilence: () => fail(new PinError("nothing came for too long")),
  });
  const outgoing = sendPlain({
    method,
    path: url.pathname + url.search,
    setHost: false,
    headers: { ...forwarded(request.rawHeaders), ...framingOf(request), host: url.host, connection: "close" },
    createConnection: () => upstream,
  });
  let answered = false;
  outgoing.on("error", fail);
  // A server that switches protocols unasked gives neither reply nor error
  outgoing.on("close", () => answered || fail(new PinError("the connection was closed without a reply")));
  outgoing.on("response", (incoming) => {
    answered = true;
    idle.watch(incoming);
    incoming.on("error", () => {});
    try {
      response.sendDate = false;
      response.writeHead(incoming.statusCode ?? 502, { ...forwarded(incoming.rawHeaders), connection: "close" });
    } catch (error) {
      return fail(error);
    }
    pipeline(incoming, response, (error) => {
      idle.stop();
      upstream.destroy();
      if (error) response.destroy();
    });
  });
  response.on("close", () => upstream.destroy());
  if (hasBody(request)) request.pipe(outgoing);
  else outgoing.end();
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers["transfer-encoding"] !== undefined || headers["content-length"] !== undefined;
}

/** Framing must be said: for some methods a body would else follow the head without a length, to be read as a second request. */
function framingOf({ headers }: IncomingMessage): Readonly<Record<string, string>> {
  return headers["transfer-encoding"] === undefined ? {} : { "transfer-encoding": "chunked" };
}

/** Returns headers without those of one connection and those that its `connection` header names. */
function forwarded(raw: readonly string[]): Readonly<Record<string, string | string[]>> {
  const pairs = Array.from(
    { length: raw.length / 2 },
    (_, index) => [(raw[2 * index] ?? "").toLowerCase(), raw[2 * index + 1] ?? ""] as const,
  );
  const named = new Set(
    pairs.filter(([name]) => name === "connection").flatMap(([, value]) => value.toLowerCase().split(/[\s,]+/)),
  );
  const kept = new Map<string, string[]>();
  for (const [name, value] of pairs) {
    // The length of a body is what the parser went by
    if (HOP_BY_HOP.test(name) || (named.has(name) && name !== "content-length")) continue;
    kept.set(name, [...kept.get(name) ?? [], value]);
  }
  return Object.fromEntries([...kept].map(([name, values]) => [name, values.length === 1 ? values[0] ?? "" : values]));
}

/** Counts what streams read, and tells when all of them have been silent for too long. */
function watchSilence(
  streams: readonly Readable[],
  { clock, idleMs, onBytes, onSilence }: PumpOptions & { readonly onSilence: () => void },
) {
  let last = clock.monotonic();
  const look = () => {
    const left = last + idleMs - clock.monotonic();
    if (left <= 0) return onSilence();
    timer = clock.after(left, look);
  };
  let timer = clock.after(idleMs, look);
  const watch = (stream: Readable) => {
    stream.on("data", (chunk: Uint8Array) => {
      last = clock.monotonic();
      onBytes(chunk.length);
    });
  };
  for (const stream of streams) watch(stream);
  return { watch, stop: () => timer.clear() };
}
