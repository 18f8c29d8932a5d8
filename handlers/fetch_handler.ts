import { closeMade, lazily } from "../lib/base/lazily.ts";
import type { MountableGateway } from "./node/node_handler.ts";

/** A gateway that a handler can close. */
export interface ClosableGateway extends Pick<MountableGateway, "fetch"> {
  /** Ends the gateway's work and frees its data directory; calling it twice does no harm */
  readonly close: () => Promise<void>;
}

/** A gateway as a handler of a server or a framework of `Request` and `Response`. */
export interface FetchHandler<Made> {
  /**
   * Answers a request. `from` is what the server hands over beside it, which tells the peer: the information of `Deno.serve`, the server of
   * `Bun.serve`, or `{ remoteAddress }`. srvx, H3 and Nitro write the peer into the request. Anything else tells no peer.
   * @throws {ConfigError} the gateway could not be made; the next request tries again
   */
  (request: Request, from?: unknown): Promise<Response>;
  /** Returns the gateway. Makes it where no request has yet */
  readonly gateway: () => Promise<Made>;
  /** Closes the gateway where it was made. Nothing makes it afterwards */
  readonly close: () => Promise<void>;
}

/**
 * Makes a gateway into one function of `Request`, for `Deno.serve`, `Bun.serve`, srvx, H3 and routes of frameworks.
 *
 * A function makes the gateway at the first request: frameworks load the files of routes while they build, in several processes. The host
 * is that of the `Host` header, since some frameworks write another one into the address. Replies are not compressed.
 */
export function toFetchHandler<Made extends ClosableGateway>(
  gateway: Made | (() => Promise<Made>),
): FetchHandler<Made> {
  let isClosed = false;
  const load = lazily(async () => {
    if (isClosed) throw new TypeError("Cannot answer a request: the handler of the gateway is closed");
    return typeof gateway === "function" ? await gateway() : gateway;
  });
  if (typeof gateway !== "function") void load();
  const answer = async (request: Request, from?: unknown) => {
    const made = await load();
    return await made.fetch(asSent(request), { remoteAddress: peerOf(request, from) });
  };
  const close = async () => {
    isClosed = true;
    await closeMade(load);
  };
  return Object.assign(answer, { gateway: () => load(), close });
}

/** Objects that servers hand over beside a request: Deno, Bun, and callers of their own. */
interface PeerSource {
  readonly remoteAddress?: string | undefined;
  readonly remoteAddr?: { readonly hostname?: string } | undefined;
  readonly requestIP?: (request: Request) => { readonly address: string } | null;
}

function peerOf(request: Request, from: unknown): string | undefined {
  const source: PeerSource = typeof from === "object" && from !== null ? from : {};
  const { ip } = request as { readonly ip?: string }; // srvx writes it there
  return source.remoteAddress ?? source.remoteAddr?.hostname ?? source.requestIP?.(request)?.address ?? ip;
}

/**
 * Returns the request as its client sent it: with the host that it named, where a framework wrote another one. A host that is none leaves the
 * address as it is, and the gateway refuses the request. The reply is not to be compressed: servers do that, and Next.js leaves the name of a coding out.
 */
function asSent(request: Request): Request {
  const { headers, method } = request;
  const host = headers.get("host");
  const url = new URL(request.url);
  const isForeign = host !== null && host !== url.host;
  const isCompressed = headers.has("accept-encoding") && (method === "GET" || method === "HEAD");
  if (!isForeign && !isCompressed) return request;
  if (isForeign) {
    // A host without a port would leave the former one
    url.port = "";
    url.host = host;
  }
  const sent = new Request(url, request);
  if (isCompressed) sent.headers.delete("accept-encoding");
  return sent;
}
