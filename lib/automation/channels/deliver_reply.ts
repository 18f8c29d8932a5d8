import { bodyHmac, SIGNATURE_HEADER } from "../../base/body_hmac.ts";
import type { Clock } from "../../base/clock.ts";
import { withEffectRight } from "../../base/effect_right.ts";
import { ToolError } from "../../base/errors.ts";
import type { KeyedSemaphore } from "../../base/keyed_queues.ts";
import type { Random } from "../../base/random.ts";
import type { Run } from "../../base/records/run.ts";
import type { Halts, HaltSubject } from "../../guard/halts.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Counter, Family } from "../../base/telemetry/metrics.ts";
import type { RunSupervisor } from "../../runs/run_request.ts";
import type { Store } from "../../storage/store.ts";
import type { WorkHold } from "../../cluster/work_hold.ts";
import type { GuardedFetch } from "../../system/net/guarded_fetch.ts";
import { retryAfterMs } from "../../system/net/retry_after.ts";
import type { UrlRules } from "../../system/net/url_rules.ts";
import { changeOf, DELIVERIES, type DeliveryRecord } from "./delivery_record.ts";

/** Address and secret for the replies of a channel: its `[channels.<name>]`. */
export interface ReplyTarget {
  readonly url: string;
  /** Environment variable of the secret; empty: replies are not signed */
  readonly secretEnv: string;
}

/** Store, clock, runs and settings that replies are delivered with. */
export interface DeliverOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  /** undefined while there is no agent */
  readonly runs: () => RunSupervisor | undefined;
  /** Returns the fetch that every attempt uses. It is made at the first */
  readonly fetch: () => Promise<GuardedFetch>;
  /** Work that a person has halted: no attempt begins then, and one under way is broken off. Default: nobody halts any */
  readonly halts?: Pick<Halts, "refusalOf" | "watch" | "untilResumed"> | undefined;
  /** Returns the channel as the configuration has it now. undefined: there is no such channel, or it has no `reply_url` */
  readonly targetOf: (channel: string) => ReplyTarget | undefined;
  readonly rules: () => UrlRules;
  readonly environment: (name: string) => string | undefined;
}

/** Options, and the state that all deliveries share. */
export interface DeliverContext extends DeliverOptions {
  /** Bounds the attempts to one channel at a time: a slow receiver holds up no other */
  readonly semaphore: KeyedSemaphore;
  /** Ended deliveries by status */
  readonly ended: Family<Counter>;
  /** Aborts when no further attempt begins */
  readonly stopping: AbortSignal;
  /** Aborts the attempts that are under way */
  readonly breaking: AbortSignal;
  /** Right of this gateway to the delivery in a cluster. Undefined: the gateway is alone */
  readonly hold?: WorkHold | undefined;
}

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const DAY_MS = 24 * 60 * MINUTE_MS;
/** Waits between attempts, each up to a fifth longer or shorter. One attempt more than there are waits. */
const BACKOFF_MS = [5, 30, 120, 600, 1800, 3600, 7200, 14_400, 28_800].map((seconds) => seconds * SECOND_MS);
/** After the run's end no attempt begins later than this. */
const MAX_AGE_MS = DAY_MS;
/** Milliseconds between two looks at a run that waits for a person's review. */
const REVIEW_MS = MINUTE_MS;
/** Longest wait for a person's review. */
const MAX_REVIEW_MS = 30 * DAY_MS;

/**
 * Waits for the end of a run and delivers its reply, attempt after attempt, until the reply is delivered or given up.
 * @throws {CancelError} when `stopping` aborts, and when others own the delivery
 */
export async function deliverReply(runId: string, given: DeliverContext): Promise<void> {
  const { store, clock, hold } = given;
  const signal = hold === undefined ? given.stopping : AbortSignal.any([given.stopping, hold.lost]);
  const context = { ...given, stopping: signal };
  let record = (await DELIVERIES.read(store, runId))?.value;
  while (record !== undefined && record.status === "waiting") {
    const runs = context.runs();
    if (runs === undefined) return;
    const run = await runs.ended(runId, signal);
    if (run === undefined) return await fail(record, "nothing is known of the run any more", context);
    if (run.status === "needs_review") {
      if (clock.now() - Date.parse(record.released_at ?? record.accepted_at) > MAX_REVIEW_MS) {
        return await fail(record, "the run waited too long for a person's review", context);
      }
      await clock.sleep(REVIEW_MS, signal);
      continue;
    }
    const wait = record.next_attempt_at === null ? 0 : Date.parse(record.next_attempt_at) - clock.now();
    if (wait > 0) await clock.sleep(wait, signal);
    record = await attempt(record, run, context);
  }
}

