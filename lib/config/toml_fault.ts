/** Way out for a Windows path in double quotes, where a backslash begins an escape. */
export const USE_SINGLE_QUOTES = "write a Windows path in single quotes, as 'C:\\notes'";

/** Place and reason of an error that the TOML parser threw for a text, in the parser's words. Quotes nothing of the text. */
export function tomlFault(
  error: unknown,
  text: string,
): { readonly line: number; readonly column: number; readonly reason: string } {
  const { line = 1, column = 1, message } = error as { line?: number; column?: number; message: string };
  const [first = ""] = message.split("\n", 1);
  const reason = first.replace(/^Invalid TOML document: /, "").slice(0, 200);
  const hasPath = /"(?:[A-Za-z]:\\|\\\\)/.test(text.split("\n", line)[line - 1] ?? "");
  return { line, column, reason: hasPath ? `${reason}; ${USE_SINGLE_QUOTES}` : reason };
}
