import type { AgentEvent } from "../../base/records/agent_event.ts";
import { readEntry } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import { lastSeqOf, unpackEvents } from "./pack_events.ts";
import { journalOf, type JournalRecord, parseJournalRecord } from "./run_records.ts";

/** Position of a reader in a journal. */
export interface JournalPlace {
  /** Seq of the last event that was read. */
  readonly seq: number;
  /** Number of records, from the first on, that hold nothing after `seq`; 0 when unknown. */
  readonly record: number;
  /** History of the database in which the records were counted, see `LeaseDatabase`. Undefined where there is one. */
  readonly history?: string | undefined;
}

/** The next events of a journal, and the place of a reader that has them. */
export interface JournalPart {
  /** Empty at the end of the journal. */
  readonly events: readonly AgentEvent[];
  readonly place: JournalPlace;
}

/** Place of one record in a journal. */
interface RecordPlace {
  /** From 1 */
  readonly number: number;
  readonly history: string | undefined;
}

const PAGE = 100;
/** Events that a reader gets at once: a slow reader holds that many in memory. */
const MAX_READ = 512;
/** Parsed records that are kept, for many readers of one run. */
const MAX_PARSED = 8;

/**
 * The events that journals have on disk, for reading from any place on.
 *
 * A place counts the records of its journal, so each part that a reader asks for costs one read of the store. After a failover the database
 * may have another history, whose journal lacks the last records. A place of another history is therefore found again by its seq.
 */
export class RecordedEvents {
  readonly #store: Store;
  readonly #history: () => string | undefined;
  /** Records that were read last, by history, run and number. A record never changes within a history. */
  readonly #parsed = new Map<string, JournalRecord>();

  /** @param history returns the name of the database's history now; undefined where there is one */
  constructor(store: Store, history: () => string | undefined) {
    this.#store = store;
    this.#history = history;
  }

  /** Yields the records of a run's journal, in order. @throws {HttpError} 500 `record_unreadable` */
  async *records(runId: string): AsyncGenerator<JournalRecord, void, undefined> {
    for (let afterSeq = 0;;) {
      const page = await this.#store.read(journalOf(runId), { afterSeq, limit: PAGE });
      for (const entry of page) {
        yield readEntry(this.#store, journalOf(runId), entry, parseJournalRecord);
        afterSeq = entry.seq;
      }
      if (page.length < PAGE) return;
    }
  }

  /** Yields the events after `afterSeq`, in order. @throws {HttpError} 500 `record_unreadable` */
  async *replay(runId: string, afterSeq: number): AsyncGenerator<readonly AgentEvent[], void, undefined> {
    let place: JournalPlace = { seq: afterSeq, record: 0 };
    for (;;) {
      const next = await this.read(runId, place);
      if (next.events.length === 0) return;
      place = next.place;
      yield next.events;
    }
  }

  /**
   * Returns the next events after a place, 512 at most, and none at the end of the journal. Holds nothing between two calls.
   * @throws {HttpError} 500 `record_unreadable`
   */
  async read(runId: string, place: JournalPlace): Promise<JournalPart> {
    const { seq, record } = place;
    const history = this.#history();
    const isCounted = record === 0 || place.history === history;
    let number = isCounted ? record + 1 : await this.#numberAfter(runId, place, history);
    let packed = await this.#recordAt(runId, { number, history });
    // After a gap the next owner begins, or the records were counted in a history that the gateway does not know to be lost
    if (isCounted && record > 0 && packed !== undefined && packed.seq > seq + 1) {
      number = await this.#numberAfter(runId, place, history);
      packed = await this.#recordAt(runId, { number, history });
    }
    for (;; packed = await this.#recordAt(runId, { number, history })) {
      if (packed === undefined) return { events: [], place: { seq, record: number - 1, history } };
      const end = lastSeqOf(packed);
      if (end > seq) {
        const events = this.#unpack(runId, { number, packed, seq });
        const last = events.at(-1)?.seq ?? end;
        return { events, place: { seq: last, record: last === end ? number : number - 1, history } };
      }
      number++;
    }
  }

  /** Returns the next events of a record. @throws {HttpError} `record_unreadable` for an event that no version up to this one has */
  #unpack(runId: string, { number, packed, seq }: {
    readonly number: number;
    readonly packed: JournalRecord;
    readonly seq: number;
  }): readonly AgentEvent[] {
    const entry = { seq: number, body: packed };
    return readEntry(this.#store, journalOf(runId), entry, () => unpackEvents(packed, seq, MAX_READ));
  }

  /** Returns the number of the first record that may hold something after a place. The records before it are read again. */
  async #numberAfter(runId: string, { seq, record }: JournalPlace, history: string | undefined): Promise<number> {
    for (let number = record; number > 0; number--) {
      const packed = await this.#readRecord(runId, { number, history });
      if (packed !== undefined && lastSeqOf(packed) <= seq) return number + 1;
    }
    return 1;
  }

  /** Returns one record of a journal by its number, from 1. The records that were read last stay parsed. */
  async #recordAt(runId: string, place: RecordPlace): Promise<JournalRecord | undefined> {
    return this.#parsed.get(keyOf(runId, place)) ?? await this.#readRecord(runId, place);
  }

  /** Reads one record of a journal as the store has it now. */
  async #readRecord(runId: string, place: RecordPlace): Promise<JournalRecord | undefined> {
    const [stored] = await this.#store.read(journalOf(runId), { afterSeq: place.number - 1, limit: 1 });
    if (stored === undefined) return undefined;
    const record = readEntry(this.#store, journalOf(runId), stored, parseJournalRecord);
    this.#parsed.set(keyOf(runId, place), record);
    // A Map keeps its order: the first is the oldest
    for (const oldest of this.#parsed.keys()) {
      if (this.#parsed.size <= MAX_PARSED) break;
      this.#parsed.delete(oldest);
    }
    return record;
  }
}

function keyOf(runId: string, { number, history = "" }: RecordPlace): string {
  return `${history}/${runId}/${number}`;
}
