import { toJsonSchema } from "@valibot/to-json-schema";
import type { GenericSchema } from "valibot";
import type { JsonSchema } from "../lib/base/records/json_schema.ts";
import { ERROR_CODES } from "./wire/error_codes.ts";
import type { DoorAccess } from "./door.ts";
import type { Route } from "./route.ts";
import { textReply } from "./wire/reply.ts";

/**
 * GET /openapi.json: OpenAPI 3.1 from the schemas the handlers validate with. Made on the first request.
 * @param routes all routes of the gateway, this one among them
 */
export function openApiRoute(routes: () => readonly Route[]): Route {
  let text: string | undefined;
  return {
    method: "GET",
    path: "/openapi.json",
    access: "public",
    summary: "This description",
    reply: { status: 200, type: "application/json" },
    handler(_request, context) {
      text ??= JSON.stringify(describeRoutes(routes(), context.services.version));
      return textReply(context, 200, text, "application/json");
    },
  };
}

function describeRoutes(routes: readonly Route[], version: string) {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const route of routes) (paths[templateOf(route.path)] ??= {})[route.method.toLowerCase()] = operationOf(route);
  return {
    openapi: "3.1.0",
    info: { title: "Postern", version, summary: "A local HTTP and WebSocket gateway to an agent runtime" },
    paths,
    components: {
      securitySchemes: {
        bearer: { type: "http", scheme: "bearer", description: "A token of POST /pair or POST /v1/tokens" },
        pairing_code: { type: "apiKey", in: "header", name: "X-Pairing-Code" },
        node_token: { type: "http", scheme: "bearer", description: "The token of [gateway.node_control]" },
      },
      schemas: { Error: ERROR_SCHEMA },
      responses: {
        Error: {
          description: "The one error shape",
          content: { "application/json": { schema: { $ref: "#/components/schemas/Error" } } },
        },
      },
    },
  };
}

const ERROR_SCHEMA: JsonSchema = {
  type: "object",
  properties: {
    error: {
      type: "object",
      properties: {
        message: { type: "string" },
        type: { type: "string" },
        code: { type: "string", examples: Object.keys(ERROR_CODES) },
        param: { type: ["string", "null"] },
      },
      required: ["message", "type", "code", "param"],
    },
  },
  required: ["error"],
};

function templateOf(path: string): string {
  return path.replace(/:(\w+)\+?/g, "{$1}");
}

function operationOf(route: Route) {
  const { reply, body, access } = route;
  return {
    operationId: `${route.method} ${route.path}`.toLowerCase().replace(/[^a-z0-9]+/g, "_").replace(/_$/, ""),
    summary: route.summary,
    parameters: parametersOf(route),
    security: securityOf(access),
    ...(body === undefined ? {} : {
      requestBody: {
        required: route.bodyOptional !== true,
        content: { "application/json": { schema: schemaOf(body) } },
      },
    }),
    responses: {
      [route.websocket === undefined ? reply.status : 101]: {
        description: route.websocket === undefined ? "Success" : "The connection is a WebSocket",
        ...(route.websocket === undefined
          ? { content: { [reply.type]: reply.schema === undefined ? {} : { schema: schemaOf(reply.schema) } } }
          : {}),
      },
      default: { $ref: "#/components/responses/Error" },
    },
  };
}

function securityOf(access: DoorAccess) {
  if (access === "public") return [];
  return access === "pairing_code" || access === "node_token" ? [{ [access]: [] }] : [{ bearer: [access] }];
}

function parametersOf({ path, query = {}, idempotency }: Route) {
  const inPath = [...path.matchAll(/:(\w+)/g)].map(([, name]) => ({
    name,
    in: "path",
    required: true,
    schema: { type: "string" },
  }));
  const inQuery = Object.entries(query).map(([name, description]) => ({
    name,
    in: "query",
    description,
    schema: { type: "string" },
  }));
  const key = { name: "Idempotency-Key", in: "header", schema: { type: "string", minLength: 1, maxLength: 255 } };
  return [...inPath, ...inQuery, ...(idempotency === undefined || idempotency === "refused" ? [] : [key])];
}

/** Checks that JSON Schema cannot say (a custom one, a transformation) are left out: the description is then wider, never wrong. */
function schemaOf(schema: GenericSchema): JsonSchema {
  // `$schema` is said once by OpenAPI itself
  const { $schema: _, ...rest } = toJsonSchema(schema, {
    target: "draft-2020-12",
    errorMode: "ignore",
    typeMode: "input",
  });
  return rest as JsonSchema;
}
