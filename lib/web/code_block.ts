import type { WorkBudget } from "../documents/work_budget.ts";
import { htmlAttribute, type HtmlElement, type HtmlNode, isElement } from "./parse_html.ts";

/** Classes of columns with line numbers beside code. */
const LINE_NUMBERS = /(?:^|\s)(?:linenos?|lineno|line-?numbers?|gutter|rouge-gutter|blob-num)(?:\s|$)/;
/** Classes that name a language, by the highlighters in use. */
const LANGUAGE = /^(?:language|lang|highlight-source|highlight|sourceCode|src)-([a-z][\w+#.-]{0,30})$/i;
const NO_LANGUAGE = new Set("default none text plain plaintext notranslate output".split(" "));
/** Elements above a block of code whose class may name its language. */
const LEVELS_ABOVE = 2;
const MAX_CLASS_LENGTH = 500;

/** Tells whether an element is a block of code. Doxygen writes one as `div` of lines. */
export function isCodeBlock(element: HtmlElement): boolean {
  if (element.tag === "pre" || element.tag === "listing" || element.tag === "xmp") return true;
  return element.tag === "div" && htmlAttribute(element, "class") === "fragment";
}

/** Tells whether a block of code is a column of line numbers. */
export function hasLineNumbers({ parent }: HtmlElement): boolean {
  for (let cell = parent; cell !== undefined; cell = cell.parent) {
    if (cell.tag === "td") return LINE_NUMBERS.test(classOf(cell));
  }
  return false;
}

/** Returns the code of a block, without line numbers. */
export function codeOf(block: HtmlElement, budget: WorkBudget): string {
  const parts: string[] = [];
  const visit = (node: HtmlNode) => {
    budget.step(4);
    if (!isElement(node)) return void parts.push(node.text);
    if (node.tag === "br") return void parts.push("\n");
    if (LINE_NUMBERS.test(classOf(node)) || node.tag === "script" || node.tag === "style") return;
    for (const child of node.children) visit(child);
    if (node.tag === "div" || node.tag === "p") parts.push("\n");
  };
  visit(block);
  const code = parts.join("").replaceAll("\0", "").replaceAll("\r\n", "\n").replaceAll("\u00a0", " ");
  budget.step(code.length >> 3);
  return code.replace(/^(?:[ \t]*\n)+/, "").trimEnd();
}

/** Returns the language that the classes of a block of code, or of the elements around it, name. Empty when none does. */
export function languageOf(block: HtmlElement): string {
  const only = block.children.find(isElement);
  const places: (HtmlElement | undefined)[] = [only?.tag === "code" ? only : undefined, block];
  for (let above = block.parent, i = 0; above !== undefined && i < LEVELS_ABOVE; above = above.parent, i++) {
    places.push(above);
  }
  for (const place of places) {
    const found = place === undefined ? undefined : namedIn(classOf(place), place === only || place === block);
    if (found !== undefined) return found;
  }
  return "";
}

function namedIn(names: string, isCode: boolean): string | undefined {
  const words = names.split(/\s+/);
  for (const [at, word] of words.entries()) {
    const language = LANGUAGE.exec(word)?.[1] ??
      (isCode && /^(?:brush:|sourceCode|src|highlight)$/.test(word)
        ? /^[a-z][\w+#]{0,30}$/i.exec(words[at + 1] ?? "")?.[0]
        : undefined);
    if (language !== undefined && !NO_LANGUAGE.has(language.toLowerCase())) return language.toLowerCase();
  }
  return isCode && words[0] === "rust" ? "rust" : undefined;
}

function classOf(element: HtmlElement): string {
  return (htmlAttribute(element, "class") ?? "").slice(0, MAX_CLASS_LENGTH);
}
