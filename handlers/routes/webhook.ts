import * as v from "valibot";
import { CancelError } from "../../lib/base/cancel.ts";
import { refuse } from "../../lib/base/errors.ts";
import { hasScope, mayReach } from "../../lib/base/records/caller.ts";
import type { Run } from "../../lib/base/records/run.ts";
import { UNTAINTED } from "../../lib/base/taint.ts";
import { CHANNEL_NAME, shortDigest, type WebhookChannel } from "../../lib/automation/channels/webhooks.ts";
import type { RunHandle } from "../../lib/runs/run_request.ts";
import { defineRoute, type RouteInput } from "../define_route.ts";
import { callerOf } from "../door.ts";
import type { RouteParts } from "../route.ts";
import { readRun, REPLY_ERRORS, requireAgent, runHadEffect, spokenSchema, toChatRequest } from "../wire/agent_runs.ts";
import { collectReply, spokenText } from "../wire/collect_reply.ts";
import { runFailure } from "../wire/http_errors.ts";
import { choiceQuery } from "../wire/lists.ts";
import { CHANGE_HEADERS, changeHeaders, jsonReply, type Reply } from "../wire/reply.ts";

const spoken = v.optional(spokenSchema);
const named = v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(256)));

const webhookSchema = v.object({
  message: spoken,
  /** Other names of `message` that senders use */
  text: spoken,
  content: spoken,
  sender: named,
  message_id: named,
  context: v.optional(v.string()),
});

const webhookReplySchema = v.object({
  accepted: v.literal(true),
  channel: v.string(),
  run_id: v.string(),
  reply: v.optional(v.string()),
});

const WAIT = choiceQuery("1: answer 200 with the reply instead of 202 at once", ["0", "1"]);

/**
 * POST /v1/webhook/:channel: a message from a channel, accepted durably and answered by a run.
 * Source: docs/design/automation.md "Channels"
 */
export const webhookRoute = defineRoute({
  method: "POST",
  path: "/v1/webhook/:channel",
  access: "chat",
  needs: ["agent", "tools", "webhooks"],
  summary: "Dispatch a message of a channel; with wait=1 the reply is waited for",
  body: webhookSchema,
  query: { wait: WAIT },
  params: { channel: { type: "string", pattern: CHANNEL_NAME.source } },
  headers: {
    "X-Postern-Signature": {
      description: "t=<unix seconds>,sha256=<hex>, for a channel with a secret",
      schema: { type: "string" },
    },
  },
  reply: { status: 202, type: "application/json", schema: webhookReplySchema },
  otherReplies: [{
    status: 200,
    type: "application/json",
    schema: webhookReplySchema,
    description: "The reply, with wait=1",
    headers: CHANGE_HEADERS,
  }],
  errors: REPLY_ERRORS,
  idempotency: "by_run",
  async before(parts, input) {
    requireAgent(parts);
    await (await parts.webhooks()).admit(input.params.channel, input.head, () => input.bytes());
  },
  repeat: async (parts, input, runId) => {
    const { name } = (await parts.webhooks()).channel(input.params.channel);
    return await repeat(parts, input, { channel: name, runId: runId ?? "" });
  },
  handle: dispatch,
});

type WebhookInput = RouteInput<
  { readonly channel: string },
  { readonly wait: "0" | "1" | undefined },
  v.InferOutput<typeof webhookSchema>
>;
type Parts = Pick<RouteParts, "agent" | "tools" | "webhooks">;

async function dispatch(parts: Parts, input: WebhookInput): Promise<Reply> {
  const { runs } = requireAgent(parts);
  const { body, identity, requestId, claim, head } = input;
  const webhooks = await parts.webhooks();
  const channel = webhooks.channelOf(head);
  const message = body.message ?? body.text ?? body.content;
  if (message === undefined) {
    throw refuse("invalid_request", 'Cannot dispatch without a message: send "message", "text" or "content"', {
      param: "message",
    });
  }
  const caller = callerOf({ identity }, "channel");
  const asked = { message, context: body.context, conversationId: conversationOf(channel, body.sender) };
  // Nobody vouches for a message without a signature: whoever holds a token may have passed it on
  const taint = channel.isSigned ? UNTAINTED : [`webhook ${channel.name}`];
  const from = { sender: body.sender, messageId: body.message_id, tokenId: caller.tokenId };
  const accepted = await webhooks.take(head, from, {
    claim: claim?.write,
    start: (claims) =>
      runs.start(
        toChatRequest(asked, { kind: "channel", by: { caller, requestId, taint }, durable: true, claim: claims }),
      ),
  });
  const [{ name }, runId] = [channel, accepted.first ? accepted.run.id : accepted.runId];
  const reply = accepted.first
    ? await answer(parts, input, { channel: name, run: accepted.run })
    : await repeat(parts, input, { channel: name, runId });
  return { ...reply, runId };
}

