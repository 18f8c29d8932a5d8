import { childOf, elementsOf, type XmlElement } from "../parse_xml.ts";
import { createTextOutput } from "../text_output.ts";
import type { WorkBudget } from "../work_budget.ts";
import { createInlineText } from "./inline_text.ts";
import { createNotes } from "./notes.ts";
import { openDocx } from "./open_docx.ts";
import { readNumbering } from "./read_numbering.ts";
import { outlineOf, readStyles } from "./read_styles.ts";
import { joinLines, renderTable } from "./render_table.ts";
import { toInteger, valueOf } from "./value_of.ts";

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
