import type { ClaimableRun } from "../../cluster/run_claims.ts";
import type { JoinedGateway } from "../../cluster/leases.ts";
import type { EndedTurn } from "../../agent/agent_run.ts";
import { type HttpError, refuse } from "../../base/errors.ts";
import { isAtWork, type Run } from "../../base/records/run.ts";
import { unknownFieldsOf } from "../../base/records/stored_object.ts";
import type { Told } from "../../guard/approvals.ts";
import { type Patience, patiently, scanAll } from "../../storage/read_records.ts";
import type { Store, Stored, Write } from "../../storage/store.ts";
import { applyEvent, createRunState, type RunState } from "./apply_event.ts";
import { joinedEvents, lastSeqOf, ownJoinedEvents, type PackedEvents } from "./pack_events.ts";
import { type JournalPlace, RecordedEvents } from "./recorded_events.ts";
import type { ListRunsOptions, RunList, RunSupervisor } from "../run_request.ts";
import {
  journalOf,
  type JournalRecord,
  OPEN_RUNS,
  RUN_INPUTS,
  type RunInput,
  type RunRecord,
  RUNS,
  workspaceOf,
} from "./run_records.ts";

/** Parts of one record beside its events, and the transaction that writes it. */
export interface AppendOptions {
  /** Ids of calls started in this record that may change something. */
  readonly effects?: readonly string[];
  /** Turns that ended in this record. */
  readonly turns?: readonly EndedTurn[];
  /** More writes for the same transaction. */
  readonly writes?: readonly Write[];
  /** Precondition in a cluster, for a run that nobody owns. Default: this gateway still owns the run */
  readonly check?: readonly Write[] | undefined;
  /** Makes the transaction. Default: the store's batch. */
  readonly write?: (writes: readonly Write[]) => Promise<boolean>;
  /** Makes the run known, when it was not accepted before. */
  readonly create?: { readonly state: RunState; readonly input: RunInput } | undefined;
}

/** A run that has not ended. */
export interface OpenRunId {
  readonly id: string;
  /** True when the run was cancelled. `unknown`: the record that says so cannot be read. */
  readonly cancelled: boolean | "unknown";
}

/** A run as the database has it, with the end of its journal. */
export interface RunWithEnd {
  readonly run: Run;
  /** End of its journal. */
  readonly end: JournalPlace;
}

/** Error when the journal cannot be written, so that the run cannot go on. */
export class JournalError extends Error {
  override readonly name = "JournalError";
}

/** End of a journal: the fold of all its events, and its length. Carries the unknown fields of the run's record. */
interface Head {
  readonly state: RunState;
  readonly seq: number;
  readonly records: number;
}

/** Receives the events of each record that is on disk. Must not throw. */
export type OnRecorded = (runId: string, events: PackedEvents) => void;

/** Beside the store of a journal: who is told of its records, and who owns its runs. */
export interface RunStoreOptions {
  /** Receives the events of each record that is on disk. Default: nobody does */
  readonly onRecorded?: OnRecorded | undefined;
  /** Rights of this gateway to write runs. Default: all, as a gateway alone */
  readonly ownership?: RunRights | undefined;
  /** Returns what tells people of the end of a run, or that it needs a review. Never rejects. Default: nobody is told */
  readonly tellEnd?: ((run: Run) => Promise<Told | undefined>) | undefined;
  /** Returns the name of the database's history. Default: that of the ownership, and there is one without */
  readonly history?: (() => string | undefined) | undefined;
}

