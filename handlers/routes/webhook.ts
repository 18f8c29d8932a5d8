import { hash, timingSafeEqual } from "node:crypto";
import * as v from "valibot";
import { bodyHmac } from "../../lib/base/body_hmac.ts";
import { CancelError } from "../../lib/base/cancel.ts";
import { HttpError, refuse } from "../../lib/base/errors.ts";
import { hasScope, mayReach } from "../../lib/base/records/caller.ts";
import type { Run } from "../../lib/base/records/run.ts";
import type { Config } from "../../lib/config/config.ts";
import { UNTAINTED } from "../../lib/base/taint.ts";
import type { RunHandle, RunRequest } from "../../lib/runs/run_request.ts";
import { Collection } from "../../lib/storage/read_records.ts";
import type { Write } from "../../lib/storage/store.ts";
import type { RequestContext, Route } from "../route.ts";
import { acceptedSchema, acceptOnce, forgetBefore } from "../wire/accept_once.ts";
import { callerOf } from "../door.ts";
import { collectReply, spokenText } from "../wire/collect_reply.ts";
import { runFailure } from "../wire/http_errors.ts";
import { choiceQuery } from "../wire/lists.ts";
import { readJson } from "../wire/read_json.ts";
import { CHANGE_HEADERS, changeHeaders, errorReply, sendJson } from "../wire/reply.ts";
import { readRun, REPLY_ERRORS, requireAgent, runHadEffect, spokenSchema, toChatRequest } from "../wire/agent_runs.ts";

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

const CHANNEL_NAME = /^[a-z0-9_-]{1,64}$/;

const WAIT = choiceQuery("1: answer 200 with the reply instead of 202 at once", ["0", "1"]);

/**
 * POST /v1/webhook/:channel: a message from a channel, accepted durably and answered by a run.
 * Source: docs/design/automation.md "Channels"
 */
export const webhookRoute: Route = {
  method: "POST",
  path: "/v1/webhook/:channel",
  access: "chat",
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
  repeat: (_request, context, runId) => repeat(context, channelOf(context).name, runId ?? ""),
  handler: dispatch,
};

/** Collection of messages that were taken. The key is channel, token (where the channel has no secret) and message id. */
export const WEBHOOK_MESSAGES = new Collection("webhook_messages", acceptedSchema, { replaced: "never changed" });
/** Collection of signed requests that were taken. The key is channel and signature. */
export const WEBHOOK_SIGNATURES = new Collection(
  "webhook_signatures",
  v.object({ v: v.literal(1), at: v.number() }),
  { replaced: "never changed" },
);
/** How long a `message_id` is remembered, in milliseconds. */
const MESSAGE_MS = 24 * 3600 * 1000;

async function dispatch(request: Request, context: RequestContext): Promise<Response> {
  const agent = requireAgent(context.services);
  const { name, channel } = channelOf(context);
  const isSigned = channel !== undefined && channel.secret_env !== "";
  const signature = isSigned ? await checkSigned(request, context, { name, secretEnv: channel.secret_env }) : undefined;
  const body = await readJson(request, context, webhookSchema);
  const message = body.message ?? body.text ?? body.content;
  if (message === undefined) {
    throw refuse("invalid_request", 'Cannot dispatch without a message: send "message", "text" or "content"', {
      param: "message",
    });
  }
  const { store, clock, deliveries } = context.services;
  const start = async (first?: RunRequest["claim"]) => {
    const promise = await deliveries.promise({ channel: name, sender: body.sender, messageId: body.message_id });
    const claims = [first, context.claim?.write, promise, signature?.use].filter((claim) => claim !== undefined);
    const claim = claims.length === 0 ? undefined : (runId: string) => claims.flatMap((each) => each(runId));
    const run = await agent.runs.start(toChatRequest(
      {
        message,
        context: body.context,
        conversationId: conversationOf(name, channel?.conversation ?? "sender", body.sender),
      },
      {
        kind: "channel",
        by: {
          caller: callerOf(context, "channel"),
          requestId: context.requestId,
          // Nobody vouches for a message without a signature: whoever holds a token may have passed it on
          taint: isSigned ? UNTAINTED : [`webhook ${name}`],
        },
        durable: true,
        claim,
      },
    )).catch(async (error: unknown) => {
      // Another request used the signature in the same moment. Under a key it may be the same request, which has its answer
      const isTaken = error instanceof HttpError && error.code === "conflict";
      if (isTaken && context.claim === undefined && await signature?.isUsed()) throw refused(USED);
      throw error;
    });
    if (promise !== undefined) await deliveries.watch(run.id);
    return run;
  };
  if (body.message_id === undefined) return answer(context, name, await start());
  // Ids of one sender are none of another's: without a secret, each token is a sender
  const sender = isSigned ? "" : `${callerOf(context, "channel").tokenId ?? ""}:`;
  const key = `${name}:${sender}${digest(body.message_id)}`;
  const accepted = await acceptOnce({ store, now: clock.now(), collection: WEBHOOK_MESSAGES, key, start });
  await forgetBefore(store, WEBHOOK_MESSAGES, clock.now() - MESSAGE_MS);
  if (accepted.first) return answer(context, name, accepted.run);
  if (signature !== undefined && !await store.batch([signature.use()])) throw refused(USED);
  return await repeat(context, name, accepted.runId);
}

