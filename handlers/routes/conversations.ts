import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import {
  conversationMessageSchema,
  conversationSchema,
  openedConversationSchema,
} from "../../lib/base/records/conversation.ts";
import type { SaidMessage } from "../../lib/runs/conversations/stored_conversations.ts";
import { defineRoute } from "../define_route.ts";
import { LIMIT_QUERY, listReply, listSchema, positionQuery, textQuery } from "../wire/lists.ts";
import { jsonReply } from "../wire/reply.ts";

/** GET /v1/conversations: stored conversations, newest first. */
export const conversationsRoute = defineRoute({
  method: "GET",
  path: "/v1/conversations",
  access: "runs",
  needs: ["conversations"],
  summary: "Conversations, newest first",
  query: { limit: LIMIT_QUERY, after: textQuery("Only those made before the one with this id") },
  reply: { status: 200, type: "application/json", schema: listSchema(conversationSchema) },
  async handle(parts, { query }) {
    const { conversations, hasMore } = await parts.conversations.list(query);
    return listReply(conversations, hasMore);
  },
});

/** GET /v1/conversations/:id: a page of the messages, oldest first. */
export const conversationRoute = defineRoute({
  method: "GET",
  path: "/v1/conversations/:id",
  access: "runs",
  needs: ["conversations"],
  summary:
    "One conversation with a page of its messages, in the order they were said, and the run that is at work in it",
  query: { limit: LIMIT_QUERY, after: positionQuery("Only messages after this seq") },
  reply: {
    status: 200,
    type: "application/json",
    schema: v.object({ ...openedConversationSchema.entries, messages: listSchema(conversationMessageSchema) }),
  },
  async handle({ conversations }, { params: { id }, query: { limit, after: afterSeq } }) {
    const conversation = await conversations.open(id);
    if (conversation === undefined) throw unknownConversation();
    const messages = await conversations.messages(id, { afterSeq, limit });
    const last = messages.at(-1);
    return jsonReply(200, {
      ...conversation,
      messages: {
        object: "list",
        data: messages.map(toWire),
        has_more: last !== undefined && last.seq < conversation.message_count,
        last_id: last === undefined ? null : String(last.seq),
      },
    });
  },
});

const renameSchema = v.object({
  /** 1-200 characters that are not all space */
  title: v.pipe(v.string(), v.maxLength(200), v.regex(/\S/)),
});

/** POST /v1/conversations/:id: names a conversation. */
export const renameConversationRoute = defineRoute({
  method: "POST",
  path: "/v1/conversations/:id",
  access: "runs",
  needs: ["conversations"],
  summary: "Name a conversation; one that is at work is 409",
  body: renameSchema,
  reply: { status: 200, type: "application/json", schema: conversationSchema },
  errors: ["conflict"],
  idempotency: "harmless",
  async handle({ conversations }, { params, body }) {
    const renamed = await conversations.rename(params.id, body.title);
    if (renamed === "unknown") throw unknownConversation();
    if (renamed === "at_work") throw atWork("name");
    return jsonReply(200, renamed);
  },
});

/** DELETE /v1/conversations/:id: deletes the messages of a conversation; the records of its runs stay. */
export const deleteConversationRoute = defineRoute({
  method: "DELETE",
  path: "/v1/conversations/:id",
  access: "runs",
  needs: ["conversations"],
  summary: "Forget a conversation; one that is at work is 409",
  errors: ["conflict"],
  reply: { status: 200, type: "application/json", schema: v.object({ id: v.string(), deleted: v.literal(true) }) },
  async handle({ conversations }, { params: { id } }) {
    switch (await conversations.delete(id)) {
      case "unknown":
        throw unknownConversation();
      case "at_work":
        throw atWork("delete");
      case "deleted":
        return jsonReply(200, { id, deleted: true });
    }
  },
});

/** DELETE /v1/conversations: deletes every conversation that is not at work. An id in the query or the body is refused: use the route with `:id`. */
export const deleteConversationsRoute = defineRoute({
  method: "DELETE",
  path: "/v1/conversations",
  access: "runs",
  strict: true,
  needs: ["conversations"],
  summary: "Forget every conversation that is not at work",
  reply: {
    status: 200,
    type: "application/json",
    schema: v.object({ deleted: v.number(), at_work: v.number() }),
  },
  async handle(parts) {
    const { deleted, atWork } = await parts.conversations.deleteAll();
    return jsonReply(200, { deleted, at_work: atWork });
  },
});

/** Returns a message for the wire, without the vendor's own fields, which only the provider reads. */
function toWire({ seq, runId, message, cut }: SaidMessage) {
  const { opaque: _, vendor_ids: _ids, extra: _extra, ...said } = {
    opaque: undefined,
    vendor_ids: undefined,
    ...message,
  };
  if ("tool_calls" in said && said.tool_calls !== undefined) {
    said.tool_calls = said.tool_calls.map(({ extra: _, ...call }) => call);
  }
  return { seq, run_id: runId, ...said, ...(cut === undefined ? {} : { cut }) };
}

function atWork(what: string) {
  return refuse(
    "conflict",
    `Cannot ${what} this conversation: a run of it is at work; wait for its end, or cancel it first`,
  );
}

function unknownConversation() {
  return refuse(
    "not_found",
    'Cannot find this conversation: "postern conversation list", "/resume" in "postern chat" and GET /v1/conversations show those that are kept',
  );
}
