import type { Hooks } from "crossws";
import { refuse } from "../lib/base/errors.ts";
import type { GenericSchema, InferOutput } from "valibot";
import * as v from "valibot";
import type { Identity } from "../lib/access/identity.ts";
import type { Caller } from "../lib/base/records/caller.ts";
import { callerOf, confirmCaller, type Door } from "./door.ts";
import type { QueryField, RequestContext, Route, RouteParts, RouteReply, RunClaim } from "./route.ts";
import { readJson, readRaw, takeJson, toJsonBody, toJsonValue } from "./wire/read_json.ts";
import { type Reply, sendReply } from "./wire/reply.ts";

type QueryFields = Readonly<Record<string, QueryField<unknown>>>;
type QueryValues<Query extends QueryFields> = { readonly [Name in keyof Query]: ReturnType<Query[Name]["read"]> };

/** Names of the parameters of a path; never without one. */
export type ParamName<Path extends string> = Path extends `${string}:${infer Rest}`
  ? Rest extends `${infer Name}/${infer Tail}` ? Name | ParamName<`/${Tail}`>
  : Rest extends `${infer Name}+` ? Name
  : Rest
  : never;
type PathParams<Path extends string> = Readonly<Record<ParamName<Path>, string>>;

/** Mark of a route whose body is read by its schema. */
interface BySchema {
  readonly bySchema: true;
}
type BodyBySchema<Body, Optional, Raw> = Raw extends object ? Uint8Array
  : Body extends GenericSchema ? InferOutput<Body> | (Optional extends true ? undefined : never)
  : undefined;
type BodyOf<Body, Optional, Raw, Read> = [Read] extends [BySchema] ? BodyBySchema<Body, Optional, Raw> : Read;

/** Everything that a handler knows of one request: plain values, read and checked by what its route declares. */
export interface RouteInput<Params = Readonly<Record<string, string>>, Query = unknown, Body = unknown> {
  /** Path parameters, decoded */
  readonly params: Params;
  readonly query: Query;
  /** undefined: the route takes no body, or its body may be absent and is */
  readonly body: Body;
  /** Names of body fields that no schema knows */
  readonly ignored: readonly string[];
  /** The sender, as records name it */
  readonly caller: Caller;
  /** null on public routes */
  readonly identity: Identity | null;
  /** Peer address, undefined when the mounting server does not say */
  readonly address: string | undefined;
  readonly requestId: string;
  /** See RequestContext. Made when it is first read */
  readonly signal: AbortSignal;
  /** Controller of `signal`. Attached work takes it as its own controller and so ends with the request */
  readonly controller: AbortController;
  /** Claim of the request's Idempotency-Key; undefined without one. A run that is started with a claim must be durable */
  readonly claim: RunClaim | undefined;
  /** Address and headers as they came */
  readonly head: Pick<Request, "url" | "headers">;
  /** See confirmCaller in door.ts. @throws {HttpError} 401 auth_invalid, 503 storage_unavailable */
  confirm(door: Door): Promise<void>;
}

type Answer = Reply | Promise<Reply>;
/** Input before the body is read. */
type EarlyInput<Input = RouteInput> = Omit<Input, "body" | "ignored"> & {
  /** Returns the body as it came, such as for its signature. @throws as RequestContext.body */
  bytes(): Promise<Uint8Array>;
};

/** A route as its module declares it. */
interface RouteForm<
  Need extends keyof RouteParts,
  Method extends Route["method"],
  Path extends string,
  Success extends RouteReply,
  Query extends QueryFields,
  Body extends GenericSchema | undefined,
  Optional extends boolean,
  Raw extends Route["rawBody"],
  Read,
  Input = RouteInput<PathParams<Path>, QueryValues<Query>, BodyOf<Body, Optional, Raw, Read>>,
