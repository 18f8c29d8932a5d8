import type { CDPSession } from "playwright-core";
import { type Clock, withTimeout } from "../../base/clock.ts";

/**
 * Windows that pages have opened and that the driver does not show yet: it shows a window only when its first page has come. A click that
 * opens one would otherwise be answered with the page behind it.
 */
export class OpeningWindows {
  /** DevTools ids of their targets, in the order of opening */
  readonly #targets = new Set<string>();
  #waiting: (() => void)[] = [];

  /** @param session a session of the whole browser @param contextId the DevTools id of the context that the run's pages are in */
  constructor(session: CDPSession, contextId: string) {
    session.on("Target.targetCreated", ({ targetInfo: { targetId, type, openerId, browserContextId } }) => {
      if (type === "page" && openerId !== undefined && browserContextId === contextId) this.#targets.add(targetId);
    });
    session.on("Target.targetDestroyed", ({ targetId }) => this.#remove(targetId));
  }

  /** Notes that the driver shows a window. */
  shown(): void {
    const [first] = this.#targets;
    if (first !== undefined) this.#remove(first);
  }

  /** Waits until the driver shows every window, at most so many milliseconds. */
  async settle({ ms, clock }: { readonly ms: number; readonly clock: Clock }): Promise<void> {
    if (this.#targets.size === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.push(resolve);
    await withTimeout(promise, { ms, clock });
  }

  #remove(target: string): void {
    this.#targets.delete(target);
    if (this.#targets.size > 0) return;
    for (const resolve of this.#waiting) resolve();
    this.#waiting = [];
  }
}
