import type { Message, Peer } from "crossws";
import * as v from "valibot";
import { usageSource } from "../../lib/base/records/usage.ts";
import type { Services } from "../../lib/services.ts";
import { defineRoute, defineSocket, type RouteInput } from "../define_route.ts";
import type { Route } from "../route.ts";
import { SocketSession } from "../websocket/socket_session.ts";
import {
  attachRun,
  conversationIdSchema,
  readRun,
  REPLY_ERRORS,
  requireAgent,
  spokenSchema,
  toChatRequest,
} from "../wire/agent_runs.ts";
import { callerOf } from "../door.ts";
import { collectReply, spokenText } from "../wire/collect_reply.ts";
import { textQuery } from "../wire/lists.ts";
import { CHANGE_HEADERS, changeHeaders, jsonReply, type Reply } from "../wire/reply.ts";

const chatSchema = v.object({
  message: spokenSchema,
  context: v.optional(v.string()),
  conversation_id: v.optional(conversationIdSchema),
  model: v.optional(v.string()),
});

const chatReplySchema = v.object({
  message: v.string(),
  tokens_used_estimate: v.number(),
  /** Source of `tokens_used_estimate`: the provider's own figure, a tokenizer, or bytes / 4 */
  usage_source: v.picklist(["provider", "tokenizer", "bytes"]),
  run_id: v.string(),
  conversation_id: v.nullable(v.string()),
});

/** POST /api/chat: one message, one JSON reply, always recorded under a conversation (docs/design/runs.md "Conversations"). */
export const chatRoute = defineRoute({
  method: "POST",
  path: "/api/chat",
  access: "chat",
  needs: ["agent", "tools"],
  continues: "conversation",
  summary: "Chat with the agent, answered as JSON",
  body: chatSchema,
  reply: { status: 200, type: "application/json", schema: chatReplySchema, headers: CHANGE_HEADERS },
  errors: REPLY_ERRORS,
  idempotency: "by_run",
  before: (parts) => void requireAgent(parts),
  repeat: chat,
  handle: chat,
});

/** POST /webhook: the legacy name, with the body and reply of /api/chat. */
export const legacyWebhookRoute: Route & Pick<typeof chatRoute, "handle"> = {
  ...chatRoute,
  path: "/webhook",
  summary: "Legacy webhook: the body and reply of /api/chat",
};

/** @param earlierId of the run that was started for an earlier request under the same Idempotency-Key; undefined starts one */
async function chat(
  { agent, tools }: Pick<Services, "agent" | "tools">,
  input: RouteInput<unknown, unknown, v.InferOutput<typeof chatSchema>>,
  earlierId?: string | null,
): Promise<Reply> {
  const { runs } = requireAgent({ agent });
  const { message, context: background, conversation_id, model } = input.body;
  const { claim } = input;
  // A repeat must find the work, so it outlives its client (docs/design/http.md "Idempotency")
  const durable = claim !== undefined;
  const run = typeof earlierId === "string"
    ? await attachRun(earlierId, { runs, request: input }, { streams: false })
    : await runs.start(toChatRequest(
      { message, context: background, conversationId: conversation_id ?? "new", model },
      {
        kind: "chat",
        by: { caller: input.caller, requestId: input.requestId },
        durable,
        claim: claim?.write,
        reader: durable ? undefined : { controller: input.controller },
      },
    ));
  const handle = run.durable ? readRun(run, { claim, tools }, { streams: false }) : run;
  const { id: runId } = handle;
  try {
    const reply = await collectReply(handle);
    const answered = {
      message: spokenText(reply),
      tokens_used_estimate: reply.usage.total_tokens,
      usage_source: usageSource(reply.usage),
      run_id: runId,
      conversation_id: handle.conversationId,
    };
    return { ...jsonReply(200, answered, changeHeaders(reply)), runId };
  } catch (error) {
    return { error, hadEffect: handle.hadEffect(), runId };
  }
}

/**
 * GET /ws/chat. The router has checked host, origin, token and scope before.
 * Source: docs/design/websocket.md "Frames in"
 */
export const chatSocketRoute = defineSocket({
  path: "/ws/chat",
  access: "chat",
  needs: ["agent", "approvals", "kit", "sockets"],
  summary: "Chat over a WebSocket with streamed replies",
  query: { ticket: textQuery("Single-use ticket of POST /v1/ws-ticket, in place of the Authorization header") },
  errors: ["upgrade_required", "agent_unavailable", "shutting_down"],
  accept(parts, handshake) {
    requireAgent(parts);
    parts.sockets.checkOpen("open a socket");
    // Sockets of Deno have no ping, and crossws prints a warning when one is tried
    const canPing = !("Deno" in globalThis);
    const options = { parts, canPing, caller: callerOf(handshake, "websocket"), requestId: handshake.requestId };
    let session: SocketSession | undefined;
    const sessionOf = (peer: Peer) => (session ??= new SocketSession(peer, options));
    return {
      open: (peer) => void sessionOf(peer),
      message(peer, message) {
        const data: unknown = message.rawData;
        if (typeof data === "string") sessionOf(peer).text(data);
        else sessionOf(peer).binary(sizeOf(message));
      },
      pong: () => session?.pong(),
      ping: () => session?.pinged(),
      drain: () => session?.drained(),
      close: () => session?.closed(),
      error: () => session?.closed(),
    };
  },
});

function sizeOf({ rawData }: Message): number {
  if (rawData instanceof Blob) return rawData.size;
  return rawData instanceof ArrayBuffer || ArrayBuffer.isView(rawData) ? rawData.byteLength : 0;
}
