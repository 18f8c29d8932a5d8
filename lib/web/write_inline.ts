import type { WorkBudget } from "../documents/work_budget.ts";
import { codeOf } from "./code_block.ts";
import { codeSpan, escapeText } from "./markdown_syntax.ts";
import { elementsIn, htmlAttribute, type HtmlElement, type HtmlNode, isElement, textInside } from "./parse_html.ts";

/** Options of an inline writer. */
export interface InlineWriterOptions {
  /** Address that links and images are relative to */
  readonly baseUrl: string;
  readonly budget: WorkBudget;
  /** Elements that are left out */
  readonly dropped: ReadonlySet<HtmlElement>;
  /** Elements that are or hold a block */
  readonly blocks: ReadonlySet<HtmlElement>;
}

type InlineMark = "strong" | "emphasis" | "strike" | "link";

/** Stands for a line break until a paragraph is written. A page cannot have this character. */
export const BREAK = "\0";
/** Stands for a space of code until white space is collapsed. */
const SPACE = "\x01";
/** UTF-16 units of an address. A longer one is left out, since it says nothing to a reader. */
const MAX_URL = 2000;
/** UTF-16 units of a text between two looks at the clock. */
const SLICE_LENGTH = 8192;

/** Writes text, emphasis, code, links and images as the inside of a paragraph of Markdown. */
export class InlineWriter {
  readonly #options: InlineWriterOptions;
  readonly #dropped: ReadonlySet<HtmlElement>;
  readonly #blocks: ReadonlySet<HtmlElement>;
  readonly #marks = new Set<InlineMark>();

  constructor(options: InlineWriterOptions) {
    this.#options = options;
    this.#dropped = options.dropped;
    this.#blocks = options.blocks;
  }

  /** Returns inline nodes as one line. */
  line(nodes: readonly HtmlNode[]): string {
    return this.text(nodes).replace(/(?<![\0 ])[\0 ]*\0[\0 ]*/g, " ");
  }

  /** Returns inline nodes as text, white space collapsed, with `BREAK` for each line break. */
  text(nodes: readonly HtmlNode[]): string {
    const parts: string[] = [];
    for (const node of nodes) this.#part(node, parts);
    const text = parts.join("");
    this.#options.budget.step(text.length >> 3);
    return text.replace(/[ \t\n\r\f\u00a0]+/g, " ").replace(/^[\0 ]+/, "").replace(/ $/, "").replaceAll(SPACE, " ");
  }

  #part(node: HtmlNode, parts: string[]): void {
    this.#options.budget.step(4);
    if (!isElement(node)) return this.#escape(node.text, parts);
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
        return void parts.push(BREAK, this.#code(node), BREAK);
      default:
        if (isBlock) parts.push(BREAK);
        all(parts);
        if (isBlock) parts.push(BREAK);
    }
  }

  /** Returns a block of code in the middle of a line: a span for each of its lines, indented as they are. */
  #code(block: HtmlElement): string {
    const lines = codeOf(block, this.#options.budget).split("\n");
    return lines.map((line) => codeSpan(line.trimEnd().replace(/\s/g, SPACE))).filter((line) => line !== "").join(
      BREAK,
    );
  }

  /** Escapes a text in slices, since one text may be the whole page. */
  #escape(text: string, parts: string[]): void {
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
}

/** Marks a text, with the white space around it outside of the marks. */
export function marked(sign: string, text: string): string {
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
