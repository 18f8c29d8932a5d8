import { isRecord } from "../../base/json.ts";
import { UnknownWriteError } from "../../storage/read_records.ts";
import type { Write } from "../../storage/store.ts";
import {
  AUDIT_HEAD,
  AUDIT_RECORDS,
  type AuditAppend,
  type AuditHead,
  auditKey,
  type AuditWriterOptions,
  chainRecord,
  HEAD_KEY,
  NO_HASH,
  parseAuditHead,
} from "./audit_chain.ts";
import { type AuditEvent, plainEvent } from "./audit_event.ts";

/** An event with the time at which the audit took it. */
export interface TimedEvent {
  readonly event: AuditEvent;
  /** ISO 8601 */
  readonly time: string;
}

/** Events as the next records of a chain. */
export interface ChainStep {
  /** Head once the writes are made */
  readonly head: AuditHead;
  /** Writes that add the records and move the head, with the preconditions of the chain */
  readonly writes: readonly Write[];
}

/** Place where a chain goes on after a batch that did not hold. */
export interface ChainRetry {
  readonly head: AuditHead;
  /** Positions after the head that are taken */
  readonly skipped: number;
}

/** Place of a chain in the store: its keys, its head, and what goes with each of its batches. */
export interface ChainPlace {
  /** Returns the head that the chain goes on after. */
  load(): Promise<AuditHead>;
  /** Returns the time of now, in ms since the epoch. */
  now(): number;
  next(from: ChainRetry, events: readonly TimedEvent[]): ChainStep;
  /** Finds out why a batch did not hold. @returns undefined when a precondition of its facts did not */
  refused(from: ChainRetry, count: number): Promise<ChainRetry | undefined>;
  /** Takes note of a step that was written, or that failed. */
  ended(step: ChainStep, outcome: "written" | "failed"): void;
  /** Returns writes that change nothing, to find out whether the store can be written. */
  rewrite(head: AuditHead): readonly Write[];
}

interface Pending {
  /** Event as the caller gave it. A caller that tries again gives the same object. Undefined: the chain's own */
  readonly source?: AuditEvent;
  readonly events: readonly AuditEvent[];
  readonly time: string;
  readonly writes: readonly Write[];
  readonly resolve: (written: boolean) => void;
  readonly reject: (error: unknown) => void;
}

const MAX_GROUP = 32;
/** Writes whose answers were lost that are remembered. Events of further ones may be recorded twice. */
const MAX_LOST = 1_000;

/** Writes events to the end of the chain, a group of them in each transaction. */
export class AuditWriter {
  readonly #options: AuditWriterOptions;
  readonly #place: ChainPlace;
  #head: AuditHead;
  /** Events that no transaction has taken yet, in the order of the calls */
  #queue: Pending[] = [];
  /** The work on the queue. Undefined while it is empty */
  #working: Promise<void> | undefined;
  /** False after a write that failed, until another succeeds */
  #isHealthy = true;
  #isClosed = false;
  /** Events of writes whose answers were lost since the head moved last, by the hash that the head has if a write was made. */
  readonly #lost = new Map<string, ReadonlySet<AuditEvent>>();

  private constructor(options: AuditWriterOptions, place: ChainPlace, head: AuditHead) {
    this.#options = options;
    this.#place = place;
    this.#head = head;
  }

  /**
   * Opens a chain at its kept head. Where the head and the records disagree, new records go on after the head, so that the break stays
   * visible to a verification for ever.
   * @param place default: the one chain of a gateway alone
   */
  static async open(options: AuditWriterOptions, place: ChainPlace = new LoneChain(options)): Promise<AuditWriter> {
    return new AuditWriter(options, place, await place.load());
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
    const { store, redact, enabled } = this.#options;
    if (!enabled()) return writes.length === 0 || await store.batch(writes);
    return await this.#add({ source: event, events: [event, ...more].map((each) => plainEvent(each, redact)), writes });
  };

  /** Tells whether the last write succeeded. After a failure, each call tries another. */
  healthy(): boolean {
    // Before the first record there is no head to write
    if (!this.#isHealthy && !this.#isClosed && this.#head.seq > 0) this.#working ??= this.#tryAgain();
    return this.#isHealthy;
  }

  /** Writes the first record of a chain that has none. */
  async begin(): Promise<void> {
    if (this.#head.seq === 0) await this.#add({ events: [], writes: [] });
  }

  /** Takes no more events. Resolves when those that are queued are written. @param last event that ends the chain */
  async close(last?: AuditEvent): Promise<void> {
    this.#isClosed = true;
    if (last !== undefined && this.#options.enabled()) {
      // The others end the chain when this gateway cannot
      await this.#add({ events: [last], writes: [] }).catch((error: unknown) =>
        this.#options.log.warn("The audit's chain could not be ended: another gateway does", { error })
      );
    }
    await this.#working;
  }

  #add(event: Pick<Pending, "source" | "events" | "writes">): Promise<boolean> {
    const time = new Date(this.#place.now()).toISOString();
    return new Promise((resolve, reject) => {
      this.#queue.push({ ...event, time, resolve, reject });
      this.#working ??= this.#work();
    });
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
      await this.#options.store.batch(this.#place.rewrite(this.#head));
      this.#isHealthy = true;
    } catch {
      // The next look tries again
    }
    await this.#work();
  }

