import { element } from "./dom.js";
import { toBlocks } from "./markdown_blocks.js";

/** @typedef {import("./markdown_blocks.js").Block} Block */

/**
 * Pattern of what stands within a line: code, an escaped character, bold, struck, italic, a link, an address. Each looks at most 1,000
 * characters ahead, so that marks without an end cost no more.
 */
const INLINE = new RegExp(
  [
    /(?<!`)(?<tick>`+)(?!`)(?<code>[\s\S]{1,1000}?)(?<!`)\k<tick>(?!`)/,
    /\\(?<plain>[!-/:-@[-`{-~])/,
    /\*\*(?=\S)(?<bold>[\s\S]{0,1000}?\S)\*\*/,
    /(?<!\w)__(?=\S)(?<bold2>[\s\S]{0,1000}?\S)__(?!\w)/,
    /~~(?=\S)(?<struck>[\s\S]{0,1000}?\S)~~/,
    /(?<![\w*])\*(?=[^\s*])(?<italic>[^*]{0,1000}?[^\s*])\*(?![\w*])/,
    /(?<!\w)_(?=[^\s_])(?<italic2>[^_]{0,1000}?[^\s_])_(?!\w)/,
    /\[(?<label>[^\]\n]{1,1000})\]\((?<href>https?:\/\/[^\s)]{1,2000})\)/,
    /(?<!\w)(?<address>https?:\/\/[^\s<>"`]{0,2000}[^\s<>"`.,;:!?'")\]*_~])/,
  ].map(({ source }) => source).join("|"),
  "g",
);
/** Characters that stand in no name of a host */
const NO_HOST = /[^\p{L}\p{N}.-]+/u;
/** Marks within marks */
const MAX_DEPTH = 4;
/** Marks of one text: an element takes no more parts than a call may have arguments */
const MAX_MARKS = 20_000;
const COPIED_MS = 2000;

/**
 * A place that shows the Markdown of a growing reply. Blocks that did not change keep their nodes, so that a selection
 * survives. Known: paragraphs, headings, lists within lists, quotes, tables, code, rules; bold, italic, struck, links to http(s).
 * Everything else, HTML above all, is shown as it is written.
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
 * @param {Block} block
 * @returns {HTMLElement}
 */
function toNode(block) {
  switch (block.kind) {
    case "code":
      return toCode(block);
    case "heading":
      // Under the headings of the page itself
      return element(
        /** @type {"h3"} */ (`h${Math.min(6, block.level + 2)}`),
        { class: "prose-heading", "data-level": block.level },
        ...toInline(block.text),
      );
    case "list":
      return element(
        block.ordered ? "ol" : "ul",
        block.ordered ? { start: block.start } : {},
        ...block.items.map((item) => element("li", {}, ...toItem(item))),
      );
    case "quote":
      return element("blockquote", {}, ...block.blocks.map(toNode));
    case "table":
      return toTable(block);
    case "rule":
      return element("hr");
    case "paragraph":
      return element("p", {}, ...toInline(block.text));
  }
}

/** @param {Block[]} blocks of an item: one that is text alone needs no paragraph */
function toItem(blocks) {
  const [first, ...rest] = blocks;
  if (first?.kind !== "paragraph") return blocks.map(toNode);
  return [element("span", {}, ...toInline(first.text)), ...rest.map(toNode)];
}

/** @param {{ text: string, language: string }} block */
function toCode({ text, language }) {
  const copy = element("button", { type: "button", class: "quiet copy" }, "Copy");
  const code = element("code", {}, text);
  copy.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      copy.textContent = "Copied";
    } catch {
      // Without the clipboard, as over plain HTTP from another machine, the person copies what is selected
      getSelection()?.selectAllChildren(code);
      copy.textContent = "Selected";
    }
    setTimeout(() => (copy.textContent = "Copy"), COPIED_MS);
  });
  return element(
    "div",
    { class: "code-block" },
    element("div", { class: "code-head" }, element("span", {}, language === "" ? "Code" : language), copy),
    element("pre", { tabIndex: 0 }, code),
  );
}

/** @param {{ align: string[], rows: string[][] }} block */
function toTable({ align, rows: [head = [], ...rows] }) {
  /** @param {"th" | "td"} tag @param {string[]} cells */
  const row = (tag, cells) =>
    element(
      "tr",
      {},
      ...cells.map((cell, column) =>
        element(
          tag,
          { "data-align": align[column] ?? "", ...(tag === "th" ? { scope: "col" } : {}) },
          ...toInline(cell),
        )
      ),
    );
  return element(
    "div",
    { class: "prose-table", tabIndex: 0, role: "region", "aria-label": "Table" },
    element(
      "table",
      {},
      element("thead", {}, row("th", head)),
      element("tbody", {}, ...rows.map((cells) => row("td", cells))),
    ),
  );
}

/**
 * @param {string} text
 * @param {number} [depth]
 * @returns {(Node | string)[]}
 */
function toInline(text, depth = 0) {
  /** @type {(Node | string)[]} */
  const nodes = [];
  let from = 0;
  for (const match of text.matchAll(INLINE)) {
    if (nodes.length >= MAX_MARKS) break;
    nodes.push(text.slice(from, match.index), toMark(match.groups ?? {}, depth));
    from = match.index + match[0].length;
  }
  nodes.push(text.slice(from));
  return nodes;
}

/**
 * @param {Record<string, string | undefined>} found
 * @param {number} depth
 * @returns {Node | string}
 */
function toMark({ code, plain, bold, bold2, struck, italic, italic2, label, href, address }, depth) {
  /** @param {string} inner */
  const within = (inner) => depth < MAX_DEPTH ? toInline(inner, depth + 1) : [inner];
  if (code !== undefined) return element("code", {}, code);
  if (plain !== undefined) return plain;
  const strong = bold ?? bold2;
  if (strong !== undefined) return element("strong", {}, ...within(strong));
  if (struck !== undefined) return element("del", {}, ...within(struck));
  const slanted = italic ?? italic2;
  if (slanted !== undefined) return element("em", {}, ...within(slanted));
  const url = href ?? address ?? "";
  return element(
    "a",
    { href: url, target: "_blank", rel: "noopener noreferrer" },
    ...label === undefined ? [url] : within(label),
    ...label === undefined ? [] : otherHost(label, url),
  );
}

/**
 * Where the text of a link names a host that the link does not lead to, its own host is shown too.
 * @param {string} label
 * @param {string} url
 * @returns {string[]}
 */
function otherHost(label, url) {
  const host = URL.parse(url)?.hostname ?? url;
  // A name is told by the dot within it
  const named = label.split(NO_HOST).map((word) => word.replace(/\.$/, "")).filter((word) => word.includes("."));
  return named.every((name) => URL.parse(`https://${name}`)?.hostname === host) ? [] : [` (${host})`];
}
