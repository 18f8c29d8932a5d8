import type { Hooks } from "crossws";
import type { GenericSchema } from "valibot";
import * as v from "valibot";
import type { Identity } from "../lib/access/identity.ts";
import type { JsonSchema } from "../lib/base/records/json_schema.ts";
import type { Services } from "../lib/gateway.ts";
import type { Write } from "../lib/storage/store.ts";
import type { Door } from "./door.ts";
import { type ErrorCode, httpError } from "./wire/http_errors.ts";
import { readJson } from "./wire/read_json.ts";

/** The `Response` class the handlers build replies with: the global one, or srvx's FastResponse. */
export type ResponseClass = typeof Response;

/** What a handler gets beside the request. One per request, built by the router. */
export interface RequestContext {
  readonly services: Services;
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
   * Made when first read.
   */
  readonly signal: AbortSignal;
  /** Of `signal`: attached work that takes it as its own ends with the request, without a second one that follows */
  readonly controller: AbortController;
  /** The path within the gateway, without the mount's base path, and the query */
  readonly path: string;
  readonly query: URLSearchParams;
  /** The Authorization header, for a route with a token of its own; undefined without one */
  readonly authorization?: string | undefined;
  /** Names of body fields that were not honoured; they go to the header x-postern-ignored */
  readonly ignored: string[];
  /** With an Idempotency-Key: the hold on the run that answers this request and its repeats, so the run must be durable */
  readonly claim?: RunClaim | undefined;
  /** Headers each reply of this request carries, as x-request-id. Written by the middleware, sent by wire/reply.ts */
  readonly replyHeaders: Record<string, string>;
  /** The reply that wire/reply.ts built; any other reply gets `replyHeaders` from the router, at the cost of a copy */
  built: Response | undefined;
  /**
   * The whole request body, read once, at most `max_request_bytes`; empty when there is none. Asked for before the reply only.
   * @throws {HttpError} 413 payload_too_large, 408 request_timeout; {CancelError} client_gone when it stops half-way
   */
  body(): Promise<Uint8Array>;
}

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
  readonly schema: JsonSchema;
}

/** One row of the route table; `/openapi.json` is generated from it. */
export interface Route extends Door {
  readonly method: "GET" | "POST" | "DELETE";
  /** `/v1/models/:id`; a parameter is one path segment, or the rest of the path when written `:id+` */
  readonly path: string;
  readonly summary: string;
  /** Schema of the JSON body, the one the handler validates with; undefined: the route reads none */
  readonly body?: GenericSchema | undefined;
  /** Whether an empty body is fine. Default false */
  readonly bodyOptional?: boolean;
  /** Bytes of a body that is read before it is known who sends it. Default: `max_request_bytes`, which is never exceeded */
  readonly maxBodyBytes?: number;
  /** Set by strictRoute: unknown fields and query parameters are refused. Default false: unknown fields go to x-postern-ignored. */
  readonly strict?: boolean;
  /** Reply of the usual success */
  readonly reply: RouteReply;
  /** Replies of other successes: another status, or another media type of the same one */
  readonly otherReplies?: readonly RouteReply[];
  /** Path parameters that have a form of their own, by name; the others are any text */
  readonly params?: Readonly<Record<string, JsonSchema>>;
  /** Query parameters by name */
  readonly query?: Readonly<Record<string, RouteParameter>>;
  /** Request headers that the handler reads, by name */
  readonly headers?: Readonly<Record<string, RouteParameter>>;
  /**
   * Codes of the handler's own errors, beside those that its kind of route always has (see openapi.ts). A number is a status that a
   * model's provider gave and that is passed on with its code. The tests refuse a reply with a status that is not described.
   */
  readonly errors?: readonly (ErrorCode | number)[];
  /**
   * What is done with an Idempotency-Key. Required for POST. `honoured`: it is claimed before the handler is called; `by_run`: the
   * handler starts a run with `context.claim`, which claims it; `harmless`: the handler may be called twice, since nothing comes of it;
   * `refused`: the reply hands out a secret and is never kept
   */
  readonly idempotency?: "honoured" | "by_run" | "harmless" | "refused";
  /** With `honoured` and `by_run`. Default: 409 conflict, the outcome is unknown */
  readonly repeat?: RepeatHandler;
  /** A WebSocket handshake is accepted here, after every check of a request; gives the socket's hooks. A plain GET is 426 before `handler` */
  readonly websocket?: (context: RequestContext) => Partial<Hooks>;
  readonly handler: Handler;
}

/**
 * Returns a route that refuses every field and query parameter it does not know. For routes where a field that is dropped in silence
 * does more than was meant: `expires_in` in place of `ttl_seconds` would make a token without an end, a misplaced `key` would forget the
 * whole memory.
 *
 * A route with a body validates it with a strict schema; one without takes no field at all.
 */
export function strictRoute(route: Route): Route {
  const { handler, repeat } = route;
  return {
    ...route,
    strict: true,
    async handler(request, context) {
      await refuseUnknown(request, context, route);
      return await handler(request, context);
    },
    ...(repeat === undefined ? {} : {
      async repeat(request, context, runId) {
        await refuseUnknown(request, context, route);
        return await repeat(request, context, runId);
      },
    }),
  };
}

const NO_FIELDS = v.strictObject({});

/** @throws {HttpError} 400 invalid_request with the name in `param` */
async function refuseUnknown(request: Request, context: RequestContext, { query = {}, body }: Route): Promise<void> {
  for (const name of context.query.keys()) {
    if (Object.hasOwn(query, name)) continue;
    const known = Object.keys(query);
    const way = known.length === 0 ? "it takes none" : `it takes ${known.join(", ")}`;
    throw httpError(
      "invalid_request",
      `Cannot accept the query parameter "${shown(name)}": this route does not know it; ${way}`,
      {
        param: shown(name),
      },
    );
  }
  if (body === undefined) await readJson(request, context, NO_FIELDS, { optional: true });
}

const MAX_SHOWN_LENGTH = 64;

function shown(name: string): string {
  return name.slice(0, MAX_SHOWN_LENGTH);
}

/**
 * What an Idempotency-Key has a hold on: the one run that answers all requests under it.
 *
 * The hold is on disk from the moment the run is accepted, so that a repeat finds the run, also after a crash.
 * Source: docs/design/http.md "Idempotency"
 */
export interface RunClaim {
  /** To be handed to the start of the run: recorded in the transaction that accepts it */
  readonly write: (runId: string) => Write;
  /** Whether text of this turn went to a client, or may have, that this reply cannot take back: in this process or before a crash */
  wasTold(turn: number): boolean;
  /** To be awaited before the first text of a turn goes out: from then on `wasTold`, on disk too */
  tell(turn: number): Promise<void>;
  /** Says that the reply is a failure without an effect: a repeat runs anew, whatever the client is told about retries */
  reopen(): void;
}
