import { nextTick } from "../base/tick.ts";
import type { Logger } from "../base/telemetry/log.ts";

const NOTE_KINDS = [
  "run",
  "end",
  "signal",
  "queue",
  "approval",
  "work",
  "schedules",
  "drain",
  "tokens",
  "workspace",
  "node",
  "budget",
  "halt",
  "look",
] as const;

/** Word to all gateways: something about a record has changed, and whoever cares reads the record. Holds nothing else. */
export interface ClusterNote {
  /**
   * `run`: events are in the journal, up to `seq`. `end`: a run has ended. `signal`: its owner has to read. `queue`: a run waits. `work`:
   * other work has changed. `drain`: somebody has drained a gateway. `tokens`: who may call has changed. `workspace`: its
   * gateways look at each other. `node`: a node has come, changed or gone. `budget`: a gateway
   * needs the tokens that others have leased and do not use. `halt`: what a person has halted has changed. `look`: a person
   * looked at what waits for an answer.
   */
  readonly kind: (typeof NOTE_KINDS)[number];
  readonly id: string;
  readonly seq: number;
}

/** Way of notes between gateways, as the database has it. A note may be lost: each listener reads again once a second. */
export interface NewsWire {
  /** Sends notes, outside any transaction. */
  send(notes: readonly ClusterNote[]): Promise<void>;
  /** Calls `onNote` for each note, those of this gateway included. @returns a function that ends this */
  listen(onNote: (note: ClusterNote) => void): Promise<() => void>;
}

/** Notes of one gateway by what became of them. */
export interface NoteCounts {
  readonly sent: number;
  /** Notes of all gateways, this one included. */
  readonly heard: number;
  /** Notes that could not be sent. */
  readonly unsent: number;
}

/** Milliseconds after which a reader looks again, whether it was notified or not. */
export const POLL_MS = 1_000;

/** Notes that wait for the wire. Those above the bound are left to the polls. */
const MAX_WAITING = 10_000;

/** Bus between the gateways of a cluster, for whoever tells or awaits something. */
export type ClusterBus = Pick<ClusterNews, "tell" | "onNote">;

/** The notes of a gateway to all gateways: those of one tick go together, and of one kind and id the last alone. */
export class ClusterNews {
  readonly #wire: NewsWire;
  readonly #log: Logger;
  readonly #listeners = new Set<(note: ClusterNote) => void>();
  #waiting = new Map<string, ClusterNote>();
  #sending: Promise<void> | undefined = undefined;
  #databaseIsDown = false;
  #heard = 0;
  #sent = 0;
  #unsent = 0;

  constructor(wire: NewsWire, log: Logger) {
    this.#wire = wire;
    this.#log = log;
  }

  /** Takes a note, which is sent soon. */
  tell(kind: ClusterNote["kind"], id: string, seq = 0): void {
    if (this.#waiting.size >= MAX_WAITING) return void this.#unsent++;
    this.#waiting.set(`${kind}/${id}`, { kind, id, seq });
    this.#sending ??= this.#send();
  }

  /** Calls a function for each note of any gateway. @returns a function that ends this */
  onNote(listener: (note: ClusterNote) => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Takes a note that came over the wire. */
  receive(note: ClusterNote): void {
    this.#heard++;
    for (const listener of [...this.#listeners]) listener(note);
  }

  /** Returns what became of the notes since the start. */
  counts(): NoteCounts {
    return { sent: this.#sent, heard: this.#heard, unsent: this.#unsent };
  }

  /** Resolves when everything told so far is sent. */
  async flush(): Promise<void> {
    await this.#sending;
  }

  async #send(): Promise<void> {
    await nextTick();
    while (this.#waiting.size > 0) {
      const notes = [...this.#waiting.values()];
      this.#waiting = new Map();
      try {
        await this.#wire.send(notes);
        this.#sent += notes.length;
        this.#databaseIsDown = false;
      } catch (error) {
        this.#unsent += notes.length;
        if (!this.#databaseIsDown) {
          this.#log.warn("Notifications cannot be sent: the other gateways look once a second", { error });
        }
        this.#databaseIsDown = true;
      }
    }
    // In the same step as the last look at what waits, so that no note falls between
    this.#sending = undefined;
  }
}

/** Parses a note that came over a wire. Undefined for anything else: whoever may write to the database may send anything. */
export function parseNote(text: string): ClusterNote | undefined {
  const [kind, id, seq, ...more] = text.split(" ");
  if (
    more.length > 0 || id === undefined || !isKind(kind) || !/^[\w:.-]{1,200}$/.test(id) ||
    !/^\d{1,15}$/.test(seq ?? "")
  ) {
    return undefined;
  }
  return { kind, id, seq: Number(seq) };
}

/** Returns a note as a line of text. */
export function noteText({ kind, id, seq }: ClusterNote): string {
  return `${kind} ${id} ${seq}`;
}

function isKind(kind: string | undefined): kind is ClusterNote["kind"] {
  return NOTE_KINDS.some((known) => known === kind);
}

/** Creates a wire between the gateways of one process. */
export function createLocalWire(): NewsWire {
  const listeners = new Set<(note: ClusterNote) => void>();
  return {
    async send(notes) {
      for (const note of notes) for (const onNote of [...listeners]) onNote(note);
    },
    async listen(onNote) {
      listeners.add(onNote);
      return () => void listeners.delete(onNote);
    },
  };
}
