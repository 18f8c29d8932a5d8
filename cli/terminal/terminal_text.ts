// deno-lint-ignore no-control-regex -- these are the characters to be made harmless
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;

/** Text from a model, a tool or a client without what a terminal would obey: control characters but tab and newline are spelt out. */
export function harmless(text: string): string {
  return text.replaceAll("\r\n", "\n").replace(
    CONTROL,
    (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, "0")}`,
  );
}

/** The same on one line: newlines are spelt out too. */
export function harmlessLine(text: string): string {
  return harmless(text).replaceAll("\n", "\\n");
}
