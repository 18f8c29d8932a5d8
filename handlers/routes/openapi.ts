import { toJsonSchema } from "@valibot/to-json-schema";
import type { GenericSchema } from "valibot";
import { ERROR_CODES, type ErrorCode, isErrorCode } from "../../lib/base/errors.ts";
import { isRecord, type JsonSchema } from "../../lib/base/json.ts";
import { defineRoute } from "../define_route.ts";
import type { DoorAccess } from "../door.ts";
import type { Route, RouteParameter, RouteReply } from "../route.ts";
import { isMessagesPath, isModelsPath, statusOnPath } from "../wire/http_errors.ts";

const PATH = "/openapi.json";

/**
 * GET /openapi.json: OpenAPI 3.1 from the schemas the handlers validate with. Made on the first request.
 * @param routes all routes of the gateway, this one among them
 */
export function openApiRoute(routes: () => readonly Route[]) {
  let text: string | undefined;
  return defineRoute({
    method: "GET",
    path: PATH,
    access: "public",
    needs: ["version"],
    summary: "This description",
    reply: { status: 200, type: "application/json" },
    handle({ version }, { head }) {
      text ??= JSON.stringify(describeRoutes(routes(), version)).slice(1);
      // The address by which the client reached the gateway, with the path of the mount
      const url = head.url.split(/[?#]/, 1)[0]?.slice(0, -PATH.length);
      return { status: 200, body: `{"servers":${JSON.stringify([{ url }])},${text}`, type: "application/json" };
    },
  });
}

/**
 * Returns the codes of the errors that a route may answer with: those of its kind and those of its own handler.
 *
 * A number is a status that a model's provider gave and that is passed on.
 */
export function errorsOf(route: Route): ReadonlySet<ErrorCode | number> {
  const errors = new Set<ErrorCode | number>(["invalid_request", "host_forbidden", "rate_limited", "internal_error"]);
  const add = (...codes: readonly ErrorCode[]) => codes.forEach((code) => errors.add(code));
  const { access, idempotency } = route;
  // Headers that describe a body are checked on every route, also on one that reads no body
  add("unsupported_media_type", "expectation_failed", "not_implemented");
  if (route.method !== "GET" || route.websocket !== undefined) add("origin_forbidden");
  if (route.method !== "GET") add("payload_too_large");
  if (route.path.includes(":")) add("not_found");
  if (route.body !== undefined || route.rawBody !== undefined) add("request_timeout");
  if (access === "pairing_code") add("pairing_code_required", "pairing_code_invalid", "pairing_locked");
  else if (access !== "public" && access !== "node_token") add("auth_required", "auth_invalid", "insufficient_scope");
  if (takesKey(route)) add("request_timeout", "idempotency_conflict");
  if (idempotency === "honoured" || idempotency === "by_run") add("conflict");
  for (const error of route.errors ?? []) errors.add(error);
  return errors;
}

function takesKey({ idempotency }: Route): boolean {
  return idempotency !== undefined && idempotency !== "refused";
}

/** Returns the statuses of the errors of `errorsOf`, as the clients of the route get them. */
export function errorStatusesOf(route: Route): ReadonlySet<number> {
  const statuses = [...errorsOf(route)].map((error) =>
    typeof error === "number" ? error : statusOnPath(route.path, error)
  );
  return new Set(statuses);
}

function describeRoutes(routes: readonly Route[], version: string) {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes) (paths[templateOf(route.path)] ??= {})[route.method.toLowerCase()] = operationOf(route);
  const responses = new Map(
    routes.flatMap((route) =>
      [...errorStatusesOf(route)].map((status) => [errorName(route.path, status), errorReplyOf(route.path, status)])
    ),
  );
  return {
    openapi: "3.1.0",
    info: {
      title: "Postern",
      version,
      summary: "A local HTTP and WebSocket gateway to an agent runtime",
      license: { name: "MIT", identifier: "MIT" },
    },
    paths,
    components: {
      securitySchemes: {
        bearer: { type: "http", scheme: "bearer", description: "A token of POST /pair or POST /v1/tokens" },
        pairing_code: { type: "apiKey", in: "header", name: "X-Pairing-Code" },
        cluster_token: { type: "http", scheme: "bearer", description: "The token of [cluster] token_env" },
        node_token: { type: "http", scheme: "bearer", description: "The token of [gateway.node_control]" },
      },
      headers: REPLY_HEADERS,
      schemas: { Error: ERROR_SCHEMA, MessagesError: MESSAGES_ERROR_SCHEMA, ModelsError: MODELS_ERROR_SCHEMA },
      responses: Object.fromEntries([...responses].sort(([a], [b]) => a < b ? -1 : 1)),
    },
  };
}

const ERROR_PROPERTIES = {
  error: {
    type: "object",
    properties: {
      message: { type: "string" },
      type: { type: "string" },
      code: { type: ["string", "null"], examples: Object.keys(ERROR_CODES) },
      param: { type: ["string", "null"] },
    },
    required: ["message", "type", "code", "param"],
  },
};

const ERROR_SCHEMA: JsonSchema = { type: "object", properties: ERROR_PROPERTIES, required: ["error"] };

const MESSAGES_ERROR_SCHEMA: JsonSchema = {
  type: "object",
  properties: { ...ERROR_PROPERTIES, type: { const: "error" }, request_id: { type: "string" } },
  required: ["type", "error", "request_id"],
};

/** Error on a path of clients of both formats: with `anthropic-version` in that of the Messages API */
const MODELS_ERROR_SCHEMA: JsonSchema = {
  anyOf: [{ $ref: "#/components/schemas/Error" }, { $ref: "#/components/schemas/MessagesError" }],
};

/** Headers of replies, by the name of their description. */
const REPLY_HEADERS = {
  RequestId: {
    description: "The request's id in the log: the client's own where it sent a valid one",
    schema: { type: "string", pattern: "^[A-Za-z0-9_.:-]{1,128}$" },
  },
  RetryAfter: { description: "Seconds until the request may succeed", schema: { type: "integer", minimum: 1 } },
  ShouldRetry: {
    description: "false: the same request would fail, or take effect, again",
    schema: { enum: ["false"] },
  },
  Authenticate: { description: "The scheme that is asked for", schema: { type: "string" } },
  Ignored: {
    description: "Names of body fields that were not honoured, with commas between them",
    schema: { type: "string" },
  },
  Changed: {
    description: "In plain mode: names of body fields that reached the model in another form, with commas between them",
    schema: { type: "string" },
  },
  Fallback: {
    description: "The provider/model that answered in place of the default model; absent: no other did",
    schema: { type: "string" },
  },
  Replayed: { description: "true: the stored reply of an earlier request", schema: { enum: ["true"] } },
} as const;

function headerOf(name: keyof typeof REPLY_HEADERS) {
  return { $ref: `#/components/headers/${name}` };
}

function errorName(path: string, status: number): string {
  return `${errorSchemaName(path)}${status}`;
}

function errorSchemaName(path: string): string {
  return isMessagesPath(path) ? "MessagesError" : isModelsPath(path) ? "ModelsError" : "Error";
}

function errorReplyOf(path: string, status: number) {
  const codes = Object.keys(ERROR_CODES).filter(isErrorCode).filter((code) => statusOnPath(path, code) === status);
  return {
    description: codes.length === 0 ? "A refusal of the model's provider, with its own code" : codes.join(", "),
    headers: {
      "x-request-id": headerOf("RequestId"),
      "x-should-retry": headerOf("ShouldRetry"),
      ...(status === 401 ? { "www-authenticate": headerOf("Authenticate") } : {}),
      ...(status === 429 || status === 503 || status === 529 ? { "retry-after": headerOf("RetryAfter") } : {}),
    },
    content: { "application/json": { schema: { $ref: `#/components/schemas/${errorSchemaName(path)}` } } },
  };
}

function templateOf(path: string): string {
  return path.replace(/:(\w+)\+?/g, "{$1}");
}

function operationOf(route: Route) {
  const { body, rawBody } = route;
  return {
    operationId: `${route.method} ${route.path}`.toLowerCase().replace(/[^a-z0-9]+/g, "_").replace(/_$/, ""),
    summary: route.summary,
    parameters: parametersOf(route),
    security: securityOf(route.access),
    ...(body === undefined ? {} : {
      requestBody: {
        required: route.bodyOptional !== true,
        content: { "application/json": { schema: withNulls(schemaOf(body, "input")) } },
      },
    }),
    ...(rawBody === undefined ? {} : {
      requestBody: { required: true, content: { [rawBody.type]: { schema: { type: "string", format: "binary" } } } },
    }),
    responses: { ...successesOf(route), ...refusalsOf(route) },
  };
}

interface Described {
  readonly description: string;
  readonly headers: Record<string, unknown>;
  content?: Record<string, unknown>;
}

/** Replies of one status are one description, with the content of each media type. */
function successesOf(route: Route): Record<number, Described> {
  const described: Record<number, Described> = {};
  for (const reply of [route.reply, ...route.otherReplies ?? []]) {
    const { status, type, description = "Success" } = reply;
    const at = described[status] ??= { description, headers: headersOf(route, reply) };
    if (type !== undefined) (at.content ??= {})[type] = contentOf(reply);
  }
  return described;
}

function headersOf(route: Route, { status, headers }: RouteReply): Record<string, unknown> {
  if (status === 101) return {};
  return {
    "x-request-id": headerOf("RequestId"),
    ...(route.body === undefined ? {} : { "x-postern-ignored": headerOf("Ignored") }),
    ...(status === 200 && answersByModel(route) ? { "x-postern-fallback": headerOf("Fallback") } : {}),
    ...(status === 200 && answersByModel(route) && route.steady === "completion"
      ? { "x-postern-changed": headerOf("Changed") }
      : {}),
    ...(takesKey(route) ? { "idempotency-replayed": headerOf("Replayed") } : {}),
    ...headers,
  };
}

/** Tells whether a route replies with what a run's model said. */
function answersByModel({ method, errors = [] }: Route): boolean {
  return method === "POST" && errors.includes("run_interrupted");
}

function contentOf({ type, schema }: RouteReply) {
  if (schema !== undefined) return { schema: schemaOf(schema, "output") };
  return type === "application/json" ? { schema: { type: "object" } } : { schema: { type: "string" } };
}

function refusalsOf(route: Route): Record<string, unknown> {
  const statuses = new Set(errorStatusesOf(route));
  for (const { status } of [route.reply, ...route.otherReplies ?? []]) statuses.delete(status);
  return Object.fromEntries(
    [...statuses].sort().map((status) => [status, { $ref: `#/components/responses/${errorName(route.path, status)}` }]),
  );
}

function securityOf(access: DoorAccess) {
  if (access === "public") return [];
  if (access === "cluster") return [{ cluster_token: [] }];
  return access === "pairing_code" || access === "node_token" ? [{ [access]: [] }] : [{ bearer: [access] }];
}

function parametersOf(route: Route) {
  const { path, params = {}, query = {}, headers = {} } = route;
  const inPath = [...path.matchAll(/:(\w+)/g)].map(([, name = ""]) => ({
    name,
    in: "path",
    required: true,
    schema: params[name] ?? ANY_TEXT,
  }));
  const keyed = takesKey(route) ? { ...headers, ...IDEMPOTENCY_KEY } : headers;
  return [...inPath, ...parameters("query", query), ...parameters("header", keyed)];
}

/** A path parameter without a form of its own: control characters are refused. */
const ANY_TEXT: JsonSchema = { type: "string", pattern: "^[^\\u0000-\\u001f\\u007f]+$" };

function parameters(place: "query" | "header", named: Readonly<Record<string, RouteParameter>>) {
  return Object.entries(named).map(([name, { description, required = false, schema }]) => {
    return { name, in: place, description, ...(required ? { required } : {}), schema };
  });
}

const IDEMPOTENCY_KEY: Readonly<Record<string, RouteParameter>> = {
  "Idempotency-Key": {
    description: "A repeat with the same key and body within 24 hours gets the first reply, and takes no effect",
    schema: { type: "string", pattern: "^[\\x21-\\x7e]{1,255}$" },
  },
};

/** Checks that JSON Schema cannot say (a custom one, a transformation) are left out: the description is then wider, never wrong. */
function schemaOf(schema: GenericSchema, typeMode: "input" | "output"): JsonSchema {
  // OpenAPI itself names the dialect once, so `$schema` is left out here
  const { $schema: _, ...rest } = toJsonSchema(schema, {
    target: "draft-2020-12",
    errorMode: "ignore",
    typeMode,
    overrideSchema: ({ jsonSchema }) => withoutPrefix(jsonSchema),
  });
  // The type of the rest has no index signature
  return rest as JsonSchema;
}

/** Lets every optional property be null, which equals its absence (see check_body.ts). */
function withNulls(schema: JsonSchema): JsonSchema {
  const changed: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(schema)) {
    if (Array.isArray(value)) changed[name] = value.map((item) => (isRecord(item) ? withNulls(item) : item));
    else if (name !== "properties") changed[name] = isRecord(value) ? withNulls(value) : value;
    // Written by valibot: each property has a schema
    else changed[name] = optionalWithNulls(value as Readonly<Record<string, JsonSchema>>, schema["required"]);
  }
  return changed;
}

function optionalWithNulls(properties: Readonly<Record<string, JsonSchema>>, required: unknown) {
  const isRequired = (name: string) => Array.isArray(required) && required.includes(name);
  return Object.fromEntries(
    Object.entries(properties).map(([name, property]) => {
      const schema = withNulls(property);
      return [name, isRequired(name) ? schema : { anyOf: [schema, { type: "null" }] }];
    }),
  );
}

/** Says a tuple by `items` and its length, since programs that read descriptions know `prefixItems` badly. */
function withoutPrefix<T extends { prefixItems?: unknown }>(schema: T): T | undefined {
  const { prefixItems, ...rest } = schema;
  if (!Array.isArray(prefixItems)) return undefined;
  const items = { anyOf: prefixItems };
  // The type of valibot's JSON Schema, with other keywords of it
  return { ...rest, items, minItems: prefixItems.length, maxItems: prefixItems.length } as unknown as T;
}
