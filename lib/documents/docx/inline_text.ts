import { attribute, childOf, elementsOf, type XmlElement } from "../parse_xml.ts";
import type { Notes } from "./notes.ts";
import { type Docx, isOn, valueOf, wordAttribute } from "./open_docx.ts";
import type { ParagraphStyle } from "./styles.ts";

const MAX_ADDRESS = 2000;
const MAX_ALT_TEXT = 500;

/** The text of a paragraph as it is put together. */
export interface InlineText {
  add(element: XmlElement): void;
  text(): string;
  /** Text boxes that are anchored in the paragraph */
  readonly boxes: readonly XmlElement[];
  /** Something was left out because the document does not show it */
  readonly hiddenText: boolean;
}

/** The parts of a document that its inline text refers to. */
export interface InlineOptions {
  readonly docx: Pick<Docx, "relationships">;
  readonly notes: Notes;
  readonly styleOf: (id: string | undefined) => ParagraphStyle;
  /** The paragraph's style hides its text */
  readonly hidden: boolean;
}

/** Creates the renderer of the text inside paragraphs. */
export function createInlineText({ docx, notes, styleOf, hidden }: InlineOptions): InlineText {
  let parts: string[] = [];
  const boxes: XmlElement[] = [];
  let hiddenText = false;

  const note = (kind: Parameters<Notes["label"]>[0], element: XmlElement) => {
    const label = notes.label(kind, wordAttribute(element, "id"));
    if (label !== undefined) parts.push(`[^${label}]`);
  };

  const isHidden = (run: XmlElement) => {
    const properties = childOf(run, "w:rPr");
    if (properties !== undefined && childOf(properties, "w:vanish") !== undefined) return isOn(properties, "w:vanish");
    return hidden || styleOf(valueOf(properties, "w:rStyle")).hidden;
  };

  const link = (element: XmlElement) => {
    const outside = parts;
    parts = [];
    addChildren(element);
    const text = parts.join("");
    parts = outside;
    const relationship = docx.relationships.get(wordAttribute(element, "id") ?? "");
    const address = relationship?.kind === "hyperlink" ? relationship.target.slice(0, MAX_ADDRESS) : "";
    parts.push(address === "" || address === text || text.trim() === "" ? text : `[${text}](${address})`);
  };

  const addChildren = (element: XmlElement) => {
    for (const child of elementsOf(element)) add(child);
  };

  const add = (element: XmlElement): void => {
    switch (element.name) {
      case "w:t":
        // A line break in the XML is none in the text
        parts.push(element.children.filter((child) => typeof child === "string").join("").replace(/[\r\n]+/g, " "));
        return;
      case "w:r":
        if (isHidden(element)) hiddenText ||= childOf(element, "w:t") !== undefined;
        else addChildren(element);
        return;
      case "m:oMath":
        parts.push(mathText(element).replace(/[\r\n]+/g, " "));
        return;
      case "w:tab":
        parts.push("\t");
        return;
      case "w:br":
      case "w:cr":
        parts.push("\n");
        return;
      case "w:noBreakHyphen":
        parts.push("\u2011");
        return;
      case "w:sym":
        parts.push(symbolOf(wordAttribute(element, "char") ?? ""));
        return;
      case "w:hyperlink":
        link(element);
        return;
      case "w:footnoteReference":
        note("footnotes", element);
        return;
      case "w:endnoteReference":
        note("endnotes", element);
        return;
      case "w:commentReference":
        note("comments", element);
        return;
      case "wp:docPr": {
        const description = (attribute(element, "descr") ?? "").trim().replace(/\s+/g, " ").slice(0, MAX_ALT_TEXT);
        if (description !== "") parts.push(`[image: ${description}]`);
        return;
      }
      case "w:txbxContent":
        boxes.push(element);
        return;
      // Properties, what a tracked change took away, the older form of what stands beside it
      case "w:pPr":
      case "w:rPr":
      case "w:del":
      case "w:moveFrom":
      case "w:rt":
      case "mc:Fallback":
        return;
      default:
        addChildren(element);
    }
  };

  return {
    add: addChildren,
    text: () => parts.join(""),
    boxes,
    get hiddenText() {
      return hiddenText;
    },
  };
}

/** A character of a symbol font has no meaning outside of it. */
function symbolOf(code: string): string {
  const value = /^[0-9a-f]{1,4}$/i.test(code) ? Number.parseInt(code, 16) : 0xfffd;
  return value < 0x20 || (value >= 0xd800 && value <= 0xf8ff) ? "\ufffd" : String.fromCharCode(value);
}

/** A formula on one line: fractions with a slash, exponents after `^`, indices after `_`. Source: ECMA-376 part 1, section 22.1 */
export function mathText(element: XmlElement): string {
  const part = (name: string) => {
    const child = childOf(element, name);
    return child === undefined ? "" : mathText(child);
  };
  const property = (name: string) => {
    const properties = elementsOf(element).find((child) => child.name.endsWith("Pr"));
    const found = properties === undefined ? undefined : childOf(properties, name);
    return found === undefined ? undefined : wordAttribute(found, "val") ?? "";
  };
  switch (element.name) {
    case "m:t":
      return element.children.filter((child) => typeof child === "string").join("");
    case "m:f":
      return `${group(part("m:num"))}/${group(part("m:den"))}`;
    case "m:sSup":
      return part("m:e") + raised("^", part("m:sup"));
    case "m:sSub":
      return part("m:e") + raised("_", part("m:sub"));
    case "m:sSubSup":
      return part("m:e") + raised("_", part("m:sub")) + raised("^", part("m:sup"));
    case "m:nary":
      return `${property("m:chr") ?? "∫"}${raised("_", part("m:sub"))}${raised("^", part("m:sup"))} ${part("m:e")}`;
    case "m:rad":
      return `√${raised("^", part("m:deg"))}(${part("m:e")})`;
    case "m:d": {
      const inside = elementsOf(element).filter(({ name }) => name === "m:e").map(mathText).join(
        property("m:sepChr") ?? "|",
      );
      return `${property("m:begChr") ?? "("}${inside}${property("m:endChr") ?? ")"}`;
    }
    default:
      return elementsOf(element).map(mathText).join("");
  }
}

function raised(sign: "^" | "_", text: string): string {
  return text === "" ? "" : sign + group(text);
}

/** More than one character stands in brackets. */
function group(text: string): string {
  return [...text].length > 1 ? `(${text})` : text;
}