type Channel = Config["channels"][string];

function channelOf(context: RequestContext): { readonly name: string; readonly channel: Channel | undefined } {
  const name = context.params.channel ?? "";
  const { channels } = context.services.config();
  const channel = Object.hasOwn(channels, name) ? channels[name] : undefined;
  if (CHANNEL_NAME.test(name) && (channel !== undefined || name === "default")) return { name, channel };
  throw refuse("not_found", `Cannot find this channel: configure it as [channels.<name>], or use "default"`);
}

/** Signature of a message that was not used before. */
interface FreshSignature {
  /** Returns the write that uses it. It goes with the acceptance of the message: one that was not accepted may be sent again */
  readonly use: () => Write;
  /** Tells whether it was used meanwhile. */
  isUsed(): Promise<boolean>;
}

const USED = "it was used before";

async function checkSigned(
  request: Request,
  context: RequestContext,
  options: { readonly name: string; readonly secretEnv: string },
): Promise<FreshSignature> {
  const { store, clock, environment } = context.services;
  const secret = environment(options.secretEnv);
  // Fail closed: a channel that demands a signature never goes without one
  if (!secret) {
    const { name, secretEnv } = options;
    context.services.log.error("The secret of a channel is not set", { channel: name, secret_env: secretEnv });
    throw refuse(
      "internal_error",
      `Cannot check the signature: the gateway was started without the variable that [channels.${name}] secret_env names`,
    );
  }
  const header = request.headers.get("x-postern-signature");
  const signature = checkWebhookSignature({ header, body: await context.body(), secret, now: clock.now() });
  const key = `${options.name}:${signature}`;
  const isUsed = async () => await store.get(WEBHOOK_SIGNATURES.name, key) !== undefined;
  if (await isUsed()) throw refused(USED);
  // The sender's time may be ahead by a whole window, so a signature may count for two windows
  await forgetBefore(store, WEBHOOK_SIGNATURES, clock.now() - 2 * SIGNATURE_WINDOW_SECONDS * 1000);
  return { isUsed, use: () => WEBHOOK_SIGNATURES.insert(key, { v: 1, at: clock.now() }) };
}

/** Returns the conversation of a message. A sender whose name cannot be part of an id is named by its digest. */
function conversationOf(name: string, kind: Channel["conversation"], sender: string | undefined): string {
  switch (kind) {
    case "channel":
      return name;
    case "message":
      return "new";
    case "sender":
      if (sender === undefined) return "new";
      // Attack: a sender that names itself like the digest of another one. Plain names have no colon, so they cannot
      return `${name}:${/^[A-Za-z0-9._-]{1,63}$/.test(sender) ? sender : `sha256:${digest(sender)}`}`;
  }
}

function digest(text: string): string {
  return hash("sha256", text).slice(0, 48);
}

