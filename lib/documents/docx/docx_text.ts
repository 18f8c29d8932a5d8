import { childOf, elementsOf, type XmlElement } from "../parse_xml.ts";
import { TextOutput, type WorkBudget } from "../work_budget.ts";
import { InlineText, type OpenLink } from "./inline_text.ts";
import { anchorOf, linkTargets } from "./links.ts";
import { createNotes, type NoteKind, type Notes } from "./notes.ts";
import { type Docx, openDocx, type Relationship, toInteger, valueOf } from "./open_docx.ts";
import { type Numbering, outlineOf, type ParagraphStyle, readNumbering, readStyles } from "./styles.ts";

/** Markdown knows six levels */
const MAX_HEADING = 6;

/** The text of a Word document. */
export interface DocxText {
  /** Markdown: headings, lists with the labels Word shows, tables, links, notes and comments at the end */
  readonly text: string;
  readonly title: string | undefined;
  readonly author: string | undefined;
  readonly paragraphs: number;
  readonly tables: number;
  /** Footnotes, endnotes and comments */
  readonly notes: number;
  /** There is text the document does not show, which was left out */
  readonly hiddenText: boolean;
  /** The text is longer than what is returned */
  readonly truncated: boolean;
}

/** A paragraph or table, as Markdown. */
interface Block {
  readonly text: string;
  readonly listItem: boolean;
}

/**
 * Reads a Word document. What is deleted by a tracked change is left out, what is inserted is there; headers and footers are
 * left out.
 * @throws {DocumentError} damaged, no Word document, or over a bound
 * Source: ECMA-376 part 1, section 17
 */
export function docxText(bytes: Uint8Array, budget: WorkBudget): DocxText {
  return new DocxReader(openDocx(bytes, budget), budget).read();
}

/** Puts the blocks of one document together. */
class DocxReader {
  readonly #docx: Docx;
  readonly #budget: WorkBudget;
  readonly #styleOf: (id: string | undefined) => ParagraphStyle;
  readonly #numbering: Numbering;
  readonly #notes: Notes;
  readonly #linkTargets: ReadonlySet<string>;
  readonly #output = new TextOutput();
  /** Relationships of the parts that were read, and of the one that is read now */
  readonly #known = new Map<NoteKind, ReadonlyMap<string, Relationship>>();
  #relationships: ReadonlyMap<string, Relationship>;
  /** Links that the last paragraph left open */
  #openLinks: readonly OpenLink[] = [];
  /** Marks of bookmarks that stand between paragraphs */
  #anchors = "";
  #last: Block | undefined;
  #paragraphs = 0;
  #tables = 0;
  #hiddenText = false;

  constructor(docx: Docx, budget: WorkBudget) {
    this.#docx = docx;
    this.#budget = budget;
    this.#styleOf = readStyles(docx.part("styles"));
    this.#numbering = readNumbering(docx.part("numbering"));
    this.#notes = createNotes((kind) => docx.part(kind));
    this.#linkTargets = linkTargets(docx.body, budget);
    this.#relationships = docx.relationships;
  }

  read(): DocxText {
    for (const element of elementsOf(this.#docx.body)) {
      if (!this.#blocksFrom(element).every((block) => this.#add(block))) break;
    }
    // A note may name another one
    for (let note = this.#notes.take(); note !== undefined && !this.#output.full; note = this.#notes.take()) {
      this.#openLinks = [];
      this.#relationships = this.#relationshipsOf(note.kind);
      const text = this.#textIn(note.element);
      const author = note.author === undefined ? "" : `${note.author}: `;
      this.#add({ text: `[^${note.label}]: ${author}${text}`, listItem: true });
    }
    return {
      text: this.#output.text(),
      ...this.#docx.properties,
      paragraphs: this.#paragraphs,
      tables: this.#tables,
      notes: this.#notes.count,
      hiddenText: this.#hiddenText,
      truncated: this.#output.full,
    };
  }

  #relationshipsOf(kind: NoteKind): ReadonlyMap<string, Relationship> {
    const known = this.#known.get(kind) ?? this.#docx.relationshipsOf(kind);
    this.#known.set(kind, known);
    return known;
  }

  #add(block: Block): boolean {
    const between = this.#last === undefined ? "" : this.#last.listItem && block.listItem ? "\n" : "\n\n";
    this.#last = block;
    return this.#output.add(between + block.text);
  }

  #blocksIn(parent: XmlElement): Block[] {
    return elementsOf(parent).flatMap((element) => this.#blocksFrom(element));
  }

