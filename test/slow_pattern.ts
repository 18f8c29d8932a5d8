/** Characters that stand for a class of characters, where they are of it. */
const SAMPLES = [..."a0 -\nA_./:\"'<>=x1\té"];
/** Lengths of the tried texts: those of an exponential pattern end while they are short, a square one shows at the last. */
const LENGTHS = [...Array.from({ length: 17 }, (_, index) => Math.round(16 * 1.25 ** index)), 4_096];
/** Milliseconds of a search that no linear pattern takes for such a text, by far; on a slow machine the growth decides. */
const SLOW_MS = 1;
/** Growth of the time from an eighth of the longest text to the whole: 8 for a linear pattern, 64 for a square one. */
const SQUARE_GROWTH = 20;

/**
 * Returns a text for which a pattern takes more than linear time, as its beginning and length. Undefined: none was found.
 *
 * The texts are made from the pattern itself: what leads to a place, then what stands there again and again, then what matches nothing.
 * @param maxRepeated atoms of the pattern that are repeated together at most
 */
export function slowText(pattern: RegExp, maxRepeated = 8): string | undefined {
  const atoms = atomsOf(pattern);
  const tried = new Set<string>();
  for (let from = 0; from < atoms.length; from++) {
    const before = atoms.slice(0, from).join("");
    for (let count = 1; count <= maxRepeated && from + count <= atoms.length; count++) {
      const repeated = atoms.slice(from, from + count).join("");
      for (const start of new Set(["", before])) {
        if (tried.has(JSON.stringify([start, repeated]))) continue;
        tried.add(JSON.stringify([start, repeated]));
        for (const length of LENGTHS) {
          const textOf = (size: number) => `${start}${repeated.repeat(Math.ceil(size / repeated.length))}\u0001`;
          const text = textOf(length);
          if (isSlow(pattern, text) && (length < 1_000 || growth(pattern, textOf, length) > SQUARE_GROWTH)) {
            return `${JSON.stringify(text.slice(0, 40))} of ${text.length} characters`;
          }
        }
      }
    }
  }
  return undefined;
}

/** Tells whether a search takes long each time: once may be the machine. */
function isSlow(pattern: RegExp, text: string): boolean {
  for (let tries = 0; tries < 4; tries++) if (timeOf(pattern, text) < SLOW_MS) return false;
  return true;
}

/** Returns by how much the time of a search grows from an eighth of a text to the whole, by the fastest of several searches. */
function growth(pattern: RegExp, textOf: (size: number) => string, length: number): number {
  const fastest = (text: string) => Math.min(...Array.from({ length: 4 }, () => timeOf(pattern, text)));
  return fastest(textOf(length)) / fastest(textOf(length / 8));
}

function timeOf(pattern: RegExp, text: string): number {
  const started = performance.now();
  text.replace(pattern, "");
  return performance.now() - started;
}

/** Returns a character for each atom of a pattern, in the order of its text; groups, choices and repetitions are left out. */
function atomsOf({ source, flags }: RegExp): readonly string[] {
  const atoms: string[] = [];
  const piece =
    /\\[pP]\{[^}]*\}|\\u\{[\da-f]+\}|\\u[\da-f]{4}|\\x[\da-f]{2}|\\k<\w+>|\\[\s\S]|\[(?:\\[\s\S]|[^\]\\])*\]|\(\?(?:<?[=!]|:|<\w+>|[a-z-]+:)|[*+?](?:\?)?|\{\d+(?:,\d*)?\}\??|[()|^$]|[\s\S]/gu;
  for (const [text] of source.matchAll(piece)) {
    if (/^(?:[()|^$*+?]|\(\?|\{\d|\\[bB]$|\\k<|\\[1-9]$)/.test(text)) continue;
    const atom = text.length === 1 && text !== "." ? text : sampleOf(text, flags);
    if (atom !== undefined) atoms.push(atom);
  }
  return atoms;
}

function sampleOf(atom: string, flags: string): string | undefined {
  const pattern = new RegExp(`^${atom}$`, flags.replace(/[gy]/g, ""));
  const found = SAMPLES.find((sample) => pattern.test(sample));
  if (found !== undefined) return found;
  for (let code = 0; code < 0x3000; code++) {
    if (pattern.test(String.fromCharCode(code))) return String.fromCharCode(code);
  }
  return undefined;
}

/** Returns the literals of regular expressions in a source file, with the line of each. */
export function patternsIn(text: string): readonly { readonly line: number; readonly pattern: RegExp }[] {
  const found: { line: number; pattern: RegExp }[] = [];
  // Depths of braces at which the rest of a template goes on
  const templates: number[] = [];
  let depth = 0;
  let before = "";
  for (let at = 0; at < text.length;) {
    if (text[at] === "{") depth++;
    const isRest = text[at] === "}" && templates.at(-1) === depth;
    if (text[at] === "}") depth--;
    TOKEN.lastIndex = REST.lastIndex = LITERAL.lastIndex = at;
    const isLiteral = text[at] === "/" && !/^\/[/*]/.test(text.slice(at, at + 2)) &&
      /(?:^|[^\w$)\]}"'`]|\b(?:return|case|typeof|of))$/.test(before);
    const [token = ""] = (isRest ? REST : isLiteral ? LITERAL : TOKEN).exec(text) ?? [text[at]];
    if (isRest) templates.pop();
    if ((isRest || token.startsWith("`")) && token.endsWith("${")) templates.push(++depth);
    const [, source, flags] = /^\/(.+)\/(\w*)$/s.exec(isLiteral ? token : "") ?? [];
    if (source !== undefined) {
      found.push({ line: text.slice(0, at).split("\n").length, pattern: new RegExp(source, flags) });
    }
    at += token.length;
    if (isLiteral || !/^(?:\s|\/[/*])/.test(token)) before = isLiteral ? ")" : token;
  }
  return found;
}

const TOKEN =
  /\/\/[^\n]*|\/\*[\s\S]*?\*\/|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\$]|\\[\s\S]|\$(?!\{))*(?:`|\$\{)|\s+|[\w$]+|[\s\S]/y;
const REST = /\}(?:[^`\\$]|\\[\s\S]|\$(?!\{))*(?:`|\$\{)/y;
const LITERAL = /\/(?:[^/\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[dgimsuvy]*/y;