> extends
  Omit<
    Route,
    | "method"
    | "path"
    | "reply"
    | "query"
    | "body"
    | "bodyOptional"
    | "rawBody"
    | "websocket"
    | "handler"
    | "repeat"
    | "needs"
  > {
  /** Names of the services that the handler uses */
  readonly needs: readonly Need[];
  readonly method: Method;
  readonly path: Path;
  readonly reply: Success;
  readonly query?: Query;
  readonly body?: Body;
  readonly bodyOptional?: Optional;
  readonly rawBody?: Raw;
  /** Reads the JSON of the body in place of the schema, which then describes it only. Names of fields that are not honoured go to `ignored` */
  readonly read?: (
    json: unknown,
    input: EarlyInput,
    ignored: string[],
    parts: Pick<RouteParts, Need>,
  ) => Read | Promise<Read>;
  /** Refuses what needs no look at the fields of the body, which is not read then. Not asked by a repeat, whose first request has passed */
  before?(parts: Pick<RouteParts, Need>, input: EarlyInput<Input>): void | Promise<void>;
  /** Answers a request that has passed every check. */
  handle(parts: Pick<RouteParts, Need>, input: Input): Answer;
  /** See Route. */
  repeat?(parts: Pick<RouteParts, Need>, input: Input, runId: string | null): Answer;
}

/** A route whose handler can be called with its parts and its input alone. The types of `Facts` say what its clients send and get. */
type DefinedRoute<Facts, Parts, Input> =
  & Omit<Route, keyof Facts>
  & Facts
  & { handle(parts: Parts, input: Input): Answer };

/**
 * Makes the route of a handler that takes its parts and its input as plain values, and returns a plain reply. Here the one is read from the
 * request, and the other becomes its response.
 *
 * Order: fields are refused where a strict route takes none, then the query is read, then `before` is asked, then the body is read.
 */
export function defineRoute<
  const Need extends keyof RouteParts,
  const Method extends Route["method"],
  const Path extends string,
  const Success extends RouteReply,
  // A route without one of these has none of its values
  Query extends QueryFields = Readonly<Record<never, never>>,
  Body extends GenericSchema | undefined = undefined,
  Optional extends boolean = false,
  Raw extends Route["rawBody"] = undefined,
  Read = BySchema,
>(
  form: RouteForm<Need, Method, Path, Success, Query, Body, Optional, Raw, Read>,
): DefinedRoute<
  { readonly method: Method; readonly path: Path; readonly reply: Success; readonly query?: Query },
  Pick<RouteParts, Need>,
  RouteInput<PathParams<Path>, QueryValues<Query>, BodyOf<Body, Optional, Raw, Read>>
> {
  type Input = RouteInput<PathParams<Path>, QueryValues<Query>, BodyOf<Body, Optional, Raw, Read>>;
  type Work = (parts: Pick<RouteParts, Need>, input: Input) => Answer;
  const { before, handle, repeat, read, ...route } = form;
  const reading = bodyReading(form, read);
  const takesNone = form.strict === true && reading === undefined;
  const isPlain = reading === undefined && before === undefined && !takesNone;
  const inputOf = (request: Request, context: RequestContext) =>
    // Params, query and body have the types that the route itself declares
    new RequestInput(request, context, route.query && readQuery(route.query, context.query)) as RequestInput & Input;

  function answerNow(request: Request, context: RequestContext): Response | Promise<Response> {
    const reply = handle(context.parts, inputOf(request, context));
    return reply instanceof Promise ? reply.then((value) => sendReply(context, value)) : sendReply(context, reply);
  }
  const answerLater = (check: typeof before, work: Work) => async (request: Request, context: RequestContext) => {
    if (takesNone) await readJson(request, context, NO_FIELDS, { optional: true });
    const input = inputOf(request, context);
    const checked = check?.(context.parts, input);
    if (checked !== undefined) await checked;
    if (reading !== undefined) {
      const sent = await reading.take(request, context);
      const body = reading.toBody(sent, context, input);
      const asked: RequestInput = input;
      asked.body = body instanceof Promise ? await body : body;
    }
    return sendReply(context, await work(context.parts, input));
  };
  return {
    ...route,
    handle,
    handler: isPlain ? answerNow : answerLater(before, handle),
    ...(repeat === undefined ? {} : {
      repeat: (request, context, runId) =>
        answerLater(undefined, (parts, input) => repeat(parts, input, runId))(request, context),
    }),
  };
}

/** A handshake that has passed every check of the router. */
export type Handshake<Query = unknown> = Pick<
  RouteInput<unknown, Query>,
  "query" | "identity" | "address" | "requestId" | "head"
>;

