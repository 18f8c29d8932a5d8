import type { WorkBudget } from "../documents/work_budget.ts";
import type { MainContent } from "./main_content.ts";
import { codeOf, isCodeBlock, languageOf } from "./code_block.ts";
import { codeFence, escapeLineStart } from "./markdown_syntax.ts";
import { readTable, type TableRow } from "./html_table.ts";
import { htmlAttribute, type HtmlElement, type HtmlNode, isElement } from "./parse_html.ts";
import { BREAK, InlineWriter, marked } from "./write_inline.ts";

/** Options of writeMarkdown. */
export interface WriteMarkdownOptions {
  /** Address that links and images are relative to */
  readonly baseUrl: string;
  readonly budget: WorkBudget;
  /** UTF-16 units of Markdown, after which nothing more is written. Default 4,000,000 */
  readonly maxLength?: number;
}

/** Markdown of a page. */
export interface WrittenMarkdown {
  readonly text: string;
  /** The page has more than `maxLength` */
  readonly isCut: boolean;
}

const MAX_LENGTH = 4_000_000;
/** Characters before a line. Lists and quotes that are nested deeper stay at this level. */
const MAX_PREFIX = 40;

/**
 * Writes the content of a page as GitHub Flavored Markdown: headings, lists, tables, code with its language, links and images with
 * absolute addresses. Addresses that are not http, https or mailto are left out, their text stays.
 * @throws {DocumentError} `document_too_slow`
 */
export function writeMarkdown({ root, dropped }: MainContent, options: WriteMarkdownOptions): WrittenMarkdown {
  const writer = new MarkdownWriter(root, dropped, options);
  writer.blocks(root.children);
  return { text: writer.text(), isCut: writer.isFull };
}

class MarkdownWriter {
  readonly #dropped: ReadonlySet<HtmlElement>;
  readonly #options: WriteMarkdownOptions;
  readonly #maxLength: number;
  /** Elements that are or hold a block. */
  readonly #blocks = new Set<HtmlElement>();
  readonly #inline: InlineWriter;
  readonly #lines: string[] = [];
  #length = 0;
  #prefix = "";
  /** Prefix of the next line only: the marker of a list item. */
  #firstPrefix: string | undefined = undefined;
  #needsBlank = false;

  constructor(root: HtmlElement, dropped: ReadonlySet<HtmlElement>, options: WriteMarkdownOptions) {
    this.#dropped = dropped;
    this.#options = options;
    this.#maxLength = options.maxLength ?? MAX_LENGTH;
    this.#findBlocks(root);
    this.#inline = new InlineWriter({ ...options, dropped, blocks: this.#blocks });
  }

  get isFull(): boolean {
    return this.#length > this.#maxLength;
  }

  text(): string {
    return this.#lines.join("\n").slice(0, this.#maxLength);
  }

  /** Writes nodes as blocks. Inline nodes beside each other are one paragraph. */
  blocks(nodes: readonly HtmlNode[]): void {
    let run: HtmlNode[] = [];
    for (const node of nodes) {
      if (this.isFull) return;
      this.#options.budget.step(4);
      if (!isElement(node) || !this.#blocks.has(node)) {
        run.push(node);
        continue;
      }
      this.#paragraphs(run);
      run = [];
      if (!this.#dropped.has(node)) this.#block(node);
    }
    this.#paragraphs(run);
  }

  #block(element: HtmlElement): void {
    const { tag, children } = element;
    const level = /^h([1-6])$/.exec(tag)?.[1];
    if (level !== undefined) return this.#heading(element, Number(level));
    if (isCodeBlock(element)) return this.#write(codeFence(codeOf(element, this.#options.budget), languageOf(element)));
    switch (tag) {
      case "ul":
      case "ol":
      case "menu":
      case "dir":
        return this.#list(element);
      case "dl":
        return this.#definitions(element);
      case "table":
        return this.#table(element);
      case "blockquote":
        return this.#inside("> ", "> ", () => this.blocks(children));
      case "hr":
        return this.#write("---");
      case "summary":
        return this.#write(marked("**", this.#inline.line(children)));
      default:
        return this.blocks(children);
    }
  }

