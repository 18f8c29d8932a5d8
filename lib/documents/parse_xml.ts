import { DocumentError } from "./document_error.ts";
import type { WorkBudget } from "./work_budget.ts";

const MAX_DEPTH = 200;
const MAX_NAMESPACES = 100;

/** An element; text stands between its children as strings. */
export interface XmlElement {
  /** With the prefix as `prefixes` wants it, else as written: `w:p` */
  readonly name: string;
  /** As written, between the name and the closing bracket */
  readonly attributes: string;
  readonly children: (XmlElement | string)[];
}

/**
 * Returns the root element of an XML document.
 *
 * No document type is taken, so that there are no entities but the five and character numbers; depth and number of elements
 * are bounded. White space between elements is kept.
 * @throws {DocumentError} `document_invalid`, naming what is wrong; `document_too_large`
 * Source: XML 1.0 fifth edition; Namespaces in XML 1.0
 */
export function parseXml(text: string, { prefixes, budget }: {
  /** Prefix by namespace name: elements of these namespaces carry it, whatever the document calls it */
  readonly prefixes: ReadonlyMap<string, string>;
  readonly budget: WorkBudget;
}): XmlElement {
  const top: XmlElement = { name: "", attributes: "", children: [] };
  const open = [{ element: top, names: new Map<string, string>(), written: "" }];
  for (let at = 0; at < text.length;) {
    budget.step(4);
    // There is always the top
    const parent = open[open.length - 1] as (typeof open)[number];
    const start = text.indexOf("<", at);
    if (start !== at) {
      const end = start === -1 ? text.length : start;
      if (open.length > 1) {
        budget.keep(1);
        parent.element.children.push(decodeEntities(text.slice(at, end)));
      }
      at = end;
      continue;
    }
    const markup = readMarkup(text, at);
    at = markup.end;
    if (markup.kind === "skipped") continue;
    if (markup.kind === "doctype") throw invalid("it declares a document type, which is refused");
    if (markup.kind === "cdata") {
      budget.keep(1);
      if (open.length > 1) parent.element.children.push(markup.text);
      continue;
    }
    if (markup.kind === "close") {
      if (open.length === 1 || parent.written !== markup.name) {
        throw invalid(`"</${short(markup.name)}>" closes nothing`);
      }
      open.pop();
      continue;
    }
    budget.keep(2);
    const names = markup.attributes.includes("xmlns")
      ? declared(markup.attributes, parent.names, prefixes)
      : parent.names;
    const element: XmlElement = { name: prefixed(markup.name, names), attributes: markup.attributes, children: [] };
    parent.element.children.push(element);
    if (markup.empty) continue;
    if (open.length > MAX_DEPTH) throw invalid(`its elements are nested deeper than ${MAX_DEPTH} levels`);
    open.push({ element, names, written: markup.name });
  }
  if (open.length > 1) throw invalid(`"<${short(open.at(-1)?.written ?? "")}>" is never closed`);
  const root = elementsOf(top)[0];
  if (root === undefined) throw invalid("it has no root element");
  return root;
}

/** The kinds of markup that begin with `<`. */
export type Markup =
  | {
    readonly kind: "open";
    readonly name: string;
    readonly attributes: string;
    readonly empty: boolean;
    readonly end: number;
  }
  | { readonly kind: "close"; readonly name: string; readonly end: number }
  | { readonly kind: "cdata"; readonly text: string; readonly end: number }
  /** A comment or processing instruction */
  | { readonly kind: "skipped"; readonly end: number }
  | { readonly kind: "doctype"; readonly end: number };

/** Reads the markup that starts at `at`, where a `<` stands. @throws {DocumentError} `document_invalid` when it does not end */
export function readMarkup(text: string, at: number): Markup {
  if (text.startsWith("<!--", at)) return { kind: "skipped", end: after(text, "-->", at + 4) };
  if (text.startsWith("<?", at)) return { kind: "skipped", end: after(text, "?>", at + 2) };
  if (text.startsWith("<![CDATA[", at)) {
    const end = after(text, "]]>", at + 9);
    return { kind: "cdata", text: text.slice(at + 9, end - 3), end };
  }
  if (text.startsWith("<!", at)) return { kind: "doctype", end: afterDoctype(text, at) };
  const end = afterTag(text, at);
  const inside = text.slice(at + 1, end - 1);
  if (inside.startsWith("/")) return { kind: "close", name: inside.slice(1).trimEnd(), end };
  const empty = inside.endsWith("/");
  const name = /^[^\s/]+/.exec(inside)?.[0];
  if (name === undefined) throw invalid("a tag has no name");
  return { kind: "open", name, attributes: inside.slice(name.length, empty ? -1 : undefined), empty, end };
}

