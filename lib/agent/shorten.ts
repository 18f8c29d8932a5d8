/** The head and tail of a text that is longer than `limit` characters, with a line between that says how much is missing. */
export function shorten(text: string, limit: number): string {
  const head = Math.ceil(limit * 0.75);
  const tail = limit - head;
  return `${text.slice(0, head)}\n[Postern] ${text.length - limit} characters were left out here.\n${
    text.slice(text.length - tail)
  }`;
}
