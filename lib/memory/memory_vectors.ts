import { CancelError } from "../base/cancel.ts";
import { Backoff, type Clock, type Timer } from "../base/clock.ts";
import { ProviderError } from "../base/errors.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Store, Stored } from "../storage/store.ts";

/** An embedding model that is in use. */
export interface Embedder {
  /** Name of the model, with that of its provider */
  readonly model: string;
  /** Returns the vector of each text, in their order. @throws {Error} when the model cannot be asked */
  embed(texts: readonly string[], signal: AbortSignal): Promise<readonly Float32Array[]>;
}

/** Options of `MemoryVectors`. */
export interface MemoryVectorsOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  /** Collection of the records */
  readonly collection: string;
  /** Returns the text of a record. Undefined for a record that cannot be read */
  readonly textOf: (record: Stored) => string | undefined;
  /** Removes known secrets from a text before it is sent */
  readonly redact: (text: string) => string;
  /** Does work, unless another gateway of a cluster does it now: then it gives false */
  readonly alone: (work: () => Promise<void>) => Promise<boolean>;
}

const QUERY_MS = 5_000;
const PAUSES = { firstMs: 30_000, mostMs: 600_000 } as const;
/** Records that are looked at in one step of a sweep */
const PAGE = 200;
/** Texts of one request */
const BATCH = 16;
/** The beginning of a text says what it is about, and models take some thousand tokens */
const MAX_TEXT_CHARACTERS = 8_000;
/** Keys that wait. With more of them, all memories are looked through */
const MAX_WAITING = 10_000;

/**
 * Vectors of memories, by which a memory is found in other words than its own.
 *
 * A vector is computed after its memory is on the disk. While the model cannot be asked, memories are found by words alone, and the
 * model is asked again after 30 s, and then after pauses that double up to 10 minutes. Another model recomputes all vectors. Nothing happens before
 * `start`.
 */
export class MemoryVectors {
  readonly #options: MemoryVectorsOptions;
  readonly #closing = new AbortController();
  /** Keys of memories that were stored since their vectors were last computed */
  readonly #waiting = new Set<string>();
  #embedder: () => Embedder | undefined = () => undefined;
  /** Model that all memories were looked through with. Undefined: they must be looked through again */
  #swept: string | undefined;
  /** Length of the vectors that the model gave last */
  #dimensions: number | undefined;
  #work: Promise<void> | undefined;
  readonly #backoff = new Backoff(PAUSES);
  #pause: Timer | undefined;
  /** Present while another gateway looks through the memories. It may fail, so this one looks again later. */
  #elsewhere: Timer | undefined;

  constructor(options: MemoryVectorsOptions) {
    this.#options = options;
  }

  /** Begins. `embedder` is asked before each piece of work for the model that is in use: undefined when there is none. */
  start(embedder: () => Embedder | undefined): void {
    this.#embedder = embedder;
    this.#wake();
  }

