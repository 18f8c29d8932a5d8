import { systemClock } from "../base/clock.ts";
import { firstBytes } from "../base/text.ts";
import { DocumentError } from "./document_error.ts";

/** Steps between two looks at the clock: some 0.1 ms of work */
const STEPS_PER_LOOK = 4096;

/**
 * The cost that reading one document may have. Every loop over its content counts here, so that the work ends by itself, also on a
 * runtime that cannot end a busy thread.
 */
export interface WorkBudget {
  /** Counts work, about a step for 50 ns. @throws {DocumentError} `document_too_slow` when the time is over or the job was stopped */
  step(steps?: number): void;
  /** Counts parts kept in memory, some hundred bytes each, over the whole document. @throws {DocumentError} `document_too_large` */
  keep(parts: number): void;
  /** Counts bytes taken out of compressed parts, over the whole document. @throws {DocumentError} `document_too_large` */
  inflated(bytes: number): void;
  /** Bytes that may still come out of compressed parts */
  readonly inflatable: number;
}

/** Bounds on the time and memory that reading one document may take. */
export interface WorkLimits {
  readonly timeMs: number;
  /** Elements and objects that are kept in memory at once */
  readonly maxParts: number;
  /** Bytes out of all compressed parts together */
  readonly maxInflatedBytes: number;
}

/**
 * Begins to count what a document costs. The time starts now.
 * @param stopped tells whether the reader was asked to end early
 */
export function createWorkBudget(
  { timeMs, maxParts, maxInflatedBytes }: WorkLimits,
  { stopped }: { stopped(): boolean },
): WorkBudget {
  const end = systemClock.monotonic() + timeMs;
  let untilLook = STEPS_PER_LOOK;
  let parts = 0;
  let inflatable = maxInflatedBytes;
  return {
    step(steps = 1) {
      untilLook -= steps;
      if (untilLook > 0) return;
      untilLook = STEPS_PER_LOOK;
      if (stopped() || systemClock.monotonic() > end) {
        throw new DocumentError("document_too_slow", `it takes longer than ${timeMs / 1000} s to read`);
      }
    },
    keep(more) {
      parts += more;
      if (parts > maxParts) {
        throw new DocumentError("document_too_large", `it has more than the ${maxParts} parts that are read`);
      }
    },
    inflated(bytes) {
      inflatable -= bytes;
      if (inflatable < 0) {
        throw new DocumentError(
          "document_too_large",
          `its compressed parts hold more than the ${maxInflatedBytes} bytes that are read`,
        );
      }
    },
    get inflatable() {
      return inflatable;
    },
  };
}

/** Most bytes (UTF-8) of text that a reader returns. Leaves room for notices below the bound on a tool's result. */
export const MAX_TEXT_BYTES = 250_000;

/** Text of a document as it grows, up to a bound. */
export class TextOutput {
  readonly #parts: string[] = [];
  /** Bytes of UTF-8 that are left */
  #room: number;
  #isFull = false;

  /** @param maxBytes bytes of UTF-8; text beyond it is cut between characters */
  constructor(maxBytes: number = MAX_TEXT_BYTES) {
    this.#room = maxBytes;
  }

  /** @returns false when it did not fit whole: then nothing more is taken */
  add(text: string): boolean {
    if (this.#isFull) return false;
    const bytes = Buffer.byteLength(text);
    this.#isFull = bytes > this.#room;
    this.#parts.push(this.#isFull ? firstBytes(text, this.#room) : text);
    this.#room -= bytes;
    return !this.#isFull;
  }

  /** Returns true when the text would fit whole */
  fits(text: string): boolean {
    return !this.#isFull && Buffer.byteLength(text) <= this.#room;
  }

  /** The bound was reached */
  get full(): boolean {
    return this.#isFull;
  }

  text(): string {
    return this.#parts.join("");
  }
}
