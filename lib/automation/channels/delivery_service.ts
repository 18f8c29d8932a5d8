import { CancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { HttpError } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import type { Run } from "../../base/records/run.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Metrics } from "../../base/telemetry/metrics.ts";
import type { RunSupervisor } from "../../runs/run_request.ts";
import { parseMark, readable, readRecord, readRecords, scanAll } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";
import type { GuardedFetch } from "../../system/net/guarded_fetch.ts";
import type { UrlRules } from "../../system/net/url_policy.ts";
import {
  changeOf,
  DELIVERIES,
  type DeliveryAction,
  type DeliveryRecord,
  OPEN_DELIVERIES,
  parseDelivery,
  promiseOf,
} from "./delivery_record.ts";
import { type ReplyTarget, type SendOutcome, sendReply } from "./send_reply.ts";
import { createKeyedSemaphore } from "../../base/keyed_queues.ts";

/** A message whose reply is to be delivered. */
export interface PromisedReply {
  readonly channel: string;
  readonly sender: string | undefined;
  readonly messageId: string | undefined;
}

/** Filter and bounds of a list of deliveries. */
export interface DeliveryQuery {
  /** Default: all */
  readonly status?: DeliveryRecord["status"] | undefined;
  /** 1-1000 */
  readonly limit: number;
  /** Only those accepted before this run's */
  readonly after?: string | undefined;
}

/**
 * Delivers the replies of channels to their `reply_url`, at least once, across restarts.
 * Source: docs/design/automation.md "Deliveries"
 */
export interface Deliveries {
  /**
   * Promises replies of a channel: gives the writes for the transaction that accepts the run. undefined: the channel has no `reply_url`.
   * @throws {HttpError} 503 `overloaded` when too many replies wait for their receiver
   */
  promise(reply: PromisedReply): Promise<((runId: string) => readonly Write[]) | undefined>;
  /** To be called once the promise is accepted: the reply is delivered when the run is over */
  watch(runId: string): Promise<void>;
  /** Newest first */
  page(query: DeliveryQuery): Promise<{ readonly deliveries: readonly DeliveryRecord[]; readonly hasMore: boolean }>;
  /**
   * Decides about a delivery that goes on no more. A released one is `waiting` again, with all its attempts, and on disk before this
   * resolves.
   * @throws {HttpError} 404 `not_found`; 409 `conflict` in a state other than `held` (for a release also `failed`), or where the channel
   *   has no `reply_url`; 503 `overloaded` when too many replies wait for their receiver
   */
  resolve(runId: string, action: DeliveryAction): Promise<DeliveryRecord>;
  /** Goes on with what an earlier process left. Call once runs are recovered */
  start(): Promise<void>;
  /** Begins no attempt any more and lets those under way end for 2 s; what is left is for the next start */
  stop(): Promise<void>;
}

/** Store, clock, runs and settings that deliveries work with. */
export interface DeliveryOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly metrics: Metrics;
  /** undefined while there is no agent */
  readonly runs: () => RunSupervisor | undefined;
  /** The same at each attempt, made at the first */
  readonly fetch: () => Promise<GuardedFetch>;
  /** The channel as the configuration has it now; undefined for one that is not there or has no `reply_url` */
  readonly targetOf: (channel: string) => ReplyTarget | undefined;
  readonly rules: () => UrlRules;
  readonly environment: (name: string) => string | undefined;
  /** Days an ended delivery is kept; 0 for ever */
  readonly retentionDays: () => number;
}

const SECOND_MS = 1000;
const MINUTE_MS = 60 * SECOND_MS;
const DAY_MS = 24 * 60 * MINUTE_MS;
/** Waits between attempts, each up to a fifth longer or shorter. One attempt more than there are waits. */
const BACKOFF_MS = [5, 30, 120, 600, 1800, 3600, 7200, 14_400, 28_800].map((seconds) => seconds * SECOND_MS);
/** After the run's end no attempt begins later than this. */
const MAX_AGE_MS = DAY_MS;
/** How often a run that waits for a person's review is looked at. */
const REVIEW_MS = MINUTE_MS;
/** A review may take its time. */
const MAX_REVIEW_MS = 30 * DAY_MS;
/** Attempts to one channel at a time: a slow receiver holds up no other. */
const MAX_AT_ONCE = 4;
/** Replies that may wait in all: each waits in memory too. */
const MAX_OPEN = 10_000;
const STOP_MS = 2 * SECOND_MS;
const SWEEP = 20;

