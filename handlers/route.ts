import type { Hooks } from "crossws";
import type { GenericSchema } from "valibot";
import type { Identity } from "../lib/access/identity.ts";
import type { ErrorCode } from "../lib/base/errors.ts";
import type { JsonSchema } from "../lib/base/json.ts";
import type { Kit } from "../lib/base/kit.ts";
import type { Config } from "../lib/config/config.ts";
import type { Services } from "../lib/services.ts";
import type { Write } from "../lib/storage/store.ts";
import type { Connections } from "./connections.ts";
import type { Door, StandingParts } from "./door.ts";

/** The `Response` class the handlers build replies with: the global one, or srvx's FastResponse. */
export type ResponseClass = typeof Response;
/** Body of a reply, and its status and headers. */
export type ResponseParts = ConstructorParameters<ResponseClass>;

/**
 * Services that handlers may need: those of the gateway, and the connections of its router.
 * @internal
 */
export interface RouteParts extends Services, Pick<Connections, "mcp" | "sockets" | "followers"> {
  readonly kit: Pick<Kit, "clock" | "log">;
}

/** Services that the steps around a handler use: those that read its input, and send its reply. */
export interface RequestServices
  extends Pick<Services, "clock" | "isDraining" | "log" | "programName">, Pick<StandingParts, "tokens"> {
  readonly config: () => Pick<Config, "cluster" | "gateway">;
  readonly followers: Pick<Connections["followers"], "add">;
}

/** Services and facts of one request on its way. The router builds one for each request, and no handler sees it. */
export interface RequestContext {
  /** Services of the handler */
  readonly parts: RouteParts;
  readonly services: RequestServices;
  readonly Response: ResponseClass;
  /** null on public routes */
  readonly identity: Identity | null;
  /** Path parameters, decoded */
  readonly params: Readonly<Record<string, string>>;
  readonly requestId: string;
  /** Peer address, undefined when the mounting server does not say */
  readonly remoteAddress: string | undefined;
  /**
   * Aborts with a CancelError (`client_gone`, `timeout`, `shutdown`) until the reply is handed over, then never again.
   * The signal is made when it is first read.
   */
  readonly signal: AbortSignal;
  /** Controller of `signal`. Attached work takes it as its own controller and so ends with the request */
  readonly controller: AbortController;
  /** Within the mount, still percent-encoded */
  readonly path: string;
  readonly query: URLSearchParams;
  /** Names of body fields that were not honoured; they go to the header x-postern-ignored */
  readonly ignored: string[];
  /** Claim of the request's Idempotency-Key; undefined without one. A run that is started with a claim must be durable */
  readonly claim?: RunClaim | undefined;
  /** Headers of every reply to this request, such as x-request-id. The middleware writes them, wire/reply.ts sends them */
  readonly replyHeaders: Record<string, string>;
  /** true: errors go out in the form of the Messages API */
  readonly wantsMessagesForm: boolean;
  /** Builds the reply. Any other reply gets `replyHeaders` from the router, at the cost of a copy */
  reply(body: ResponseParts[0], init: ResponseParts[1]): Response;
  /**
   * Reads the whole request body, once, up to `max_request_bytes`, and undoes its compression; empty when there is none. Call it before
   * the reply only.
   * @throws {HttpError} 413 payload_too_large, 408 request_timeout, 415 and 400 as `expandBody`; 401 auth_invalid when the token was revoked while the body came;
   *   {CancelError} client_gone when it stops half-way
   */
  body(): Promise<Uint8Array>;
}

/** Answers a request that has passed every check. */
export type Handler = (request: Request, context: RequestContext) => Response | Promise<Response>;

/**
 * Answers a repeat whose first request began before a crash and whose reply is not known.
 * @param runId the run that was accepted for it; null where it started none
 */
export type RepeatHandler = (
  request: Request,
  context: RequestContext,
  runId: string | null,
) => Response | Promise<Response>;

/** A reply as /openapi.json describes it. */
export interface RouteReply {
  readonly status: number;
  /** Media type; undefined: a reply without a body */
  readonly type?: string;
  /** Schema of a JSON body */
  readonly schema?: GenericSchema;
  /** Default: "Success" */
  readonly description?: string;
  /** Headers of its own, by lower-case name. Default: none */
  readonly headers?: Readonly<Record<string, RouteParameter>>;
}

/** A parameter of the query, or a header of a request or a reply, as /openapi.json describes it. */
export interface RouteParameter {
  readonly description: string;
  /** True: without it the route refuses each request. Default false */
  readonly required?: boolean;
  readonly schema: JsonSchema;
}

