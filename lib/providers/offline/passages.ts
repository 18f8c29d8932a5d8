/** A piece of a text that can be quoted by itself: a paragraph, an item of a list, a row of a table, or a block of code. */
export interface Passage {
  /** Place of the text, such as `docs/use.md` or `Postern's README` */
  readonly source: string;
  /** The nearest heading above it; empty: there is none */
  readonly heading: string;
  /** All headings above it, the outer ones first */
  readonly headings: string;
  /** 1-based */
  readonly line: number;
  readonly text: string;
  /** Tells whether the passage is a program or its output rather than prose. */
  readonly isCode: boolean;
  /** Tells whether the passage is a row of a table: a few words about one of many things. */
  readonly isRow: boolean;
  /** Tells whether the passage comes from Postern's own documentation. */
  readonly isOwn: boolean;
  /** Terms that are kept for passages that many questions are asked about. Default: they are made for each question */
  readonly stems?: StemmedTexts;
}

/** Texts of a passage as the stems of their words, each between two spaces of its own. */
export interface StemmedTexts {
  readonly text: string;
  readonly heading: string;
  readonly headings: string;
  /** Stems of the text */
  readonly length: number;
}

/** Place that passages come from. */
export interface PassagesOptions {
  readonly source: string;
  /** Default false */
  readonly isOwn?: boolean;
}

const PROSE =
  /\.(md|mdx|markdown|txt|text|rst|adoc|asciidoc)$|(^|\/)(readme|changelog|contributing|license|notes|todo)$/i;
const MAX_PASSAGES = 4_000;
const MAX_CHARACTERS = 2_000;
/** Characters of a line: the patterns below read each line several times */
const MAX_LINE = 1_000;
const MAX_HEADING = 200;
const MAX_CODE_LINES = 30;

/** Returns whether a file holds prose, by its name. */
export function isProse(path: string): boolean {
  return PROSE.test(path);
}

/** Splits a text of Markdown into its passages. */
export function prosePassages(text: string, options: PassagesOptions): readonly Passage[] {
  return new ProseReader(text, options).read();
}

/** Splits a program into blocks between empty lines, of at most 30 lines. */
export function codePassages(text: string, { source, isOwn = false }: PassagesOptions): readonly Passage[] {
  const passages: Passage[] = [];
  let block: string[] = [];
  let first = 1;
  const end = (next: number) => {
    const code = block.join("\n");
    const whole = {
      source,
      heading: "",
      headings: source,
      line: first,
      text: cut(code),
      isCode: true,
      isRow: false,
      isOwn,
    };
    if (code.trim() !== "" && passages.length < MAX_PASSAGES) passages.push(whole);
    block = [];
    first = next;
  };
  const lines = text.split("\n");
  for (const [at, line] of lines.entries()) {
    if (line.trim() === "") end(at + 2);
    else if (block.push(line) === MAX_CODE_LINES) end(at + 2);
  }
  end(lines.length);
  return passages;
}

class ProseReader {
  readonly #lines: readonly string[];
  readonly #options: PassagesOptions;
  readonly #passages: Passage[] = [];
  /** Headings above the line that is read, by their level from 1 */
  #above: string[] = [];
  #block: string[] = [];
  #blockLine = 1;

  constructor(text: string, options: PassagesOptions) {
    this.#lines = withoutComments(text).split("\n").map((line) => line.slice(0, MAX_LINE));
    this.#options = options;
  }

