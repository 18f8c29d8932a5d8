import { elementsOf, textIn, type XmlElement } from "../parse_xml.ts";
import type { WorkBudget } from "../work_budget.ts";
import { wordAttribute } from "./open_docx.ts";

/** Characters of an address or of a field's instruction that are read. */
export const MAX_ADDRESS = 2000;
const MAX_TARGETS = 100_000;

/**
 * Returns the address of a link: a page, a bookmark of the document as `#name`, or a place in a page. "" without either, and for a page
 * whose scheme is not http, https or mailto, as in `javascript:`.
 */
export function joinAddress(page: string, bookmark: string | undefined): string {
  if (
    !/^(?:https?|mailto):$/.test(
      URL.parse(page.slice(0, MAX_ADDRESS), "https://relative.invalid")?.protocol ?? "https:",
    )
  ) {
    return "";
  }
  const place = bookmark === undefined || bookmark === "" || page.includes("#") ? "" : `#${bookmark}`;
  return `${page}${place}`.slice(0, MAX_ADDRESS);
}

/**
 * Returns the address that the instruction of a field links to; "" for a field that is no link.
 * Source: ECMA-376 part 1, sections 17.16.1 and 17.16.5.25: `HYPERLINK "page" \\l "bookmark" \\o "tip"`
 */
export function fieldAddress(instruction: string): string {
  const words = wordsOf(instruction);
  if (words[0]?.toUpperCase() !== "HYPERLINK") return "";
  let page = "";
  let bookmark: string | undefined;
  for (let i = 1; i < words.length; i++) {
    const word = words[i] ?? "";
    // The switches \\l, \\o, \\s and \\t have a value, \\m and \\n have none
    if (!/^\\[a-z]$/i.test(word)) page ||= unquoted(word);
    else if (/[lost]/i.test(word)) {
      i++;
      if (/[ls]/i.test(word)) bookmark ??= unquoted(words[i] ?? "");
    }
  }
  return joinAddress(page, bookmark);
}

/** Splits an instruction at spaces; a quoted text is one word with its quotes. */
function wordsOf(instruction: string): readonly string[] {
  return instruction.slice(0, MAX_ADDRESS).match(/["“”](?:[^"“”\\]|\\.)*["“”]?|[^\s"“”]+/g) ?? [];
}

function unquoted(word: string): string {
  return word.replace(/^["“”]|["“”]$/g, "").replace(/\\(.)/g, "$1").trim();
}

/** Returns the mark of a bookmark that a link leads to; "" for any other bookmark. */
export function anchorOf(bookmark: XmlElement, targets: ReadonlySet<string>): string {
  const name = wordAttribute(bookmark, "name") ?? "";
  return targets.has(name) && /^[\p{L}\p{N}_.-]+$/u.test(name) ? `<a id="${name}"></a>` : "";
}

/** Returns the names of the bookmarks that the links of a text lead to. */
export function linkTargets(root: XmlElement, budget: WorkBudget): ReadonlySet<string> {
  const targets = new Set<string>();
  const add = (address: string) => {
    if (address.startsWith("#") && targets.size < MAX_TARGETS) targets.add(address.slice(1));
  };
  // An instruction may be cut into several elements
  let instruction = "";
  const visit = (element: XmlElement) => {
    budget.step();
    if (element.name === "w:hyperlink") add(joinAddress("", wordAttribute(element, "anchor")));
    else if (element.name === "w:fldSimple") add(fieldAddress(wordAttribute(element, "instr") ?? ""));
    else if (element.name === "w:instrText" && instruction.length < MAX_ADDRESS) instruction += textIn(element);
    else if (element.name === "w:fldChar") {
      add(fieldAddress(instruction));
      instruction = "";
    }
    for (const child of elementsOf(element)) visit(child);
  };
  visit(root);
  return targets;
}
