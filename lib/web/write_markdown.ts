import type { WorkBudget } from "../documents/work_budget.ts";
import type { MainContent } from "./main_content.ts";
import { codeOf, isCodeBlock, languageOf } from "./code_block.ts";
import { codeFence, codeSpan, escapeLineStart, escapeText } from "./markdown_syntax.ts";
import { readTable, type TableRow } from "./html_table.ts";
import { elementsIn, htmlAttribute, type HtmlElement, type HtmlNode, isElement, textInside } from "./parse_html.ts";

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

/** UTF-16 units of an address. A longer one is left out, since it says nothing to a reader. */
const MAX_URL = 2000;
const MAX_LENGTH = 4_000_000;
/** Characters before a line. Lists and quotes that are nested deeper stay at this level. */
const MAX_PREFIX = 40;
/** UTF-16 units of a text between two looks at the clock. */
const SLICE_LENGTH = 8192;
/** Stands for a line break until a paragraph is written. A page cannot have this character. */
const BREAK = "\0";

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

type InlineMark = "strong" | "emphasis" | "strike" | "link";

class MarkdownWriter {
  readonly #dropped: ReadonlySet<HtmlElement>;
  readonly #options: WriteMarkdownOptions;
  readonly #maxLength: number;
  /** Elements that are or hold a block. */
  readonly #blocks = new Set<HtmlElement>();
  readonly #marks = new Set<InlineMark>();
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
        return this.#write(marked("**", this.#line(children)));
      default:
        return this.blocks(children);
    }
  }

  #heading({ children }: HtmlElement, level: number): void {
    const text = this.#line(children);
    if (text !== "") this.#write(`${"#".repeat(level)} ${text}`);
  }

  #paragraphs(nodes: readonly HtmlNode[]): void {
    if (nodes.length === 0) return;
    const text = this.#inline(nodes);
    if (text === "") return;
    // Two breaks in a row are how old pages separate paragraphs
    for (const paragraph of text.split(/\0 ?\0[\0 ]*/)) {
      const lines = paragraph.split(BREAK).map((line) => escapeLineStart(line.trim())).filter((line) => line !== "");
      if (lines.length > 0) this.#write(lines.join("\\\n"));
    }
  }

  #list(list: HtmlElement): void {
    let number = list.tag === "ol" ? Number.parseInt(htmlAttribute(list, "start") ?? "1", 10) : Number.NaN;
    if (list.tag === "ol" && !(number >= 0 && number < 100_000_000)) number = 1;
    if (this.#prefix === "" && this.#firstPrefix === undefined) this.#needsBlank = this.#lines.length > 0;
    else this.#needsBlank = false;
    for (const child of list.children) {
      if (!isElement(child) || this.#dropped.has(child) || this.isFull) continue;
      const marker = Number.isNaN(number) ? "- " : `${number++}. `;
      // A list right inside a list belongs to the item before it
      const items = child.tag === "li" ? child.children : [child];
      this.#inside(marker, " ".repeat(marker.length), () => this.blocks(items));
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
    const lines = this.#inline(children).split(BREAK).map((line) => line.trim()).filter((line) => line !== "");
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

  /** Returns inline nodes as one line. */
  #line(nodes: readonly HtmlNode[]): string {
    return this.#inline(nodes).replace(/[\0 ]*\0[\0 ]*/g, " ");
  }

  /** Returns inline nodes as text, white space collapsed, with `BREAK` for each line break. */
  #inline(nodes: readonly HtmlNode[]): string {
    const parts: string[] = [];
    for (const node of nodes) this.#part(node, parts);
    const text = parts.join("");
    this.#options.budget.step(text.length >> 3);
    return text.replace(/[ \t\n\r\f\u00a0]+/g, " ").replace(/^[\0 ]+/, "").replace(/ $/, "");
  }

  #part(node: HtmlNode, parts: string[]): void {
    this.#options.budget.step(4);
    if (!isElement(node)) return this.#text(node.text, parts);
    if (this.#dropped.has(node)) return;
    const { tag, children } = node;
    const all = (into: string[]) => {
      for (const child of children) this.#part(child, into);
    };
    // A block inside a heading, a link or a cell
    const isBlock = this.#blocks.has(node) && tag !== "a";
    switch (tag) {
      case "br":
        return void parts.push(BREAK);
      case "b":
      case "strong":
        return this.#marked("strong", "**", all, parts);
      case "i":
      case "em":
      case "cite":
      case "var":
      case "dfn":
        return this.#marked("emphasis", "*", all, parts);
      case "del":
      case "s":
      case "strike":
        return this.#marked("strike", "~~", all, parts);
      case "code":
      case "tt":
      case "kbd":
      case "samp":
        return void parts.push(codeSpan(textInside(node)));
      case "sup":
        return this.#superscript(node, parts);
      case "a":
        return this.#link(node, all, parts);
      case "img":
        return void parts.push(this.#image(node));
      case "math":
        return void parts.push(escapeText(texOf(node)));
      case "wbr":
        return;
      case "rp":
        return;
      case "pre":
        return void parts.push(BREAK, codeSpan(textInside(node)), BREAK);
      default:
        if (isBlock) parts.push(BREAK);
        all(parts);
        if (isBlock) parts.push(BREAK);
    }
  }

  /** Escapes a text in slices, since one text may be the whole page. */
  #text(text: string, parts: string[]): void {
    for (let at = 0; at < text.length; at += SLICE_LENGTH) {
      this.#options.budget.step(4 + (Math.min(SLICE_LENGTH, text.length - at) >> 2));
      parts.push(escapeText(text.slice(at, at + SLICE_LENGTH)));
    }
  }

  #marked(mark: InlineMark, sign: string, write: (into: string[]) => void, parts: string[]): void {
    if (this.#marks.has(mark)) return write(parts);
    this.#marks.add(mark);
    const inside: string[] = [];
    write(inside);
    this.#marks.delete(mark);
    const text = inside.join("");
    this.#options.budget.step(text.length >> 3);
    parts.push(marked(sign, text));
  }

  #superscript({ children }: HtmlElement, parts: string[]): void {
    const inside: string[] = [];
    for (const child of children) this.#part(child, inside);
    const text = inside.join("");
    parts.push(/^[\w+-]{1,8}$/.test(text) ? `^${text}` : text);
  }

  #link(element: HtmlElement, write: (into: string[]) => void, parts: string[]): void {
    const href = htmlAttribute(element, "href");
    const url = href === undefined ? undefined : this.#absolute(href);
    if (url === undefined || this.#marks.has("link")) return write(parts);
    this.#marks.add("link");
    const inside: string[] = [];
    write(inside);
    this.#marks.delete("link");
    const text = inside.join("");
    this.#options.budget.step(40 + (text.length >> 3));
    const shown = text.replaceAll(BREAK, " ").trim();
    // A sign beside a heading that links to the heading
    if (shown === "" || (/^(?:[¶#§🔗⚓∞]|\\#)$/u.test(shown) && href?.includes("#"))) return void parts.push(" ");
    const lead = /^\s/.test(text) ? " " : "";
    const trail = /\s$/.test(text) ? " " : "";
    parts.push(lead, shown === url ? `<${url}>` : `[${shown}](${url})`, trail);
  }

  #image(element: HtmlElement): string {
    const alt = escapeText(htmlAttribute(element, "alt") ?? htmlAttribute(element, "title") ?? "").replace(/\s+/g, " ")
      .trim();
    const source = htmlAttribute(element, "data-src") ?? htmlAttribute(element, "src") ?? "";
    const url = this.#absolute(source);
    if (url === undefined) return alt;
    const isDot = ["width", "height"].some((name) => /^[012](?:px)?$/.test(htmlAttribute(element, name) ?? ""));
    if (alt === "" && (isDot || this.#marks.has("link"))) return "";
    return `![${alt.slice(0, 500)}](${url})`;
  }

  /** Returns an address as Markdown has it between parentheses. undefined: not one to show. */
  #absolute(written: string): string | undefined {
    this.#options.budget.step(20);
    if (written.length > MAX_URL) return undefined;
    const url = URL.parse(written, this.#options.baseUrl);
    if (url === null || !/^(?:https?|mailto):$/.test(url.protocol) || url.href.length > MAX_URL) return undefined;
    return url.href.replaceAll("(", "%28").replaceAll(")", "%29");
  }

  #findBlocks(element: HtmlElement): boolean {
    this.#options.budget.step(4);
    let has = BLOCK_TAGS.has(element.tag);
    for (const child of element.children) if (isElement(child) && this.#findBlocks(child)) has = true;
    if (has) this.#blocks.add(element);
    return has;
  }
}

const BLOCK_TAGS = new Set(
  ("address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption figure footer form " +
    "h1 h2 h3 h4 h5 h6 header hgroup hr legend li main menu nav ol p pre section summary table tbody td tfoot th thead tr ul")
    .split(" "),
);

/** Marks a text, with the white space around it outside of the marks. */
function marked(sign: string, text: string): string {
  const inside = text.replaceAll(BREAK, " ").trim();
  if (inside === "") return text === "" ? "" : " ";
  return `${/^[\s\0]/.test(text) ? " " : ""}${sign}${inside}${sign}${/[\s\0]$/.test(text) ? " " : ""}`;
}

/** Returns the TeX source of a formula, which pages keep beside it, or else its text. */
function texOf(element: HtmlElement): string {
  const source = elementsIn(element).find((inside) => htmlAttribute(inside, "encoding") === "application/x-tex");
  const tex = source === undefined ? htmlAttribute(element, "alttext") : textInside(source);
  return tex === undefined ? textInside(element) : `$${tex.trim()}$`;
}
