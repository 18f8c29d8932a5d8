import { attribute, childOf, elementsOf, textIn, type XmlElement } from "../parse_xml.ts";
import type { NoteKind, Notes } from "./notes.ts";
import { anchorOf, fieldAddress, joinAddress, MAX_ADDRESS } from "./links.ts";
import { type Docx, isOn, valueOf, wordAttribute } from "./open_docx.ts";
import type { ParagraphStyle } from "./styles.ts";

/** Fields in each other */
const MAX_FIELDS = 50;
const MAX_ALT_TEXT = 500;
/** UTF-16 units of one paragraph: more would be cut from the whole text anyway */
const MAX_PARAGRAPH = 1_000_000;
/** UTF-16 units of one formula, and of the sign that stands between or around its parts */
const MAX_FORMULA = 100_000;
const MAX_SIGN = 8;

/** A field whose result goes on in the next paragraph, as its address; "" for a field that is no link. */
export type OpenLink = string;

/** The parts of a document that its inline text refers to. */
export interface InlineOptions {
  /** Relationships of the part that the paragraph stands in, by id */
  readonly relationships: Docx["relationships"];
  readonly notes: Notes;
  readonly styleOf: (id: string | undefined) => ParagraphStyle;
  /** The paragraph's style hides its text */
  readonly hidden: boolean;
  /** Names of the bookmarks that links lead to */
  readonly linkTargets: ReadonlySet<string>;
  /** The links that the paragraph before left open, the outermost first */
  readonly openLinks: readonly OpenLink[];
}

/** A link or field that was begun, and what was put together before it. */
interface Frame {
  readonly outside: string[];
  /** Instruction of a complex field, as far as it was read */
  code: string;
  /** True while the instruction is read, which is not shown */
  inCode: boolean;
  /** True when the text holds a link of its own: Markdown knows no link in a link */
  hasLink: boolean;
}

/** The text of a paragraph as it is put together. */
export class InlineText {
  /** Text boxes that are anchored in the paragraph */
  readonly boxes: XmlElement[] = [];
  /** Something was left out because the document does not show it */
  hiddenText = false;
  /** Links that go on in the next paragraph, after text() was called */
  openLinks: readonly OpenLink[] = [];
  readonly #options: InlineOptions;
  readonly #frames: Frame[] = [];
  /** Complex fields among the frames, by their depth: a field may not end a link that stands around it */
  readonly #addresses = new Map<Frame, OpenLink>();
  #parts: string[] = [];
  /** UTF-16 units that were put together. The address of a link may be many times as long as what names it */
  #length = 0;

  constructor(options: InlineOptions) {
    this.#options = options;
    for (const address of options.openLinks) this.#addresses.set(this.#begin(false), address);
  }

  add(element: XmlElement): void {
    for (const child of elementsOf(element)) this.#addElement(child);
  }

  text(): string {
    const open: OpenLink[] = [];
    for (let frame = this.#frames.at(-1); frame !== undefined; frame = this.#frames.at(-1)) {
      if (!frame.inCode) open.unshift(this.#addresses.get(frame) ?? "");
      this.#end(open[0] ?? "");
    }
    this.openLinks = open;
    return this.#parts.join("");
  }

  #addElement(element: XmlElement): void {
    const text = ownText(element);
    if (text !== undefined) return this.#put(text);
    switch (element.name) {
      case "w:r":
        return this.#addRun(element);
      case "w:hyperlink":
        return this.#addLink(element, this.#addressOf(element));
      case "w:fldSimple":
        return this.#addLink(element, fieldAddress(wordAttribute(element, "instr") ?? ""));
      case "w:fldChar":
        return this.#addFieldMark(wordAttribute(element, "fldCharType"));
      case "w:instrText":
        return this.#addInstruction(textIn(element));
      case "w:bookmarkStart":
        return this.#put(anchorOf(element, this.#options.linkTargets));
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

  #put(text: string): void {
    if (text === "" || this.#length > MAX_PARAGRAPH) return;
    this.#parts.push(text);
    this.#length += text.length;
    this.#addInstruction(text);
  }

  #addRun(run: XmlElement): void {
    if (!this.#isHidden(run)) return this.add(run);
    this.hiddenText ||= childOf(run, "w:t") !== undefined;
    // The marks of a field count even in a hidden run, or what is shown would count as its instruction
    for (const child of elementsOf(run)) if (child.name === "w:fldChar") this.#addElement(child);
  }

  #isHidden(run: XmlElement): boolean {
    const { hidden, styleOf } = this.#options;
    const properties = childOf(run, "w:rPr");
    if (properties !== undefined && childOf(properties, "w:vanish") !== undefined) return isOn(properties, "w:vanish");
    return hidden || styleOf(valueOf(properties, "w:rStyle")).hidden;
  }

  #addLink(element: XmlElement, address: string): void {
    const frame = this.#begin(false);
    this.add(element);
    // Fields that begin in the link and do not end in it
    while (this.#frames.includes(frame)) this.#end(this.#frames.at(-1) === frame ? address : "");
  }

  #addressOf(element: XmlElement): string {
    const relationship = this.#options.relationships.get(wordAttribute(element, "id") ?? "");
    return joinAddress(relationship?.kind === "hyperlink" ? relationship.target : "", wordAttribute(element, "anchor"));
  }

