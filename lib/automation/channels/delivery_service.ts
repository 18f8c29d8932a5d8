import { hash } from "node:crypto";
import { CancelError } from "../../base/cancel.ts";
import { HttpError, refuse } from "../../base/errors.ts";
import { createKeyedMutex, KeyedSemaphore } from "../../base/keyed_queues.ts";
import { listSome } from "../../base/text.ts";
import type { Told } from "../../guard/approvals.ts";
import type { WorkHold } from "../../cluster/work_hold.ts";
import type { Metrics } from "../../base/telemetry/metrics.ts";
import { type ReadRecord, scanAll } from "../../storage/read_records.ts";
import type { Write } from "../../storage/store.ts";
import type { NotifyRule } from "../../config/schema/notify.ts";
import type { NewAlert } from "../notify/alert_work.ts";
import { loneWork, type MakeWork, type WorkPart } from "../work_part.ts";
import { type DeliverContext, type DeliverOptions, deliverReply } from "./deliver_reply.ts";
import {
  DELIVERIES,
  type DeliveryAction,
  type DeliveryRecord,
  NOTIFY,
  OPEN_DELIVERIES,
  openMark,
  promiseOf,
} from "./delivery_record.ts";

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
   * Promises a reply of a channel. Returns the writes for the transaction that accepts the run; undefined: the channel has no `reply_url`.
   * @throws {HttpError} 503 `overloaded` when too many replies wait for their receiver
   */
  promise(reply: PromisedReply): Promise<((runId: string) => readonly Write[]) | undefined>;
  /** Delivers the reply when the run is over. Called once the promise is accepted */
  watch(runId: string): Promise<void>;
  /**
   * Returns what tells people of something by the rules of `[[notify]]`: writes for the transaction that makes it so, and a function to call
   * once they are written. Undefined: no rule tells of it, or too many messages wait
   */
  alert(alert: NewAlert): Promise<Told | undefined>;
  /** Sends a message of a test by a rule, once, and returns why it did not arrive; null: it did. @throws {HttpError} 404 `not_found` */
  test(rule: string, signal: AbortSignal): Promise<string | null>;
  /** Returns the newest first */
  page(query: DeliveryQuery): Promise<{ readonly deliveries: readonly DeliveryRecord[]; readonly hasMore: boolean }>;
  /**
   * Records a person's decision about a delivery that goes on no more. A released delivery is `waiting` again, with all its attempts.
   * The decision is on disk before this resolves.
   * @throws {HttpError} 404 `not_found`; 409 `conflict` in a state other than `held` (for a release also `failed`), or where the channel
   *   has no `reply_url`; 503 `overloaded` when too many replies wait for their receiver
   */
  resolve(runId: string, action: DeliveryAction): Promise<DeliveryRecord>;
  /** Goes on with the deliveries that an earlier process left. Called once runs are recovered */
  start(): Promise<void>;
  /** Begins no more attempts, and gives those under way 2 s to end. The next start goes on with the rest */
  stop(): Promise<void>;
}

/** Options of the deliveries, with their metrics and retention. */
export interface DeliveryOptions extends DeliverOptions {
  readonly metrics: Metrics;
  /** Days an ended delivery is kept; 0 for ever */
  readonly retentionDays: () => number;
  /** Makes the part of this gateway in the deliveries, each of which has one owner. Default: the gateway is alone, and owns all */
  readonly work?: MakeWork | undefined;
  /** `[[notify]]` as it is now. Default: there are no rules */
  readonly notify?: (() => readonly NotifyRule[]) | undefined;
}

const DAY_MS = 24 * 60 * 60 * 1000;
/** Attempts to one channel at a time. */
const MAX_AT_ONCE = 4;
/** Replies that may wait in all: each waits in memory too. */
const MAX_OPEN = 10_000;
/** Deliveries that wait, beyond which nobody is told of more: a rule that fails leaves room for the replies of channels. */
const MAX_OPEN_FOR_ALERTS = MAX_OPEN / 2;
/** Rules that a refusal names at most */
const MAX_NAMED = 10;
/** Milliseconds that attempts under way may go on after a stop. */
const STOP_MS = 2_000;
/** Old deliveries that each new one may delete. */
const SWEEP = 20;

/** The deliveries over a store. Metric: postern_deliveries_total{status}. */
export class DeliveryService implements Deliveries {
  readonly #options: DeliveryOptions;
  readonly #context: DeliverContext;
  readonly #work: WorkPart;
  /** Deliveries that wait or are under way, by run. */
  readonly #open = new Map<string, Promise<void>>();
  /** Rights to the deliveries in `#open`, in a cluster. */
  readonly #holds = new Map<string, WorkHold>();
  readonly #stopping = new AbortController();
  readonly #breaking = new AbortController();

