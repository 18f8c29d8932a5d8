import { attribute, childOf, elementsOf, type XmlElement } from "../parse_xml.ts";
import type { NoteKind, Notes } from "./notes.ts";
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
export function createInlineText(options: InlineOptions): InlineText {
  return new ParagraphText(options);
}

class ParagraphText implements InlineText {
  readonly boxes: XmlElement[] = [];
  hiddenText = false;
  readonly #options: InlineOptions;
  #parts: string[] = [];

  constructor(options: InlineOptions) {
    this.#options = options;
  }

  add(element: XmlElement): void {
    for (const child of elementsOf(element)) this.#addElement(child);
  }

  text(): string {
    return this.#parts.join("");
  }

  #addElement(element: XmlElement): void {
    const text = ownText(element);
    if (text !== undefined) {
      if (text !== "") this.#parts.push(text);
      return;
    }
    switch (element.name) {
      case "w:r":
        return this.#addRun(element);
      case "w:hyperlink":
        return this.#addLink(element);
      case "w:footnoteReference":
        return this.#addNote("footnotes", element);
      case "w:endnoteReference":
        return this.#addNote("endnotes", element);
      case "w:commentReference":
        return this.#addNote("comments", element);
      case "w:txbxContent":
        this.boxes.push(element);
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
        this.add(element);
    }
  }

  #addRun(run: XmlElement): void {
    if (!this.#isHidden(run)) this.add(run);
    else this.hiddenText ||= childOf(run, "w:t") !== undefined;
  }

  #isHidden(run: XmlElement): boolean {
    const { hidden, styleOf } = this.#options;
    const properties = childOf(run, "w:rPr");
    if (properties !== undefined && childOf(properties, "w:vanish") !== undefined) return isOn(properties, "w:vanish");
    return hidden || styleOf(valueOf(properties, "w:rStyle")).hidden;
  }

  #addLink(element: XmlElement): void {
    const outside = this.#parts;
    this.#parts = [];
    this.add(element);
    const text = this.#parts.join("");
    this.#parts = outside;
    const relationship = this.#options.docx.relationships.get(wordAttribute(element, "id") ?? "");
    const address = relationship?.kind === "hyperlink" ? relationship.target.slice(0, MAX_ADDRESS) : "";
    this.#parts.push(address === "" || address === text || text.trim() === "" ? text : `[${text}](${address})`);
  }

  #addNote(kind: NoteKind, element: XmlElement): void {
    const label = this.#options.notes.label(kind, wordAttribute(element, "id"));
    if (label !== undefined) this.#parts.push(`[^${label}]`);
  }
}

/** Returns the text of an element that stands for text by itself; undefined for any other element. */
function ownText(element: XmlElement): string | undefined {
  switch (element.name) {
    case "w:t":
      // A line break in the XML is none in the text
      return element.children.filter((child) => typeof child === "string").join("").replace(/[\r\n]+/g, " ");
    case "m:oMath":
      return mathText(element).replace(/[\r\n]+/g, " ");
    case "w:tab":
      return "\t";
    case "w:br":
    case "w:cr":
      return "\n";
    case "w:noBreakHyphen":
      return "\u2011";
    case "w:sym":
      return symbolOf(wordAttribute(element, "char") ?? "");
    case "wp:docPr": {
      const description = (attribute(element, "descr") ?? "").trim().replace(/\s+/g, " ").slice(0, MAX_ALT_TEXT);
      return description === "" ? "" : `[image: ${description}]`;
    }
    default:
      return undefined;
  }
}

/** A character of a symbol font has no meaning outside of it. */
function symbolOf(code: string): string {
  const value = /^[0-9a-f]{1,4}$/i.test(code) ? Number.parseInt(code, 16) : 0xfffd;
  return value < 0x20 || (value >= 0xd800 && value <= 0xf8ff) ? "\ufffd" : String.fromCharCode(value);
}

/** Writes a formula on one line: fractions with a slash, exponents after `^`, indices after `_`. Source: ECMA-376 part 1, section 22.1 */
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