  #textIn(parent: XmlElement): string {
    return this.#blocksIn(parent).map((block) => block.text).join("\n");
  }

  #blocksFrom(element: XmlElement): Block[] {
    this.#budget.step(20);
    switch (element.name) {
      case "w:p":
        return this.#paragraph(element);
      case "w:tbl":
        this.#tables++;
        return [{ text: renderTable(element, (cell) => this.#cellText(cell)), listItem: false }];
      case "w:bookmarkStart":
        this.#anchors += anchorOf(element, this.#linkTargets);
        return [];
      case "w:del":
      case "w:moveFrom":
      case "mc:Fallback":
        return [];
      default:
        return this.#blocksIn(element);
    }
  }

  #cellText(cell: XmlElement): string {
    const text = this.#textIn(cell);
    this.#budget.step(text.length);
    return text;
  }

  /** Returns a paragraph as a heading, a list item or plain text, and the text boxes that are anchored in it. */
  #paragraph(element: XmlElement): Block[] {
    const properties = childOf(element, "w:pPr");
    const style = this.#styleOf(valueOf(properties, "w:pStyle"));
    const numbers = properties === undefined ? undefined : childOf(properties, "w:numPr");
    const level = toInteger(valueOf(numbers, "w:ilvl")) ?? style.numberingLevel ?? 0;
    const label = this.#numbering.next(valueOf(numbers, "w:numId") ?? style.numberingId ?? "0", level);
    const inline = new InlineText({
      relationships: this.#relationships,
      notes: this.#notes,
      styleOf: this.#styleOf,
      hidden: style.hidden,
      linkTargets: this.#linkTargets,
      openLinks: this.#openLinks,
    });
    inline.add(element);
    this.#hiddenText ||= inline.hiddenText;
    const shown = inline.text().trim();
    const anchors = shown === "" ? "" : this.#anchors;
    if (shown !== "") this.#anchors = "";
    const text = anchors + shown;
    this.#openLinks = [];
    const boxes = inline.boxes.flatMap((box) => this.#blocksIn(box));
    this.#openLinks = inline.openLinks;
    if (text === "") return boxes;
    this.#paragraphs++;
    const heading = outlineOf(properties) ?? style.heading;
    if (heading !== undefined) return [headingBlock(text, heading, label), ...boxes];
    if (label === undefined) return [{ text, listItem: false }, ...boxes];
    return [listItemBlock(text, level, label), ...boxes];
  }
}

function headingBlock(text: string, level: number, label: string | undefined): Block {
  const number = label === undefined || label === "-" || label === "" ? "" : `${label} `;
  const line = `${"#".repeat(Math.min(level, MAX_HEADING))} ${number}${joinLines(text, " ")}`;
  return { text: line, listItem: false };
}

function listItemBlock(text: string, level: number, label: string): Block {
  const indent = "  ".repeat(Math.min(level, 8));
  const item = `${indent}${label === "" ? "-" : label} ${text.replaceAll("\n", `\n${indent}  `)}`;
  return { text: item, listItem: true };
}

/** As many as Word has */
const MAX_COLUMNS = 63;
/** UTF-16 units */
const MAX_TABLE_TEXT = 1_000_000;

/** Writes a table as Markdown. Its first row is the head. @param textOf the text of a cell, which may have lines and tables of its own */
export function renderTable(table: XmlElement, textOf: (cell: XmlElement) => string): string {
  let length = 0;
  const rows = childrenNamed(table, "w:tr").map((row) => {
    // More would be cut anyway
    if (length > MAX_TABLE_TEXT) return [];
    const before = toInteger(valueOf(childOf(row, "w:trPr"), "w:gridBefore")) ?? 0;
    const skipped = Array<string>(Math.min(Math.max(before, 0), MAX_COLUMNS)).fill("");
    const cells = childrenNamed(row, "w:tc").slice(0, MAX_COLUMNS).flatMap((cell) => {
      const properties = childOf(cell, "w:tcPr");
      const merge = properties === undefined ? undefined : childOf(properties, "w:vMerge");
      const continuesMerge = merge !== undefined && valueOf(properties, "w:vMerge") !== "restart";
      const columns = Math.min(Math.max(toInteger(valueOf(properties, "w:gridSpan")) ?? 1, 1), MAX_COLUMNS);
      return [continuesMerge ? "" : cellText(textOf(cell)), ...Array<string>(columns - 1).fill("")];
    });
    const shown = cells.length === 0 ? [] : [...skipped, ...cells].slice(0, MAX_COLUMNS);
    length += shown.reduce((sum, text) => sum + text.length + 3, 0);
    return shown;
  }).filter((cells) => cells.length > 0);
  const columns = Math.max(0, ...rows.map((cells) => cells.length).slice(0, 1000));
  const lines = rows.map((cells) => {
    const filled = [...cells, ...Array<string>(Math.max(0, columns - cells.length)).fill("")];
    return `| ${filled.join(" | ")} |`;
  });
  lines.splice(1, 0, `|${" --- |".repeat(columns)}`);
  return rows.length === 0 ? "" : lines.join("\n");
}

/** Joins the lines of a text to one line. */
export function joinLines(text: string, separator: string): string {
  return text.split("\n").map((line) => line.trim()).filter((line) => line !== "").join(separator);
}

/** A table in a table has its bars escaped already. */
function cellText(text: string): string {
  return joinLines(text, "<br>").replace(/(?<!\\)\|/g, "\\|");
}

/** Rows and cells may stand inside wrappers, as those of content controls. */
function childrenNamed(parent: XmlElement, name: string): XmlElement[] {
  return elementsOf(parent).flatMap((child) =>
    child.name === name
      ? [child]
      : ["w:sdt", "w:sdtContent", "w:customXml", "w:ins"].includes(child.name)
      ? childrenNamed(child, name)
      : []
  );
}
