import { childOf, elementsOf, type XmlElement } from "../parse_xml.ts";
import { createTextOutput, type WorkBudget } from "../work_budget.ts";
import { createInlineText } from "./inline_text.ts";
import { createNotes } from "./notes.ts";
import { openDocx, toInteger, valueOf } from "./open_docx.ts";
import { outlineOf, readNumbering, readStyles } from "./styles.ts";

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
  const docx = openDocx(bytes, budget);
  const styleOf = readStyles(docx.part("styles"));
  const numbering = readNumbering(docx.part("numbering"));
  const notes = createNotes((kind) => docx.part(kind));
  const output = createTextOutput();
  let paragraphs = 0;
  let tables = 0;
  let hiddenText = false;

  const paragraph = (element: XmlElement): Block[] => {
    const properties = childOf(element, "w:pPr");
    const style = styleOf(valueOf(properties, "w:pStyle"));
    const numbers = properties === undefined ? undefined : childOf(properties, "w:numPr");
    const level = toInteger(valueOf(numbers, "w:ilvl")) ?? style.numberingLevel ?? 0;
    const label = numbering.next(valueOf(numbers, "w:numId") ?? style.numberingId ?? "0", level);
    const inline = createInlineText({ docx, notes, styleOf, hidden: style.hidden });
    inline.add(element);
    hiddenText ||= inline.hiddenText;
    const boxes = inline.boxes.flatMap((box) => blocksOf(box));
    const text = inline.text().trim();
    if (text === "") return boxes;
    paragraphs++;
    const heading = outlineOf(properties) ?? style.heading;
    if (heading !== undefined) {
      const number = label === undefined || label === "-" || label === "" ? "" : `${label} `;
      const line = `${"#".repeat(Math.min(heading, MAX_HEADING))} ${number}${joinLines(text, " ")}`;
      return [{ text: line, listItem: false }, ...boxes];
    }
    if (label === undefined) return [{ text, listItem: false }, ...boxes];
    const indent = "  ".repeat(Math.min(level, 8));
    const item = `${indent}${label === "" ? "-" : label} ${text.replaceAll("\n", `\n${indent}  `)}`;
    return [{ text: item, listItem: true }, ...boxes];
  };

  const blocksOf = (parent: XmlElement): Block[] => elementsOf(parent).flatMap(blockOf);

  const blockOf = (element: XmlElement): Block[] => {
    budget.step(20);
    switch (element.name) {
      case "w:p":
        return paragraph(element);
      case "w:tbl":
        tables++;
        return [{
          text: renderTable(element, (cell) => {
            const text = blocksOf(cell).map((block) => block.text).join("\n");
            budget.step(text.length);
            return text;
          }),
          listItem: false,
        }];
      case "w:del":
      case "w:moveFrom":
      case "mc:Fallback":
        return [];
      default:
        return blocksOf(element);
    }
  };

  let last: Block | undefined;
  const add = (block: Block) => {
    const between = last === undefined ? "" : last.listItem && block.listItem ? "\n" : "\n\n";
    last = block;
    return output.add(between + block.text);
  };
  for (const element of elementsOf(docx.body)) {
    if (!blockOf(element).every(add)) break;
  }
  // A note may name another one
  for (let note = notes.take(); note !== undefined && !output.full; note = notes.take()) {
    const text = blocksOf(note.element).map((block) => block.text).join("\n");
    add({ text: `[^${note.label}]: ${note.author === undefined ? "" : `${note.author}: `}${text}`, listItem: true });
  }
  return {
    text: output.text(),
    ...docx.properties,
    paragraphs,
    tables,
    notes: notes.count,
    hiddenText,
    truncated: output.full,
  };
}

/** As many as Word has */
const MAX_COLUMNS = 63;
/** UTF-16 units */
const MAX_TABLE_TEXT = 1_000_000;

/** A table as Markdown; its first row is the head. @param textOf the text of a cell, which may have lines and tables of its own */
export function renderTable(table: XmlElement, textOf: (cell: XmlElement) => string): string {
  let length = 0;
  const rows = childrenNamed(table, "w:tr").map((row) => {
    // More would be cut anyway
    if (length > MAX_TABLE_TEXT) return [];
    const cells = childrenNamed(row, "w:tc").slice(0, MAX_COLUMNS).flatMap((cell) => {
      const properties = childOf(cell, "w:tcPr");
      const merge = properties === undefined ? undefined : childOf(properties, "w:vMerge");
      const continuesMerge = merge !== undefined && valueOf(properties, "w:vMerge") !== "restart";
      const columns = Math.min(Math.max(toInteger(valueOf(properties, "w:gridSpan")) ?? 1, 1), MAX_COLUMNS);
      return [continuesMerge ? "" : cellText(textOf(cell)), ...Array<string>(columns - 1).fill("")];
    });
    const shown = cells.slice(0, MAX_COLUMNS);
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

/** The lines of a text as one. */
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
