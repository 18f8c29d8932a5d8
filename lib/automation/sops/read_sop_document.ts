import type { KeyPath } from "../../config/toml.ts";

/** A definition's text, parsed and not yet checked. */
export interface SopDocument {
  readonly raw: unknown;
  /** Text of a Markdown definition that belongs to no step */
  readonly guide: string;
  /** Text under the heading `## <step id>` of a Markdown definition, by that id */
  readonly sections: ReadonlyMap<string, Section>;
  /** 1-based line of the value at `path`, or of the nearest one around it */
  lineOf(path: KeyPath): Promise<number>;
}

/** A section of a procedure's document. */
export interface Section {
  readonly text: string;
  /** 1-based line of its heading */
  readonly line: number;
}

/** Thrown for a text that cannot be parsed. */
export class SopDocumentError extends Error {
  override readonly name = "SopDocumentError";
  /** 1-based */
  readonly line: number;
  constructor(line: number, reason: string) {
    super(reason);
    this.line = line;
  }
}

/** Parses the text of a definition. Loads the parser at its first use. @throws {SopDocumentError} */
export async function readSopDocument(text: string, format: "toml" | "markdown"): Promise<SopDocument> {
  return format === "toml" ? await readToml(text) : await readMarkdown(text);
}

async function readToml(text: string): Promise<SopDocument> {
  const { parseTOML } = await import("confbox/toml");
  return {
    raw: parsedToml(() => parseTOML(text)),
    guide: "",
    sections: new Map(),
    async lineOf(path) {
      const { locateKeys } = await import("../../config/locate_keys.ts");
      return (await locateKeys(text))?.lineOf(path) ?? 1;
    },
  };
}

/** Runs the TOML parser. Of its message only the first line is kept. @throws {SopDocumentError} */
function parsedToml(parse: () => unknown): unknown {
  try {
    return parse();
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    const [line = ""] = error.message.split("\n", 1);
    const reason = line.replace(/^Invalid TOML document: /, "").slice(0, 200);
    throw new SopDocumentError(Number("line" in error ? error.line : 1), `it is not valid TOML, ${reason}`);
  }
}

async function readMarkdown(text: string): Promise<SopDocument> {
  const lines = text.split(/\r?\n/);
  const end = lines[0]?.trimEnd() === "---" ? lines.findIndex((line, at) => at > 0 && line.trimEnd() === "---") : -1;
  if (end === -1) {
    throw new SopDocumentError(
      1,
      'it must begin with front matter: a line "---", the definition in YAML, a line "---"',
    );
  }
  const front = lines.slice(1, end).join("\n");
  const { raw, lineOf } = await readYaml(front);
  const { guide, sections } = sectionsOf(lines.slice(end + 1), end + 2);
  return { raw, guide, sections, lineOf: (path) => Promise.resolve(1 + lineOf(path)) };
}

/**
 * Parses the front matter as YAML 1.2. Refuses aliases, unknown tags and keys that are not text.
 * @returns the value, and the 1-based line within the front matter of the key at a path, or of the nearest key around it
 */
async function readYaml(text: string): Promise<{ readonly raw: unknown; lineOf(path: KeyPath): number }> {
  const { isMap, isNode, isScalar, isSeq, LineCounter, parseDocument, visit } = await import("yaml");
  const lineCounter = new LineCounter();
  const document = parseDocument(text, { lineCounter, prettyErrors: false, stringKeys: true });
  const lineAt = (offset: number) => Math.max(1, lineCounter.linePos(offset).line);
  const refuse = (offset: number, reason: string): never => {
    throw new SopDocumentError(1 + lineAt(offset), `it is not valid YAML, ${reason}`);
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

const STEP_HEADING = /^##\s+([a-z0-9][a-z0-9_-]{0,63})\s*$/;

/** Splits the text after the front matter into the guide and the sections of steps. @param first 1-based line of `lines[0]` in its file */
function sectionsOf(lines: readonly string[], first: number): Pick<SopDocument, "guide" | "sections"> {
  const sections = new Map<string, Section>();
  const guide: string[] = [];
  let current: { readonly id: string; readonly line: number; readonly lines: string[] } | undefined;
  let fence: string | undefined;
  const close = () => {
    if (current !== undefined) sections.set(current.id, { text: current.lines.join("\n").trim(), line: current.line });
  };
  lines.forEach((line, at) => {
    const mark = /^ {0,3}(```+|~~~+)/.exec(line)?.[1];
    if (fence === undefined) fence = mark;
    else if (mark !== undefined && mark.startsWith(fence)) fence = undefined;
    if (fence === undefined && /^#{1,2}\s/.test(line)) {
      close();
      const id = STEP_HEADING.exec(line)?.[1];
      current = id === undefined ? undefined : { id, line: first + at, lines: [] };
      if (id !== undefined) return;
    }
    (current?.lines ?? guide).push(line);
  });
  close();
  return { guide: guide.join("\n").trim(), sections };
}