  /** Takes the key of a memory that was stored. */
  stored(key: string): void {
    if (this.#embedder() === undefined) return;
    if (this.#waiting.size < MAX_WAITING) this.#waiting.add(key);
    else this.#swept = undefined;
    this.#wake();
  }

  /**
   * Looks for the memories whose meaning is nearest to a query, nearest first. Waits 5 s for the model at most, and gives none when the
   * model does not answer. Undefined when no model is in use.
   */
  nearest(
    query: string,
    options: { readonly prefix?: string; readonly limit: number },
  ): Promise<readonly Stored[]> | undefined {
    const embedder = this.#embedder();
    if (embedder === undefined) return undefined;
    if (this.#swept !== embedder.model && this.#elsewhere === undefined) this.#wake();
    return this.#nearest(embedder, query, options);
  }

  async close(): Promise<void> {
    this.#closing.abort(new CancelError("shutdown"));
    this.#pause?.clear();
    this.#elsewhere?.clear();
    await this.#work;
  }

  async #nearest(embedder: Embedder, query: string, options: { readonly prefix?: string; readonly limit: number }) {
    const { clock, log, store, collection } = this.#options;
    const timeout = clock.timeoutSignal(QUERY_MS);
    try {
      const signal = AbortSignal.any([timeout.signal, this.#closing.signal]);
      const [values] = await embedder.embed([this.#toSent(query)], signal);
      if (values === undefined) return [];
      return await store.nearest(collection, { vector: { model: embedder.model, values }, ...options });
    } catch (error) {
      log.warn("A query could not be embedded: memories were looked for by words alone", { error });
      return [];
    } finally {
      timeout.clear();
    }
  }

  /** Returns a text as it may be sent. Redacted before it is cut: half a secret is not known as one. */
  #toSent(text: string): string {
    return this.#options.redact(text).slice(0, MAX_TEXT_CHARACTERS).toWellFormed();
  }

  /** Starts the work unless it is at work or pauses after a failure. */
  #wake(): void {
    if (this.#work !== undefined || this.#closing.signal.aborted || this.#embedder() === undefined) return;
    this.#work = this.#embedAll().then((isDone) => this.#rest(isDone));
  }

  #rest(isDone: boolean): void {
    if (isDone) this.#backoff.reset();
    const goOn = () => {
      this.#work = undefined;
      const isDue = this.#swept === undefined && this.#elsewhere === undefined;
      if (isDue || this.#waiting.size > 0) this.#wake();
    };
    if (isDone || this.#closing.signal.aborted) goOn();
    else this.#pause = this.#options.clock.after(this.#backoff.next(), goOn);
  }

  /** Computes what is missing. Returns false when the model could not be asked. Never throws. */
  async #embedAll(): Promise<boolean> {
    const embedder = this.#embedder();
    if (embedder === undefined) return true;
    try {
      if (this.#swept !== embedder.model && this.#elsewhere === undefined) await this.#sweepAlone(embedder);
      const keys = [...this.#waiting];
      this.#waiting.clear();
      for (let from = 0; from < keys.length; from += BATCH) {
        await this.#embedKeys(embedder, keys.slice(from, from + BATCH));
      }
      return true;
    } catch (error) {
      this.#swept = undefined;
      if (!this.#closing.signal.aborted) {
        this.#options.log.warn("Memories could not be embedded: they are found by words alone until it works again", {
          error,
        });
      }
      return false;
    }
  }

  /** Looks through all memories, unless another gateway does: then again later, when nothing may be left to do. */
  async #sweepAlone(embedder: Embedder): Promise<void> {
    const { alone, clock } = this.#options;
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    // Set first: it is taken back by a failure, and by more keys meanwhile than may wait
    this.#swept = embedder.model;
    if (await alone(() => this.#sweep(embedder))) return;
    this.#swept = undefined;
    for (const key of waiting) this.#waiting.add(key);
    this.#elsewhere = clock.after(PAUSES.firstMs, () => {
      this.#elsewhere = undefined;
      this.#wake();
    });
  }

  /** Computes the vectors of all memories that have none of this model, newest first. */
  async #sweep(embedder: Embedder): Promise<void> {
    const { store, collection } = this.#options;
    const { model } = embedder;
    let after: number | undefined;
    do {
      const page = await store.vectorless(collection, { model, dimensions: this.#dimensions, after, limit: PAGE });
      for (let from = 0; from < page.records.length; from += BATCH) {
        await this.#embed(embedder, page.records.slice(from, from + BATCH));
      }
      after = page.last;
    } while (after !== undefined);
  }

  async #embedKeys(embedder: Embedder, keys: readonly string[]): Promise<void> {
    const { store, collection } = this.#options;
    const records = await Promise.all(keys.map((key) => store.get(collection, key)));
    await this.#embed(embedder, records.filter((record) => record !== undefined));
  }

  async #embed(embedder: Embedder, records: readonly Stored[]): Promise<void> {
    const { store, collection, textOf } = this.#options;
    const readable = records.flatMap((record) => {
      const text = textOf(record);
      return text === undefined ? [] : [{ record, text: this.#toSent(text) }];
    });
    if (readable.length === 0) return;
    const vectors = await this.#ask(embedder, readable.map(({ text }) => text));
    await Promise.all(readable.map(({ record: { key, version } }, index) => {
      const values = vectors[index];
      if (values === undefined) return true;
      this.#dimensions = values.length;
      const vector = { model: embedder.model, values };
      // A memory that was changed or forgotten meanwhile keeps no vector of its old text
      return store.batch([{ op: "vector", collection, key, version, vector }]);
    }));
  }

  /** Asks for vectors. When the texts together are refused, asks for each alone, and leaves out the one that is refused. */
  async #ask(embedder: Embedder, texts: readonly string[]): Promise<readonly (Float32Array | undefined)[]> {
    const { signal } = this.#closing;
    try {
      return await embedder.embed(texts, signal);
    } catch (error) {
      if (!isRefused(error)) throw error;
      if (texts.length > 1) {
        const vectors: (Float32Array | undefined)[] = [];
        for (const text of texts) vectors.push(...await this.#ask(embedder, [text]));
        return vectors;
      }
      this.#options.log.warn("The embedding model refused a memory: it is found by words alone", { error });
      return [undefined];
    }
  }
}

/** Returns whether the model refused a text itself, so that asking again does not help. */
function isRefused(error: unknown): boolean {
  return error instanceof ProviderError && error.code === "provider_rejected";
}
