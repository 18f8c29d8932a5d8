/** Characters of Markdown. An underscore inside a word is none. */
const MARKS =
  /[\\`*]|~(?=~)|<(?=[a-z/!?])|&(?=#?\w{1,31};)|!(?=\[)|\](?=[([:])|(?<![\p{L}\p{N}])_|_(?![\p{L}\p{N}])/giu;

/** Escapes the characters of a text that Markdown would take for marks, and no others: a text for a model should read as it stands. */
export function escapeText(text: string): string {
  return text.replaceAll("\0", "").replace(MARKS, "\\$&");
}

/** Escapes the beginning of a line that Markdown would take for a heading, a quote, a list or an underline. */
export function escapeLineStart(line: string): string {
  if (/^(?:#{1,6}(?:\s|$)|>|[-+](?:\s|$)|=+$|-+$|~~~)/.test(line)) return `\\${line}`;
  return line.replace(/^(\d{1,9})([.)])(?=\s|$)/, "$1\\$2");
}

/** Writes code inside a line. */
export function codeSpan(text: string): string {
  const code = text.replaceAll("\0", "").replace(/\s+/g, " ");
  const inside = code.trim();
  if (inside === "") return code;
  const fence = "`".repeat(longestRun(inside) + 1);
  const pad = inside.startsWith("`") || inside.endsWith("`") ? " " : "";
  return `${code.startsWith(" ") ? " " : ""}${fence}${pad}${inside}${pad}${fence}${code.endsWith(" ") ? " " : ""}`;
}

/** Writes code as a block. */
export function codeFence(code: string, language: string): string {
  const run = longestRun(code);
  const fence = "`".repeat(Math.max(3, run + 1));
  return `${fence}${language}\n${code}\n${fence}`;
}

function longestRun(text: string): number {
  let longest = 0;
  for (let at = text.indexOf("`"); at !== -1; at = text.indexOf("`", at)) {
    const start = at;
    while (text[at] === "`") at++;
    longest = Math.max(longest, at - start);
  }
  return longest;
}