  read(): readonly Passage[] {
    let at = this.#lines[0]?.trim() === "---" ? this.#afterFrontMatter() : 0;
    while (at < this.#lines.length && this.#passages.length < MAX_PASSAGES) at = this.#take(at);
    this.#endBlock();
    return this.#passages;
  }

  /** Takes the line at `at`, and those that belong to it. @returns the next line */
  #take(at: number): number {
    const line = this.#lines[at] ?? "";
    const fence = /^\s*(`{3,}|~{3,})/.exec(line)?.[1];
    if (fence !== undefined) return this.#takeFenced(at, fence);
    const heading = /^(#{1,6})\s+(.*?)\s*#*$/.exec(line);
    if (heading !== null) return this.#takeHeading(at + 1, heading[1]?.length ?? 1, heading[2] ?? "");
    const isUnderlined = /^(={3,}|-{3,}|~{3,})\s*$/.test(this.#lines[at + 1] ?? "") && /^\S/.test(line) &&
      !line.startsWith("|");
    if (isUnderlined && this.#block.length === 0) {
      return this.#takeHeading(at + 2, this.#lines[at + 1]?.startsWith("=") ? 1 : 2, line);
    }
    if (line.trim() === "") this.#endBlock();
    else if (/^\s*\|/.test(line)) return this.#takeRow(at);
    else if (/^( {4}|\t)\S/.test(line) && this.#block.length === 0) return this.#takeIndented(at);
    else {
      // Each item of a list stands by itself
      if (/^\s{0,3}([-*+]|\d{1,3}[.)])\s+\S/.test(line)) this.#endBlock();
      if (this.#block.length === 0) this.#blockLine = at + 1;
      this.#block.push(line);
    }
    return at + 1;
  }

  #takeHeading(next: number, level: number, heading: string): number {
    this.#endBlock();
    this.#above = [...this.#above.slice(0, level - 1), plain(heading.slice(0, MAX_HEADING))];
    return next;
  }

  #takeFenced(at: number, fence: string): number {
    let last = at + 1;
    while (last < this.#lines.length - 1 && this.#lines[last]?.trim().startsWith(fence) !== true) last++;
    this.#takeCode(at, this.#lines.slice(at, last + 1).join("\n"));
    return last + 1;
  }

  #takeIndented(at: number): number {
    let next = at;
    while (/^( {4}|\t)|^\s*$/.test(this.#lines[next] ?? "x")) next++;
    const code = this.#lines.slice(at, next).join("\n").trimEnd();
    this.#takeCode(at, `\`\`\`\n${code.replaceAll(/^( {4}|\t)/gm, "")}\n\`\`\``);
    return next;
  }

  /** Code under a sentence that ends with a colon belongs to it. */
  #takeCode(at: number, code: string): void {
    this.#endBlock();
    const before = this.#passages.at(-1);
    if (before !== undefined && !before.isCode && before.text.endsWith(":") && before.headings === this.#headings) {
      this.#passages[this.#passages.length - 1] = { ...before, text: cut(`${before.text}\n\n${code}`) };
    } else this.#add(code, at + 1, { isCode: true });
  }

  #takeRow(at: number): number {
    this.#endBlock();
    const row = this.#lines[at] ?? "";
    const isHead = /^\s*\|[\s:|-]+\|?\s*$/.test(this.#lines[at + 1] ?? "");
    if (isHead) return at + 2;
    const cells = row.trim().replaceAll(/^\||\|$/g, "").split(/(?<!\\)\|/).map((cell) => cell.trim());
    this.#add(cells.filter((cell) => cell !== "").join(": "), at + 1, { isRow: true });
    return at + 1;
  }

  #endBlock(): void {
    const text = this.#block.map((line) => line.trim()).join(" ");
    this.#block = [];
    if (text !== "") this.#add(text, this.#blockLine);
  }

  get #headings(): string {
    return this.#above.filter((heading) => heading !== undefined).join(" > ");
  }

  #add(text: string, line: number, { isCode = false, isRow = false } = {}): void {
    const { source, isOwn = false } = this.#options;
    const heading = this.#above.at(-1) ?? "";
    this.#passages.push({ source, heading, headings: this.#headings, line, text: cut(text), isCode, isRow, isOwn });
  }

  #afterFrontMatter(): number {
    const end = this.#lines.indexOf("---", 1);
    return end < 0 ? 0 : end + 1;
  }
}

/** The text without its comments, line breaks kept. A search for each end by a pattern would take a minute for a hostile file. */
function withoutComments(text: string): string {
  let kept = "";
  let at = 0;
  for (;;) {
    const start = text.indexOf("<!--", at);
    const end = start < 0 ? -1 : text.indexOf("-->", start + 4);
    if (end < 0) return kept + text.slice(at);
    kept += text.slice(at, start) + text.slice(start, end).replaceAll(/[^\n]+/g, "");
    at = end + 3;
  }
}

/** A heading without the marks of Markdown: of a link its text stays, and brackets that are no link stay as they are. */
function plain(heading: string): string {
  return heading.replaceAll(/\[([^[\]]*)\]\([^()]*\)/g, "$1").replaceAll(/[`*]/g, "").trim();
}

function cut(text: string): string {
  return text.length <= MAX_CHARACTERS ? text : `${[...text.slice(0, MAX_CHARACTERS)].slice(0, -1).join("")}...`;
}