/** See `Deliveries`. Metric: postern_deliveries_total{status}. */
export function createDeliveries(options: DeliveryOptions): Deliveries {
  const { store, clock, random, log, metrics } = options;
  const semaphore = createKeyedSemaphore(MAX_AT_ONCE);
  const ended = metrics.counter("postern_deliveries_total", "Replies to channels, by how their delivery ended", [
    "status",
  ]);
  const open = new Map<string, Promise<void>>();
  /** No further attempt begins */
  const stopping = new AbortController();
  /** Breaks off the deliveries that are under way */
  const breaking = new AbortController();

  const write = async (record: DeliveryRecord) => {
    await store.batch(changeOf(record));
    return record;
  };
  const end = async (record: DeliveryRecord, status: "delivered" | "failed", last_error: string | null) => {
    const ended_at = toIso(clock.now());
    await write({ ...record, status, last_error, next_attempt_at: null, ended_at });
    ended.with(status).add();
    const about = { run_id: record.run_id, channel: record.channel, attempts: record.attempts };
    if (status === "failed") log.error("A reply could not be delivered", { ...about, reason: last_error });
    else log.debug("A reply was delivered", about);
  };
  /** @returns undefined when the delivery is over */
  const attempt = async (record: DeliveryRecord, run: Run): Promise<DeliveryRecord | undefined> => {
    const target = options.targetOf(record.channel);
    if (target === undefined) {
      return void await end(record, "failed", `[channels.${record.channel}] has no reply_url any more`);
    }
    const fetch = await options.fetch();
    const outcome = await semaphore.pass(record.channel, stopping.signal, () => {
      // The gateway was down, or others went first: a receiver may have forgotten by now which replies it has had
      if (ageOf(record, run, clock.now()) > MAX_AGE_MS) return Promise.resolve(undefined);
      return sendReply(record, run, target, { ...options, fetch, rules: options.rules(), signal: breaking.signal });
    });
    if (outcome === undefined) return void await end(record, "failed", tooLate(record));
    const tried = { ...record, attempts: record.attempts + 1 };
    if (outcome.kind === "delivered") return void await end(tried, "delivered", null);
    const wait = waitAfter(tried, outcome);
    const next = clock.now() + (wait ?? 0);
    if (wait === undefined || ageOf(record, run, next) > MAX_AGE_MS) {
      return void await end(tried, "failed", outcome.reason);
    }
    log.warn("A reply could not be delivered yet", {
      run_id: record.run_id,
      channel: record.channel,
      attempts: tried.attempts,
      reason: outcome.reason,
    });
    return await write({ ...tried, last_error: outcome.reason, next_attempt_at: toIso(next) });
  };
  const waitAfter = ({ attempts }: DeliveryRecord, outcome: Extract<SendOutcome, { kind: "failed" }>) => {
    const wait = BACKOFF_MS[attempts - 1];
    if (wait === undefined || outcome.isFinal) return undefined;
    const [byte = 128] = random.bytes(1);
    return Math.max(wait * (0.8 + byte / 640), outcome.retryAfterMs);
  };
  const deliver = async (runId: string) => {
    const { signal } = stopping;
    let record = (await readRecord(store, DELIVERIES, runId, parseDelivery))?.value;
    while (record !== undefined && record.status === "waiting") {
      const runs = options.runs();
      if (runs === undefined) return;
      const run = await runs.ended(runId, signal);
      if (run === undefined) return await end(record, "failed", "nothing is known of the run any more");
      if (run.status === "needs_review") {
        if (clock.now() - Date.parse(record.released_at ?? record.accepted_at) > MAX_REVIEW_MS) {
          return await end(record, "failed", "the run waited too long for a person's review");
        }
        await clock.sleep(REVIEW_MS, signal);
        continue;
      }
      const wait = record.next_attempt_at === null ? 0 : Date.parse(record.next_attempt_at) - clock.now();
      if (wait > 0) await clock.sleep(wait, signal);
      record = await attempt(record, run);
    }
  };
  const watch = (runId: string) => {
    if (stopping.signal.aborted || open.has(runId)) return;
    const work = deliver(runId).catch((error) => {
      // A shutdown: the next start goes on
      if (error instanceof CancelError) return;
      log.error("A reply's delivery stopped until the next start", { run_id: runId, error });
    }).finally(() => open.delete(runId));
    open.set(runId, work);
  };
  /** Ended deliveries that are old, a few at each new one: as small as its retention, without a timer. */
  const forget = async () => {
    const days = options.retentionDays();
    if (days === 0) return;
    const before = toIso(clock.now() - days * DAY_MS);
    const oldest = await store.scan(DELIVERIES, { order: "created", limit: SWEEP });
    const old = readable(store, DELIVERIES, oldest, parseDelivery).filter(({ value: { ended_at } }) =>
      ended_at !== null && ended_at < before
    );
    if (old.length > 0) await store.batch(old.map(({ key }) => ({ op: "delete", collection: DELIVERIES, key })));
  };

  return {
    async promise({ channel, sender, messageId }) {
      if (options.targetOf(channel) === undefined) return undefined;
      if (open.size >= MAX_OPEN) throw overloaded("accept the message", channel);
      await forget();
      const accepted_at = toIso(clock.now());
      return (runId) =>
        promiseOf({
          v: 1,
          run_id: runId,
          channel,
          sender: sender ?? null,
          message_id: messageId ?? null,
          status: "waiting",
          accepted_at,
          attempts: 0,
          next_attempt_at: null,
          last_error: null,
          ended_at: null,
        });
    },
    watch(runId) {
      watch(runId);
      return Promise.resolve();
    },
    async page({ status, limit, after }) {
      const deliveries: DeliveryRecord[] = [];
      const where = status === undefined ? undefined : { field: "status", value: status };
      const options = { order: "created", reverse: true, after, where } as const;
      for await (const { value: record } of readRecords(store, DELIVERIES, parseDelivery, options)) {
        if (deliveries.length === limit) return { deliveries, hasMore: true };
        deliveries.push(record);
      }
      return { deliveries, hasMore: false };
    },
    async resolve(runId, action) {
      const found = await readRecord(store, DELIVERIES, runId, parseDelivery);
      if (found === undefined) {
        throw refused(
          "not_found",
          `Cannot ${action} this delivery: see /v1/deliveries for those that are recorded`,
          404,
        );
      }
      const { version, value: record } = found;
      checkAction(record, action);
      const time = toIso(clock.now());
      const put = (body: DeliveryRecord): Write => ({ op: "putIf", collection: DELIVERIES, key: runId, version, body });
      let next: DeliveryRecord;
      if (action === "drop") {
        next = { ...record, status: "dropped", ended_at: time };
        if (!await store.batch([put(next)])) throw changed(action);
        ended.with("dropped").add();
      } else {
        if (options.targetOf(record.channel) === undefined) {
          throw refused("conflict", `Cannot release this delivery: [channels.${record.channel}] has no reply_url`, 409);
        }
        if (open.size >= MAX_OPEN) throw overloaded("release the delivery", record.channel);
        next = { ...record, status: "waiting", attempts: 0, next_attempt_at: null, ended_at: null, released_at: time };
        const mark: Write = { op: "insert", collection: OPEN_DELIVERIES, key: runId, body: { v: 1 } };
        if (!await store.batch([put(next), mark])) throw changed(action);
        // The work that ended it may not be gone yet
        await open.get(runId);
        watch(runId);
      }
      log.info("A person decided about a delivery", { run_id: runId, channel: record.channel, action });
      return next;
    },
    async start() {
      for await (const stored of scanAll(store, OPEN_DELIVERIES)) {
        readable(store, OPEN_DELIVERIES, [stored], parseMark);
        watch(stored.key);
      }
    },
    async stop() {
      stopping.abort(new CancelError("shutdown"));
      const timer = clock.after(STOP_MS, () => breaking.abort(new CancelError("shutdown")));
      await Promise.all(open.values());
      timer.clear();
    },
  };
}

