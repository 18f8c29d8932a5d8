import type { KeyPath } from "../../config/key_path.ts";
import { SOP_LIMITS } from "./definition.ts";
import { yamlLineOf } from "./yaml_lines.ts";

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

export interface Section {
  readonly text: string;
  /** 1-based line of its heading */
  readonly line: number;
}

/** The text could not be parsed. */
export class SopDocumentError extends Error {
  override readonly name = "SopDocumentError";
  /** 1-based */
  readonly line: number;
  constructor(line: number, reason: string) {
    super(reason);
    this.line = line;
  }
}

/** The parsers are loaded when first needed. @throws {SopDocumentError} */
export async function readSopDocument(text: string, format: "toml" | "markdown"): Promise<SopDocument> {
  return format === "toml" ? await readToml(text) : await readMarkdown(text);
}

async function readToml(text: string): Promise<SopDocument> {
  const { parseTOML } = await import("confbox/toml");
  const raw = parsed(() => parseTOML(text), { format: "TOML", lineOf: (error) => Number(error["line"] ?? 1) });
  return {
    raw,
    guide: "",
    sections: new Map(),
    async lineOf(path) {
      const { locateKeys } = await import("../../config/locate_keys.ts");
      return (await locateKeys(text))?.lineOf(path) ?? 1;
    },
  };
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
  const { parseYAML } = await import("confbox/yaml");
  const raw = parsed(() => parseYAML(front, { maxAliases: 0, maxDepth: SOP_LIMITS.depth * 2 }), {
    format: "YAML",
    lineOf: ({ mark }) => 2 + Number((mark as { readonly line?: number } | undefined)?.line ?? 0),
  });
  const { guide, sections } = sectionsOf(lines.slice(end + 1), end + 2);
  return { raw, guide, sections, lineOf: (path) => Promise.resolve(1 + yamlLineOf(front, path)) };
}

/** Neither parser's message quotes more than a line, of which the first one alone is kept. */
function parsed(
  parse: () => unknown,
  { format, lineOf }: { readonly format: string; readonly lineOf: (error: Record<string, unknown>) => number },
): unknown {
  try {
    return parse();
  } catch (error) {
    if (!(error instanceof Error)) throw error;
    // YAML's own line and column count from the front matter's begin, not the file's
    const [line = ""] = error.message.split("\n", 1);
    const reason = line.replace(/^Invalid TOML document: | \(\d+:\d+\)$/, "").slice(0, 200);
    throw new SopDocumentError(
      lineOf(error as unknown as Record<string, unknown>),
      `it is not valid ${format}, ${reason}`,
    );
  }
}

const STEP_HEADING = /^##\s+([a-z0-9][a-z0-9_-]{0,63})\s*$/;

/** @param first 1-based line of the first one in its file */
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
