import type { Clock } from "../../base/clock.ts";
import { withoutEnd } from "../../base/text.ts";

const THANKS = /^(many |great,? |ok,? |perfect,? )?(thanks?|thank you|thx|cheers)\b[^?]{0,40}$/i;
const FAREWELL = /^(bye|goodbye|good night|see you)\b[^?]{0,20}$/i;
const WHO =
  /^(who|what) (are|r) you\b[^?]{0,20}\??$|^what('s| is) your name\??$|^are you (an? )?(ai|bot|human|robot|(language )?model|person)\??$/i;
const TIME =
  /^(please )?(tell me )?((what('s| is)|what) )?(the )?(current )?(time|date|day)( and (time|date))?( is (it|today))?( right)?( now| today)?[?.!]*$/i;
const ASKED = /^(please )?(what('s| is| are)|how much (is|are)|calculate|compute|evaluate|solve)\s+/i;
/** Length of the longest text that is matched with patterns. A longer text is a question */
const MAX_CHARACTERS = 200;
const MAX_DEPTH = 20;

/** Sentence that says what the offline assistant is. */
export const SELF =
  "I am Postern's offline assistant: I search the files of this folder, my memory and Postern's documentation, and quote what I find.";

/**
 * Answers what needs neither a model nor a search: thanks, the time, arithmetic, and who this is; undefined for anything else.
 * @param now milliseconds since the epoch
 */
export function smallTalk(question: string, { now }: { readonly now: Clock["now"] }): string | undefined {
  if (question.length > MAX_CHARACTERS) return undefined;
  if (THANKS.test(question)) return "You are welcome.";
  if (FAREWELL.test(question)) return "Goodbye.";
  if (WHO.test(question)) return SELF;
  if (TIME.test(question) && /time|date|day/i.test(question)) return timeNow(now());
  return calculate(question);
}

function timeNow(now: number): string {
  const { timeZone } = new Intl.DateTimeFormat().resolvedOptions();
  const text = new Intl.DateTimeFormat("en-GB", { dateStyle: "full", timeStyle: "short" }).format(now);
  return `It is ${text} (${timeZone}).`;
}

/** The value of `12 * (3 + 4)`, `17% of 200` or `two numbers with words between them`; undefined when it is no sum. */
function calculate(question: string): string | undefined {
  const asked = withoutEnd(question.replace(ASKED, ""), "=?.! \t\r\n");
  if (!/\d/.test(asked)) return undefined;
  const expression = asked.toLowerCase().replaceAll(/\bplus\b/g, "+").replaceAll(/\bminus\b/g, "-")
    .replaceAll(/\b(times|multiplied by)\b|(?<=[\d)\s])x(?=[\s\d(])|×/g, "*")
    .replaceAll(/\bdivided by\b|÷/g, "/").replaceAll(/\bto the power of\b|\*\*/g, "^")
    .replaceAll(/%\s*of\b/g, "/100*").replaceAll(/(?<=\d),(?=\d{3}(\D|$))/g, "").replaceAll("−", "-");
  if (!/^[\d.+\-*/^()\s]+$/.test(expression) || !/\d[\s)]*[+\-*/^]/.test(expression)) return undefined;
  // A date or a version is no sum
  if (/^\d{4}-\d{1,2}-\d{1,2}$/.test(asked) || /\d\.\d+\.\d/.test(asked)) return undefined;
  const value = new Sum(expression.replaceAll(/\s+/g, "")).value();
  if (value === undefined) return undefined;
  if (!Number.isFinite(value)) return `${asked} has no value: it divides by zero, or is too large.`;
  return `${asked} = ${Number(value.toPrecision(12))}`;
}

/** A recursive reader of sums: + and - bind least, then * and /, then ^ from the right. */
class Sum {
  readonly #text: string;
  #at = 0;
  #depth = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** @returns undefined when it is no sum */
  value(): number | undefined {
    try {
      const value = this.#sum();
      return this.#at === this.#text.length ? value : undefined;
    } catch (error) {
      if (error instanceof RangeError) return undefined;
      throw error;
    }
  }

  #sum(): number {
    let value = this.#product();
    for (;;) {
      if (this.#takes("+")) value += this.#product();
      else if (this.#takes("-")) value -= this.#product();
      else return value;
    }
  }

  #product(): number {
    let value = this.#power();
    for (;;) {
      if (this.#takes("*")) value *= this.#power();
      else if (this.#takes("/")) value /= this.#power();
      else return value;
    }
  }

  #power(): number {
    if (++this.#depth > MAX_DEPTH) throw new RangeError("too deep");
    const isNegative = this.#takes("-");
    const base = isNegative ? -this.#power() : this.#atom();
    const value = this.#takes("^") ? base ** this.#power() : base;
    this.#depth--;
    return value;
  }

  #atom(): number {
    if (this.#takes("(")) {
      const value = this.#sum();
      if (!this.#takes(")")) throw new RangeError("a bracket is open");
      return value;
    }
    const number = /^\d+(\.\d+)?/.exec(this.#text.slice(this.#at))?.[0];
    if (number === undefined) throw new RangeError("no number");
    this.#at += number.length;
    return Number(number);
  }

  #takes(sign: string): boolean {
    if (this.#text[this.#at] !== sign) return false;
    this.#at++;
    return true;
  }
}