/** Rights of a gateway to write runs, with what goes along. `RunOwnership` has those of one gateway of several. */
export interface RunRights {
  /** Conversations that are at work at any gateway. */
  readonly lines: {
    /** Returns the id of the first run of a conversation that is at work, or waits, at any gateway. Undefined: there is none */
    runIn(conversationId: string): string | undefined | Promise<string | undefined>;
    /** Returns the precondition that no gateway works in a conversation. */
    unheld(conversationId: string): readonly Write[];
  };
  /** Returns this gateway with its fence. Undefined: no fence counts here, or the gateway has no lease */
  own(): JoinedGateway | undefined;
  /** Tells whether a gateway still has this fence: what it had begun goes on there. */
  isCurrent(gateway: JoinedGateway): Promise<boolean>;
  /** Tells whether an error says that the database is down and may come back, so that a write is made then. */
  isOutage(error: unknown): boolean;
  /** Returns the name of the database's history. Undefined: it has one. */
  history(): string | undefined;
  /** Tells whether this gateway owns a run. */
  owns(runId: string): boolean;
  /** Makes a run this gateway's own, before the write that says so. @throws {CancelError} */
  take(run: ClaimableRun, signal: AbortSignal): Promise<void>;
  /** Looks why a batch of a run did not hold. @throws {HttpError} `storage_unavailable`: this gateway may not write now */
  requireFence(runId: string): void | Promise<void>;
  /** Returns the writes that go with the acceptance of a run. */
  opening(run: ClaimableRun): readonly Write[];
  /** Returns the precondition of each batch of a run's owner. @throws {CancelError} for a run that this gateway does not own */
  check(runId: string): readonly Write[];
  /** Returns the precondition that nobody owns a run. */
  unowned(runId: string): readonly Write[];
  /** Returns the writes that go with the end of a run. */
  ending(run: Pick<ClaimableRun, "id" | "conversationId">): readonly Write[];
  /** Returns the write by which the owner of a run hears that it has something to read. */
  signal(runId: string): readonly Write[];
  /**
   * Makes a write of a run, again while the database is down and this gateway owns the run.
   * @param isWritten tells whether an earlier try was written whose answer was lost
   */
  write(runId: string, write: () => Promise<boolean>, isWritten: () => Promise<boolean>): Promise<boolean>;
  /** Returns the patience of a run, which makes a call of the store again while the database is down. @param signal ends the pauses. Default: never */
  patienceOf(runId: string, signal?: AbortSignal): Patience;
  /** Tells all gateways that something about a run has changed. */
  tell(kind: "run" | "end", runId: string, seq?: number): void;
}

const NO_WRITES: readonly Write[] = [];

/** The rights of a gateway alone: it owns every run, and nothing goes with its writes. */
export const OWNS_ALL: RunRights = {
  lines: { runIn: () => undefined, unheld: () => NO_WRITES },
  own: () => undefined,
  isCurrent: () => Promise.resolve(false),
  isOutage: () => false,
  history: () => undefined,
  owns: () => true,
  take: () => Promise.resolve(),
  requireFence() {},
  opening: () => NO_WRITES,
  check: () => NO_WRITES,
  unowned: () => NO_WRITES,
  ending: () => NO_WRITES,
  signal: () => NO_WRITES,
  write: (_runId, write) => write(),
  patienceOf: () => (work) => work(),
  tell() {},
};

/** Reads of a journal that a reader may wait for. */
export type PatientRuns = Pick<RunStore, "get" | "read" | "lastSeq">;

/** The journal: every recorded run, its events and their fold. */
export class RunStore {
  readonly #store: Store;
  /** Heads of runs at work, so that an append reads nothing. */
  readonly #heads = new Map<string, Head>();
  readonly #events: RecordedEvents;
  readonly #onRecorded: OnRecorded | undefined;
  readonly #ownership: RunRights;
  readonly #history: () => string | undefined;
  readonly #tellEnd: RunStoreOptions["tellEnd"];

  constructor(store: Store, { onRecorded, ownership = OWNS_ALL, history, tellEnd }: RunStoreOptions = {}) {
    this.#store = store;
    this.#onRecorded = onRecorded;
    this.#tellEnd = tellEnd;
    this.#ownership = ownership;
    this.#history = history ?? (() => ownership.history());
    this.#events = new RecordedEvents(store, this.#history);
  }

