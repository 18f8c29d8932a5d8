import type { KeyPath } from "../../config/key_path.ts";

/** A line that can hold a key or begin an item. */
interface Line {
  readonly number: number;
  readonly indent: number;
  readonly text: string;
}

/**
 * The 1-based line where the value at `path` stands in a YAML text, or where the nearest value around it does.
 *
 * It reads the block style that people write; what stands in braces or brackets is at the line of its key. For error messages.
 */
export function yamlLineOf(text: string, path: KeyPath): number {
  let lines = text.split("\n").flatMap(toLine);
  let found = lines[0]?.number ?? 1;
  for (const part of path) {
    const block = typeof part === "number" ? itemOf(lines, part) : valueOf(lines, part);
    if (block === undefined) return found;
    found = block.number;
    lines = block.inside;
  }
  return found;
}

interface Block {
  readonly number: number;
  readonly inside: Line[];
}

function toLine(text: string, index: number): readonly Line[] {
  const trimmed = text.trimStart();
  if (trimmed === "" || trimmed.startsWith("#")) return [];
  return [{ number: index + 1, indent: text.length - trimmed.length, text: trimmed.trimEnd() }];
}

/** The lines below the key, and what follows it in its own. */
function valueOf(lines: readonly Line[], key: string): Block | undefined {
  const indent = lines[0]?.indent;
  const at = lines.findIndex((line) => line.indent === indent && keyOf(line.text) === key);
  const line = lines[at];
  if (line === undefined) return undefined;
  const rest = lines.slice(at + 1);
  // A list may stand as far to the left as its key
  const end = rest.findIndex((next) => next.indent < line.indent || next.indent === line.indent && !isItem(next));
  return { number: line.number, inside: end === -1 ? rest : rest.slice(0, end) };
}

function itemOf(lines: readonly Line[], index: number): Block | undefined {
  const indent = lines[0]?.indent;
  const starts = lines.flatMap((line, at) => (line.indent === indent && isItem(line) ? [at] : []));
  const start = starts[index];
  const first = start === undefined ? undefined : lines[start];
  if (first === undefined) return undefined;
  const rest = first.text.slice(1);
  const inner = rest.trimStart();
  const head = { ...first, indent: first.indent + 1 + rest.length - inner.length, text: inner };
  return { number: first.number, inside: [head, ...lines.slice(Number(start) + 1, starts[index + 1])] };
}

function isItem({ text }: Line): boolean {
  return text === "-" || text.startsWith("- ");
}

function keyOf(text: string): string | undefined {
  const match = /^(?:"([^"]*)"|'([^']*)'|([^\s:#"'][^:]*))\s*:(?:\s|$)/.exec(text);
  return match?.[1] ?? match?.[2] ?? match?.[3]?.trimEnd();
}
