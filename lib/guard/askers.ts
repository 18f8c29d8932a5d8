import type { Clock } from "../base/clock.ts";
import { listSome } from "../base/text.ts";

/** Way to a person who may answer, beside the reader of the run that asks. */
export interface AskWay {
  /** Name of the way in a sentence that says what would have helped, such as `an open dashboard` */
  readonly name: string;
  /** Tells whether the way reaches a person now. Asked for each question: it must be cheap, and reads nothing */
  readonly isOpen: () => boolean;
}

/** Milliseconds that a dashboard or terminal counts as open after its last look: browsers let a page in the background look once a minute. */
const LOOK_COUNTS_MS = 10 * 60_000;
/** Milliseconds between two words to other gateways that somebody looks here. */
const TELL_MS = 60_000;
const MAX_NAMED = 10;

/**
 * The one list of ways by which a person can be asked. Whoever adds a way calls `add`, and each door asks `canAsk`.
 * Source: docs/design/policy.md "Approvals"
 */
export class Askers {
  readonly #clock: Pick<Clock, "now">;
  readonly #ways: AskWay[];
  #lookedAt = -Infinity;
  #toldAt = -Infinity;
  #tell: (() => void) | undefined = undefined;

  constructor(clock: Pick<Clock, "now">) {
    this.#clock = clock;
    this.#ways = [{
      name: 'an open dashboard, or "postern approval list" at a terminal in the last ten minutes',
      isOpen: () => clock.now() - this.#lookedAt < LOOK_COUNTS_MS,
    }];
  }

  /** Adds a way. @returns a function that takes it away again */
  add(way: AskWay): () => void {
    this.#ways.push(way);
    return () => void this.#ways.splice(this.#ways.indexOf(way), 1);
  }

  /** Tells whether a person can be asked. */
  canAsk(): boolean {
    return this.#ways.some(({ isOpen }) => isOpen());
  }

  /** Names the ways, for the sentence of a denial. */
  names(): string {
    return listSome(this.#ways.map(({ name }) => name), MAX_NAMED);
  }

  /** Notes that somebody with the scope `approve` looked at what waits. @param isOwn false: at another gateway. Default true */
  looked(isOwn = true): void {
    const now = this.#clock.now();
    this.#lookedAt = now;
    if (!isOwn || this.#tell === undefined || now - this.#toldAt < TELL_MS) return;
    this.#toldAt = now;
    this.#tell();
  }

  /** Takes the way by which other gateways are told of a look. */
  share(tell: () => void): void {
    this.#tell = tell;
  }
}