  /**
   * Makes a run known, in one transaction with `claim`; durable when it resolves.
   * @throws {HttpError} 409 `conflict` when the claim was made before
   */
  async accept(state: RunState, input: RunInput, claim?: Write | readonly Write[]): Promise<void> {
    const head = { state, seq: 0, records: 0 };
    const { run } = state;
    const writes = [...creation(head, input), ...this.#ownership.opening(toClaimable(run, input))];
    if (!await this.#store.batch([...writes, ...claim === undefined ? [] : [claim].flat()])) {
      await this.#ownership.requireFence(run.id);
      throw claim === undefined ? taken(run.id) : claimed();
    }
    this.#keepHead(head);
  }

  /**
   * Adds events as one record and folds them into the run, in one transaction.
   * @param expectedSeq the last seq the journal has, 0 for an empty one
   * @throws {JournalError} when the journal is elsewhere, or cannot be written; {CancelError} `shutdown` when this gateway does not own the run
   */
  async append(runId: string, expectedSeq: number, events: PackedEvents, options: AppendOptions = {}): Promise<void> {
    const { writes = [], create, check, write = this.#store.batch, ...notes } = options;
    const head = create === undefined
      ? await this.#patiently(runId, () => this.#headOf(runId))
      : { state: create.state, seq: 0, records: 0 };
    if (head.seq !== expectedSeq || events.seq <= expectedSeq) {
      throw new JournalError(`Cannot write to run "${runId}": its journal ends at ${head.seq}, not at ${expectedSeq}`);
    }
    const next: Head = {
      ...unknownFieldsOf(head),
      state: ownJoinedEvents(events).reduce(applyEvent, head.state),
      seq: lastSeqOf(events),
      records: head.records + 1,
    };
    const body: JournalRecord = { v: 2, ...events, ...toNotes(notes) };
    const over = !isAtWork(next.state.run.status);
    this.#heads.delete(runId);
    const owner = this.#ownership;
    const run = toClaimable(next.state.run, create?.input);
    if (create !== undefined && !owner.owns(runId)) await owner.take(run, new AbortController().signal);
    const told = over ? await this.#tellEnd?.(next.state.run) : undefined;
    const batch: readonly Write[] = [
      ...check ?? owner.check(runId),
      ...(create === undefined
        ? [RUNS.put(runId, toRecord(next))]
        : [...creation(next, create.input), ...owner.opening(run)]),
      { op: "append", stream: journalOf(runId), expectedSeq: head.records, records: [body] },
      ...(over ? [OPEN_RUNS.remove(runId), ...owner.ending(run)] : []),
      ...writes,
      ...told?.writes ?? [],
    ];
    if (!await this.#writeBatch(next, { batch, body, write })) {
      // A gateway that was fenced off has lost the run to others, which is no failure of its own
      await owner.requireFence(runId);
      throw taken(runId);
    }
    if (!over) this.#keepHead(next);
    told?.written();
    this.#onRecorded?.(runId, events);
    owner.tell(over ? "end" : "run", runId, next.seq);
  }

  /** Writes a record, with tries again in a cluster. A try whose answer was lost may have written it. */
  #writeBatch(
    { state, records }: Head,
    { batch, body, write }: {
      readonly batch: readonly Write[];
      readonly body: JournalRecord;
      readonly write: (writes: readonly Write[]) => Promise<boolean>;
    },
  ): Promise<boolean> {
    const { id } = state.run;
    return this.#ownership.write(id, () => write(batch), async () => {
      const [stored] = await this.#patiently(
        id,
        () => this.#store.read(journalOf(id), { afterSeq: records - 1, limit: 1 }),
      );
      return JSON.stringify(stored?.body) === JSON.stringify(body);
    });
  }

  /** Reads for a run, and waits for the database while this gateway owns the run. */
  #patiently<T>(runId: string, read: () => Promise<T>): Promise<T> {
    if (!this.#ownership.owns(runId)) return read();
    return this.#ownership.patienceOf(runId)(read);
  }

  /** Keeps the head of a run that this gateway writes. Others may write the journals of other runs. */
  #keepHead(head: Head): void {
    const { id } = head.state.run;
    if (this.#ownership.owns(id)) this.#heads.set(id, head);
  }

  /**
   * Notes what a run waits for that nobody can go on with, in one transaction with `writes`. Undefined: it waits for nothing any more, and
   * has the state that its journal gives.
   */
  async setWaiting(runId: string, waitingFor: Run["waiting_for"], writes: readonly Write[]): Promise<boolean> {
    const found = await RUNS.read(this.#store, runId);
    const folded = await this.#fold(runId);
    if (found === undefined || folded === undefined) return false;
    const { version, value: record } = found;
    const run: Run = waitingFor === undefined
      ? folded.state.run
      : { ...folded.state.run, status: "queued", waiting_for: waitingFor };
    this.#heads.delete(runId);
    const isWritten = await this.#store.batch([
      ...this.#ownership.check(runId),
      RUNS.putOver(runId, version, { ...record, run }),
      ...writes,
    ]);
    if (isWritten) this.#ownership.tell("run", runId, record.seq);
    return isWritten;
  }

  /** Forgets what is known of a run that others may write from now on. */
  forget(runId: string): void {
    this.#heads.delete(runId);
  }

  /** Yields the events after `afterSeq`, in order. */
  replay(runId: string, afterSeq: number): ReturnType<RecordedEvents["replay"]> {
    return this.#events.replay(runId, afterSeq);
  }

  /** Returns the next events after a place, 512 at most, and none at the end of the journal. */
  read(runId: string, place: JournalPlace): ReturnType<RecordedEvents["read"]> {
    return this.#events.read(runId, place);
  }

  /** Yields the records of a run's journal, in order. */
  records(runId: string): ReturnType<RecordedEvents["records"]> {
    return this.#events.records(runId);
  }

  /** Returns the same runs for a reader that waits while the store is down. */
  patient(patience: Patience): PatientRuns {
    return {
      get: patiently(patience, (id) => this.get(id)),
      read: patiently(patience, (id, place) => this.read(id, place)),
      lastSeq: patiently(patience, (id) => this.lastSeq(id)),
    };
  }

  /** Returns the last seq in the journal, 0 for an empty one. */
  async lastSeq(runId: string): Promise<number> {
    return this.#heads.get(runId)?.seq ?? (await this.#recordOf(runId))?.seq ?? 0;
  }

  /** Returns a run as the database has it, with the end of its journal. */
  async recorded(runId: string): Promise<RunWithEnd | undefined> {
    const history = this.#history();
    const record = await this.#recordOf(runId);
    return record && { run: record.run, end: { seq: record.seq, record: record.records, history } };
  }

  async get(runId: string): Promise<Run | undefined> {
    return this.#heads.get(runId)?.state.run ?? (await this.#recordOf(runId))?.run;
  }

  async input(runId: string): Promise<RunInput | undefined> {
    return (await RUN_INPUTS.read(this.#store, runId))?.value;
  }

  async startedBy(runId: string): ReturnType<RunSupervisor["startedBy"]> {
    const input = await this.input(runId);
    return input === undefined ? undefined : { tokenId: input.caller.token_id };
  }

  /** Returns runs, the newest first. */
  async list({ status, after, limit }: ListRunsOptions): Promise<RunList> {
    const runs: Run[] = [];
    const where = status === undefined ? undefined : { field: "run.status", value: status };
    const options = { order: "created", reverse: true, after, where } as const;
    for await (const { key, value } of RUNS.all(this.#store, options)) {
      const run = this.#heads.get(key)?.state.run ?? value.run;
      // A record of the page may have changed since the page was read
      if (status !== undefined && run.status !== status) continue;
      if (runs.length === limit) return { runs, hasMore: true };
      runs.push(run);
    }
    return { runs, hasMore: false };
  }

  /** Returns the runs that have not ended, the oldest first. */
  async open(): Promise<readonly OpenRunId[]> {
    const open: OpenRunId[] = [];
    for await (const stored of scanAll(this.#store, OPEN_RUNS.name, { order: "created" })) {
      open.push(this.#toOpen(stored));
    }
    return open;
  }

  /** Notes that a run must not go on after a restart. @returns false for a run that is unknown or has ended */
  async cancel(runId: string): Promise<boolean> {
    const open = await this.#store.get(OPEN_RUNS.name, runId);
    if (open === undefined) return false;
    const known = OPEN_RUNS.parsed(this.#store, open);
    return await this.#store.batch([
      OPEN_RUNS.putOver(runId, open.version, { ...known?.value, v: 1, cancelled: true }),
      ...this.#ownership.signal(runId),
    ]);
  }

  /** Notes on disk that the owner of an open run has something to read. */
  async signal(runId: string): Promise<void> {
    const open = await this.#store.get(OPEN_RUNS.name, runId);
    if (open !== undefined) {
      await this.#store.batch([OPEN_RUNS.check(runId, open.version), ...this.#ownership.signal(runId)]);
    }
  }

  /** Returns the ids of the open runs whose messages were sent to a run, the oldest first. */
  async steering(runId: string): Promise<readonly string[]> {
    const ids: string[] = [];
    for await (const { key, value } of OPEN_RUNS.all(this.#store, { order: "created" })) {
      if (value.steers === runId && value.cancelled !== true) ids.push(key);
    }
    return ids;
  }

  /** Tells whether a message waits that was to come in the place of a run. */
  async isInterrupted(runId: string): Promise<boolean> {
    for (const id of await this.steering(runId)) if ((await this.get(id))?.steers?.mode === "interrupt") return true;
    return false;
  }

  /** Tells whether the journal of a run says that it took a message in. */
  async hasTaken(runId: string, messageId: string): Promise<boolean> {
    for await (const { events } of this.records(runId)) {
      for (const block of events) {
        if (block.type !== "event" || block.event.type !== "message_taken") continue;
        if (block.event["message_id"] === messageId) return true;
      }
    }
    return false;
  }

  /** Tells whether somebody has cancelled an open run. */
  async isCancelled(runId: string): Promise<OpenRunId["cancelled"]> {
    const open = await this.#store.get(OPEN_RUNS.name, runId);
    return open === undefined ? false : this.#toOpen(open).cancelled;
  }

  #toOpen(stored: Stored): OpenRunId {
    const found = OPEN_RUNS.parsed(this.#store, stored);
    return { id: stored.key, cancelled: found === undefined ? "unknown" : found.value.cancelled === true };
  }

  async #recordOf(runId: string): Promise<RunRecord | undefined> {
    return (await RUNS.read(this.#store, runId))?.value;
  }

  async #headOf(runId: string): Promise<Head> {
    const known = this.#heads.get(runId);
    if (known !== undefined) return known;
    const [record, folded] = await Promise.all([this.#recordOf(runId), this.#fold(runId)]);
    if (record === undefined || folded === undefined) {
      throw new JournalError(`Cannot write to run "${runId}": it is unknown`);
    }
    return { ...unknownFieldsOf(record), state: folded.state, seq: folded.seq, records: record.records };
  }

  /** Folds the whole journal of a run. */
  async #fold(runId: string): Promise<Pick<Head, "state" | "seq"> | undefined> {
    const record = await this.#recordOf(runId);
    if (record === undefined) return undefined;
    let state = createRunState(record.run);
    let seq = 0;
    for await (const packed of this.records(runId)) {
      for (const event of joinedEvents(packed)) state = applyEvent(state, event);
      seq = lastSeqOf(packed);
    }
    return { state, seq };
  }
}

function creation(head: Head, input: RunInput): readonly Write[] {
  const { id: key, steers } = head.state.run;
  const open = { v: 1, ...(steers === undefined ? {} : { steers: steers.run_id }) } as const;
  return [RUNS.insert(key, toRecord(head)), RUN_INPUTS.insert(key, input), OPEN_RUNS.insert(key, open)];
}

function toClaimable({ id, conversation_id, parent_id }: Run, input: RunInput | undefined): ClaimableRun {
  return {
    id,
    conversationId: conversation_id,
    parentId: parent_id,
    workspace: input === undefined ? null : workspaceOf(input),
  };
}

function taken(runId: string): JournalError {
  return new JournalError(`Cannot write to run "${runId}": its records were changed by another writer`);
}

function claimed(): HttpError {
  return refuse("conflict", "Cannot start the run: another was accepted for the same message before");
}

function toNotes({ effects = [], turns = [] }: Pick<AppendOptions, "effects" | "turns">) {
  return {
    ...(effects.length === 0 ? {} : { effects: [...effects] }),
    ...(turns.length === 0 ? {} : { turns: turns.map(toEndedTurn) }),
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

function toRecord(head: Head): RunRecord {
  const { state, seq, records } = head;
  return { ...unknownFieldsOf(head), v: 1, run: state.run, seq, records };
}
