const SPACE = /[ \t\n\r]*/y;
const ESCAPE = /\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})/y;
const LITERAL = /(?:true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)/y;

/**
 * Where a text stops being JSON, in UTF-16 units from 0; its length when it ends too early or is JSON.
 *
 * Only for messages: the engine's own words quote the text, which may hold a secret, and name no position for short ones.
 * Nesting is the caller's to bound. Source: RFC 8259
 */
export function jsonErrorPosition(text: string): number {
  const end = skip(SPACE, text, value(text, skip(SPACE, text, 0)));
  return Math.abs(end);
}

/** The position after the value at `at`; a failure inside is told by the negative of its position. */
function value(text: string, at: number): number {
  const opening = text[at];
  if (opening === "{" || opening === "[") return container(text, at, opening === "{" ? "}" : "]");
  return scalar(text, at);
}

function scalar(text: string, at: number): number {
  if (text[at] === '"') return string(text, at);
  const end = skip(LITERAL, text, at);
  return end > at ? end : -at;
}

/** By hand: one expression over the whole string overflows the engine's stack on long ones. */
function string(text: string, start: number): number {
  let at = start + 1;
  while (at < text.length) {
    const code = text.charCodeAt(at);
    if (code === 0x22) return at + 1;
    if (code < 0x20) return -at;
    const end = code === 0x5c ? skip(ESCAPE, text, at) : at + 1;
    if (end === at) return -at;
    at = end;
  }
  return -at;
}

function container(text: string, start: number, closing: "}" | "]"): number {
  let at = skip(SPACE, text, start + 1);
  if (text[at] === closing) return at + 1;
  for (;;) {
    if (closing === "}") {
      at = text[at] === '"' ? scalar(text, at) : -at;
      if (at < 0) return at;
      at = skip(SPACE, text, at);
      if (text[at] !== ":") return -at;
      at = skip(SPACE, text, at + 1);
    }
    at = value(text, at);
    if (at < 0) return at;
    at = skip(SPACE, text, at);
    if (text[at] === closing) return at + 1;
    if (text[at] !== ",") return -at;
    at = skip(SPACE, text, at + 1);
  }
}

function skip(pattern: RegExp, text: string, at: number): number {
  if (at < 0) return at;
  pattern.lastIndex = at;
  return pattern.test(text) ? pattern.lastIndex : at;
}
