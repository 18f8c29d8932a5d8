import type { EndedTurn } from "../../agent/model_turn.ts";
import { HttpError } from "../../base/errors.ts";
import type { AgentEvent } from "../../base/records/agent_event.ts";
import { isAtWork, type Run, type RunStatus } from "../../base/records/run.ts";
import { readable, readEntry, readRecord, readRecords, scanAll } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";
import { applyEvent, createRunState, type RunState } from "./apply_event.ts";
import { joinedEvents, lastSeqOf, type PackedEvents, unpackEvents } from "./pack_events.ts";
import type { RunList, RunSupervisor } from "../run_request.ts";
import {
  journalOf,
  type JournalRecord,
  OPEN_RUNS,
  parseJournalRecord,
  parseOpenRun,
  parseRunInput,
  parseRunRecord,
  RUN_INPUTS,
  type RunInput,
  type RunRecord,
  RUNS,
} from "./run_records.ts";

export interface AppendOptions {
  /** Ids of calls started here that may change something */
  readonly effects?: readonly string[];
  /** Turns that ended here */
  readonly turns?: readonly EndedTurn[];
  /** Ids of calls ended here whose output came from outside */
  readonly outside?: readonly string[];
  /** Written in the same transaction */
  readonly writes?: readonly Write[];
  /** Makes the transaction. Default: the store's batch */
  readonly write?: (writes: readonly Write[]) => Promise<boolean>;
  /** Makes the run known, for one that was not accepted before */
  readonly create?: { readonly state: RunState; readonly input: RunInput } | undefined;
}

/** The journal: every recorded run, its events and the fold of them. */
export interface RunStore {
  /**
   * Makes a run known, in one transaction with `claim`; durable when it resolves.
   * @throws {HttpError} 409 `conflict` when the claim was made before
   */
  accept(state: RunState, input: RunInput, claim?: Write | readonly Write[]): Promise<void>;
  /**
   * Adds events as one record and folds them into the run, in one transaction.
   * @param expectedSeq the last seq the journal has, 0 for an empty one
   * @throws {JournalError} when the journal is elsewhere, or cannot be written
   */
  append(runId: string, expectedSeq: number, events: PackedEvents, options?: AppendOptions): Promise<void>;
  /** The events after `afterSeq`, in order */
  replay(runId: string, afterSeq: number): AsyncGenerator<readonly AgentEvent[], void, undefined>;
  /** The next events after a place, at most 512; none at the end of the journal. Holds nothing between two calls */
  read(
    runId: string,
    place: JournalPlace,
  ): Promise<{ readonly events: readonly AgentEvent[]; readonly place: JournalPlace }>;
  /** Last seq in the journal, 0 for an empty one */
  lastSeq(runId: string): Promise<number>;
  /** The records of a run's journal, in order */
  records(runId: string): AsyncGenerator<JournalRecord, void, undefined>;
  get(runId: string): Promise<Run | undefined>;
  input(runId: string): Promise<RunInput | undefined>;
  startedBy: RunSupervisor["startedBy"];
  /** Newest first */
  list(
    options: { readonly status?: RunStatus | undefined; readonly after?: string | undefined; readonly limit: number },
  ): Promise<RunList>;
  /** Runs that have not ended, oldest first */
  open(): Promise<readonly OpenRunId[]>;
  /** Notes that a run must not go on after a restart. @returns false for one that is unknown or has ended */
  cancel(runId: string): Promise<boolean>;
}

/** A run that has not ended. */
export interface OpenRunId {
  readonly id: string;
  /** `unknown`: the record that says so cannot be read */
  readonly cancelled: boolean | "unknown";
}

/** How far a reader is. */
export interface JournalPlace {
  /** Events up to this seq are read */
  readonly seq: number;
  /** Records that hold nothing after `seq`, from the first on; 0 when unknown */
  readonly record: number;
}

/** The journal could not be written: the run cannot go on. */
export class JournalError extends Error {
  override readonly name = "JournalError";
}

interface Head {
  readonly state: RunState;
  readonly seq: number;
  readonly records: number;
}

