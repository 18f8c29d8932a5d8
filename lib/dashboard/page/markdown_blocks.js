/**
 * @typedef {{ kind: "code", text: string, language: string, source: string }
 *   | { kind: "heading", level: number, text: string, source: string }
 *   | { kind: "list", ordered: boolean, start: number, items: Block[][], source: string }
 *   | { kind: "quote", blocks: Block[], source: string }
 *   | { kind: "table", align: ("left" | "center" | "right" | "")[], rows: string[][], source: string }
 *   | { kind: "rule", source: string }
 *   | { kind: "paragraph", text: string, source: string }} Block
 */

const FENCE = /^ {0,3}(```+|~~~+)\s*([^\s`]*)/;
const ITEM = /^( {0,3})([-*+]|(\d{1,9})[.)])( +|$)(.*)$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?/;
const TABLE_LINE = /^ {0,3}\|?[ \t]*:?-+:?(?:[ \t]*\|[ \t]*:?-+:?)*[ \t]*\|?$/;
/** Lists and quotes in each other beyond this are shown as they are written */
const MAX_DEPTH = 8;
const MAX_COLUMNS = 64;
/** Lines that are read: an element takes no more parts than a call may have arguments */
const MAX_LINES = 20_000;

/**
 * Cuts Markdown into blocks, in their order. What is behind MAX_LINES is one block, shown as it is written. `source` of each is what it was made of: together they are the whole text.
 * @param {string} text
 * @returns {Block[]}
 */
export function toBlocks(text) {
  const lines = text.split("\n");
  const blocks = readBlocks(lines.slice(0, MAX_LINES), 0);
  if (lines.length <= MAX_LINES) return blocks;
  const rest = sourceOf(lines, MAX_LINES, lines.length);
  return [...blocks, { kind: "code", text: rest, language: "", source: rest }];
}

/**
 * @param {readonly string[]} lines
 * @param {number} depth
 */
function readBlocks(lines, depth) {
  /** @type {Block[]} */
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if ((lines[at] ?? "").trim() === "") {
      at++;
      continue;
    }
    const [block, next] = readBlock(lines, at, depth);
    blocks.push(block);
    at = next;
  }
  return blocks;
}

/**
 * @param {readonly string[]} lines
 * @param {number} start a line that is not empty
 * @param {number} depth
 * @returns {[Block, number]} the block and the line after it
 */
function readBlock(lines, start, depth) {
  const first = lines[start] ?? "";
  const [, fence, language = ""] = FENCE.exec(first) ?? [];
  if (fence !== undefined) return readFence(lines, start, { fence, language });
  if (first.startsWith("    ")) return readIndented(lines, start);
  const [, marks, heading = ""] = HEADING.exec(first) ?? [];
  if (marks !== undefined) {
    return [{ kind: "heading", level: marks.length, text: withoutMarks(heading), source: first }, start + 1];
  }
  if (RULE.test(first)) return [{ kind: "rule", source: first }, start + 1];
  if (isTable(lines, start)) return readTable(lines, start);
  if (depth < MAX_DEPTH && QUOTE.test(first)) return readQuote(lines, start, depth);
  if (depth < MAX_DEPTH && ITEM.test(first)) return readList(lines, start, depth);
  return readParagraph(lines, start, depth);
}

/**
 * @param {readonly string[]} lines
 * @param {number} start
 * @param {{ fence: string, language: string }} opening
 * @returns {[Block, number]}
 */
function readFence(lines, start, { fence, language }) {
  let end = start + 1;
  while (end < lines.length && !(lines[end] ?? "").trimStart().startsWith(fence)) end++;
  const text = lines.slice(start + 1, end).join("\n");
  return [{ kind: "code", text, language, source: sourceOf(lines, start, end + 1) }, end + 1];
}

/**
 * @param {readonly string[]} lines
 * @param {number} start
 * @returns {[Block, number]}
 */
function readIndented(lines, start) {
  let end = start + 1;
  while (end < lines.length && ((lines[end] ?? "").startsWith("    ") || isGapInCode(lines, end))) end++;
  const text = lines.slice(start, end).map((line) => line.slice(4)).join("\n").trimEnd();
  return [{ kind: "code", text, language: "", source: sourceOf(lines, start, end) }, end];
}

/**
 * @param {readonly string[]} lines
 * @param {number} at
 */
function isGapInCode(lines, at) {
  return (lines[at] ?? "").trim() === "" && (lines[at + 1] ?? "").startsWith("    ");
}

/**
 * @param {readonly string[]} lines
 * @param {number} start
 * @param {number} depth
 * @returns {[Block, number]}
 */
function readQuote(lines, start, depth) {
  let end = start;
  while (QUOTE.test(lines[end] ?? "")) end++;
  const inner = lines.slice(start, end).map((line) => line.replace(QUOTE, ""));
  return [{ kind: "quote", blocks: readBlocks(inner, depth + 1), source: sourceOf(lines, start, end) }, end];
}