/** A parameter of the query with its reader. */
export interface QueryField<T> extends RouteParameter {
  /**
   * Returns the value of the parameter. `text` is null where the query has none.
   * @throws {HttpError} 400 invalid_request with `name` as `param`
   */
  readonly read: (text: string | null, name: string) => T;
}

/** A method and a path that the router answers, with everything that `/openapi.json` says about it. */
export interface Route extends Door {
  readonly method: "GET" | "POST" | "DELETE";
  /** `/v1/models/:id`; a parameter is one path segment, or the rest of the path when written `:id+` */
  readonly path: string;
  readonly summary: string;
  /** Names of the services that the handler uses, at most five. Each route of the gateway says them */
  readonly needs?: readonly (keyof RouteParts)[];
  /** Schema of the JSON body, which the handler validates with; undefined: the route reads no body */
  readonly body?: GenericSchema | undefined;
  /** Body of another media type than JSON, `what` in a word, with its own bound in place of `max_request_bytes`. For routes without path parameters */
  readonly rawBody?: {
    readonly type: string;
    readonly maxBytes: number | ((settings: Pick<Config["gateway"], "max_file_bytes">) => number);
    readonly what: string;
  } | undefined;
  /** true: the route takes an empty body. Default false */
  readonly bodyOptional?: boolean;
  /** Maximum bytes of a body that is read before the sender is known. Default: `max_request_bytes`, which is never exceeded */
  readonly maxBodyBytes?: number;
  /** true: unknown fields are refused, and any field where the route has no body. Default false: they go to x-postern-ignored */
  readonly strict?: boolean;
  /** Reply of the usual success */
  readonly reply: RouteReply;
  /** Replies of other successes: another status, or another media type of the same one */
  readonly otherReplies?: readonly RouteReply[];
  /** Path parameters that have a form of their own, by name; the others are any text */
  readonly params?: Readonly<Record<string, JsonSchema>>;
  /** Query parameters by name. Others are refused, see `guardQuery` */
  readonly query?: Readonly<Record<string, RouteParameter>>;
  /** Request headers that the handler reads, by name */
  readonly headers?: Readonly<Record<string, RouteParameter>>;
  /**
   * Codes of the handler's own errors, beside those that its kind of route always has (see openapi.ts). A number is a status that a
   * model's provider gave and that is passed on with its code. The tests refuse a reply with a status that is not described.
   */
  readonly errors?: readonly (ErrorCode | number)[];
  /**
   * Use of an Idempotency-Key. Required for POST. `honoured`: the key is claimed before the handler is called; `by_run`: the handler
   * starts a run with `context.claim`, and the run claims the key; `harmless`: calling the handler twice does no harm; `refused`: the
   * reply holds a secret and is never stored
   */
  readonly idempotency?: "honoured" | "by_run" | "harmless" | "refused";
  /** Answers a repeat after a crash, with `honoured` and `by_run`. Default: 409 conflict, because the outcome is unknown */
  readonly repeat?: RepeatHandler;
  /** Accepts a WebSocket handshake that has passed every check, and returns the socket's hooks. A plain GET gets 426 before `handler` */
  readonly websocket?: (request: Request, context: RequestContext) => Partial<Hooks>;
  readonly handler: Handler;
}

/**
 * The claim of an Idempotency-Key on a run: this run answers every request under the key.
 *
 * The claim is on disk from the moment the run is accepted, so that a repeat finds the run, also after a crash.
 * Source: docs/design/http.md "Idempotency"
 */
export interface RunClaim {
  /** Returns the writes of the claim. Hand it to the start of the run, which puts them into the transaction that accepts the run */
  readonly write: (runId: string) => Write;
  /** Tells whether text of this turn may have reached the client of an earlier request, as before a crash. Sent text cannot be taken back */
  wasTold(turn: number): boolean;
  /** Notes on disk that text of this turn goes out. Await it before the first text of a turn; `wasTold` is true for later requests */
  tell(turn: number): Promise<void>;
  /**
   * Notes the end of the run that the reply shows: the code of its error, or undefined when it went well. A reply that shows another end than
   * the one on record is neither stored for the run nor lets a repeat begin another run.
   */
  shows(errorCode: string | undefined): void;
  /** Marks the reply as a failure without an effect. A repeat then runs again, whatever the reply says about retries */
  reopen(): void;
}

/** A route that takes a request, with the decoded parameters of the path. */
export interface RouteMatch {
  readonly route: Route;
  readonly params: Readonly<Record<string, string>>;
}