  async #write(given: readonly Pending[]): Promise<boolean> {
    const place = this.#place;
    let group = given;
    for (let from: ChainRetry = { head: this.#head, skipped: 0 };;) {
      const events = group.flatMap(({ events, time }) => events.map((event) => ({ event, time })));
      const facts = group.flatMap(({ writes }) => writes);
      const step = place.next(from, events);
      if (await this.#batch(step, { facts, group })) {
        this.#moveTo(step.head);
        return true;
      }
      const again = await place.refused(from, events.length);
      if (again === undefined && facts.length > 0) return false;
      if (again === undefined) throw new Error("Cannot write to the audit: the store refuses its record");
      const done = this.#lost.get(again.head.hash);
      this.#moveTo(again.head);
      from = again;
      group = group.filter(({ source }) => source === undefined || done?.has(source) !== true);
      if (group.length === 0) return true;
    }
  }

  async #batch(
    step: ChainStep,
    { facts, group }: { readonly facts: readonly Write[]; readonly group: readonly Pending[] },
  ): Promise<boolean> {
    try {
      const written = await this.#options.store.batch([...facts, ...step.writes]);
      if (written) this.#place.ended(step, "written");
      return written;
    } catch (error) {
      this.#place.ended(step, "failed");
      if (error instanceof UnknownWriteError && this.#lost.size < MAX_LOST) {
        this.#lost.set(step.head.hash, new Set(group.flatMap(({ source }) => source ?? [])));
      }
      throw error;
    }
  }

  #moveTo(head: AuditHead): void {
    if (head.hash !== this.#head.hash) this.#lost.clear();
    this.#head = head;
  }
}

/** Returns the next events to write: those without facts together, one with facts alone, since its precondition must not undo others. */
function nextGroup(queue: readonly Pending[]): readonly Pending[] {
  if ((queue[0]?.writes.length ?? 0) > 0) return queue.slice(0, 1);
  const end = queue.findIndex(({ writes }, index) => writes.length > 0 || index >= MAX_GROUP);
  return end < 0 ? queue : queue.slice(0, end);
}

/** The one chain of a gateway alone. */
class LoneChain implements ChainPlace {
  readonly #options: AuditWriterOptions;

  constructor(options: AuditWriterOptions) {
    this.#options = options;
  }

  async load(): Promise<AuditHead> {
    const { store, log } = this.#options;
    const stored = await store.get(AUDIT_HEAD.name, HEAD_KEY);
    AUDIT_HEAD.parsed(store, stored);
    const none = { seq: 0, hash: NO_HASH };
    const head = stored === undefined ? none : parseAuditHead(stored.body);
    const newest = head === undefined || head.seq === 0
      ? undefined
      : await store.get(AUDIT_RECORDS.name, auditKey(head.seq));
    const fits = head !== undefined &&
      (head.seq === 0 || (isRecord(newest?.body) && newest.body["hash"] === head.hash));
    if (!fits) log.error("The audit was changed from outside: run postern audit verify");
    return head ?? none;
  }

  now(): number {
    return this.#options.clock.now();
  }

  next({ head, skipped }: ChainRetry, events: readonly TimedEvent[]): ChainStep {
    let next = head;
    const inserts = events.map(({ event, time }): Write => {
      const record = chainRecord(next, { event, time, seq: next.seq + 1 + (next === head ? skipped : 0) });
      next = { seq: record.seq, hash: record.hash };
      return AUDIT_RECORDS.insert(auditKey(record.seq), record);
    });
    return { head: next, writes: [...inserts, putHead(next)] };
  }

  async refused({ head, skipped }: ChainRetry, count: number): Promise<ChainRetry | undefined> {
    const taken = await this.#firstTaken(head.seq + skipped, count);
    if (taken === undefined) return undefined;
    this.#options.log.error("The audit has a record that Postern did not write: run postern audit verify", {
      seq: taken,
    });
    return { head, skipped: taken - head.seq };
  }

  ended(): void {}

  rewrite(head: AuditHead): readonly Write[] {
    return [putHead(head)];
  }

  /** Returns the first position after `seq` that holds a record already. */
  async #firstTaken(seq: number, count: number): Promise<number | undefined> {
    for (let at = seq + 1; at <= seq + count; at++) {
      if (await this.#options.store.get(AUDIT_RECORDS.name, auditKey(at)) !== undefined) return at;
    }
    return undefined;
  }
}

function putHead(at: AuditHead): Write {
  return AUDIT_HEAD.put(HEAD_KEY, { v: 1, ...at });
}
