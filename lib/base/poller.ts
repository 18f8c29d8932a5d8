import type { Clock, Timer } from "./clock.ts";

/**
 * Looks at something that others change: after news of a change, and at an interval, since news may be lost. One look is at work at a time.
 *
 * News during a look causes exactly one more, right after it. An interval that passes during a look causes none, unless the place says otherwise.
 */
export class Poller {
  readonly #lookOnce: () => Promise<void>;
  readonly #onFailure: (error: unknown) => void;
  #timer: Timer | undefined = undefined;
  #isWorking = false;
  /** Resolves when no look is at work, and none is to come. */
  #working: Promise<void> = Promise.resolve();
  /** The look that is to come, now or after the one at work. */
  #due: PromiseWithResolvers<void> | undefined = undefined;
  #isStopped = false;
  #isFailing = false;

  /**
   * @param look may call `look` for one more
   * @param onFailure is called with the error of a look that fails after one that did not: the place logs once that something is away. It must
   * not throw. Default: nothing
   */
  constructor(look: () => Promise<void>, onFailure: (error: unknown) => void = () => {}) {
    this.#lookOnce = look;
    this.#onFailure = onFailure;
  }

  /**
   * Begins to look each `everyMs` milliseconds, the first time after that time. May be called again after `stop`.
   * @param onTime is called at each interval in place of the look, also while one is at work: for a place whose looks at an interval differ
   * from those after news, and must not be left out. It must not throw
   */
  start(
    clock: Pick<Clock, "every">,
    everyMs: number,
    onTime: () => void = () => void (this.#isWorking || this.look()),
  ): void {
    this.#isStopped = false;
    this.#timer?.clear();
    this.#timer = clock.every(everyMs, onTime);
  }

  /** Looks now, or once more after the look at work. Resolves when that look has ended, at once after `stop`. Never rejects. */
  look(): Promise<void> {
    if (this.#isStopped) return Promise.resolve();
    const { promise } = this.#due ??= Promise.withResolvers();
    if (!this.#isWorking) {
      this.#isWorking = true;
      this.#working = this.#work();
    }
    return promise;
  }

  /** Tells whether a look is at work. */
  isWorking(): boolean {
    return this.#isWorking;
  }

  /** Tells whether the last look has failed. */
  isFailing(): boolean {
    return this.#isFailing;
  }

  /** Begins no more looks. Resolves when the look at work has ended; a look must not wait for that. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#timer?.clear();
    this.#due?.resolve();
    this.#due = undefined;
    await this.#working;
  }

  async #work(): Promise<void> {
    for (let due = this.#due; due !== undefined; due = this.#due) {
      this.#due = undefined;
      try {
        await this.#lookOnce();
        this.#isFailing = false;
      } catch (error) {
        if (!this.#isFailing) this.#onFailure(error);
        this.#isFailing = true;
      }
      due.resolve();
    }
    // In the same step as the last look at what is due, so that no news falls between
    this.#isWorking = false;
  }
}
