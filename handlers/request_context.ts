import { CancelError, type CancelReason } from "../lib/base/cancel.ts";
import type { Timer } from "../lib/base/clock.ts";
import { HttpError, refuse } from "../lib/base/errors.ts";
import type { Random } from "../lib/base/random.ts";
import type { Identity } from "../lib/access/identity.ts";
import type { Config } from "../lib/config/config.ts";
import { checkStillCounts } from "./door.ts";
import type {
  RequestContext,
  RequestServices,
  ResponseClass,
  ResponseParts,
  Route,
  RouteMatch,
  RouteParts,
  RunClaim,
} from "./route.ts";
import { wantsMessagesForm } from "./wire/http_errors.ts";

/** The parts of an absolute request URL as they came. A path that needs normalising is refused, not repaired. */
export interface RequestTarget {
  /** Lower case, without the scheme's default port */
  readonly authority: string;
  /** Still percent-encoded, starts with `/` */
  readonly path: string;
  /** With its `?`, empty without one */
  readonly search: string;
}

/** Cuts `http://host/path?query#fragment` into its parts. `new URL` costs ten times as much, and repairs the paths that must be refused. */
export function parseRequestTarget(url: string): RequestTarget {
  const authorityStart = url.indexOf("://") + 3;
  let end = url.indexOf("#", authorityStart);
  if (end < 0) end = url.length;
  let searchStart = url.indexOf("?", authorityStart);
  if (searchStart < 0 || searchStart > end) searchStart = end;
  let pathStart = url.indexOf("/", authorityStart);
  if (pathStart < 0 || pathStart > searchStart) pathStart = searchStart;
  return {
    authority: toAuthority(url.slice(authorityStart, pathStart), url.startsWith("https:")),
    path: pathStart === searchStart ? "/" : url.slice(pathStart, searchStart),
    search: url.slice(searchStart, end),
  };
}

/** Returns a `Host` value or URL authority in lower case, without the scheme's default port, for comparing. */
export function toAuthority(host: string, secure: boolean): string {
  const lower = host.toLowerCase();
  const port = secure ? ":443" : ":80";
  return lower.endsWith(port) ? lower.slice(0, -port.length) : lower;
}

/** Returns the host name of an authority; an IPv6 address keeps its brackets, such as `[::1]`. */
export function hostNameOf(authority: string): string {
  if (authority.startsWith("[")) return authority.slice(0, authority.indexOf("]") + 1);
  const colon = authority.indexOf(":");
  return colon < 0 ? authority : authority.slice(0, colon);
}

