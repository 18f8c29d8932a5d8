import { existsSync, globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { PROJECT_ROOT } from "../../support/source_files.ts";

/** A code block of a page, with what the comments right above it say about it. */
export interface Block {
  /** `path:line` of its fence, 1-based */
  readonly place: string;
  /** First word behind the fence, such as `sh`; empty: none */
  readonly language: string;
  readonly text: string;
  /** `<!-- not run: reason -->`: why no test can run it */
  readonly notRun: string | undefined;
  /** `<!-- until: text -->`: its last command runs on; text of the output that shows that it works */
  readonly until: string | undefined;
  /** `<!-- exits: 1 -->`: exit code of its last command. Default 0 */
  readonly exits: number;
  /** `<!-- types: 5, ~/notes -->`: lines that the reader types while its commands ask. Default: nobody is there to ask */
  readonly types: readonly string[] | undefined;
  /** `<!-- gateway: stopped -->`: it works on the data directory alone, and is run after the blocks that need the page's gateway */
  readonly withoutGateway: boolean;
  /** `<!-- file: path -->`: a file of the workspace; `postern.toml` is the configuration that the page's gateway starts with */
  readonly file: string | undefined;
  /**
   * Text that a program prints, where `...` stands for anything: that of the block marked `<!-- output: of the program above -->` that follows
   * it, or of a mark above the program
   */
  readonly output: string | undefined;
}

export interface Page {
  /** Relative to the project, such as `docs/http.md` */
  readonly path: string;
  readonly text: string;
  readonly blocks: readonly Block[];
  /** The text without its code blocks, line breaks kept */
  readonly prose: string;
}

const MARKS = ["not run", "until", "exits", "types", "gateway", "file", "output"];

/** Reads the README and every page of `docs/`, `docs/design` excepted. */
export function readPages(): readonly Page[] {
  const pages = globSync("docs/**/*.md", { cwd: PROJECT_ROOT }).map((path) => path.replaceAll("\\", "/"));
  return ["README.md", ...pages.filter((path) => !path.startsWith("docs/design/")).sort()]
    .filter((path) => existsSync(join(PROJECT_ROOT, path)))
    .map((path) => parsePage(path, readFileSync(join(PROJECT_ROOT, path), "utf8")));
}

/** Splits a page into its code blocks and its prose. @throws {Error} a mark that nobody knows, or a fence that never ends */
export function parsePage(path: string, text: string): Page {
  const blocks: Block[] = [];
  const prose: string[] = [];
  let marks = new Map<string, string>();
  const lines = text.split("\n");
  for (let at = 0; at < lines.length; at++) {
    const line = lines[at] ?? "";
    const place = `${path}:${at + 1}`;
    const mark = /^\s*<!-- ([a-z ]+): (.+) -->$/.exec(line);
    const [, indent, fence, language = ""] = /^(\s*)(`{3,})(\S*)/.exec(line) ?? [];
    if (fence !== undefined) {
      const end = lines.findIndex((other, index) => index > at && other.trim() === fence);
      if (end < 0) throw new Error(`${place}: the code block never ends`);
      const code = lines.slice(at + 1, end).map((row) =>
        row.startsWith(indent ?? "") ? row.slice(indent?.length) : row
      );
      const program = language === "text" && marks.has("output") ? blocks.pop() : undefined;
      if (program !== undefined) blocks.push({ ...program, output: code.join("\n") });
      blocks.push({
        place,
        language,
        text: code.join("\n"),
        notRun: marks.get("not run"),
        until: marks.get("until"),
        exits: Number(marks.get("exits") ?? 0),
        types: marks.get("types")?.split(", "),
        withoutGateway: marks.get("gateway") === "stopped",
        file: marks.get("file"),
        output: language === "text" ? undefined : marks.get("output"),
      });
      marks = new Map();
      prose.push(...lines.slice(at, end + 1).map(() => ""));
      at = end;
    } else if (mark !== null) {
      const [, name = "", value = ""] = mark;
      if (!MARKS.includes(name)) throw new Error(`${place}: "${name}" is none of the marks ${MARKS.join(", ")}`);
      marks.set(name, value);
      prose.push("");
    } else {
      if (line.trim() !== "" && marks.size > 0) throw new Error(`${place}: a mark stands right above its code block`);
      prose.push(line);
    }
  }
  return { path, text, blocks, prose: prose.join("\n") };
}
