import { childOf, elementsOf, type XmlElement } from "../parse_xml.ts";
import { toInteger, valueOf } from "./value_of.ts";

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
      const goesOn = merge !== undefined && valueOf(properties, "w:vMerge") !== "restart";
      const columns = Math.min(Math.max(toInteger(valueOf(properties, "w:gridSpan")) ?? 1, 1), MAX_COLUMNS);
      return [goesOn ? "" : cellText(textOf(cell)), ...Array<string>(columns - 1).fill("")];
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