/** Returns the value of an attribute, by its name as written. */
export function attribute(element: Pick<XmlElement, "attributes">, name: string): string | undefined {
  const { attributes } = element;
  for (let at = attributes.indexOf(name); at !== -1; at = attributes.indexOf(name, at + name.length)) {
    if (!/\s/.test(attributes[at - 1] ?? "")) continue;
    const rest = /^\s*=\s*(["'])/.exec(attributes.slice(at + name.length, at + name.length + 20));
    if (rest === null) continue;
    const start = at + name.length + rest[0].length;
    const end = attributes.indexOf(rest[1] ?? "", start);
    return end === -1 ? undefined : decodeEntities(attributes.slice(start, end));
  }
  return undefined;
}

/** Returns the elements among an element's children. */
export function elementsOf({ children }: XmlElement): XmlElement[] {
  return children.filter((child): child is XmlElement => typeof child !== "string");
}

/** Returns the text right inside an element, without that of its children. */
export function textIn({ children }: XmlElement): string {
  return children.filter((child) => typeof child === "string").join("");
}

/** Returns the first child element of that name. */
export function childOf({ children }: XmlElement, name: string): XmlElement | undefined {
  return children.find((child): child is XmlElement => typeof child !== "string" && child.name === name);
}

const ENTITIES: ReadonlyMap<string, number> = new Map([["lt", 60], ["gt", 62], ["amp", 38], ["quot", 34], [
  "apos",
  39,
]]);
/** With its first and last character, such as `&#1114111;` */
const MAX_ENTITY = 10;

/** Decodes entities unit by unit, since a text may be all entities. */
function decodeEntities(text: string): string {
  let from = text.indexOf("&");
  if (from === -1) return text;
  const units = Buffer.from(text, "utf16le");
  let length = from * 2;
  while (from < text.length) {
    const entity = text[from] === "&" ? entityAt(text, from) : undefined;
    if (entity === undefined) length = units.writeUInt16LE(text.charCodeAt(from++), length);
    else {
      // Never longer than what it stands for
      length += units.write(String.fromCodePoint(entity.code), length, "utf16le");
      from = entity.end;
    }
  }
  return units.toString("utf16le", 0, length);
}

function entityAt(text: string, start: number): { readonly code: number; readonly end: number } | undefined {
  const end = text.slice(start, start + MAX_ENTITY).indexOf(";");
  const code = end === -1 ? undefined : entityCode(text.slice(start + 1, start + end));
  return code === undefined ? undefined : { code, end: start + end + 1 };
}

function entityCode(name: string): number | undefined {
  const known = ENTITIES.get(name);
  if (known !== undefined || !name.startsWith("#")) return known;
  const [, decimal, hex] = /^#(?:(\d{1,7})|x([0-9a-fA-F]{1,6}))$/.exec(name) ?? [];
  if (decimal === undefined && hex === undefined) return undefined;
  const code = decimal === undefined ? Number.parseInt(hex ?? "", 16) : Number(decimal);
  return code === 0 || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff) ? 0xfffd : code;
}

/** The name's prefix changed to the wanted one of its namespace. */
function prefixed(name: string, names: ReadonlyMap<string, string>): string {
  const colon = name.indexOf(":");
  const wanted = names.get(colon === -1 ? "" : name.slice(0, colon));
  return wanted === undefined ? name : `${wanted}:${name.slice(colon + 1)}`;
}

function declared(
  attributes: string,
  outer: ReadonlyMap<string, string>,
  prefixes: ReadonlyMap<string, string>,
): Map<string, string> {
  const names = new Map(outer);
  for (const [, prefix = "", , uri = ""] of attributes.matchAll(/\sxmlns(?::([^\s=]+))?\s*=\s*(["'])(.*?)\2/g)) {
    const wanted = prefixes.get(uri);
    if (wanted === undefined) names.delete(prefix);
    else names.set(prefix, wanted);
    if (names.size > MAX_NAMESPACES) throw invalid(`it has more than ${MAX_NAMESPACES} namespaces`);
  }
  return names;
}

function after(text: string, ending: string, from: number): number {
  const at = text.indexOf(ending, from);
  if (at === -1) throw invalid(`"${ending}" is missing`);
  return at + ending.length;
}

/** A `>` inside a quoted value does not end a tag. */
function afterTag(text: string, from: number): number {
  for (let at = from + 1; at < text.length; at++) {
    const character = text[at];
    if (character === ">") return at + 1;
    if (character === '"' || character === "'") at = after(text, character, at + 1) - 1;
  }
  throw invalid('">" is missing');
}

/** A document type may hold declarations in brackets. */
function afterDoctype(text: string, from: number): number {
  const end = after(text, ">", from);
  const bracket = text.slice(from, end).indexOf("[");
  return bracket === -1 ? end : after(text, ">", after(text, "]", from + bracket));
}

function short(name: string): string {
  return name.slice(0, 40);
}

function invalid(reason: string): DocumentError {
  return new DocumentError("document_invalid", `its XML is damaged: ${reason}`);
}