const PAGE = 100;
/** Events a reader gets at once: what stays in memory for each one that is slow */
const MAX_READ = 512;
/** Parsed records kept, for many readers of one run */
const MAX_PARSED = 8;

/** The journal over a store. Heads of runs at work are kept in memory, so that an append reads nothing. */
export function createRunStore(store: Store): RunStore {
  const heads = new Map<string, Head>();

  const loadRecord = async (runId: string): Promise<RunRecord | undefined> => {
    return (await readRecord(store, RUNS, runId, parseRunRecord))?.value;
  };
  async function* records(runId: string): AsyncGenerator<JournalRecord, void, undefined> {
    for (let afterSeq = 0;;) {
      const page = await store.read(journalOf(runId), { afterSeq, limit: PAGE });
      for (const entry of page) {
        yield readEntry(store, journalOf(runId), entry, parseJournalRecord);
        afterSeq = entry.seq;
      }
      if (page.length < PAGE) return;
    }
  }
  const parsed = new Map<string, JournalRecord>();
  /** One record; those read last stay parsed. They never change */
  const recordAt = async (runId: string, number: number): Promise<JournalRecord | undefined> => {
    const key = `${runId}/${number}`;
    const known = parsed.get(key);
    if (known !== undefined) return known;
    const [stored] = await store.read(journalOf(runId), { afterSeq: number - 1, limit: 1 });
    if (stored === undefined) return undefined;
    const record = readEntry(store, journalOf(runId), stored, parseJournalRecord);
    parsed.set(key, record);
    // A Map keeps its order: the first is the oldest
    for (const oldest of parsed.keys()) {
      if (parsed.size <= MAX_PARSED) break;
      parsed.delete(oldest);
    }
    return record;
  };
  const read: RunStore["read"] = async (runId, { seq, record }) => {
    for (let number = record + 1;; number++) {
      const packed = await recordAt(runId, number);
      if (packed === undefined) return { events: [], place: { seq, record: number - 1 } };
      const end = lastSeqOf(packed);
      if (end <= seq) continue;
      const events = unpackEvents(packed, seq, MAX_READ);
      const last = events.at(-1)?.seq ?? end;
      return { events, place: { seq: last, record: last === end ? number : number - 1 } };
    }
  };
  /** The fold of a run's whole journal */
  const fold = async (runId: string) => {
    const record = await loadRecord(runId);
    if (record === undefined) return undefined;
    let state = createRunState(record.run);
    let seq = 0;
    for await (const packed of records(runId)) {
      for (const event of joinedEvents(packed)) state = applyEvent(state, event);
      seq = lastSeqOf(packed);
    }
    return { state, seq };
  };
  const headOf = async (runId: string): Promise<Head> => {
    const known = heads.get(runId);
    if (known !== undefined) return known;
    const [record, folded] = await Promise.all([loadRecord(runId), fold(runId)]);
    if (record === undefined || folded === undefined) {
      throw new JournalError(`Cannot write to run "${runId}": it is unknown`);
    }
    return { state: folded.state, seq: folded.seq, records: record.records };
  };

  const loadInput = async (runId: string): Promise<RunInput | undefined> => {
    return (await readRecord(store, RUN_INPUTS, runId, parseRunInput))?.value;
  };

  return {
    async accept(state, input, claim) {
      const head = { state, seq: 0, records: 0 };
      const writes = creation(head, input);
      if (claim === undefined) {
        if (!(await store.batch(writes))) throw taken(state.run.id);
      } else if (!(await store.batch([...writes, ...[claim].flat()]))) throw claimed();
      heads.set(state.run.id, head);
    },
    async append(runId, expectedSeq, events, { writes = [], create, write = store.batch, ...notes } = {}) {
      const head = create === undefined ? await headOf(runId) : { state: create.state, seq: 0, records: 0 };
      if (head.seq !== expectedSeq || events.seq <= expectedSeq) {
        throw new JournalError(
          `Cannot write to run "${runId}": its journal ends at ${head.seq}, not at ${expectedSeq}`,
        );
      }
      const next: Head = {
        state: joinedEvents(events).reduce(applyEvent, head.state),
        seq: lastSeqOf(events),
        records: head.records + 1,
      };
      const body: JournalRecord = { v: 2, ...events, ...toNotes(notes) };
      const over = !isAtWork(next.state.run.status);
      heads.delete(runId);
      const written = await write([
        ...(create === undefined ? [] : creation(head, create.input)),
        { op: "append", stream: journalOf(runId), expectedSeq: head.records, records: [body] },
        { op: "put", collection: RUNS, key: runId, body: toRecord(next) },
        ...(over ? [{ op: "delete" as const, collection: OPEN_RUNS, key: runId }] : []),
        ...writes,
      ]);
      if (!written) throw taken(runId);
      if (!over) heads.set(runId, next);
    },
    async *replay(runId, afterSeq) {
      let place: JournalPlace = { seq: afterSeq, record: 0 };
      for (;;) {
        const next = await read(runId, place);
        if (next.events.length === 0) return;
        place = next.place;
        yield next.events;
      }
    },
    read,
    lastSeq: async (runId) => heads.get(runId)?.seq ?? (await loadRecord(runId))?.seq ?? 0,
    records,
    get: async (runId) => heads.get(runId)?.state.run ?? (await loadRecord(runId))?.run,
    input: loadInput,
    async startedBy(runId) {
      const input = await loadInput(runId);
      return input === undefined ? undefined : { tokenId: input.caller.token_id };
    },
    async list({ status, after, limit }) {
      const runs: Run[] = [];
      const where = status === undefined ? undefined : { field: "run.status", value: status };
      const options = { order: "created", reverse: true, after, where } as const;
      for await (const { key, value } of readRecords(store, RUNS, parseRunRecord, options)) {
        const run = heads.get(key)?.state.run ?? value.run;
        // A record of the page may have changed since the page was read
        if (status !== undefined && run.status !== status) continue;
        if (runs.length === limit) return { runs, hasMore: true };
        runs.push(run);
      }
      return { runs, hasMore: false };
    },
    async open() {
      const open: OpenRunId[] = [];
      for await (const stored of scanAll(store, OPEN_RUNS, { order: "created" })) {
        const [found] = readable(store, OPEN_RUNS, [stored], parseOpenRun);
        open.push({ id: stored.key, cancelled: found === undefined ? "unknown" : found.value.cancelled === true });
      }
      return open;
    },
    async cancel(runId) {
      const open = await store.get(OPEN_RUNS, runId);
      if (open === undefined) return false;
      const body = { v: 1, cancelled: true };
      return await store.putIfVersion(OPEN_RUNS, runId, open.version, body);
    },
  };
}

