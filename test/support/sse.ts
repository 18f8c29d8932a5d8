/** The events of a whole event stream: data lines joined, comments apart. */
export function readSse(text: string): { readonly data: string[]; readonly comments: string[] } {
  const data: string[] = [];
  const comments: string[] = [];
  for (const block of text.split("\n\n")) {
    const lines = block.split("\n").filter((line) => line !== "");
    const values = lines.filter((line) => line.startsWith("data:")).map((line) => line.slice(5).replace(/^ /, ""));
    comments.push(...lines.filter((line) => line.startsWith(":")).map((line) => line.slice(1).trim()));
    if (values.length > 0) data.push(values.join("\n"));
  }
  return { data, comments };
}