/**
 * Makes one attempt. An attempt that was broken off since this gateway might not act any more counts for nothing.
 * @returns the delivery as it waits for the next attempt; undefined when it has ended
 */
async function attempt(record: DeliveryRecord, run: Run, context: DeliverContext): Promise<DeliveryRecord | undefined> {
  const { clock, semaphore, stopping, hold, halts } = context;
  const { channel } = record;
  const target = context.targetOf(channel);
  if (target === undefined) {
    return void await fail(record, `[channels.${channel}] has no reply_url any more`, context);
  }
  const subject = { tool: "", access: "network", runId: record.run_id } as const;
  await halts?.untilResumed(subject, stopping);
  const fetch = await context.fetch();
  const outcome = await semaphore.pass(channel, stopping, async () => {
    await hold?.mayAct(stopping);
    // The gateway was down, or others went first: a receiver may have forgotten by now which replies it has had
    if (ageOf(record, run, clock.now()) > MAX_AGE_MS) return undefined;
    const send = (halted: AbortSignal) =>
      sendWithin((given) => {
        const signal = AbortSignal.any([given, halted]);
        return sendReply(record, run, target, { ...context, fetch, rules: context.rules(), signal });
      }, context);
    return await unlessHalted(subject, halts, send);
  });
  if (outcome === undefined) return void await fail(record, tooLate(record), context);
  if (outcome.kind === "broken") return record;
  const tried = { ...record, attempts: record.attempts + 1 };
  if (outcome.kind === "failed") return await afterFailure(tried, run, { outcome, context });
  await end({ ...tried, status: "delivered", last_error: null }, context);
  context.log.debug("A reply was delivered", named(tried));
  return undefined;
}

/** Makes an attempt that a halt breaks off. */
async function unlessHalted<T>(
  subject: HaltSubject,
  halts: DeliverOptions["halts"],
  send: (halted: AbortSignal) => Promise<T>,
): Promise<T | { readonly kind: "broken" }> {
  const halted = new AbortController();
  if (halts?.refusalOf(subject) !== undefined) return { kind: "broken" };
  const unwatch = halts?.watch(subject, (error) => halted.abort(error));
  try {
    return await send(halted.signal);
  } catch (error) {
    if (!halted.signal.aborted) throw error;
    return { kind: "broken" };
  } finally {
    unwatch?.();
  }
}

/** Makes an attempt that ends with the deadline of this gateway, since another may make the next one then. */
async function sendWithin<T>(
  send: (signal: AbortSignal) => Promise<T>,
  { breaking, hold }: Pick<DeliverContext, "breaking" | "hold">,
): Promise<T | { readonly kind: "broken" }> {
  if (hold === undefined) return await send(breaking);
  const deadline = hold.deadline();
  const right = { mayAct: () => hold.mayAct(breaking), mayActNow: () => hold.mayActNow() };
  try {
    return await withEffectRight({ right }, () => send(AbortSignal.any([breaking, deadline.signal])));
  } catch (error) {
    if (breaking.aborted || !deadline.signal.aborted) throw error;
    return { kind: "broken" };
  } finally {
    deadline.clear();
  }
}

/** Puts the next attempt off, or gives the reply up. @returns as `attempt` */
async function afterFailure(
  record: DeliveryRecord,
  run: Run,
  { outcome, context }: { readonly outcome: FailedAttempt; readonly context: DeliverContext },
): Promise<DeliveryRecord | undefined> {
  const { clock, random, log } = context;
  const { reason } = outcome;
  const wait = waitAfter(record, outcome, random);
  const next = clock.now() + (wait ?? 0);
  if (wait === undefined || ageOf(record, run, next) > MAX_AGE_MS) return void await fail(record, reason, context);
  log.warn("A reply could not be delivered yet", { ...named(record), reason });
  const waiting = { ...record, last_error: reason, next_attempt_at: toIso(next) };
  await write(waiting, context);
  return waiting;
}

/** Records a change of a delivery. @throws {CancelError} `shutdown` when others own it now */
async function write(record: DeliveryRecord, { store, hold, breaking }: DeliverContext): Promise<void> {
  if (hold === undefined) await store.batch(changeOf(record));
  else await hold.write(changeOf(record), breaking);
}

/** Returns the milliseconds until the next attempt. Undefined: there is none */
function waitAfter({ attempts }: DeliveryRecord, outcome: FailedAttempt, random: Random): number | undefined {
  const wait = BACKOFF_MS[attempts - 1];
  if (wait === undefined || outcome.isFinal) return undefined;
  const [byte = 128] = random.bytes(1);
  return Math.max(wait * (0.8 + byte / 640), outcome.retryAfterMs);
}