function toIso(ms: number): string {
  return new Date(ms).toISOString();
}

/** Returns the milliseconds since the run's end, or since a person released the delivery, whichever is later. */
function ageOf(record: DeliveryRecord, run: Run, now: number): number {
  const ended = Date.parse(run.ended_at ?? record.accepted_at);
  return now - (record.released_at === undefined ? ended : Math.max(ended, Date.parse(record.released_at)));
}

/** @throws {HttpError} 409 `conflict` for a state that does not allow the action */
function checkAction({ status }: DeliveryRecord, action: DeliveryAction): void {
  if (status === "held" || (status === "failed" && action === "release")) return;
  const way = action === "release"
    ? "only one that is held or failed can be released"
    : "only a held one can be dropped";
  throw refused("conflict", `Cannot ${action} this delivery: it is ${status}, and ${way}`, 409);
}

function changed(action: DeliveryAction): HttpError {
  return refused("conflict", `Cannot ${action} this delivery: it was changed by others; try again`, 409);
}

function refused(code: "conflict" | "not_found", message: string, status: 404 | 409): HttpError {
  return new HttpError(code, message, { status, type: "invalid_request_error" });
}

function tooLate({ last_error }: DeliveryRecord): string {
  const reason =
    "no attempt begins later than a day after the run's end, and the gateway was not running or too busy before";
  return last_error === null ? reason : `${reason}; the last attempt: ${last_error}`;
}

function overloaded(what: string, channel: string): HttpError {
  return new HttpError(
    "overloaded",
    `Cannot ${what}: too many replies wait for their receiver; see that the reply_url of [channels.${channel}] answers`,
    { status: 503, type: "api_error" },
  );
}
