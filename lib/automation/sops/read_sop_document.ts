import { readFrontMatter, TextFormatError } from "../../config/front_matter.ts";
import { type KeyPath, tomlFault } from "../../config/toml.ts";

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

/** Parses the text of a definition. Loads the parser at its first use. @throws {TextFormatError} */
export async function readSopDocument(text: string, format: "toml" | "markdown"): Promise<SopDocument> {
  return format === "toml" ? await readToml(text) : await readMarkdown(text);
}

async function readToml(text: string): Promise<SopDocument> {
  const { parseTOML } = await import("confbox/toml");
  return {
    raw: parsedToml(parseTOML, text),
    guide: "",
    sections: new Map(),
    async lineOf(path) {
      const { locateKeys } = await import("../../config/locate_keys.ts");
      return (await locateKeys(text))?.lineOf(path) ?? 1;
    },
  };
}

/** Runs the TOML parser. @throws {TextFormatError} */
function parsedToml(parse: (text: string) => unknown, text: string): unknown {
  try {
    return parse(text);
  } catch (error) {
    const { line, reason } = tomlFault(error, text);
    throw new TextFormatError(line, `it is not valid TOML, ${reason}`);
  }
}

async function readMarkdown(text: string): Promise<SopDocument> {
  const { raw, lineOf, body, bodyLine } = await readFrontMatter(text, "the definition");
  const { guide, sections } = sectionsOf(body, bodyLine);
  return { raw, guide, sections, lineOf: (path) => Promise.resolve(lineOf(path)) };
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