async function fail(record: DeliveryRecord, reason: string, context: DeliverContext): Promise<void> {
  await end({ ...record, status: "failed", last_error: reason }, context);
  context.log.error("A reply could not be delivered", { ...named(record), reason });
}

async function end(record: DeliveryRecord, context: DeliverContext): Promise<void> {
  const { clock, ended } = context;
  await write({ ...record, next_attempt_at: null, ended_at: toIso(clock.now()) }, context);
  ended.with(record.status).add();
}

/** Returns the fields that name a delivery in the log. */
function named({ run_id, channel, attempts }: DeliveryRecord): Readonly<Record<string, unknown>> {
  return { run_id, channel, attempts };
}

/** Returns the milliseconds since the run's end, or since a person released the delivery, whichever is later. */
function ageOf(record: DeliveryRecord, run: Run, now: number): number {
  const ended = Date.parse(run.ended_at ?? record.accepted_at);
  return now - (record.released_at === undefined ? ended : Math.max(ended, Date.parse(record.released_at)));
}

function tooLate({ last_error }: DeliveryRecord): string {
  const reason =
    "no attempt begins later than a day after the run's end, and the gateway was not running or too busy before";
  return last_error === null ? reason : `${reason}; the last attempt: ${last_error}`;
}

/** Outcome of an attempt. */
type SendOutcome =
  | { readonly kind: "delivered" }
  | FailedAttempt;

interface FailedAttempt {
  readonly kind: "failed";
  readonly reason: string;
  /** True when another attempt would end the same way */
  readonly isFinal: boolean;
  /** Milliseconds that the receiver asks to wait; 0: it asks for none */
  readonly retryAfterMs: number;
}

interface SendOptions {
  readonly fetch: GuardedFetch;
  readonly clock: Clock;
  readonly rules: UrlRules;
  readonly environment: (name: string) => string | undefined;
  readonly signal: AbortSignal;
}

const TIMEOUT_MS = 30_000;
/** Bytes of the receiver's answer that are read. Its content is not used. */
const MAX_BYTES = 65_536;
const MAX_RETRY_AFTER_MS = 3_600_000;

/**
 * Sends the reply of an ended run once: a JSON body, `Idempotency-Key` with the run's id, the same at every attempt, and the
 * channel's signature where it has a secret. Any 2xx is a success; 410 means that nobody wants it any more.
 * @throws {CancelError} when the signal aborts
 */
async function sendReply(
  record: DeliveryRecord,
  run: Run,
  target: ReplyTarget,
  { fetch: guarded, clock, rules, environment, signal }: SendOptions,
): Promise<SendOutcome> {
  const body = JSON.stringify({
    channel: record.channel,
    run_id: run.id,
    message_id: record.message_id,
    sender: record.sender,
    conversation_id: run.conversation_id,
    status: run.status,
    reply: run.result,
    error: run.error,
  });
  const secret = target.secretEnv === "" ? undefined : environment(target.secretEnv);
  if (target.secretEnv !== "" && !secret) {
    // Fail closed: a receiver that expects a signature is never sent anything without one
    return failed(`the signature's secret ${target.secretEnv} is not set`);
  }
  const time = String(Math.floor(clock.now() / 1000));
  const headers = {
    "content-type": "application/json",
    "idempotency-key": run.id,
    "x-postern-attempt": String(record.attempts + 1),
    ...(secret === undefined ? {} : { [SIGNATURE_HEADER]: `t=${time},sha256=${toHex(bodyHmac(secret, time, body))}` }),
  };
  try {
    const reply = await guarded({
      method: "POST",
      url: target.url,
      headers: () => headers,
      body,
      guard: { rules, fromConfig: true },
      redirects: "keep_method",
      identity: true,
      maxBytes: MAX_BYTES,
      timeoutMs: TIMEOUT_MS,
      signal,
    });
    if (reply.status >= 200 && reply.status < 300) return { kind: "delivered" };
    return {
      kind: "failed",
      reason: `the receiver answered ${reply.status}`,
      isFinal: reply.status === 410,
      retryAfterMs: Math.min(retryAfterMs(reply.headers, clock.now()) ?? 0, MAX_RETRY_AFTER_MS),
    };
  } catch (error) {
    if (error instanceof ToolError) return failed(error.message);
    throw error;
  }
}

function failed(reason: string): SendOutcome {
  return { kind: "failed", reason, isFinal: false, retryAfterMs: 0 };
}

function toHex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex");
}

function toIso(ms: number): string {
  return new Date(ms).toISOString();
}