  #heading({ children }: HtmlElement, level: number): void {
    const text = this.#inline.line(children);
    if (text !== "") this.#write(`${"#".repeat(level)} ${text}`);
  }

  #paragraphs(nodes: readonly HtmlNode[]): void {
    if (nodes.length === 0) return;
    const text = this.#inline.text(nodes);
    if (text === "") return;
    // Two breaks in a row are how old pages separate paragraphs
    for (const paragraph of text.split(/\0 ?\0[\0 ]*/)) {
      const lines = paragraph.split(BREAK).map((line) => escapeLineStart(line.trim())).filter((line) => line !== "");
      if (lines.length > 0) this.#write(lines.join("\\\n"));
    }
  }

  #list(list: HtmlElement): void {
    const isOrdered = list.tag === "ol";
    const items = list.children.filter((child): child is HtmlElement => isElement(child) && !this.#dropped.has(child));
    const isReversed = htmlAttribute(list, "reversed") !== undefined;
    let number = numberOf(list, "start") ?? (isReversed ? items.length : 1);
    if (this.#prefix === "" && this.#firstPrefix === undefined) this.#needsBlank = this.#lines.length > 0;
    else this.#needsBlank = false;
    for (const child of items) {
      if (this.isFull) return;
      number = numberOf(child, "value") ?? number;
      const marker = isOrdered ? markerOf(number, htmlAttribute(child, "type") ?? htmlAttribute(list, "type")) : "- ";
      number = Math.max(0, number + (isReversed ? -1 : 1));
      // A list right inside a list belongs to the item before it
      const nodes = child.tag === "li" ? child.children : [child];
      this.#inside(marker, " ".repeat(marker.length), () => this.blocks(nodes));
      this.#needsBlank = false;
    }
    this.#needsBlank = true;
  }

  #definitions(list: HtmlElement): void {
    for (const child of list.children) {
      if (!isElement(child) || this.#dropped.has(child) || this.isFull) continue;
      if (child.tag === "dd") this.#inside("  ", "  ", () => this.blocks(child.children), "- ");
      else if (child.tag === "div") this.#definitions(child);
      else {
        if (this.#lines.at(-1)?.trimStart().startsWith("- ")) this.#needsBlank = false;
        this.#inside("- ", "  ", () => this.blocks(child.children));
      }
    }
  }

  #table(table: HtmlElement): void {
    const read = readTable(table, this.#dropped, this.#options.budget);
    if (read.caption !== undefined) this.blocks([read.caption]);
    if (read.kind === "layout") {
      for (const cell of read.cells) this.blocks(cell.children);
      return;
    }
    const rows = read.rows.map((row) => this.#row(row));
    if (!read.hasHeader) rows.unshift(`|${"  |".repeat(read.columns)}`);
    rows.splice(1, 0, `|${" --- |".repeat(read.columns)}`);
    this.#write(rows.join("\n"));
  }

  #row(cells: TableRow): string {
    if (this.isFull) return "";
    const texts = cells.map((cell) => (cell === undefined ? "" : this.#cell(cell)));
    return `| ${texts.join(" | ")} |`;
  }

  #cell({ children }: HtmlElement): string {
    const lines = this.#inline.text(children).split(BREAK).map((line) => line.trim()).filter((line) => line !== "");
    return lines.join("<br>").replaceAll("|", "\\|");
  }

  /** Writes what `work` writes behind a prefix. */
  #inside(first: string, others: string, work: () => void, onlyAfter?: string): void {
    const [prefix, firstPrefix] = [this.#prefix, this.#firstPrefix];
    const isDeep = prefix.length > MAX_PREFIX;
    const lines = this.#lines.length;
    if (onlyAfter === undefined && this.#needsBlank) this.#blank();
    if (onlyAfter !== undefined) this.#needsBlank = false;
    this.#firstPrefix = (firstPrefix ?? prefix) + (isDeep ? "" : first);
    if (!isDeep) this.#prefix = prefix + others;
    this.#needsBlank = false;
    work();
    // An item without content leaves no marker
    this.#firstPrefix = this.#lines.length === lines || this.#firstPrefix !== undefined ? firstPrefix : undefined;
    this.#prefix = prefix;
    this.#needsBlank = true;
  }

  #write(block: string): void {
    if (this.#needsBlank) this.#blank();
    for (const line of block.split("\n")) {
      if (this.isFull) return;
      this.#push((this.#firstPrefix ?? this.#prefix) + line);
      this.#firstPrefix = undefined;
    }
    this.#needsBlank = true;
  }

  #blank(): void {
    if (this.#lines.length > 0) this.#push(this.#prefix);
    this.#needsBlank = false;
  }

  #push(line: string): void {
    const text = line.trimEnd();
    this.#options.budget.step(4 + (text.length >> 4));
    this.#length += text.length + 1;
    this.#lines.push(text);
  }

  #findBlocks(element: HtmlElement): boolean {
    this.#options.budget.step(4);
    let has = BLOCK_TAGS.has(element.tag);
    for (const child of element.children) if (isElement(child) && this.#findBlocks(child)) has = true;
    if (has) this.#blocks.add(element);
    return has;
  }
}

/** Returns the number that an attribute gives to an item. A number of Markdown has nine digits at most, and no sign. */
function numberOf(element: HtmlElement, name: "start" | "value"): number | undefined {
  const number = Number.parseInt(htmlAttribute(element, name) ?? "", 10);
  return number >= 0 && number < 100_000_000 ? number : undefined;
}

/** Returns the marker of an item. Markdown has no letters for markers, so that they stand behind a bullet. */
function markerOf(number: number, type: string | undefined): string {
  if (number === 0 || number > MAX_LETTERED || !/^[aAiI]$/.test(type ?? "")) return `${number}. `;
  const letters = type?.toLowerCase() === "a" ? lettersOf(number) : romanOf(number);
  return `- ${type === "a" || type === "i" ? letters : letters.toUpperCase()}. `;
}

/** Numbers up to which an item of a list by letters has letters */
const MAX_LETTERED = 3999;

function lettersOf(number: number): string {
  const rest = Math.floor((number - 1) / 26);
  return (rest === 0 ? "" : lettersOf(rest)) + String.fromCharCode(97 + (number - 1) % 26);
}

function romanOf(number: number): string {
  const [sign = "", worth = 0] = ROMAN.find(([, least]) => least <= number) ?? [];
  return worth === 0 ? "" : sign + romanOf(number - worth);
}

const ROMAN = (
  "m1000 cm900 d500 cd400 c100 xc90 l50 xl40 x10 ix9 v5 iv4 i1".split(" ")
).map((word): readonly [string, number] => [word.replace(/\d+/, ""), Number(word.replace(/\D+/, ""))]);

const BLOCK_TAGS = new Set(
  ("address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption figure footer form " +
    "h1 h2 h3 h4 h5 h6 header hgroup hr legend li main menu nav ol p pre section summary table tbody td tfoot th thead tr ul")
    .split(" "),
);
