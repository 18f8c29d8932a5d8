/** Lines that one look finds blocked before it asks no more. Each costs a few reads. */
const MAX_BLOCKED = 100;

/**
 * Remembers which lines of waiting runs are blocked: conversations whose run is at work, and sub-agents whose parent works at another gateway.
 *
 * A whole look asks until it has found a bounded number of blocked lines. The next one goes on behind them, and starts over once all were
 * asked. So blocked lines, however many there are, hold up nothing that waits behind them. A look after news is short and asks all that it finds.
 */
export class BlockedLines {
  /** Number of whole looks so far. */
  #looks = 0;
  /** Number of the last whole look after which all lines had been asked. */
  #askedAll = 0;
  /** Blocked lines, each with the number of the look that asked last. */
  readonly #blocked = new Map<string, number>();
  /** Lines that the look at work has asked, with whether they are blocked. */
  readonly #asked = new Map<string, boolean>();
  /** Number of lines that it has found blocked. */
  #found = 0;
  #isWhole = false;

  /** Begins a look. */
  begin(isWhole: boolean): void {
    this.#isWhole = isWhole;
    this.#asked.clear();
    this.#found = 0;
    if (isWhole) this.#looks++;
  }

  /** Tells whether this look may ask, or has asked and found the line free. */
  mayAsk(line: string): boolean {
    const isBlocked = this.#asked.get(line);
    if (isBlocked !== undefined) return !isBlocked;
    if (this.#found >= MAX_BLOCKED) return false;
    return !this.#isWhole || (this.#blocked.get(line) ?? 0) <= this.#askedAll;
  }

  /** Notes what a look has found. */
  note(line: string, isBlocked: boolean): void {
    this.#asked.set(line, isBlocked);
    if (isBlocked) {
      this.#found++;
      this.#blocked.set(line, this.#looks);
    } else this.#blocked.delete(line);
  }

  /** Tells whether a line was blocked when it was asked last. */
  has(line: string): boolean {
    return this.#blocked.has(line);
  }

  /** Ends a look. */
  end(): void {
    if (!this.#isWhole || this.#found >= MAX_BLOCKED) return;
    // Nobody has asked again for a line that has gone, and for none where there was no room for its run
    for (const [line, look] of this.#blocked) if (look <= this.#askedAll) this.#blocked.delete(line);
    this.#askedAll = this.#looks;
  }
}
