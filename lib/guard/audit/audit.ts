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
 * The audit over a store. One gateway owns a store's audit.
 *
 * Events that come while others are written share the next transaction. Where the kept head and the records disagree at the
 * start, new records go on after the head, so that the break stays visible to `verify` for ever.
 */
export async function createAudit(options: AuditOptions): Promise<Audit> {
  const { store, clock, log, redact } = options;
  let head = await loadHead(options);
  const putHead = (at: AuditHead): Write => ({
    op: "put",
    collection: AUDIT_HEAD,
    key: HEAD_KEY,
    body: { v: 1, ...at },
  });
  let queue: Pending[] = [];
  let working: Promise<void> | undefined;
  let pruning: Promise<void> = Promise.resolve();
  let verifying = 0;
  let healthy = true;
  let closed = false;

  async function write(group: readonly Pending[]): Promise<boolean> {
    for (let skipped = 0;;) {
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
        head = next;
        return true;
      }
      const taken = await firstTaken(head.seq + skipped, events.length);
      if (taken === undefined) return false;
      log.error("The audit has a record that Postern did not write: run postern audit verify", { seq: taken });
      skipped = taken - head.seq;
    }
  }

  /** The first position after `seq` that something is at already. */
  async function firstTaken(seq: number, count: number): Promise<number | undefined> {
    for (let at = seq + 1; at <= seq + count; at++) {
      if (await store.get(AUDIT_RECORDS, auditKey(at)) !== undefined) return at;
    }
    return undefined;
  }

  async function work(): Promise<void> {
    while (queue.length > 0) {
      const group = nextGroup(queue);
      queue = queue.slice(group.length);
      try {
        const written = await write(group);
        healthy = true;
        for (const { resolve } of group) resolve(written);
      } catch (error) {
        healthy = false;
        for (const { reject } of group) reject(error);
      }
    }
    working = undefined;
  }

  /** Writes the head over itself: without that, a gateway at rest would be unhealthy until the next call of a tool. */
  async function tryAgain(): Promise<void> {
    try {
      await store.batch([putHead(head)]);
      healthy = true;
    } catch {
      // It is tried at the next look
    }
    await work();
  }

  const append: Audit["append"] = async (event, writes = [], more = []) => {
    if (closed) throw new Error("Cannot write to the audit: it is closed");
    if (!options.enabled()) return writes.length === 0 || await store.batch(writes);
    const time = new Date(clock.now()).toISOString();
    const events = [event, ...more].map((each) => plainEvent(each, redact));
    return await new Promise((resolve, reject) => {
      queue.push({ events, time, writes, resolve, reject });
      working ??= work();
    });
  };

  let prunedAt = -Infinity;
  /** Once a day, and never while the records are being verified. */
  function prune(): void {
    if (verifying > 0 || !options.enabled() || clock.monotonic() - prunedAt < DAY_MS) return;
    prunedAt = clock.monotonic();
    const before = new Date(clock.now() - options.retentionDays() * DAY_MS).toISOString();
    pruning = pruning.then(() => pruneAudit({ store, append, before })).then(
      (count) => void (count > 0 && log.info("Forgot audit records past their retention", { count })),
      (error: unknown) => void (closed || log.error("Cannot forget old audit records", { error })),
    );
  }

  let shown = 0;
  /** Heads in the log are kept elsewhere than the records they vouch for. */
  function showHead(): void {
    if (head.seq === shown) return;
    shown = head.seq;
    log.info("Audit head", { seq: head.seq, hash: head.hash });
  }

  const failures = createAccessFailures({ clock, log, append, enabled: options.enabled });
  showHead();
  prune();
  // Last: a start that fails before leaves no timer behind
  const hourly = clock.every(HOUR_MS, () => {
    showHead();
    prune();
  });

  return {
    append,
    async list(query) {
      const before = query.before ?? head.seq + 1;
      const { listAudit } = await import("./list_audit.ts");
      return await listAudit(store, { ...query, before });
    },
    async verify({ head: given, signal } = {}) {
      verifying++;
      try {
        await pruning;
        const { verifyAudit } = await import("./verify_audit.ts");
        return await verifyAudit({ store, given, signal });
      } finally {
        verifying--;
      }
    },
    head: () => head,
    healthy() {
      // Before the first record there is no head to write
      if (!healthy && !closed && head.seq > 0) working ??= tryAgain();
      return healthy;
    },
    accessFailed: failures.count,
    async close() {
      if (closed) return;
      hourly.clear();
      await failures.close();
      closed = true;
      await working;
      await pruning;
      showHead();
    },
  };
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
