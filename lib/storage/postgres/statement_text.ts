import { Buffer } from "node:buffer";

/** Value of a statement. A list becomes an array of texts. */
export type PostgresValue = string | number | boolean | null | Uint8Array | readonly string[];

/**
 * Puts values into the places $1, $2 and so on of a statement, as literals.
 *
 * A text of several statements is one message, one transaction and one round trip, with `SET LOCAL` in it; parameters of their own are
 * for one statement alone. Every literal is quoted, so the statement casts it where its place does not give the type: `$1::int8`.
 * @throws {TypeError} for a text with NUL or half a surrogate pair, which the server cannot keep; {RangeError} for a place without a value
 */
export function withValues(text: string, values: readonly PostgresValue[]): string {
  // A place in a value is not looked at again: replace() goes through the statement alone
  return text.replace(/\$(\d+)/g, (place, digits: string) => {
    const value = values[Number(digits) - 1];
    if (value === undefined) throw new RangeError(`Cannot make a statement: ${place} has no value`);
    return literalOf(value);
  });
}

/** Returns an identifier in quotes. */
export function quoteName(name: string): string {
  return `"${checkText(name).replaceAll('"', '""')}"`;
}

function literalOf(value: PostgresValue): string {
  switch (typeof value) {
    case "string":
      return quote(value);
    case "number":
    case "boolean":
      return quote(String(value));
    case "object":
      if (value === null) return "NULL";
      if (value instanceof Uint8Array) {
        return quote(`\\x${Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString("hex")}`);
      }
      return value.length === 0 ? "'{}'" : `ARRAY[${value.map(quote).join(",")}]`;
  }
}

/** A longer text stands between dollar signs, without escapes, which take the server most of the time of a long literal. Characters */
const MAX_ESCAPED_LENGTH = 1_000;

/** Quotes a text in the form that means the same under every setting of `standard_conforming_strings`. */
function quote(text: string): string {
  checkText(text);
  if (text.length > MAX_ESCAPED_LENGTH) return dollarQuote(text);
  const quoted = text.replaceAll("'", "''");
  return quoted.includes("\\") ? ` E'${quoted.replaceAll("\\", "\\\\")}'` : `'${quoted}'`;
}

function dollarQuote(text: string): string {
  for (let count = 0;; count++) {
    const mark = `$p${count}$`;
    // The end of the text and the mark must not make an earlier mark together
    if (!text.includes(mark) && `${text.slice(-mark.length)}${mark}`.indexOf(mark) === mark.length) {
      return ` ${mark}${text}${mark}`;
    }
  }
}

function checkText(text: string): string {
  if (text.includes("\0") || !text.isWellFormed()) {
    throw new TypeError("Cannot make a statement: a text must be valid Unicode without NUL");
  }
  return text;
}
