export type LineEnding = "\n" | "\r\n";

/** How the lines of a text end; undefined when it has none or both. */
export function uniformEnding(text: string): LineEnding | undefined {
  const newlines = count(text, "\n");
  if (newlines === 0) return undefined;
  const returns = count(text, "\r\n");
  if (returns === newlines) return "\r\n";
  return returns === 0 ? "\n" : undefined;
}

/** A text with all its lines ending alike. */
export function withEnding(text: string, ending: LineEnding): string {
  return text.replaceAll(/\r?\n/g, ending);
}

function count(text: string, part: string): number {
  let found = 0;
  for (let at = text.indexOf(part); at !== -1; at = text.indexOf(part, at + part.length)) found++;
  return found;
}
