import { type ClientRequest, type IncomingMessage, request as sendPlain } from "node:http";
import { request as sendOverTls } from "node:https";
import { isIP } from "node:net";
import { needsEffectRight, untilEffectMayBegin } from "../../base/effect_right.ts";
import { hostAndPort, isSameAddress } from "./address.ts";
import { PinError } from "./network_error.ts";
import { ATTEMPT_MS, lookupOf, tunnelToFirst } from "./pinned_connection.ts";
import { type BodySink, type ReadBody, readBody, SinkFailure } from "./reply_body.ts";

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
  /** Encodings of a body that are read. */
  readonly encodings: readonly string[];
  /** Opens the place that the body goes to, once the head is there; undefined keeps the body in memory. Default: memory */
  readonly sink?: ((head: ReplyHead) => Promise<BodySink | undefined>) | undefined;
  /** As `http://proxy.example:3128`: connects to the address in our place. undefined: none */
  readonly proxy?: string | undefined;
}

/** Beginning of a reply. */
export interface ReplyHead {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: Readonly<Record<string, string>>;
}

/** Reply of a server at a checked address. */
export interface PinnedReply extends ReplyHead, ReadBody {}

/** Limit of a body that stays in memory although a sink could have taken it: the bound of a download is far too much. */
const MAX_KEPT_BYTES = 1_048_576;
const CLOSED_EARLY = "the connection was closed before the request";
/** Interim replies (1xx) before the reply itself; a server that sends more is given up. */
const MAX_INTERIM = 16;

/**
 * Sends one request over a connection of its own and reads the reply, decompressed where the server compresses unasked.
 *
 * The name is not looked up again: the socket gets the addresses that were checked, whatever the name means by now; TLS still
 * checks the certificate against the name. Redirects are a reply like any other; their body is not read.
 * @throws {PinError}, {SinkFailure}; what the network, the runtime or the opening of a sink throws; nothing is retried
 */
export async function pinnedExchange(request: PinnedRequest): Promise<PinnedReply> {
  const { proxy } = request;
  return await exchange(proxy === undefined ? openDirect(request) : await openThrough(proxy, request), request);
}

async function exchange(outgoing: ClientRequest, request: PinnedRequest): Promise<PinnedReply> {
  let wire: Error | undefined;
  outgoing.on("error", (error) => (wire ??= error));
  try {
    if (needsEffectRight()) await connected(outgoing);
    await untilEffectMayBegin(request.signal);
    // A connection that was lost during the wait gives no event to those who listen from here on
    if (outgoing.destroyed) throw wire ?? new PinError(CLOSED_EARLY);
  } catch (error) {
    outgoing.destroy();
    throw error;
  }
  const incoming = await headOf(outgoing, request);
  try {
    const head = { status: incoming.statusCode ?? 0, headers: headersOf(incoming) };
    if (isRedirect(head.status) && head.headers["location"] !== undefined) return { ...head, ...NO_BODY };
    const { encodings, signal } = request;
    const sink = await request.sink?.(head);
    const isKept = request.sink !== undefined && sink === undefined;
    const maxBytes = isKept ? Math.min(request.maxBytes, MAX_KEPT_BYTES) : request.maxBytes;
    return { ...head, ...await readBody(incoming, { maxBytes, encodings, signal, sink }) };
  } catch (error) {
    // The parser tells the request what is wrong with the reply, and its reader no more than that it is over
    const isParsers = wire !== undefined && "code" in wire && String(wire.code).startsWith("HPE_");
    throw isParsers && !(error instanceof SinkFailure) ? wire : error;
  } finally {
    outgoing.destroy();
  }
}

/** Resolves when a request has its connection, over which nothing has been sent yet. */
function connected(outgoing: ClientRequest): Promise<void> {
  return new Promise((resolve, reject) => {
    outgoing.once("error", reject);
    outgoing.once("close", () => reject(new PinError(CLOSED_EARLY)));
    outgoing.once("socket", (socket) => {
      if (!socket.connecting) return resolve();
      socket.once("encrypted" in socket ? "secureConnect" : "connect", () => resolve());
    });
  });
}

const NO_BODY: ReadBody = { body: new Uint8Array(), bytes: 0, truncated: false };

/** Sends the request and waits for the head of its reply. The body waits until it is read. */
function headOf(outgoing: ClientRequest, { addresses, body, proxy }: PinnedRequest): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const giveUp = (reason: string) => {
      outgoing.destroy();
      reject(new PinError(reason));
    };
    let interim = 0;
    outgoing.on("error", reject);
    // A server that switches protocols unasked gives neither reply nor error
    outgoing.on("close", () => reject(new PinError("the connection was closed without a reply")));
    outgoing.on("information", () => {
      if (++interim > MAX_INTERIM) giveUp(`it sends more than ${MAX_INTERIM} interim replies`);
    });
    outgoing.on("response", (incoming: IncomingMessage) => {
      // Whoever reads the body later gets the error then
      incoming.on("error", () => {});
      const at = proxy === undefined ? incoming.socket?.remoteAddress : undefined;
      if (at === undefined || addresses.some((address) => isSameAddress(address, at))) return resolve(incoming);
      giveUp(`the connection led to ${at}, which was not checked`);
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