const VISIBLE = /^\/[!-~]*$/;
const DOT_SEGMENT = /\/(?:\.|%2e){1,2}(?:[/?#]|$)/i;

/**
 * Tells whether a path can name a route: visible ASCII without anything that other software would read as another path
 * (empty segments, dot segments, also percent-encoded ones, a backslash, a trailing slash).
 */
export function isCleanPath(path: string): boolean {
  if (!VISIBLE.test(path) || path.includes("//") || path.includes("\\")) return false;
  if (path.length > 1 && path.endsWith("/")) return false;
  return !hasDotSegment(path);
}

/** Tells whether a path has a segment `.` or `..`, plain or percent-encoded. */
export function hasDotSegment(path: string): boolean {
  return DOT_SEGMENT.test(path);
}

/** Returns the bytes that the body of a route may have of its own. Undefined: as `max_request_bytes` says */
export function ownBodyBytes(
  { rawBody }: Pick<Route, "rawBody">,
  { gateway }: { readonly gateway: Pick<Config["gateway"], "max_file_bytes"> },
): number | undefined {
  return typeof rawBody?.maxBytes === "function" ? rawBody.maxBytes(gateway) : rawBody?.maxBytes;
}

/** A request's body that is being read. */
export interface PendingBody {
  /** The whole body. Rejects with the HttpError of `tooLarge` for a body that is too long, with CancelError `client_gone` for one that stops half-way */
  readonly bytes: Promise<Uint8Array>;
  /** Gives the body up: `bytes` rejects with this error. Does nothing once the body is there */
  fail(error: Error): void;
}

/** A compressed body that is expanded as it comes, so that the reader keeps nothing of it. */
export interface BodyExpansion extends PendingBody {
  take(chunk: Uint8Array): void;
  end(): void;
}

/** Opens the expansion of a body, see `expandBody` in middleware/expand_body.ts. */
export type BodyExpander = (codings: readonly string[], maxBytes: number) => Promise<BodyExpansion>;

/** Begins to read the whole body of a request, up to `maxBytes`. With an expansion, that gets the bytes and gives the body. */
export type BodyReader = (request: Request, maxBytes: number, expansion?: BodyExpansion) => PendingBody;

/** Returns the codings of a body in the order in which they were applied, in lower case; a plain body has none. */
export function codingsOf({ headers }: Pick<Request, "headers">): readonly string[] {
  const given = headers.get("content-encoding");
  if (given === null) return NO_CODINGS;
  const names = given.toLowerCase().split(",").map((name) => name.trim().replace(/^x-gzip$/, "gzip"));
  return names.filter((name) => name !== "" && name !== "identity");
}

const NO_CODINGS: readonly string[] = [];

/** Calls `onGone` when the client goes away before the reply is written. @returns function that ends the watch */
export type ClientWatch = (request: Request, onGone: () => void) => () => void;

/** Options of `GatewayRequestContext`. */
export interface RequestContextOptions {
  readonly parts: RouteParts;
  readonly services: RequestServices;
  readonly Response: ResponseClass;
  readonly requestId: string;
  readonly remoteAddress: string | undefined;
  readonly target: RequestTarget;
  readonly path: string;
  readonly readBody: BodyReader;
  readonly expandBody: BodyExpander;
  readonly watchClient: ClientWatch;
}

/** The context of one request. What its checks find out, they tell it by a method each. Lives until the reply is handed over. */
export class GatewayRequestContext implements RequestContext {
  readonly parts: RouteParts;
  readonly services: RequestServices;
  readonly Response: ResponseClass;
  readonly requestId: string;
  readonly remoteAddress: string | undefined;
  readonly target: RequestTarget;
  readonly path: string;
  readonly ignored: string[] = [];
  readonly replyHeaders: Record<string, string>;
  readonly wantsMessagesForm: boolean;
  /** Sender of the request; set by `admit` alone */
  identity: Identity | null = null;
  /** Claim of the request's Idempotency-Key; set by `hold` alone */
  claim: RunClaim | undefined = undefined;
  /** Parameters of the path; set by `admit` alone */
  params: Readonly<Record<string, string>> = NO_PARAMS;
  /** The reply that was built here, with all headers of the request's replies. Set by `reply` alone */
  built: Response | undefined = undefined;
  /** Maximum bytes of a body that the route takes */
  #maxBodyBytes = Infinity;
  /** Maximum bytes of a body in place of `max_request_bytes` */
  #ownBodyBytes: number | undefined = undefined;
  /** Number of repeats that wait for this request's reply. Above 0, the work goes on when the client leaves (idempotency) */
  #followers = 0;
  #request: Request;
  #readBody: BodyReader;
  #expandBody: BodyExpander;
  #watchClient: ClientWatch;
  #query: URLSearchParams | undefined = undefined;
  #body: PendingBody | undefined = undefined;
  /** Bytes of the body, once the token was found to count still */
  #checkedBody: Promise<Uint8Array> | undefined = undefined;
  #controller: AbortController | undefined = undefined;
  #unwatch: (() => void) | undefined = undefined;
  /** Runs `request_timeout_secs`, for the body and the work after it together */
  #timer: Timer | undefined = undefined;
  /** Refusal of a body that took too long */
  #slow: HttpError | undefined = undefined;
  #clientGone = false;
  #done = false;

  constructor(request: Request, options: RequestContextOptions) {
    this.#request = request;
    this.#readBody = options.readBody;
    this.#expandBody = options.expandBody;
    this.#watchClient = options.watchClient;
    this.parts = options.parts;
    this.services = options.services;
    this.Response = options.Response;
    this.requestId = options.requestId;
    this.remoteAddress = options.remoteAddress;
    this.target = options.target;
    this.path = options.path;
    const { requestId } = options;
    this.replyHeaders = { "x-request-id": requestId, vary: "Origin" };
    this.wantsMessagesForm = wantsMessagesForm(this.path, request.headers);
    if (this.wantsMessagesForm) this.replyHeaders["request-id"] = requestId;
  }

  get query(): URLSearchParams {
    return (this.#query ??= new URLSearchParams(this.target.search));
  }

  get signal(): AbortSignal {
    return this.controller.signal;
  }

  get controller(): AbortController {
    if (this.#controller !== undefined) return this.#controller;
    const controller = (this.#controller = new AbortController());
    if (this.#done) return controller;
    this.#startTimer();
    this.#unwatch = this.#watchClient(this.#request, () => this.#onClientGone());
    return controller;
  }

  /** Lets a sender in, with the parameters of the path and the bounds that the route sets. */
  admit({ route, params }: RouteMatch, identity: Identity | null): void {
    this.identity = identity;
    this.params = params;
    if (route.maxBodyBytes !== undefined) this.#maxBodyBytes = route.maxBodyBytes;
    this.#ownBodyBytes = route.rawBody && ownBodyBytes(route, this.services.config());
  }

  body(): Promise<Uint8Array> {
    if (this.#checkedBody === undefined) {
      this.#startTimer();
      const maxBytes = Math.min(
        this.#ownBodyBytes ?? this.services.config().gateway.max_request_bytes,
        this.#maxBodyBytes,
      );
      const codings = codingsOf(this.#request);
      const reading = codings.length === 0 ? this.#read(maxBytes) : this.#readExpanded(codings, maxBytes);
      this.#checkedBody = reading.then((bytes) => {
        // The sender decides how long a body takes
        checkStillCounts(this.identity, this.services);
        return bytes;
      });
    }
    return this.#checkedBody;
  }

  #read(maxBytes: number, expansion?: BodyExpansion): Promise<Uint8Array> {
    this.#body = this.#readBody(this.#request, maxBytes, expansion);
    return this.#body.bytes;
  }

  /** Reads a compressed body, so that each reader, for its digest or its signature too, sees what was compressed. */
  async #readExpanded(codings: readonly string[], maxBytes: number): Promise<Uint8Array> {
    const expansion = await this.#expandBody(codings, maxBytes);
    if (this.#slow !== undefined) throw this.#slow;
    return await this.#read(maxBytes, expansion);
  }

  /** Stops the handler's work; does nothing once the reply was handed over. */
  abort(reason: CancelReason): void {
    if (!this.#done) this.#controller?.abort(new CancelError(reason));
  }

  /** Takes the claim of the request's Idempotency-Key. */
  hold(claim: RunClaim): void {
    this.claim = claim;
  }

  /** Builds the reply, which gets no further headers. */
  reply(body: ResponseParts[0], init: ResponseParts[1]): Response {
    return (this.built = new this.Response(body, init));
  }

  /** Counts one more follower. */
  follow(): void {
    this.#followers++;
  }

  /** Counts one follower less. The work stops when the client and all followers have gone. */
  unfollow(): void {
    this.#followers--;
    if (this.#clientGone) this.#onClientGone();
  }

  /** Ends the context when the reply is handed over. The signal no longer changes, whatever the runtime reports later. */
  detach(): void {
    this.#done = true;
    // A stream may last for minutes and refer to its request, so let the body go
    this.#body = this.#checkedBody = undefined;
    this.#timer?.clear();
    this.#unwatch?.();
  }

  #onClientGone(): void {
    this.#clientGone = true;
    if (this.#followers === 0) this.abort("client_gone");
  }

  #startTimer(): void {
    if (this.#timer !== undefined || this.#done) return;
    const { clock, config } = this.services;
    const seconds = config().gateway.request_timeout_secs;
    this.#timer = clock.after(seconds * 1000, () => {
      this.#slow = slowBody(seconds);
      this.#body?.fail(this.#slow);
      this.abort("timeout");
    });
  }
}

const NO_PARAMS: Readonly<Record<string, string>> = Object.freeze({});

const SAFE_REQUEST_ID = /^[\w.:-]{1,128}$/;

/** Returns the client's own request id when it has 1-128 safe characters (letters, digits, `_.:-`), else a new one. */
export function requestIdOf(request: Request, random: Pick<Random, "id">): string {
  const given = request.headers.get("x-request-id");
  return given !== null && SAFE_REQUEST_ID.test(given) ? given : random.id("req_");
}

/** Returns the refusal of a long body. The connection stays open: closed at once, it would break before a client that still sends has read the refusal. */
export function tooLarge(maxBytes: number) {
  return refuse("payload_too_large", `Cannot accept the request body: it is longer than ${maxBytes} bytes`);
}

/** Returns the refusal of a body that other code of the server has read before. */
export function bodyTaken() {
  return refuse(
    "internal_error",
    "Cannot read the request body: other code of this server has read it; mount Postern before express.json() and every other body parser",
    { headers: { "x-should-retry": "false" } },
  );
}

function slowBody(seconds: number) {
  return refuse("request_timeout", `Cannot accept the request body: it did not arrive within ${seconds} s`, {
    headers: { connection: "close" },
  });
}

/** Watches the request's own signal, which works with any fetch-based server. */
export const watchSignal: ClientWatch = ({ signal }, onGone) => {
  if (signal.aborted) onGone();
  else signal.addEventListener("abort", onGone, { once: true });
  return () => signal.removeEventListener("abort", onGone);
};

/** Reads the body as a web stream, which works with any fetch-based server. */
export const readWebBody: BodyReader = (request, maxBytes, expansion) => {
  const { promise: bytes, resolve, reject } = Promise.withResolvers<Uint8Array>();
  const fail = (error: Error) => {
    reject(error);
    expansion?.fail(error);
  };
  if (request.bodyUsed) fail(bodyTaken());
  else {readStream(request.body, maxBytes, expansion).then(resolve, (error: unknown) => {
      fail(error instanceof HttpError ? error : new CancelError("client_gone"));
    });}
  return { bytes, fail };
};

async function readStream(
  body: Request["body"],
  maxBytes: number,
  expansion: BodyExpansion | undefined,
): Promise<Uint8Array> {
  if (body === null) return new Uint8Array(0);
  const reader = body.getReader();
  const chunks: Uint8Array[] = [];
  const stop = () => void reader.cancel().catch(() => {});
  // A bomb ends the reading
  expansion?.bytes.catch(stop);
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > maxBytes) {
      stop();
      throw tooLarge(maxBytes);
    }
    if (expansion === undefined) chunks.push(value);
    else expansion.take(value);
  }
  if (expansion !== undefined) {
    expansion.end();
    return await expansion.bytes;
  }
  if (chunks.length === 1) return chunks[0] as Uint8Array; // length was checked
  const whole = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    whole.set(chunk, at);
    at += chunk.length;
  }
  return whole;
}
