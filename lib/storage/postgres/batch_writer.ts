import { Backoff, type Clock } from "../../base/clock.ts";
import type { Random } from "../../base/random.ts";
import { nextTick } from "../../base/tick.ts";
import type { EncodedWrite } from "../encode_write.ts";
import { UnknownWriteError } from "../read_records.ts";
import { DatabaseAwayError, sqlStateOf } from "./database_errors.ts";
import type { PostgresDatabase } from "./postgres_database.ts";
import { indexedTextsOf, modelText, vectorText } from "./record_queries.ts";
import { isNotNow, type ServerWatch, storageUnavailable } from "./server_watch.ts";
import { quoteName } from "./statement_text.ts";
import { toTextRow } from "./text_queries.ts";

/** A write of a batch, or the taking of a record, which is a batch of its own. */
export type BatchWrite = EncodedWrite | { readonly op: "take"; readonly collection: string; readonly key: string };

/** Outcome of a batch: whether its preconditions held, or the record that was taken. Null: there was none. */
export type BatchOutcome = boolean | null | { readonly version: number; readonly body: string };

/** Options of `BatchWriter`. */
export interface BatchWriterOptions {
  readonly database: PostgresDatabase;
  readonly schema: string;
  readonly watch: ServerWatch;
  readonly clock: Clock;
  readonly random: Random;
}

/** Batches that one statement writes, and the characters of all of them. A larger batch is written alone */
const MAX_GROUP = { batches: 64, characters: 1_000_000 } as const;
/** Statements that are on their way at the same time */
const MAX_PARALLEL = 4;
/** Milliseconds that a writer asks for the outcome of a lost statement */
const ASKING_MS = 60_000;
const ASKING_PAUSES = { firstMs: 100, mostMs: 2_000 } as const;
/** Times that a group whose connection was lost, and which was not written, is sent again */
const MAX_SENDS = 3;
/** SQLSTATE by which `write_batch` says that a precondition did not hold */
const DID_NOT_HOLD = "PT412";

interface Pending {
  readonly json: string;
  /** Batches with a place in common are written in the order of their calls */
  readonly places: readonly Place[];
  readonly resolve: (outcome: BatchOutcome) => void;
  readonly reject: (error: unknown) => void;
}

/** Place of a batch. Batches that only look at a place do not wait for each other. */
interface Place {
  readonly name: string;
  readonly isWritten: boolean;
}

/** Places in use, with the number of those who look at them and of those who write to them. */
class UsedPlaces {
  readonly #counts = { written: new Map<string, number>(), seen: new Map<string, number>() };

  isFree({ name, isWritten }: Place): boolean {
    return !this.#counts.written.has(name) && !(isWritten && this.#counts.seen.has(name));
  }

  add(places: readonly Place[], by: 1 | -1 = 1): void {
    for (const { name, isWritten } of places) {
      const counts = isWritten ? this.#counts.written : this.#counts.seen;
      const count = (counts.get(name) ?? 0) + by;
      if (count > 0) counts.set(name, count);
      else counts.delete(name);
    }
  }
}

/**
 * Writes batches: each is all or nothing, and batches that touch the same place are written in the order of their calls. Batches that wait
 * are sent together, as one statement, one transaction and one round trip.
 *
 * Each statement has an id, which is stored with what it writes. When its connection is lost, nobody knows whether it was done: the writer
 * then claims the id for "not done". When the id is there already, the statement was done, and its outcomes stand beside it. When the claim
 * succeeds, the statement can never be done any more, however late it arrives, and is sent again under a new id.
 */
export class BatchWriter {
  readonly #options: BatchWriterOptions;
  readonly #schema: string;
  #queue: Pending[] = [];
  #isScheduled = false;
  /** Places of the statements that are on their way */
  readonly #busy = new UsedPlaces();
  readonly #running = new Set<Promise<void>>();

  constructor(options: BatchWriterOptions) {
    this.#options = options;
    this.#schema = quoteName(options.schema);
  }

  /** Writes a batch. Resolves when it is durable. @throws {HttpError} `storage_unavailable` */
  write(writes: readonly BatchWrite[]): Promise<BatchOutcome> {
    const { watch } = this.#options;
    watch.requireThere();
    const json = `[${writes.map(toJson).join(",")}]`;
    const places = writes.flatMap(placesOf);
    return new Promise((resolve, reject) => {
      this.#queue.push({ json, places, resolve, reject });
      this.#schedule();
    });
  }