  /** Begins a complex field, goes from its instruction to its result, or ends it. */
  #addFieldMark(type: string | undefined): void {
    if (type === "begin") {
      if (this.#frames.length < MAX_FIELDS) this.#addresses.set(this.#begin(true), "");
      return;
    }
    const frame = this.#frames.at(-1);
    if (frame === undefined || !this.#addresses.has(frame)) return;
    if (type === "separate" && frame.inCode) {
      frame.inCode = false;
      this.#parts = [];
      this.#addresses.set(frame, fieldAddress(frame.code));
    } else if (type === "end") {
      if (frame.inCode) this.#parts = [];
      this.#end(this.#addresses.get(frame) ?? "");
    }
  }

  #addInstruction(text: string): void {
    const frame = this.#frames.at(-1);
    if (frame?.inCode && frame.code.length < MAX_ADDRESS) frame.code += text;
  }

  #begin(inCode: boolean): Frame {
    const frame: Frame = { outside: this.#parts, code: "", inCode, hasLink: false };
    this.#frames.push(frame);
    this.#parts = [];
    return frame;
  }

  /** Ends the innermost frame. Its text goes to where the frame began, as a link when it has an address. */
  #end(address: string): void {
    const frame = this.#frames.pop();
    if (frame === undefined) return;
    this.#addresses.delete(frame);
    const text = this.#parts.join("");
    this.#length -= text.length;
    this.#parts = frame.outside;
    const isLink = !frame.inCode && !frame.hasLink && address !== "" && address !== text && text.trim() !== "";
    this.#put(isLink ? `[${text}](${address})` : text);
    const outer = this.#frames.at(-1);
    if (outer !== undefined) outer.hasLink ||= isLink || frame.hasLink;
  }

  #addNote(kind: NoteKind, element: XmlElement): void {
    const label = this.#options.notes.label(kind, wordAttribute(element, "id"));
    if (label !== undefined) this.#put(`[^${label}]`);
  }
}

/** Returns the text of an element that stands for text by itself; undefined for any other element. */
function ownText(element: XmlElement): string | undefined {
  switch (element.name) {
    case "w:t":
      // A line break in the XML is none in the text
      return textIn(element).replace(/[\r\n]+/g, " ");
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

/** Writes a formula on one line, cut at MAX_FORMULA: fractions with a slash, exponents after `^`, indices after `_`. Source: ECMA-376 part 1, section 22.1 */
export function mathText(element: XmlElement): string {
  // A mark may have signs as long as the document, and stand between as many parts
  return wholeMathText(element).slice(0, MAX_FORMULA);
}

function wholeMathText(element: XmlElement): string {
  const part = (name: string) => {
    const child = childOf(element, name);
    return child === undefined ? "" : mathText(child);
  };
  const property = (name: string) => {
    const properties = elementsOf(element).find((child) => child.name.endsWith("Pr"));
    const found = properties === undefined ? undefined : childOf(properties, name);
    return found === undefined ? undefined : (wordAttribute(found, "val") ?? "").slice(0, MAX_SIGN);
  };
  switch (element.name) {
    case "m:t":
      return textIn(element);
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

/** More than one character is in brackets. */
function group(text: string): string {
  return [...text].length > 1 ? `(${text})` : text;
}
