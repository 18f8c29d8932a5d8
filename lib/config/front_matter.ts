import type { KeyPath } from "./toml.ts";

/** Error for a document that cannot be parsed. The message is the reason, such as "it is not valid YAML, ...". */
export class TextFormatError extends Error {
  override readonly name = "TextFormatError";
  /** 1-based */
  readonly line: number;
  constructor(line: number, reason: string) {
    super(reason);
    this.line = line;
  }
}

/** A Markdown document with a front matter in YAML. */
export interface FrontMatter {
  /** Value of the front matter, not yet checked */
  readonly raw: unknown;
  /** Lines after the front matter */
  readonly body: readonly string[];
  /** 1-based line of the document that the body begins with */
  readonly bodyLine: number;
  /** Returns the 1-based line of the key at a path, or of the nearest key around it */
  lineOf(path: KeyPath): number;
}

/**
 * Parses a document that begins with a front matter. Loads the parser of YAML at its first use.
 * @param held what the front matter holds, for the error, such as "the definition"
 * @param mend changes the lines of the front matter before they are parsed; it must keep their number
 * @throws {TextFormatError} also for aliases, unknown tags and keys that are not text
 */
export async function readFrontMatter(
  text: string,
  held: string,
  mend: (lines: readonly string[]) => readonly string[] | Promise<readonly string[]> = (lines) => lines,
): Promise<FrontMatter> {
  const lines = text.split(/\r?\n/);
  const end = lines[0]?.trimEnd() === "---" ? lines.findIndex((line, at) => at > 0 && line.trimEnd() === "---") : -1;
  if (end === -1) {
    throw new TextFormatError(1, `it must begin with front matter: a line "---", ${held} in YAML, a line "---"`);
  }
  const { raw, lineOf } = await readYaml((await mend(lines.slice(1, end))).join("\n"));
  return { raw, body: lines.slice(end + 1), bodyLine: end + 2, lineOf: (path) => 1 + lineOf(path) };
}

/** Parses a front matter as YAML 1.2. Its lines are counted from 1. */
async function readYaml(text: string): Promise<{ readonly raw: unknown; lineOf(path: KeyPath): number }> {
  const { isMap, isNode, isScalar, isSeq, LineCounter, parseDocument, visit } = await import("yaml");
  const lineCounter = new LineCounter();
  const document = parseDocument(text, { lineCounter, prettyErrors: false, stringKeys: true });
  const lineAt = (offset: number) => Math.max(1, lineCounter.linePos(offset).line);
  const refuse = (offset: number, reason: string): never => {
    throw new TextFormatError(1 + lineAt(offset), `it is not valid YAML, ${reason}`);
  };
  const [fault] = [...document.errors, ...document.warnings];
  if (fault?.code === "RESOURCE_EXHAUSTION") refuse(fault.pos[0], "it is nested too deep");
  if (fault !== undefined) refuse(fault.pos[0], fault.message.slice(0, 200));
  visit(document, { Alias: (_, { range }) => refuse(range?.[0] ?? 0, "aliases are not taken: write the value out") });
  return {
    raw: document.toJS({ maxAliasCount: 0 }),
    lineOf(path) {
      let node: unknown = document.contents;
      let offset = document.contents?.range[0] ?? 0;
      for (const part of path) {
        const pair = isMap(node) ? node.items.find(({ key }) => isScalar(key) && key.value === part) : undefined;
        const item = isSeq(node) && typeof part === "number" ? node.items[part] : undefined;
        const place = pair?.key ?? item;
        if (!isNode(place)) break;
        offset = place.range?.[0] ?? offset;
        node = pair?.value ?? item;
      }
      return lineAt(offset);
    },
  };
}
