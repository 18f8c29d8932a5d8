import { element } from "./dom.js";

/**
 * @typedef {{ kind: "code", text: string, source: string }
 *   | { kind: "heading", text: string, source: string }
 *   | { kind: "list", ordered: boolean, items: string[], source: string }
 *   | { kind: "paragraph", text: string, source: string }} Block
 */

const FENCE = /^ {0,3}(```+|~~~+)/;
const ITEM = /^ {0,3}(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;
const HEADING = /^#{1,6}\s+(.*?)\s*#*$/;
const INLINE = /(`+)([\s\S]+?)\1|\*\*([\s\S]+?)\*\*|\[([^\]\n]+)\]\((https?:\/\/[^\s)]+)\)/g;

/**
 * A place that shows the Markdown of a growing reply. Blocks that did not change keep their nodes, so that a selection
 * survives. Known: paragraphs, headings, lists, code, bold, links to http(s). Everything else is shown as it is written.
 */
export function createMarkdown() {
  const root = element("div", { class: "prose" });
  /** @type {Block[]} */
  let shown = [];
  return {
    root,
    /** @param {string} text the whole text so far */
    show(text) {
      const blocks = toBlocks(text);
      let same = 0;
      while (same < blocks.length && shown[same]?.source === blocks[same]?.source) same++;
      while (root.childNodes.length > same) root.lastChild?.remove();
      root.append(...blocks.slice(same).map(toNode));
      shown = blocks;
    },
  };
}

/**
 * @param {string} text
 * @returns {Block[]}
 */
export function toBlocks(text) {
  const lines = text.split("\n");
  /** @type {Block[]} */
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if ((lines[at] ?? "").trim() === "") {
      at++;
      continue;
    }
    const [block, next] = readBlock(lines, at);
    blocks.push(block);
    at = next;
  }
  return blocks;
}

/**
 * @param {readonly string[]} lines
 * @param {number} start a line that is not empty
 * @returns {[Block, number]} the block and the line after it
 */
function readBlock(lines, start) {
  const first = lines[start] ?? "";
  const source = (/** @type {number} */ end) => lines.slice(start, end).join("\n");
  const fence = FENCE.exec(first)?.[1];
  if (fence !== undefined) {
    let end = start + 1;
    while (end < lines.length && !(lines[end] ?? "").trimStart().startsWith(fence)) end++;
    return [{ kind: "code", text: lines.slice(start + 1, end).join("\n"), source: source(end + 1) }, end + 1];
  }
  if (first.startsWith("    ")) {
    let end = start + 1;
    while (end < lines.length && ((lines[end] ?? "").startsWith("    ") || isGapInCode(lines, end))) end++;
    const text = lines.slice(start, end).map((line) => line.slice(4)).join("\n").trimEnd();
    return [{ kind: "code", text, source: source(end) }, end];
  }
  const heading = HEADING.exec(first);
  if (heading !== null) return [{ kind: "heading", text: heading[1] ?? "", source: first }, start + 1];
  return ITEM.test(first) ? readList(lines, start) : readParagraph(lines, start);
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
 * @returns {[Block, number]}
 */
function readList(lines, start) {
  /** @type {string[]} */
  const items = [];
  let end = start;
  for (; end < lines.length && (lines[end] ?? "").trim() !== ""; end++) {
    const item = ITEM.exec(lines[end] ?? "");
    if (item !== null) items.push(item[2] ?? "");
    else if (/^\s/.test(lines[end] ?? "")) items.push(`${items.pop() ?? ""}\n${(lines[end] ?? "").trim()}`);
    else break;
  }
  const ordered = ITEM.exec(lines[start] ?? "")?.[1] !== undefined;
  return [{ kind: "list", ordered, items, source: lines.slice(start, end).join("\n") }, end];
}

/**
 * @param {readonly string[]} lines
 * @param {number} start
 * @returns {[Block, number]}
 */
function readParagraph(lines, start) {
  let end = start + 1;
  while (end < lines.length && isContinued(lines[end] ?? "")) end++;
  const text = lines.slice(start, end).join("\n");
  return [{ kind: "paragraph", text, source: text }, end];
}

/** @param {string} line */
function isContinued(line) {
  return line.trim() !== "" && !FENCE.test(line) && !HEADING.test(line) && !ITEM.test(line);
}

/**
 * @param {Block} block
 * @returns {HTMLElement}
 */
function toNode(block) {
  switch (block.kind) {
    case "code":
      return element("pre", { tabIndex: 0 }, element("code", {}, block.text));
    case "heading":
      return element("p", { class: "prose-heading" }, ...toInline(block.text));
    case "list":
      return element(
        block.ordered ? "ol" : "ul",
        {},
        ...block.items.map((item) => element("li", {}, ...toInline(item))),
      );
    case "paragraph":
      return element("p", {}, ...toInline(block.text));
  }
}

/**
 * @param {string} text
 * @returns {(Node | string)[]}
 */
function toInline(text) {
  /** @type {(Node | string)[]} */
  const nodes = [];
  let from = 0;
  for (const match of text.matchAll(INLINE)) {
    const [whole, , code, bold, label, href] = match;
    nodes.push(text.slice(from, match.index));
    if (code !== undefined) nodes.push(element("code", {}, code));
    else if (bold !== undefined) nodes.push(element("strong", {}, bold));
    else nodes.push(element("a", { href, target: "_blank", rel: "noopener noreferrer" }, label ?? ""));
    from = match.index + whole.length;
  }
  nodes.push(text.slice(from));
  return nodes;
}