  /** Waits until everything that was called before is written or refused. */
  async flush(): Promise<void> {
    while (this.#queue.length > 0 || this.#running.size > 0) {
      this.#sendQueued();
      await Promise.race(this.#running);
    }
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    void nextTick().then(() => {
      this.#isScheduled = false;
      this.#sendQueued();
    });
  }

  #sendQueued(): void {
    while (this.#running.size < MAX_PARALLEL) {
      const group = this.#takeGroup();
      if (group.length === 0) return;
      const places = group.flatMap((pending) => pending.places);
      this.#busy.add(places);
      const running = this.#send(group).finally(() => {
        this.#busy.add(places, -1);
        this.#running.delete(running);
        this.#sendQueued();
      });
      this.#running.add(running);
    }
  }

  /** Takes the first batches of the queue that wait for no statement and for no batch before them. */
  #takeGroup(): readonly Pending[] {
    const group: Pending[] = [];
    const left: Pending[] = [];
    const passed = new UsedPlaces();
    let characters = 0;
    for (const pending of this.#queue) {
      const isFree = pending.places.every((place) => this.#busy.isFree(place) && passed.isFree(place));
      const fits = group.length === 0 ||
        (group.length < MAX_GROUP.batches && characters + pending.json.length <= MAX_GROUP.characters);
      if (isFree && fits) {
        group.push(pending);
        characters += pending.json.length;
      } else {
        left.push(pending);
        passed.add(pending.places);
      }
    }
    this.#queue = left;
    return group;
  }

  async #send(group: readonly Pending[]): Promise<void> {
    try {
      const outcomes = await this.#outcomesOf(`[${group.map(({ json }) => json).join(",")}]`);
      for (const [index, { resolve }] of group.entries()) resolve(outcomes[index] ?? false);
    } catch (error) {
      if (sqlStateOf(error) === DID_NOT_HOLD) {
        for (const { resolve } of group) resolve(false);
        return;
      }
      const refusal = this.#options.watch.refusalOf(error);
      // An error of one batch must not fail its neighbours: each is written by itself. A server that cannot write now gets no more work
      if (sqlStateOf(error) !== undefined && refusal === error && group.length > 1) {
        for (const pending of group) await this.#send([pending]);
        return;
      }
      for (const { reject } of group) reject(refusal);
    }
  }

  async #outcomesOf(batches: string): Promise<readonly BatchOutcome[]> {
    const { database, clock, random, watch } = this.#options;
    for (let sends = 1;; sends++) {
      if (!watch.isThere()) await watch.whenThere();
      const id = random.id("batch_");
      try {
        const [row] = await database.query(`SELECT ${this.#schema}.write_group($1, $2::jsonb, $3::int8) AS outcomes`, [
          id,
          batches,
          clock.now(),
        ]);
        return row?.["outcomes"] as readonly BatchOutcome[]; // as write_group returns them
      } catch (error) {
        if (!(error instanceof DatabaseAwayError)) throw error;
        if (!error.wasSent) {
          if (!watch.isPatient()) throw error;
          watch.refusalOf(error);
          continue;
        }
        const outcomes = await this.#ask(id);
        if (outcomes !== undefined) return outcomes;
        if (sends >= MAX_SENDS && !watch.isPatient()) throw error;
      }
    }
  }

  /**
   * Asks whether a statement was done, until the server answers. Asks once more when the start is given up.
   * @returns its outcomes. Undefined: it was not done, and never will be
   */
  async #ask(id: string): Promise<readonly BatchOutcome[] | undefined> {
    const { database, clock, random, watch } = this.#options;
    const end = clock.monotonic() + ASKING_MS;
    for (const backoff = new Backoff(ASKING_PAUSES, random);;) {
      try {
        const [row] = await database.query(
          `INSERT INTO ${this.#schema}.batches (id) VALUES ($1) ON CONFLICT (id) DO NOTHING;
           SELECT outcomes FROM ${this.#schema}.batches WHERE id = $1`,
          [id],
        );
        return (row?.["outcomes"] ?? undefined) as readonly BatchOutcome[] | undefined; // as write_group stored them
      } catch (error) {
        // A standby that is not promoted yet only reads
        if (!(error instanceof DatabaseAwayError) && !isNotNow(error)) throw error;
        if (clock.monotonic() >= end || watch.givenUp?.aborted === true) throw this.#unknown(error);
      }
      await clock.sleep(backoff.next(), watch.givenUp).catch(() => {});
    }
  }

  /** Returns the error of a statement whose outcome could not be asked for. */
  #unknown(error: unknown): UnknownWriteError {
    this.#options.watch.refusalOf(error);
    return new UnknownWriteError(storageUnavailable(error));
  }
}

/** Returns a write as `write_batch` reads it. */
function toJson(write: BatchWrite): string {
  switch (write.op) {
    case "put":
    case "insert":
    case "putIf": {
      const { op, collection, key, json: body, text } = write;
      return JSON.stringify({
        op,
        collection,
        key,
        body,
        ...(op === "putIf" ? { version: write.version } : {}),
        fields: indexedTextsOf(collection, JSON.parse(body)),
        ...(text === undefined ? {} : toTextRow(text, write)),
      });
    }
    case "vector": {
      const { op, collection, key, version, vector: { model, values } } = write;
      return JSON.stringify({
        op,
        collection,
        key,
        version,
        model: modelText(model),
        dimensions: values.length,
        vector: vectorText(values),
      });
    }
    case "append":
      return JSON.stringify({
        op: "append",
        stream: write.stream,
        expectedSeq: write.expectedSeq,
        bodies: write.jsons,
      });
    case "delete":
    case "take":
    case "check":
    case "drop":
      return JSON.stringify(write);
  }
}

/** Returns the places that a write touches. A write that may create a record touches the order of its collection. */
function placesOf(write: BatchWrite): readonly Place[] {
  const written = (name: string): Place => ({ name, isWritten: true });
  switch (write.op) {
    case "append":
    case "drop":
      return [written(`stream ${write.stream}`)];
    case "put":
    case "insert":
      return [written(`record ${write.collection} ${write.key}`), written(`order ${write.collection}`)];
    case "putIf":
    case "delete":
    case "take":
    case "vector":
      return [written(`record ${write.collection} ${write.key}`)];
    case "check":
      return [{ name: `record ${write.collection} ${write.key}`, isWritten: false }];
  }
}
