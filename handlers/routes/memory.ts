import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { DEFAULT_NAMESPACE, MEMORY_LIMITS } from "../../lib/memory/memory.ts";
import type { Route, RouteParameter } from "../route.ts";
import { strictRoute } from "../wire/read_json.ts";
import { LIMIT_QUERY, listSchema, pageOf, placedListReply, textQuery } from "../wire/lists.ts";
import { jsonReply } from "../wire/reply.ts";

const memorySchema = v.object({
  object: v.literal("memory"),
  namespace: v.string(),
  key: v.string(),
  value: v.string(),
  tags: v.array(v.string()),
  created_at: v.string(),
  updated_at: v.string(),
  /** Origins of outside content that it was made from */
  taint: v.optional(v.array(v.string())),
});

const NAMESPACE_QUERY: RouteParameter = {
  description: "Only this namespace",
  schema: { type: "string", pattern: "^[A-Za-z0-9_.-]{1,64}$" },
};

/** GET /v1/memory: what the agent keeps between conversations. */
export const memoryRoute: Route = {
  method: "GET",
  path: "/v1/memory",
  access: "runs",
  summary: "What the agent keeps between conversations, newest first; with a query the best first",
  query: {
    limit: LIMIT_QUERY,
    after: textQuery("Only those made before this one, the last_id of the list before"),
    query: textQuery("Plain words that are searched in key, value and tags; there is no second page then"),
    namespace: NAMESPACE_QUERY,
  },
  reply: { status: 200, type: "application/json", schema: listSchema(memorySchema) },
  async handler(_request, context) {
    const { query, services } = context;
    const { records, hasMore, last } = await services.memory.list({
      ...pageOf(context),
      query: query.get("query") ?? undefined,
      namespace: query.get("namespace") ?? undefined,
    });
    const data = records.map((record) => ({ object: "memory", ...record }));
    return placedListReply(context, data, { hasMore, lastId: last ?? null });
  },
};

/** DELETE /v1/memory: one record by its key, a namespace, or everything. A misspelt `key`, or one in a body, forgets nothing. */
export const deleteMemoryRoute: Route = strictRoute({
  method: "DELETE",
  path: "/v1/memory",
  access: "runs",
  summary: "Forget the memory of a key, without a key those of a namespace, without either all of them",
  query: {
    key: {
      description: `The key of the memory to forget, in the namespace "${DEFAULT_NAMESPACE}" unless another is named`,
      schema: { type: "string", minLength: 1, maxLength: MEMORY_LIMITS.keyCharacters },
    },
    namespace: NAMESPACE_QUERY,
  },
  reply: { status: 200, type: "application/json", schema: v.object({ deleted: v.number() }) },
  errors: ["not_found"],
  async handler(_request, context) {
    const { query, services: { memory } } = context;
    const key = query.get("key");
    const namespace = query.get("namespace") ?? undefined;
    if (key === null) return jsonReply(context, 200, { deleted: await memory.forgetAll({ namespace }) });
    if (!await memory.forget({ key, namespace })) {
      throw refuse("not_found", "Cannot forget this memory: there is none of this key in this namespace");
    }
    return jsonReply(context, 200, { deleted: 1 });
  },
});