  constructor(options: DeliveryOptions) {
    this.#options = options;
    this.#context = {
      ...options,
      semaphore: new KeyedSemaphore(MAX_AT_ONCE),
      oneAtATime: createKeyedMutex(),
      isHere: (id) => this.#open.has(id) && this.#holds.get(id)?.lost.aborted !== true,
      ended: options.metrics.counter(
        "postern_deliveries_total",
        "Replies to channels, by how their delivery ended",
        ["status"],
        [["delivered"], ["failed"], ["dropped"]],
      ),
      stopping: this.#stopping.signal,
      breaking: this.#breaking.signal,
    };
    const { work = loneWork } = options;
    this.#work = work({
      collection: OPEN_DELIVERIES.name,
      open: () => this.#marked(),
      room: () => MAX_OPEN - this.#open.size,
      takeUp: (runId, hold) => this.#begin(runId, hold),
      changed: () => {},
    });
  }

  async promise({ channel, sender, messageId }: PromisedReply): ReturnType<Deliveries["promise"]> {
    if (this.#options.targetOf(channel) === undefined) return undefined;
    if (this.#open.size >= MAX_OPEN) throw overloaded("accept the message", channel);
    await this.#forget();
    const accepted_at = this.#time();
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
      }, this.#work.opening(runId));
  }

  watch(runId: string): Promise<void> {
    this.#work.accepted(runId);
    return Promise.resolve();
  }

  async alert(alert: NewAlert): Promise<Told | undefined> {
    const { clock, random, log, notify = () => [] } = this.#options;
    const { event, title, text, page, approvalId: approval_id = null, mayLink: may_link = false, key } = alert;
    const rules = notify().filter(({ events }) => events.includes(event));
    if (rules.length === 0) return undefined;
    if (this.#open.size + rules.length > MAX_OPEN_FOR_ALERTS) {
      log.error("Nobody is told of this: too many messages wait for their receiver", { event, page });
      return undefined;
    }
    await this.#forget();
    const accepted_at = this.#time();
    const records = rules.map(({ name, window_secs: seconds }): DeliveryRecord => ({
      v: 1,
      run_id: key === undefined ? random.id("ntf_") : `ntf_${hash("sha256", `${name} ${event} ${key}`).slice(0, 24)}`,
      ...{ channel: `${NOTIFY}${name}`, sender: null, message_id: null, status: "waiting", accepted_at, attempts: 0 },
      next_attempt_at: seconds === 0 ? null : new Date(clock.now() + seconds * 1000).toISOString(),
      ...{ last_error: null, ended_at: null, alert: { event, title, text, page, approval_id, may_link } },
    }));
    return {
      writes: records.flatMap((record) => promiseOf(record, this.#work.opening(record.run_id))),
      written: () => records.forEach(({ run_id: id }) => this.#work.accepted(id)),
    };
  }

  async test(rule: string, signal: AbortSignal): Promise<string | null> {
    const fetch = await this.#options.fetch();
    const rules = this.#options.rules();
    const outcome = await this.#options.alerts?.test(rule, { ...this.#options, fetch, rules, signal });
    if (outcome === undefined) throw refuse("not_found", unknownRule(rule, this.#options.notify?.() ?? []));
    return outcome.kind === "delivered" ? null : outcome.reason;
  }

  async page({ status, limit, after }: DeliveryQuery): ReturnType<Deliveries["page"]> {
    const deliveries: DeliveryRecord[] = [];
    const where = status === undefined ? undefined : { field: "status", value: status };
    const options = { order: "created", reverse: true, after, where } as const;
    for await (const { value: record } of DELIVERIES.all(this.#options.store, options)) {
      if (deliveries.length === limit) return { deliveries, hasMore: true };
      deliveries.push(record);
    }
    return { deliveries, hasMore: false };
  }

  async resolve(runId: string, action: DeliveryAction): Promise<DeliveryRecord> {
    const { store, log } = this.#options;
    const found = await DELIVERIES.read(store, runId);
    if (found === undefined) throw unknown(action);
    checkAction(found.value, action);
    const next = action === "drop" ? await this.#drop(found) : await this.#release(found);
    log.info("A person decided about a delivery", { run_id: runId, channel: next.channel, action });
    return next;
  }

  start(): Promise<void> {
    return this.#work.start();
  }

  async stop(): Promise<void> {
    this.#stopping.abort(new CancelError("shutdown"));
    await this.#work.stop();
    const timer = this.#options.clock.after(STOP_MS, () => this.#breaking.abort(new CancelError("shutdown")));
    await Promise.all(this.#open.values());
    timer.clear();
  }

  /** Returns the runs whose deliveries are marked as open. */
  async #marked(): Promise<readonly string[]> {
    const { store } = this.#options;
    const runIds: string[] = [];
    for await (const stored of scanAll(store, OPEN_DELIVERIES.name)) {
      OPEN_DELIVERIES.parsed(store, stored);
      runIds.push(stored.key);
    }
    return runIds;
  }

  /** Begins the work of a delivery. @param hold undefined: nobody else can have it, and it may be at work already */
  #begin(runId: string, hold?: WorkHold): void {
    if (this.#stopping.signal.aborted || (hold === undefined && this.#open.has(runId))) return;
    // The work of a hold that was lost may not be over yet
    const before = this.#open.get(runId) ?? Promise.resolve();
    if (hold !== undefined) this.#holds.set(runId, hold);
    const work: Promise<void> = before.then(() => deliverReply(runId, { ...this.#context, hold })).then(
      () => hold?.end(),
      (error) => this.#stopped(runId, error, hold),
    ).finally(() => this.#open.get(runId) === work && this.#open.delete(runId) && this.#holds.delete(runId));
    this.#open.set(runId, work);
  }

  #stopped(runId: string, error: unknown, hold: WorkHold | undefined): void {
    // A shutdown, or another owner: whoever has the delivery next goes on
    if (error instanceof CancelError) return;
    this.#options.log.error("A reply's delivery stopped until the next start", { run_id: runId, error });
    // In a cluster the next look goes on, unless the delivery itself cannot be read
    if (error instanceof HttpError && error.code === "storage_unavailable") hold?.giveBack();
  }

  async #drop({ value: record, version }: ReadRecord<DeliveryRecord>): Promise<DeliveryRecord> {
    const next: DeliveryRecord = { ...record, status: "dropped", ended_at: this.#time() };
    if (!await this.#options.store.batch([DELIVERIES.putOver(next.run_id, version, next)])) throw changed("drop");
    this.#context.ended.with("dropped").add();
    return next;
  }

  async #release({ value: record, version }: ReadRecord<DeliveryRecord>): Promise<DeliveryRecord> {
    const { store, targetOf } = this.#options;
    const { run_id: runId, channel } = record;
    if (record.alert === undefined && targetOf(channel) === undefined) {
      throw refuse("conflict", `Cannot release this delivery: [channels.${channel}] has no reply_url`);
    }
    if (this.#open.size >= MAX_OPEN) throw overloaded("release the delivery", channel);
    const next: DeliveryRecord = {
      ...record,
      status: "waiting",
      attempts: 0,
      next_attempt_at: null,
      ended_at: null,
      released_at: this.#time(),
    };
    const mark = this.#work.opening(runId) ?? openMark(runId);
    if (!await store.batch([DELIVERIES.putOver(runId, version, next), mark])) throw changed("release");
    // The work that ended the delivery may not be gone yet
    await this.#open.get(runId);
    this.#work.accepted(runId);
    return next;
  }

  /** Deletes a few old ended deliveries. Each new delivery calls it, so that no timer is needed. */
  async #forget(): Promise<void> {
    const { store, clock, retentionDays } = this.#options;
    const days = retentionDays();
    if (days === 0) return;
    const before = new Date(clock.now() - days * DAY_MS).toISOString();
    const deletes = await DELIVERIES.removeOldest(store, SWEEP, ({ ended_at }) => (ended_at ?? before) < before);
    if (deletes.length > 0) await store.batch(deletes);
  }

  #time(): string {
    return new Date(this.#options.clock.now()).toISOString();
  }
}

/** @throws {HttpError} 409 `conflict` for a state that does not allow the action */
function checkAction({ status }: DeliveryRecord, action: DeliveryAction): void {
  if (status === "held" || (status === "failed" && action === "release")) return;
  const way = action === "release"
    ? "only one that is held or failed can be released"
    : "only a held one can be dropped";
  throw refuse("conflict", `Cannot ${action} this delivery: it is ${status}, and ${way}`);
}

function unknown(action: DeliveryAction): HttpError {
  return refuse("not_found", `Cannot ${action} this delivery: see /v1/deliveries for those that are recorded`);
}

function changed(action: DeliveryAction): HttpError {
  return refuse("conflict", `Cannot ${action} this delivery: it was changed by others; try again`);
}

function overloaded(what: string, channel: string): HttpError {
  return refuse(
    "overloaded",
    `Cannot ${what}: too many replies wait for their receiver; see that the reply_url of [channels.${channel}] answers`,
  );
}

function unknownRule(name: string, rules: readonly NotifyRule[]): string {
  const names = listSome(rules.map((rule) => JSON.stringify(rule.name)), MAX_NAMED);
  const known = rules.length === 0
    ? "there is no [[notify]] yet, and docs/notify.md shows one"
    : `[[notify]] has ${names}`;
  return `Cannot try ${JSON.stringify(name)}: ${known}`;
}