/** A socket as its module declares it. */
interface SocketForm<Need extends keyof RouteParts, Path extends string, Query extends QueryFields>
  extends Omit<Route, "method" | "path" | "query" | "reply" | "websocket" | "handler" | "needs"> {
  readonly needs: readonly Need[];
  readonly path: Path;
  readonly query: Query;
  /** Returns the hooks of the socket. An error that it throws refuses the handshake. */
  accept(parts: Pick<RouteParts, Need>, handshake: Handshake<QueryValues<Query>>): Partial<Hooks>;
}

/** A socket whose hooks can be made of its parts and a handshake alone. */
type DefinedSocket<Parts, Query> = Route & { accept(parts: Parts, handshake: Handshake<Query>): Partial<Hooks> };

/** Makes the route of a socket, which takes its parts and the handshake as plain values, and returns the hooks of the socket. */
export function defineSocket<
  const Need extends keyof RouteParts,
  const Path extends string,
  Query extends QueryFields,
>(form: SocketForm<Need, Path, Query>): DefinedSocket<Pick<RouteParts, Need>, QueryValues<Query>> {
  return {
    ...form,
    method: "GET",
    reply: { status: 101, description: "The connection is a WebSocket" },
    websocket: (request, context) =>
      // The query has the types that the route itself declares
      form.accept(
        context.parts,
        new RequestInput(request, context, readQuery(form.query, context.query)) as Handshake<
          QueryValues<Query>
        >,
      ),
    handler() {
      throw refuse("upgrade_required", "Cannot answer over plain HTTP: open a WebSocket");
    },
  };
}

/** Input that is read from a request. */
class RequestInput implements RouteInput {
  readonly head: Request;
  readonly query: unknown;
  body: unknown = undefined;
  readonly params: Readonly<Record<string, string>>;
  readonly ignored: readonly string[];
  readonly identity: Identity | null;
  readonly address: string | undefined;
  readonly requestId: string;
  readonly claim: RunClaim | undefined;
  readonly #context: RequestContext;

  constructor(request: Request, context: RequestContext, query: unknown) {
    this.head = request;
    this.query = query;
    this.params = context.params;
    this.ignored = context.ignored;
    this.identity = context.identity;
    this.address = context.remoteAddress;
    this.requestId = context.requestId;
    this.claim = context.claim;
    this.#context = context;
  }

  get caller(): Caller {
    return callerOf(this, "http");
  }

  get signal(): AbortSignal {
    return this.#context.signal;
  }

  get controller(): AbortController {
    return this.#context.controller;
  }

  bytes(): Promise<Uint8Array> {
    return this.#context.body();
  }

  confirm(door: Door): Promise<void> {
    return confirmCaller(this.#context, door);
  }
}

function readQuery(fields: QueryFields, query: URLSearchParams): unknown {
  return Object.fromEntries(
    Object.entries(fields).map(([name, { read }]) => [name, read(query.get(name), name)]),
  );
}

/** How the body of a route is read, in two steps: one async function for both would cost each request a promise more. */
interface BodyReading {
  /** Takes the bytes off the wire. */
  take(request: Request, context: RequestContext): Promise<Uint8Array>;
  /** Makes what the handler gets of them. */
  toBody(bytes: Uint8Array, context: RequestContext, input: EarlyInput): unknown;
}

const NO_FIELDS = v.strictObject({});

/** Returns how a route's body is read; undefined where it is not looked at. */
function bodyReading(
  { body, bodyOptional: optional = false, rawBody }: Pick<Route, "body" | "bodyOptional" | "rawBody">,
  read: ((json: unknown, input: EarlyInput, ignored: string[], parts: RouteParts) => unknown) | undefined,
): BodyReading | undefined {
  if (rawBody !== undefined) {
    return { take: (request, context) => readRaw(request, context, rawBody), toBody: (bytes) => bytes };
  }
  const options = { optional };
  const take: BodyReading["take"] = (request, context) => takeJson(request, context, options);
  if (read !== undefined) {
    return {
      take,
      toBody: (bytes, context, input) => read(toJsonValue(bytes, options), input, context.ignored, context.parts),
    };
  }
  return body && { take, toBody: (bytes, { ignored }) => toJsonBody(body, bytes, { optional, ignored }) };
}
