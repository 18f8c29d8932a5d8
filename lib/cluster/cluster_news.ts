import { nextTick } from "../base/tick.ts";
import type { Logger } from "../base/telemetry/log.ts";

/** Word to all gateways: something about a record has changed, and whoever cares reads the record. Holds nothing else. */
export interface ClusterNote {
  /** `run`: events are in the journal, up to `seq`. `end`: a run has ended. `signal`: its owner has to read. `queue`: a run waits. */
  readonly kind: "run" | "end" | "signal" | "queue" | "approval";
  readonly id: string;
  readonly seq: number;
}

/** Way of notes between gateways, as the database has it. A note may be lost: each listener reads again once a second. */
export interface NewsWire {
  /** Sends notes, outside any transaction. */
  send(notes: readonly ClusterNote[]): Promise<void>;
  /** Calls `hear` for each note, those of this gateway included. @returns a function that ends this */
  listen(hear: (note: ClusterNote) => void): Promise<() => void>;
}

/** Milliseconds after which a reader looks again, whether it was notified or not. */
export const POLL_MS = 1_000;

/** Notes that wait for the wire. Those above the bound are left to the polls. */
const MAX_WAITING = 10_000;

/** Sends notes to all gateways: those of one tick together, and of one kind and id the last alone. */
export class ClusterNews {
  readonly #wire: NewsWire;
  readonly #log: Logger;
  #waiting = new Map<string, ClusterNote>();
  #sending: Promise<void> | undefined = undefined;
  #isAway = false;

  constructor(wire: NewsWire, log: Logger) {
    this.#wire = wire;
    this.#log = log;
  }

  /** Takes a note, which is sent soon. */
  tell(kind: ClusterNote["kind"], id: string, seq = 0): void {
    if (this.#waiting.size >= MAX_WAITING) return;
    this.#waiting.set(`${kind}/${id}`, { kind, id, seq });
    this.#sending ??= this.#send().finally(() => this.#sending = undefined);
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
        this.#isAway = false;
      } catch (error) {
        if (!this.#isAway) {
          this.#log.warn("Notifications cannot be sent: the other gateways look once a second", { error });
        }
        this.#isAway = true;
      }
    }
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
  return kind === "run" || kind === "end" || kind === "signal" || kind === "queue" || kind === "approval";
}

/** Creates a wire between the gateways of one process. */
export function createLocalWire(): NewsWire {
  const listeners = new Set<(note: ClusterNote) => void>();
  return {
    async send(notes) {
      for (const note of notes) for (const hear of [...listeners]) hear(note);
    },
    async listen(hear) {
      listeners.add(hear);
      return () => void listeners.delete(hear);
    },
  };
}
