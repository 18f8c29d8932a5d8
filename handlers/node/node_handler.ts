import { Buffer } from "node:buffer";
import type { Hooks } from "crossws";
import type { ServerRequest } from "srvx";
import { lazily } from "../../lib/base/lazily.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { hasNoBody } from "./node_body.ts";
import { createNodeSockets } from "./node_sockets.ts";
import { type EarlyRefusal, earlyRefusal, isSound, OTHER_UPGRADE, toHttpText, UNSOUND } from "./unsound_request.ts";
import { withoutEnd } from "../../lib/base/text.ts";

/**
 * Hooks of a socket, as an adapter of crossws takes them.
 * @internal
 */
export type SocketHooks = Partial<Hooks>;

/** Members of a gateway that its handler for `node:http` uses. */
export interface MountableGateway {
  /** Path that the gateway is mounted under, without a slash at its end; empty at the root */
  readonly basePath: string;
  /** Answers a request; never rejects */
  readonly fetch: (request: Request, connection: { readonly remoteAddress?: string | undefined }) => Promise<Response>;
  /** WebSocket half of the gateway: its checks of a handshake, and the bytes of the longest frame */
  readonly websocket: {
    readonly resolve: (request: Request, connection: { readonly remoteAddress?: string | undefined }) => SocketHooks;
    readonly maxMessageBytes: number;
  };
}

/** Members of a request of `node:http` that the handler reads: an `IncomingMessage`, or the request of Express, Connect or `node:http2`. */
export interface NodeRequestMessage {
  /** Method as it was sent, in capitals */
  readonly method?: string | undefined;
  /** Target as it was sent: a path with its query, or an absolute address */
  readonly url?: string | undefined;
  /** Version of HTTP, such as `1.1` or `2.0` */
  readonly httpVersion: string;
  /** Headers by their lower-case names */
  readonly headers: {
    readonly host?: string | undefined;
    readonly upgrade?: string | undefined;
    readonly "content-length"?: string | undefined;
    readonly "transfer-encoding"?: string | undefined;
  };
  /** Connection of the request, which tells the peer's address */
  readonly socket: { readonly remoteAddress?: string | undefined };
}

/** Members of a reply of `node:http` that the handler uses: a `ServerResponse`, or the reply of Express, Connect or `node:http2`. */
export interface NodeReplyMessage {
  /** True once the status and the headers are on their way: nothing can be told to the client any more */
  readonly headersSent: boolean;
  /** HTTP status, 100 to 599 */
  statusCode: number;
  /** Sets a header of the reply in place of an earlier one of its name */
  setHeader(name: string, value: string | number): unknown;
  /** Sends the text as the rest of the body, and ends the reply */
  end(text: string): unknown;
  /** Ends the connection without a word, where the reply has begun and cannot be completed */
  destroy(): unknown;
}

/** Members of the connection that an `upgrade` event hands over. */
export interface UpgradedConnection {
  /** Adds a listener of failures of the connection */
  on(event: "error", listener: () => void): unknown;
  /** Sends the text, closes this side of the connection, and calls `onSent` */
  end(text: string, onSent: () => void): unknown;
  /** Ends the connection at once */
  destroy(): unknown;
}

/** A gateway as a listener of `node:http`, and as middleware of Express and Connect. */
export interface NodeHandler {
  /** Answers requests under the gateway's base path. Others go to `next`; without it, they get 404 */
  (request: NodeRequestMessage, reply: NodeReplyMessage, next?: (error?: unknown) => void): void;
  /**
   * Takes WebSockets: `server.on("upgrade", handler.upgrade)`. Handshakes outside the base path are left to the server's other listeners;
   * where there are none but those of other gateways, they get 404
   */
  readonly upgrade: (request: NodeRequestMessage, socket: UpgradedConnection, head: Uint8Array) => void;
}

/**
 * Makes a gateway into one function for `http.createServer(handler)` and for `app.use("/agent", handler)` of Express and Connect.
 *
 * Under a path of Express, `createGateway` needs that whole path as `basePath`. The peer of a request is the other end of its socket:
 * headers such as X-Forwarded-For, and `trust proxy`, change nothing.
 */
export function toNodeHandler(gateway: MountableGateway): NodeHandler {
  const { basePath, websocket } = gateway;
  const { id } = createSystemRandom();
  const refuseWith = (code: "invalid_request" | "not_found", message: string) =>
    earlyRefusal(code, message, id("req_"));
  const sockets = createNodeSockets(websocket);
  const load = lazily(() => import("srvx/node"));

  const answer = async (incoming: ExpressRequest, reply: NodeReplyMessage, url: string) => {
    const { NodeRequest, sendNodeResponse } = await load();
    // The members above are those of Node's own objects
    const parts = { req: incoming, res: reply } as unknown as ConstructorParameters<typeof NodeRequest>[0];
    const request = withUrl(incoming, url, () => new NodeRequest(parts));
    if (isBodyTaken(incoming)) Object.defineProperty(request, "bodyUsed", { value: true });
    const response = await gateway.fetch(request, { remoteAddress: incoming.socket.remoteAddress });
    await sendNodeResponse(parts.res as NonNullable<typeof parts.res>, response); // set above
  };

  const handler = (incoming: ExpressRequest, reply: NodeReplyMessage, next?: (error?: unknown) => void) => {
    const url = incoming.originalUrl ?? incoming.url ?? "/";
    if (next !== undefined && !isWithin(pathOf(url), basePath)) return next(mountError(incoming, basePath));
    const mistake = mountError(incoming, basePath);
    if (mistake !== undefined && next !== undefined) return next(mistake);
    if (!isSound({ ...lineOf(incoming), url })) return send(incoming, reply, refuseWith("invalid_request", UNSOUND));
    answer(incoming, reply, url).catch((error) => {
      if (next !== undefined && !reply.headersSent) next(error);
      else reply.destroy();
    });
  };

  const upgrade = (incoming: NodeRequestMessage, socket: UpgradedConnection, head: Uint8Array) => {
    const refuse = (refusal: EarlyRefusal) => void socket.end(toHttpText(refusal), () => socket.destroy());
    if (!isWithin(pathOf(incoming.url ?? "/"), basePath)) {
      return leave(
        socket,
        () => refuse(refuseWith("not_found", "Cannot open a WebSocket here: no part of this server takes this path")),
      );
    }
    marked(socket)[HANDSHAKE] = "taken";
    // Without a listener, a client that leaves during the handshake would end the process
    socket.on("error", () => socket.destroy());
    if (!isSound(incoming)) refuse(refuseWith("invalid_request", UNSOUND));
    else if (incoming.headers.upgrade?.toLowerCase() !== "websocket") {
      refuse(refuseWith("invalid_request", OTHER_UPGRADE));
    } else sockets.upgrade(incoming, socket, head);
  };
  return Object.assign(handler, { upgrade: Object.assign(upgrade, { [LISTENER]: true }) });
}

