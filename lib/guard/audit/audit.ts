import type { Clock } from "../../base/clock.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { readable } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";
import { createAccessFailures } from "./access_failures.ts";
import {
  AUDIT_HEAD,
  AUDIT_RECORDS,
  type AuditHead,
  auditKey,
  type AuditRecord,
  chainRecord,
  HEAD_KEY,
  NO_HASH,
  parseAuditHead,
  readAuditHead,
} from "./audit_chain.ts";
import { type AuditEvent, plainEvent } from "./audit_event.ts";
import { pruneAudit } from "./prune_audit.ts";
import type { AuditReport } from "./verify_audit.ts";

/**
 * Writes one event, in one transaction with the `writes` that are the fact it tells of; durable when it resolves.
 *
 * Events keep the order of the calls. Texts are redacted and cut.
 * @param more further events of the same fact, written with it
 * @returns false when a precondition of `writes` did not hold: then neither they nor the event were written
 * @throws when the store cannot be written: then neither they nor the event were written
 */
export type AuditAppend = (
  event: AuditEvent,
  writes?: readonly Write[],
  more?: readonly AuditEvent[],
) => Promise<boolean>;

/** A part of the audit, newest first. */
export interface AuditPart {
  readonly records: readonly AuditRecord[];
  /** Older records were not looked at: go on before `lastSeq` */
  readonly hasMore: boolean;
  readonly lastSeq: number;
}

/** Filters and bounds of a list of audit records. */
export interface AuditQuery {
  /** Only this type of event */
  readonly type?: AuditEvent["type"] | undefined;
  readonly tool?: string | undefined;
  readonly runId?: string | undefined;
  /** Only records before this position */
  readonly before?: number | undefined;
  /** 1-1000 */
  readonly limit: number;
}

/** The audit: an append-only, hash-chained list of what was decided, approved and called (docs/design/policy.md "Audit"). */
export interface Audit {
  readonly append: AuditAppend;
  /** Newest first. A record that cannot be read is left out: `verify` names it */
  list(query: AuditQuery): Promise<AuditPart>;
  /**
   * Checks every record against the chain, the chain against its kept head, and against a head the caller kept.
   * @throws {CancelError} when `signal` aborts
   */
  verify(options?: { readonly head?: AuditHead | undefined; readonly signal?: AbortSignal }): Promise<AuditReport>;
  /** Position and hash of the newest record; `{seq: 0}` for an empty audit */
  head(): AuditHead;
  /** Tells whether the last event reached the disk. After a failure, each call tries another write */
  healthy(): boolean;
  /** Counts refused credentials, written once a minute for each address. Cheap, and bounded whatever comes */
  accessFailed(address: string | undefined, code: string): void;
  /** Writes what is pending */
  close(): Promise<void>;
}

/** Store, clock and settings that the audit works with. */
export interface AuditOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly redact: (text: string) => string;
  /** False: events are dropped, and only the writes that come with them are made */
  readonly enabled: () => boolean;
  /** Days a record is kept */
  readonly retentionDays: () => number;
}

interface Pending {
  readonly events: readonly AuditEvent[];
  readonly time: string;
  readonly writes: readonly Write[];
  readonly resolve: (written: boolean) => void;
  readonly reject: (error: unknown) => void;
}

const MAX_GROUP = 32;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/**
 * Opens the audit over a store. One gateway owns a store's audit.
 *
 * Events that come while others are written share the next transaction. Where the kept head and the records disagree at the
 * start, new records go on after the head, so that the break stays visible to `verify` for ever.
 */
