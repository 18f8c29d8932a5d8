import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { memoryViewSchema } from "../../lib/base/records/memory.ts";
import { DEFAULT_NAMESPACE, MEMORY_LIMITS } from "../../lib/memory/memory.ts";
import { defineRoute } from "../define_route.ts";
import { LIMIT_QUERY, listSchema, placedListReply, textQuery } from "../wire/lists.ts";
import { jsonReply } from "../wire/reply.ts";

const NAMESPACE_QUERY = textQuery("Only this namespace", { type: "string", pattern: "^[A-Za-z0-9_.-]{1,64}$" });

/** GET /v1/memory: what the agent keeps between conversations. */
export const memoryRoute = defineRoute({
  method: "GET",
  path: "/v1/memory",
  access: "runs",
  needs: ["memory"],
  summary: "What the agent keeps between conversations, newest first; with a query the best first",
  query: {
    limit: LIMIT_QUERY,
    after: textQuery("Only those made before this one, the last_id of the list before"),
    query: textQuery("Plain words that are searched in key, value and tags; there is no second page then"),
    namespace: NAMESPACE_QUERY,
  },
  reply: { status: 200, type: "application/json", schema: listSchema(memoryViewSchema) },
  async handle({ memory }, { query }) {
    const { records, hasMore, last } = await memory.list(query);
    const data = records.map((record) => ({ object: "memory", ...record }));
    return placedListReply(data, { hasMore, lastId: last ?? null });
  },
});

/** DELETE /v1/memory: one record by its key, a namespace, or everything. A misspelt `key`, or one in a body, forgets nothing. */
export const deleteMemoryRoute = defineRoute({
  method: "DELETE",
  path: "/v1/memory",
  access: "runs",
  strict: true,
  needs: ["memory"],
  summary: "Forget the memory of a key, without a key those of a namespace, without either all of them",
  query: {
    key: textQuery(
      `The key of the memory to forget, in the namespace "${DEFAULT_NAMESPACE}" unless another is named`,
      { type: "string", minLength: 1, maxLength: MEMORY_LIMITS.keyCharacters },
    ),
    namespace: NAMESPACE_QUERY,
  },
  reply: { status: 200, type: "application/json", schema: v.object({ deleted: v.number() }) },
  errors: ["not_found"],
  async handle({ memory }, { query: { key, namespace } }) {
    if (key === undefined) return jsonReply(200, { deleted: await memory.forgetAll({ namespace }) });
    if (!await memory.forget({ key, namespace })) {
      throw refuse("not_found", "Cannot forget this memory: there is none of this key in this namespace");
    }
    return jsonReply(200, { deleted: 1 });
  },
});