function creation(head: Head, input: RunInput): readonly Write[] {
  const key = head.state.run.id;
  return [
    { op: "insert", collection: RUNS, key, body: toRecord(head) },
    { op: "insert", collection: RUN_INPUTS, key, body: input },
    { op: "insert", collection: OPEN_RUNS, key, body: { v: 1 } },
  ];
}

function taken(runId: string): JournalError {
  return new JournalError(`Cannot write to run "${runId}": its records were changed by another writer`);
}

function claimed(): HttpError {
  return new HttpError("conflict", "Cannot start the run: another was accepted for the same message before", {
    status: 409,
    type: "invalid_request_error",
  });
}

function toNotes({ effects = [], turns = [], outside = [] }: Pick<AppendOptions, "effects" | "turns" | "outside">) {
  return {
    ...(effects.length === 0 ? {} : { effects: [...effects] }),
    ...(turns.length === 0 ? {} : { turns: turns.map(toEndedTurn) }),
    ...(outside.length === 0 ? {} : { outside: [...outside] }),
  };
}

function toEndedTurn({ turn, finishReason, calls, opaque, provider, last }: EndedTurn) {
  return {
    turn,
    finish_reason: finishReason,
    ...(calls.length === 0 ? {} : { calls: calls.map((call) => ({ ...call })) }),
    ...(opaque === undefined ? {} : { opaque }),
    ...(provider === undefined ? {} : { provider }),
    ...(last ? { last } : {}),
  };
}

function toRecord({ state, seq, records }: Head): RunRecord {
  return { v: 1, run: state.run, seq, records };
}
