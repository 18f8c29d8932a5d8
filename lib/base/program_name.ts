/**
 * Returns a message of this program with each `postern <command>` in it as its reader has to type it. Paths stay as they are.
 * @param name words that start the program, such as `npx postern`
 */
export function withProgramName(message: string, name: string): string {
  if (name === "postern") return message;
  return message.replaceAll(/(?<![\w./:@-])postern(?=\s+[a-z<])(?!\s+postern\b)/g, () => name);
}