/** Mark of a listener of a gateway, of any copy of this module. */
const LISTENER = Symbol.for("postern listener of upgrades");
/** Mark of a connection whose handshake a gateway has seen: taken by one, or left by all so far. */
const HANDSHAKE: unique symbol = Symbol.for("postern handshake");

/** Any connection may have the mark. */
function marked(socket: UpgradedConnection & { [HANDSHAKE]?: "taken" | "left" }): { [HANDSHAKE]?: "taken" | "left" } {
  return socket;
}

/** Leaves a handshake to the server's other listeners, and refuses it once the gateways among them have left it too, where there are no others. */
function leave(socket: UpgradedConnection, refuse: () => void): void {
  if (marked(socket)[HANDSHAKE] !== undefined || !isForGateways(socket)) return;
  marked(socket)[HANDSHAKE] = "left";
  socket.on("error", () => socket.destroy());
  // All listeners are called before
  queueMicrotask(() => marked(socket)[HANDSHAKE] === "left" && refuse());
}

/** A request with what Express and body parsers may add. */
interface ExpressRequest extends NodeRequestMessage {
  url?: string | undefined;
  /** The target as it was sent; Express cuts the path of the mount off `url` */
  readonly originalUrl?: string;
  /** The path that Express matched for the mount */
  readonly baseUrl?: string;
  /** The whole body, which some servers read ahead */
  readonly rawBody?: unknown;
  /** The body was read by other code, or is read now */
  readonly readableDidRead?: boolean;
  /** Other code has the body given as text, which does not keep every byte */
  readonly readableEncoding?: string | null;
}

/** Makes the web request with the target as it was sent. */
function withUrl(incoming: ExpressRequest, url: string, make: () => ServerRequest): ServerRequest {
  const cut = incoming.url;
  incoming.url = url;
  const request = make();
  void request.url; // is read now, and kept
  incoming.url = cut;
  return request;
}

function lineOf({ httpVersion, headers }: NodeRequestMessage) {
  return { httpVersion, headers };
}

/** Tells whether a request's body can no longer be read: express.json() and the like were faster. */
function isBodyTaken({ httpVersion, headers, rawBody, readableDidRead, readableEncoding }: ExpressRequest): boolean {
  if (hasNoBody({ httpVersion, headers }) || Buffer.isBuffer(rawBody)) return false;
  return readableDidRead === true || (readableEncoding ?? null) !== null;
}

/** Returns the path of a target, which may name scheme and host too. */
function pathOf(target: string): string {
  const [path = ""] = target.replace(/^https?:\/\/[^/?#]*/i, "").split(/[?#]/, 1);
  return path === "" ? "/" : path;
}

function isWithin(path: string, basePath: string): boolean {
  return path === basePath || path.startsWith(`${basePath}/`) || (basePath === "" && path === "*");
}

/** Returns the error of a mount at another path than the gateway's. Every request would be a 404, and nobody could tell why. */
function mountError({ baseUrl = "" }: ExpressRequest, basePath: string): TypeError | undefined {
  // Express matches paths in either case
  const [mounted, base] = [withoutEnd(baseUrl, "/").toLowerCase(), basePath.toLowerCase()];
  if (mounted === "" || isWithin(base, mounted) || (base !== "" && isWithin(mounted, base))) return undefined;
  return new TypeError(
    `Cannot serve the gateway under "${baseUrl}": its basePath is "${basePath}"; call createGateway({ basePath: "${baseUrl}", ... })`,
  );
}

/** Tells whether nobody but gateways takes the server's upgrades. A connection that nobody takes would stay open for ever. */
function isForGateways(socket: UpgradedConnection): boolean {
  // A connection of Node's servers knows its server
  const { server } = socket as { server?: { listeners?: (event: string) => readonly object[] } };
  const listeners = server?.listeners?.("upgrade") ?? [];
  return listeners.length === 1 || (listeners.length > 0 && listeners.every((one) => LISTENER in one));
}

function send({ httpVersion }: NodeRequestMessage, reply: NodeReplyMessage, { status, headers, body }: EarlyRefusal) {
  reply.statusCode = status;
  for (const [name, value] of Object.entries(headers)) {
    // HTTP/2 has no such header
    if (name !== "connection" || httpVersion.startsWith("1.")) reply.setHeader(name, value);
  }
  reply.end(body);
}
