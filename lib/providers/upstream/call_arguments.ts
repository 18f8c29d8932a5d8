/** Notice of arguments of which something was dropped. */
export const ARGUMENTS_REPEATED = {
  code: "tool_call_arguments_repeated",
  message: "The provider sent more after a tool call's arguments were whole: left out",
} as const;

/**
 * Puts the arguments of a tool call together from their pieces: one whole object. What follows it is dropped, such as a stray `""`, or the
 * arguments said again. An empty object that came in one piece is held back until the end, since some servers begin with one in the
 * place of the object that follows. Text that begins as no object is taken as it is.
 */
export class CallArguments {
  /** All that counts */
  text = "";
  /** Something was dropped. */
  isCut = false;
  #end = new ObjectEnd();
  #isHeld = false;

  /** The part of it that was to be shown so far */
  get shown(): string {
    return this.#isHeld ? "" : this.text;
  }

  /** Takes a piece. Returns the part to be shown now. */
  take(piece: string): string {
    if (piece === "") return "";
    if (this.#isHeld && /^\s*\{\s*[^\s}]/.test(piece)) {
      this.text = "";
      this.#end = new ObjectEnd();
    }
    const length = this.#end.take(piece);
    if (length < piece.length && piece.slice(length).trim() !== "") this.isCut = true;
    if (length === 0) return "";
    const isFirst = this.text === "";
    const part = piece.slice(0, length);
    this.text += part;
    this.#isHeld = isFirst && this.#end.ended && /^\s*\{\s*\}$/.test(part);
    return this.#isHeld ? "" : part;
  }

  /** Returns what was held back and counts. */
  finish(): string {
    const held = this.#isHeld ? this.text : "";
    this.#isHeld = false;
    return held;
  }
}

/** Finds the end of a JSON object that comes in pieces. */
class ObjectEnd {
  ended = false;
  #depth = 0;
  #isString = false;
  #isEscaped = false;
  /** Something other than an object began */
  #isOther = false;

  /** Returns how many characters of this piece belong to the object: all of them until it has ended. */
  take(piece: string): number {
    if (this.ended) return 0;
    for (let i = 0; i < piece.length && !this.#isOther; i++) {
      const code = piece.charCodeAt(i);
      if (this.#isString) this.#inString(code);
      else if (code === QUOTE) this.#isString = true;
      else if (code === OPEN || code === OPEN_LIST) this.#depth++;
      else if (code === CLOSE || code === CLOSE_LIST) this.#depth--;
      if (this.#depth > 0) continue;
      if (code === CLOSE && this.#depth === 0) {
        this.ended = true;
        return i + 1;
      }
      this.#isOther = code > SPACE;
    }
    return piece.length;
  }

  #inString(code: number): void {
    if (this.#isEscaped) this.#isEscaped = false;
    else if (code === BACKSLASH) this.#isEscaped = true;
    else if (code === QUOTE) this.#isString = false;
  }
}

const SPACE = 32;
const QUOTE = 34;
const OPEN_LIST = 91;
const BACKSLASH = 92;
const CLOSE_LIST = 93;
const OPEN = 123;
const CLOSE = 125;
