import * as v from "valibot";
import type { Clock } from "../../base/clock.ts";
import { canonicalDigest } from "../../base/json.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { readable } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";
import { type AuditEvent, plainEvent } from "./audit_event.ts";

/** Collection of the records, by their position in decimal so that the order of keys is that of the chain. */
export const AUDIT_RECORDS = "audit";
/** Collection of the one head. */
export const AUDIT_HEAD = "audit_head";
/** Key of the head in its collection. */
export const HEAD_KEY = "head";
/** The `prev` of the first record. */
export const NO_HASH = "0".repeat(64);
const KEY_DIGITS = 15;

/** Position and hash of the newest record. A kept head shows when records at the end are gone. */
export interface AuditHead {
  /** 0: no record yet */
  readonly seq: number;
  readonly hash: string;
}

/** A record of the chain. `hash` is the SHA-256 of the canonical JSON (RFC 8785) of all the rest, `prev` that of the record before. */
export type AuditRecord = AuditEvent & {
  readonly v: 1;
  /** Counts from 1 without a gap */
  readonly seq: number;
  /** ISO 8601 */
  readonly time: string;
  readonly prev: string;
  readonly hash: string;
};

const headSchema = v.object({ v: v.literal(1), seq: v.pipe(v.number(), v.integer(), v.minValue(0)), hash: v.string() });
const recordSchema = v.looseObject({
  v: v.literal(1),
  seq: v.number(),
  time: v.string(),
  prev: v.string(),
  hash: v.string(),
  type: v.string(),
});

/** Returns the key of the record at a position. */
export function auditKey(seq: number): string {
  return String(seq).padStart(KEY_DIGITS, "0");
}

/** The position a key stands for; undefined for a key the audit does not write. */
export function auditSeq(key: string): number | undefined {
  const seq = Number(key);
  return Number.isSafeInteger(seq) && seq > 0 && auditKey(seq) === key ? seq : undefined;
}

/** The record of an event after `head`. @param seq its position, the one after the head unless that is taken */
export function chainRecord(
  head: AuditHead,
  { event, time, seq }: { readonly event: AuditEvent; readonly time: string; readonly seq: number },
): AuditRecord {
  const content = { v: 1 as const, seq, time, prev: head.hash, ...event };
  return { ...content, hash: canonicalDigest(content) };
}

/** The hash a record should have. @throws {TypeError} for what JSON cannot carry */
export function recordHash({ hash: _, ...content }: Readonly<Record<string, unknown>>): string {
  return canonicalDigest(content);
}

/** undefined for a body that is no record of this version. */
export function parseAuditRecord(body: unknown): AuditRecord | undefined {
  const result = v.safeParse(recordSchema, body);
  // The fields of each type are those that chainRecord wrote; verify tells whether anyone changed them
  return result.success ? result.output as unknown as AuditRecord : undefined;
}

/** As parseAuditRecord. @throws {TypeError} for a body that is no record of this version */
export function readAuditRecord(body: unknown): AuditRecord {
  const record = parseAuditRecord(body);
  if (record === undefined) throw new TypeError("The body is no record of the audit");
  return record;
}

/** As parseAuditHead. @throws {TypeError} for a body that is no head */
export function readAuditHead(body: unknown): AuditHead {
  const head = parseAuditHead(body);
  if (head === undefined) throw new TypeError("The body is no head of the audit");
  return head;
}

/** undefined for a body that is no head. */
export function parseAuditHead(body: unknown): AuditHead | undefined {
  const result = v.safeParse(headSchema, body);
  return result.success ? { seq: result.output.seq, hash: result.output.hash } : undefined;
}

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

/** Store, clock and settings that the writer of the chain works with. */
export interface AuditWriterOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly redact: (text: string) => string;
  /** False: events are dropped, and only the writes that come with them are made */
  readonly enabled: () => boolean;
}

interface Pending {
  readonly events: readonly AuditEvent[];
  readonly time: string;
  readonly writes: readonly Write[];
  readonly resolve: (written: boolean) => void;
  readonly reject: (error: unknown) => void;
}

const MAX_GROUP = 32;

/** Writes events to the end of the chain, a group of them in each transaction. */
export class AuditWriter {
  readonly #options: AuditWriterOptions;
  #head: AuditHead;
  /** Events that no transaction has taken yet, in the order of the calls */
  #queue: Pending[] = [];
  /** The work on the queue. Undefined while it is empty */
  #working: Promise<void> | undefined;
  /** False after a write that failed, until another succeeds */
  #isHealthy = true;
  #isClosed = false;

  private constructor(options: AuditWriterOptions, head: AuditHead) {
    this.#options = options;
    this.#head = head;
  }

  /**
   * Opens the chain of a store at its kept head. Where the head and the records disagree, new records go on after the head, so that
   * the break stays visible to a verification for ever.
   */
  static async open(options: AuditWriterOptions): Promise<AuditWriter> {
    return new AuditWriter(options, await loadHead(options));
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

function putHead(at: AuditHead): Write {
  return { op: "put", collection: AUDIT_HEAD, key: HEAD_KEY, body: { v: 1, ...at } };
}

/** Returns the next events to write: those without facts together, one with facts alone, since its precondition must not undo others. */
function nextGroup(queue: readonly Pending[]): readonly Pending[] {
  if ((queue[0]?.writes.length ?? 0) > 0) return queue.slice(0, 1);
  const end = queue.findIndex(({ writes }, index) => writes.length > 0 || index >= MAX_GROUP);
  return end < 0 ? queue : queue.slice(0, end);
}

async function loadHead({ store, log }: AuditWriterOptions): Promise<AuditHead> {
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