/** Returns the conversation of a message. A sender whose name cannot be part of an id is named by its digest. */
function conversationOf({ name, conversation }: WebhookChannel, sender: string | undefined): string {
  switch (conversation) {
    case "channel":
      return name;
    case "message":
      return "new";
    case "sender":
      if (sender === undefined) return "new";
      // Attack: a sender that names itself like the digest of another one. Plain names have no colon, so they cannot
      return `${name}:${/^[A-Za-z0-9._-]{1,63}$/.test(sender) ? sender : `sha256:${shortDigest(sender)}`}`;
  }
}

async function answer(
  { tools }: Parts,
  { claim, query, signal }: WebhookInput,
  { channel, run }: { readonly channel: string; readonly run: RunHandle },
): Promise<Reply> {
  const handle = readRun(run, { claim, tools }, { streams: false });
  const accepted = { accepted: true, channel, run_id: handle.id };
  if (query.wait !== "1") return jsonReply(202, accepted);
  try {
    const reply = await waitFor(collectReply(handle), signal);
    return reply === undefined
      ? jsonReply(202, accepted)
      : jsonReply(200, { ...accepted, reply: spokenText(reply) }, changeHeaders(reply));
  } catch (error) {
    return { error, hadEffect: handle.hadEffect() };
  }
}

/** Answers a repeated message with the run of the first one, and with the reply when the run has ended. */
async function repeat(
  { agent, tools }: Parts,
  { query, claim, identity, signal }: WebhookInput,
  { channel, runId }: { readonly channel: string; readonly runId: string },
): Promise<Reply> {
  const accepted = { accepted: true, channel, run_id: runId };
  if (query.wait !== "1") return jsonReply(202, accepted);
  await checkDelivered({ agent, identity }, runId);
  const run = await endedRun({ agent, signal }, runId);
  if (run?.status === "completed") {
    claim?.shows(undefined);
    return jsonReply(200, { ...accepted, reply: run.result ?? "" });
  }
  if (run?.error) {
    claim?.shows(run.error.code);
    const { runs } = requireAgent({ agent });
    return { error: runFailure(run.error), hadEffect: await runHadEffect(runId, { runs, tools, signal }) };
  }
  return jsonReply(202, accepted);
}

/** Checks that the caller's token delivered the message: a message_id is no secret, and the reply is private. @throws {HttpError} 403 insufficient_scope */
async function checkDelivered(
  { agent, identity }: Pick<Parts, "agent"> & Pick<WebhookInput, "identity">,
  runId: string,
): Promise<void> {
  const caller = callerOf({ identity }, "channel");
  if (hasScope(caller.scopes, "runs")) return;
  if (mayReach(caller, await agent?.runs.startedBy(runId))) return;
  throw refuse(
    "insufficient_scope",
    'Cannot show the reply: another token delivered the message of this message_id, and yours lacks the scope "runs"',
    { param: "message_id" },
  );
}

/** Waits for the end of a run. Returns undefined when the request ends first. */
async function endedRun(
  { agent, signal }: Pick<Parts, "agent"> & Pick<WebhookInput, "signal">,
  runId: string,
): Promise<Run | undefined> {
  try {
    return await agent?.runs.ended(runId, signal);
  } catch (error) {
    if (error instanceof CancelError) return undefined;
    throw error;
  }
}

/** Waits for the result of durable work. Returns undefined when the signal aborts first; the work goes on. */
async function waitFor<T>(work: Promise<T>, signal: AbortSignal): Promise<T | undefined> {
  if (signal.aborted) return undefined;
  const ended = Promise.withResolvers<undefined>();
  const end = () => ended.resolve(undefined);
  signal.addEventListener("abort", end, { once: true });
  try {
    return await Promise.race([work, ended.promise]);
  } finally {
    signal.removeEventListener("abort", end);
  }
}