/**
 * A list with what is indented under its items. An empty line ends it unless an item, or more of an item, follows.
 * @param {readonly string[]} lines
 * @param {number} start
 * @param {number} depth
 * @returns {[Block, number]}
 */
function readList(lines, start, depth) {
  /** @type {string[][]} */
  const items = [];
  const { ordered, number } = markOf(lines[start] ?? "");
  let indent = 0;
  let end = start;
  while (end < lines.length) {
    const line = lines[end] ?? "";
    const [next, at] = nextWritten(lines, end);
    if (line.trim() === "") {
      // Past a gap, the list goes on with an item of its kind or with what is indented under the last one
      const listContinues = next !== undefined &&
        (isIndented(next, indent) || (isItem(next) && markOf(next).ordered === ordered));
      if (!listContinues) break;
      items.at(-1)?.push(...lines.slice(end, at));
      end = at;
    } else if (items.length > 0 && isIndented(line, indent)) {
      items.at(-1)?.push(line.slice(indent));
      end++;
    } else if (isItem(line)) {
      const mark = markOf(line);
      if (mark.ordered !== ordered) break;
      indent = mark.indent;
      items.push([mark.text]);
      end++;
    } else if (isContinued(line, depth)) {
      items.at(-1)?.push(line.trim());
      end++;
    } else break;
  }
  const blocks = items.map((item) => readBlocks(item, depth + 1));
  return [{ kind: "list", ordered, start: number, items: blocks, source: sourceOf(lines, start, end) }, end];
}

/**
 * @param {readonly string[]} lines
 * @param {number} from
 * @returns {[string | undefined, number]} the first line from here on that is not empty, and its place
 */
function nextWritten(lines, from) {
  let at = from;
  while (at < lines.length && (lines[at] ?? "").trim() === "") at++;
  return [lines[at], at];
}

/** @param {string} line */
function isItem(line) {
  return ITEM.test(line) && !RULE.test(line);
}

/**
 * @param {string} line
 * @param {number} indent
 */
function isIndented(line, indent) {
  return line.length > indent && line.slice(0, indent).trim() === "";
}

/** @param {string} line an item */
function markOf(line) {
  const [, before = "", mark = "", number, gap = "", text = ""] = ITEM.exec(line) ?? [];
  // More than four spaces after the mark belong to code in the item
  const wide = gap.length > 4;
  return {
    ordered: number !== undefined,
    number: Number(number ?? 1),
    indent: before.length + mark.length + (wide || gap === "" ? 1 : gap.length),
    text: wide ? gap.slice(1) + text : text,
  };
}

/**
 * Returns a heading without the marks that close it.
 * @param {string} heading
 */
function withoutMarks(heading) {
  let end = heading.trimEnd().length;
  while (heading[end - 1] === "#") end--;
  return heading.slice(0, end).trimEnd();
}

/**
 * @param {readonly string[]} lines
 * @param {number} start
 */
function isTable(lines, start) {
  const head = lines[start] ?? "";
  const line = lines[start + 1] ?? "";
  if (!head.includes("|") || !TABLE_LINE.test(line.trimEnd())) return false;
  const columns = cellsOf(line).length;
  return columns === cellsOf(head).length && columns <= MAX_COLUMNS;
}

/**
 * @param {readonly string[]} lines
 * @param {number} start
 * @returns {[Block, number]}
 */
function readTable(lines, start) {
  let end = start + 2;
  while (end < lines.length && (lines[end] ?? "").trim() !== "" && (lines[end] ?? "").includes("|")) end++;
  const align = cellsOf(lines[start + 1] ?? "").map(alignOf);
  const rows = [lines[start] ?? "", ...lines.slice(start + 2, end)].map((line) => {
    const cells = cellsOf(line);
    return align.map((_, column) => cells[column] ?? "");
  });
  return [{ kind: "table", align, rows, source: sourceOf(lines, start, end) }, end];
}

/** @param {string} line */
function cellsOf(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/(?<!\\)\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

/**
 * @param {string} cell of the line under the head
 * @returns {"left" | "center" | "right" | ""}
 */
function alignOf(cell) {
  if (cell.endsWith(":")) return cell.startsWith(":") ? "center" : "right";
  return cell.startsWith(":") ? "left" : "";
}

/**
 * @param {readonly string[]} lines
 * @param {number} start
 * @param {number} depth
 * @returns {[Block, number]}
 */
function readParagraph(lines, start, depth) {
  let end = start + 1;
  while (end < lines.length && isContinued(lines[end] ?? "", depth) && !isTable(lines, end)) end++;
  const text = sourceOf(lines, start, end);
  return [{ kind: "paragraph", text, source: text }, end];
}

/**
 * @param {string} line
 * @param {number} depth
 */
function isContinued(line, depth) {
  if (line.trim() === "" || FENCE.test(line) || HEADING.test(line) || RULE.test(line)) return false;
  return depth >= MAX_DEPTH || !(ITEM.test(line) || QUOTE.test(line));
}

/**
 * @param {readonly string[]} lines
 * @param {number} start
 * @param {number} end
 */
function sourceOf(lines, start, end) {
  return lines.slice(start, end).join("\n");
}