export async function createAudit(options: AuditOptions): Promise<Audit> {
  const { store, clock, log } = options;
  const writer = new AuditWriter(options, await loadHead(options));
  const upkeep = new AuditUpkeep(options, writer);
  const failures = createAccessFailures({ clock, log, append: writer.append, enabled: options.enabled });
  upkeep.look();
  // Last: a start that fails before leaves no timer behind
  const hourly = clock.every(HOUR_MS, () => upkeep.look());
  return {
    append: writer.append,
    async list(query) {
      const before = query.before ?? writer.head.seq + 1;
      const { listAudit } = await import("./list_audit.ts");
      return await listAudit(store, { ...query, before });
    },
    verify: ({ head: given, signal } = {}) =>
      upkeep.withoutPruning(async () => {
        const { verifyAudit } = await import("./verify_audit.ts");
        return await verifyAudit({ store, given, signal });
      }),
    head: () => writer.head,
    healthy: () => writer.healthy(),
    accessFailed: failures.count,
    async close() {
      if (writer.isClosed) return;
      hourly.clear();
      await failures.close();
      await writer.close();
      await upkeep.close();
    },
  };
}

/** Writes events to the end of the chain, a group of them in each transaction. */
class AuditWriter {
  readonly #options: AuditOptions;
  #head: AuditHead;
  /** Events that no transaction has taken yet, in the order of the calls */
  #queue: Pending[] = [];
  /** The work on the queue. Undefined while it is empty */
  #working: Promise<void> | undefined;
  /** False after a write that failed, until another succeeds */
  #isHealthy = true;
  #isClosed = false;

  constructor(options: AuditOptions, head: AuditHead) {
    this.#options = options;
    this.#head = head;
  }

  get head(): AuditHead {
    return this.#head;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Queues events of one fact, see AuditAppend. */
  readonly append: AuditAppend = async (event, writes = [], more = []) => {
    if (this.#isClosed) throw new Error("Cannot write to the audit: it is closed");
    const { store, clock, redact, enabled } = this.#options;
    if (!enabled()) return writes.length === 0 || await store.batch(writes);
    const time = new Date(clock.now()).toISOString();
    const events = [event, ...more].map((each) => plainEvent(each, redact));
    return await new Promise((resolve, reject) => {
      this.#queue.push({ events, time, writes, resolve, reject });
      this.#working ??= this.#work();
    });
  };

  /** Tells whether the last write succeeded. After a failure, each call tries another. */
  healthy(): boolean {
    // Before the first record there is no head to write
    if (!this.#isHealthy && !this.#isClosed && this.#head.seq > 0) this.#working ??= this.#tryAgain();
    return this.#isHealthy;
  }

  /** Takes no more events. Resolves when those that are queued are written. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#working;
  }

  async #work(): Promise<void> {
    while (this.#queue.length > 0) {
      const group = nextGroup(this.#queue);
      this.#queue = this.#queue.slice(group.length);
      try {
        const written = await this.#write(group);
        this.#isHealthy = true;
        for (const { resolve } of group) resolve(written);
      } catch (error) {
        this.#isHealthy = false;
        for (const { reject } of group) reject(error);
      }
    }
    this.#working = undefined;
  }

  /** Writes the head over itself: without that, a gateway at rest would be unhealthy until the next call of a tool. */
  async #tryAgain(): Promise<void> {
    try {
      await this.#options.store.batch([putHead(this.#head)]);
      this.#isHealthy = true;
    } catch {
      // The next look tries again
    }
    await this.#work();
  }

  async #write(group: readonly Pending[]): Promise<boolean> {
    const { store, log } = this.#options;
    for (let skipped = 0;;) {
      const head = this.#head;
      let next = head;
      const events = group.flatMap(({ events, time }) => events.map((event) => ({ event, time })));
      const inserts = events.map(({ event, time }): Write => {
        const record = chainRecord(next, { event, time, seq: next.seq + 1 + (next === head ? skipped : 0) });
        next = { seq: record.seq, hash: record.hash };
        return { op: "insert", collection: AUDIT_RECORDS, key: auditKey(record.seq), body: record };
      });
      const written = await store.batch([
        ...group.flatMap(({ writes }) => writes),
        ...inserts,
        putHead(next),
      ]);
      if (written) {
        this.#head = next;
        return true;
      }
      const taken = await this.#firstTaken(head.seq + skipped, events.length);
      if (taken === undefined) return false;
      log.error("The audit has a record that Postern did not write: run postern audit verify", { seq: taken });
      skipped = taken - head.seq;
    }
  }

  /** Returns the first position after `seq` that holds a record already. */
  async #firstTaken(seq: number, count: number): Promise<number | undefined> {
    for (let at = seq + 1; at <= seq + count; at++) {
      if (await this.#options.store.get(AUDIT_RECORDS, auditKey(at)) !== undefined) return at;
    }
    return undefined;
  }
}

/** Logs new heads and forgets old records, each time that it looks. */
class AuditUpkeep {
  readonly #options: AuditOptions;
  readonly #writer: AuditWriter;
  #pruning: Promise<void> = Promise.resolve();
  /** Monotonic time of the last pruning */
  #prunedAt = -Infinity;
  /** Verifications at work */
  #verifying = 0;
  /** Position of the head that was logged last */
  #shown = 0;