async function answer(context: RequestContext, channel: string, run: RunHandle): Promise<Response> {
  const handle = readRun(run, { claim: context.claim, tools: context.services.tools }, { streams: false });
  const accepted = { accepted: true, channel, run_id: handle.id };
  if (!isWaiting(context)) return sendJson(context, 202, accepted);
  try {
    const reply = await waitFor(collectReply(handle), context.signal);
    return reply === undefined
      ? sendJson(context, 202, accepted)
      : sendJson(context, 200, { ...accepted, reply: spokenText(reply) }, changeHeaders(reply));
  } catch (error) {
    return errorReply(context, error, { hadEffect: handle.hadEffect() });
  }
}

/** Answers a repeated message with the run of the first one, and with the reply when the run has ended. */
async function repeat(context: RequestContext, channel: string, runId: string): Promise<Response> {
  const accepted = { accepted: true, channel, run_id: runId };
  if (isWaiting(context)) await checkDelivered(context, runId);
  const run = isWaiting(context) ? await endedRun(context, runId) : undefined;
  if (run?.status === "completed") {
    context.claim?.shows(undefined);
    return sendJson(context, 200, { ...accepted, reply: run.result ?? "" });
  }
  if (run?.error) {
    context.claim?.shows(run.error.code);
    return errorReply(context, runFailure(run.error), { hadEffect: await runHadEffect(context, runId) });
  }
  return sendJson(context, 202, accepted);
}

/** Checks that the caller's token delivered the message: a message_id is no secret, and the reply is private. @throws {HttpError} 403 insufficient_scope */
async function checkDelivered(context: RequestContext, runId: string): Promise<void> {
  const caller = callerOf(context, "channel");
  if (hasScope(caller.scopes, "runs")) return;
  if (mayReach(caller, await context.services.agent?.runs.startedBy(runId))) return;
  throw refuse(
    "insufficient_scope",
    'Cannot show the reply: another token delivered the message of this message_id, and yours lacks the scope "runs"',
    { param: "message_id" },
  );
}

/** Waits for the end of a run. Returns undefined when the request ends first. */
async function endedRun(context: RequestContext, runId: string): Promise<Run | undefined> {
  try {
    return await context.services.agent?.runs.ended(runId, context.signal);
  } catch (error) {
    if (error instanceof CancelError) return undefined;
    throw error;
  }
}

function isWaiting(context: RequestContext): boolean {
  return WAIT.read(context.query.get("wait"), "wait") === "1";
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

/** Maximum distance of the signature's time from the gateway's, earlier or later. */
export const SIGNATURE_WINDOW_SECONDS = 300;

const SIGNATURE = /^t=(\d{1,12}), ?sha256=([0-9a-fA-F]{64})$/;

/** A webhook's body with the signature and the secret to check it by. */
export interface SignedBody {
  /** Header X-Postern-Signature: `t=<unix seconds>,sha256=<hex>` of `<t>.<body>` */
  readonly header: string | null;
  readonly body: Uint8Array;
  readonly secret: string;
  /** Milliseconds since the epoch */
  readonly now: number;
}

/**
 * Checks the HMAC of a webhook's raw body, in constant time.
 * @returns the key to remember while the signature's time is acceptable, so that a signature is not used twice
 * @throws {HttpError} 401 auth_invalid
 * Source: docs/design/automation.md "Channels"
 */
export function checkWebhookSignature(signed: SignedBody): string {
  if (signed.header === null) throw refused("this channel demands the header X-Postern-Signature");
  const [, time, hex] = SIGNATURE.exec(signed.header) ?? [];
  if (time === undefined || hex === undefined) {
    throw refused("expected t=<unix seconds>,sha256=<64 hexadecimal digits>");
  }
  const expected = bodyHmac(signed.secret, time, signed.body);
  if (!timingSafeEqual(expected, Buffer.from(hex, "hex"))) {
    throw refused("it is not that of this body under the channel's secret");
  }
  if (Math.abs(signed.now / 1000 - Number(time)) > SIGNATURE_WINDOW_SECONDS) {
    throw refused(`its time is more than ${SIGNATURE_WINDOW_SECONDS} s away: check the sender's clock`);
  }
  return `${time}:${hex.toLowerCase()}`;
}

/** Returns the refusal of a signature. */
export function refused(reason: string) {
  return refuse("auth_invalid", `Cannot accept the signature: ${reason}`);
}