  constructor(options: AuditOptions, writer: AuditWriter) {
    this.#options = options;
    this.#writer = writer;
  }

  look(): void {
    this.#showHead();
    this.#prune();
  }

  /** Does work on the records while none of them is forgotten. */
  async withoutPruning<T>(work: () => Promise<T>): Promise<T> {
    this.#verifying++;
    try {
      await this.#pruning;
      return await work();
    } finally {
      this.#verifying--;
    }
  }

  /** Resolves when the last pruning has ended and the last head is in the log. */
  async close(): Promise<void> {
    await this.#pruning;
    this.#showHead();
  }

  /** Logs the head. Logs are kept elsewhere than the records that the head vouches for. */
  #showHead(): void {
    const { seq, hash } = this.#writer.head;
    if (seq === this.#shown) return;
    this.#shown = seq;
    this.#options.log.info("Audit head", { seq, hash });
  }

  /** Prunes once a day, and never while the records are being verified. */
  #prune(): void {
    const { store, clock, log, enabled, retentionDays } = this.#options;
    if (this.#verifying > 0 || !enabled() || clock.monotonic() - this.#prunedAt < DAY_MS) return;
    this.#prunedAt = clock.monotonic();
    const before = new Date(clock.now() - retentionDays() * DAY_MS).toISOString();
    const { append } = this.#writer;
    this.#pruning = this.#pruning.then(() => pruneAudit({ store, append, before })).then(
      (count) => void (count > 0 && log.info("Forgot audit records past their retention", { count })),
      (error: unknown) => void (this.#writer.isClosed || log.error("Cannot forget old audit records", { error })),
    );
  }
}

function putHead(at: AuditHead): Write {
  return { op: "put", collection: AUDIT_HEAD, key: HEAD_KEY, body: { v: 1, ...at } };
}

/** Events without facts together; one with facts alone, since a precondition of theirs must not undo others. */
function nextGroup(queue: readonly Pending[]): readonly Pending[] {
  if ((queue[0]?.writes.length ?? 0) > 0) return queue.slice(0, 1);
  const end = queue.findIndex(({ writes }, index) => writes.length > 0 || index >= MAX_GROUP);
  return end < 0 ? queue : queue.slice(0, end);
}

async function loadHead({ store, log }: AuditOptions): Promise<AuditHead> {
  const stored = await store.get(AUDIT_HEAD, HEAD_KEY);
  if (stored !== undefined) readable(store, AUDIT_HEAD, [stored], readAuditHead);
  const none = { seq: 0, hash: NO_HASH };
  const head = stored === undefined ? none : parseAuditHead(stored.body);
  const newest = head === undefined || head.seq === 0 ? undefined : await store.get(AUDIT_RECORDS, auditKey(head.seq));
  const fits = head !== undefined &&
    (head.seq === 0 || (newest?.body as { hash?: unknown } | undefined)?.hash === head.hash);
  if (!fits) log.error("The audit was changed from outside: run postern audit verify");
  return head ?? none;
}
