import { posix } from "node:path";
import { DocumentError } from "../document_error.ts";
import { attribute, childOf, elementsOf, parseXml, type XmlElement } from "../parse_xml.ts";
import { readZip, type Zip } from "../read_zip.ts";
import type { WorkBudget } from "../work_budget.ts";

const MAX_PART_BYTES = 33_554_432;
/** UTF-16 units of an address, or of the name of a part: more than is shown of it */
const MAX_TARGET = 4_000;
/** First bytes of the container of old Office files, and of encrypted new ones */
const OLE_SIGNATURE = [0xd0, 0xcf, 0x11, 0xe0];
const OFFICE = ["http://schemas.openxmlformats.org/officeDocument/2006", "http://purl.oclc.org/ooxml/officeDocument"];

/** The prefixes this reader knows elements by, for transitional and strict documents alike. */
const PREFIXES: ReadonlyMap<string, string> = new Map([
  ["http://schemas.openxmlformats.org/wordprocessingml/2006/main", "w"],
  ["http://purl.oclc.org/ooxml/wordprocessingml/main", "w"],
  ["http://schemas.openxmlformats.org/markup-compatibility/2006", "mc"],
  ["http://schemas.openxmlformats.org/officeDocument/2006/math", "m"],
  ["http://purl.oclc.org/ooxml/officeDocument/math", "m"],
  ["http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing", "wp"],
  ["http://purl.oclc.org/ooxml/drawingml/wordprocessingDrawing", "wp"],
  ["http://purl.org/dc/elements/1.1/", "dc"],
]);

/** The target of a relationship of a part. */
export interface Relationship {
  /** Last word of the relationship's type, for example `styles` or `hyperlink` */
  readonly kind: string;
  /** Name of a part, or an address where it is external */
  readonly target: string;
}

/** A Word document's parts. */
export interface Docx {
  readonly body: XmlElement;
  /** By id, as the body names them */
  readonly relationships: ReadonlyMap<string, Relationship>;
  /** The relationships of the part of a kind, such as `footnotes`, by id; empty when there are none */
  relationshipsOf(kind: string): ReadonlyMap<string, Relationship>;
  /** The root element of the part of a kind, such as `styles`; undefined when there is none */
  part(kind: string): XmlElement | undefined;
  /** Title and author, where the document says them */
  readonly properties: { readonly title: string | undefined; readonly author: string | undefined };
}

/** Opens a Word document. @throws {DocumentError} when it is no Word document, or is over a bound */
export function openDocx(bytes: Uint8Array, budget: WorkBudget): Docx {
  if (OLE_SIGNATURE.every((byte, i) => bytes[i] === byte)) {
    throw new DocumentError(
      "document_unsupported",
      "it is an old .doc file, or protected by a password; save it as a .docx without one",
    );
  }
  const zip = readZip(bytes, budget);
  const read = (name: string) => {
    const part = zip.read(name, MAX_PART_BYTES);
    return part === undefined ? undefined : parseXml(decodeXml(part), { prefixes: PREFIXES, budget });
  };
  const roots = readRelationships(read("_rels/.rels"), "");
  const main = [...roots.values()].find(({ kind }) => kind === "officeDocument")?.target;
  if (main === undefined) throw notWord(zip);
  const document = read(main);
  const body = document?.name === "w:document" ? elementsOf(document).find(({ name }) => name === "w:body") : undefined;
  if (body === undefined) throw notWord(zip);
  const relationshipsOf = (name: string) => {
    const folder = posix.dirname(name);
    return readRelationships(read(posix.join(folder, "_rels", `${posix.basename(name)}.rels`)), folder);
  };
  const relationships = relationshipsOf(main);
  const partOf = (kind: string) =>
    [...relationships.values()].find((relationship) => relationship.kind === kind)?.target;
  const core = [...roots.values()].find(({ kind }) => kind === "core-properties")?.target;
  const properties = core === undefined ? undefined : read(core);
  return {
    body,
    relationships,
    relationshipsOf(kind) {
      const target = partOf(kind);
      return target === undefined ? new Map() : relationshipsOf(target);
    },
    part(kind) {
      const target = partOf(kind);
      return target === undefined ? undefined : read(target);
    },
    properties: { title: property(properties, "dc:title"), author: property(properties, "dc:creator") },
  };
}

function notWord(zip: Zip): DocumentError {
  const other = zip.has("xl/workbook.xml")
    ? "an Excel workbook"
    : zip.has("ppt/presentation.xml")
    ? "a PowerPoint presentation"
    : zip.has("mimetype")
    ? "an OpenDocument or EPUB file"
    : "a ZIP archive of another kind";
  return new DocumentError("document_unsupported", `it is no Word document but ${other}`);
}

function readRelationships(root: XmlElement | undefined, folder: string): Map<string, Relationship> {
  const found = new Map<string, Relationship>();
  for (const element of root === undefined ? [] : elementsOf(root)) {
    const id = attribute(element, "Id");
    const type = attribute(element, "Type") ?? "";
    // An address is cut for each link that has it
    const target = attribute(element, "Target")?.slice(0, MAX_TARGET);
    if (id === undefined || target === undefined) continue;
    const known = OFFICE.some((prefix) => type.startsWith(prefix)) || type.includes("/package/");
    if (!known) continue;
    const kind = type.slice(type.lastIndexOf("/") + 1);
    const external = attribute(element, "TargetMode") === "External";
    found.set(id, { kind, target: external ? target : partName(target, folder) });
  }
  return found;
}

/** A target is relative to the folder of the part that names it, or starts at the root. */
function partName(target: string, folder: string): string {
  return target.startsWith("/") ? target.slice(1) : posix.join(folder, target);
}

function property(root: XmlElement | undefined, name: string): string | undefined {
  const element = root === undefined ? undefined : elementsOf(root).find((child) => child.name === name);
  const text = element?.children.filter((child) => typeof child === "string").join("").trim();
  return text === undefined || text === "" ? undefined : text.slice(0, 500);
}

function decodeXml(bytes: Uint8Array): string {
  const [first, second] = bytes;
  const encoding = first === 0xff && second === 0xfe
    ? "utf-16le"
    : first === 0xfe && second === 0xff
    ? "utf-16be"
    : "utf-8";
  return new TextDecoder(encoding).decode(bytes);
}

/** Returns the `w:val` of a child element, as most properties of Word are written. */
export function valueOf(element: XmlElement | undefined, child: string): string | undefined {
  const found = element === undefined ? undefined : childOf(element, child);
  return found === undefined ? undefined : wordAttribute(found, "val");
}

/** Returns true when a switch such as `w:vanish` is present and not turned off. */
export function isOn(element: XmlElement | undefined, child: string): boolean {
  const found = element === undefined ? undefined : childOf(element, child);
  return found !== undefined && !["0", "false", "off"].includes(wordAttribute(found, "val") ?? "");
}

/** Parses a whole number; undefined for anything else. */
export function toInteger(value: string | undefined): number | undefined {
  return value !== undefined && /^-?\d{1,9}$/.test(value) ? Number(value) : undefined;
}

/** Returns an attribute of Word's namespace: its prefix is the element's own, as the document writes it. */
export function wordAttribute(element: XmlElement, name: string): string | undefined {
  return attribute(element, `w:${name}`) ?? foreignPrefix(element, name);
}

/** Documents not made by Word may call the namespace otherwise; then the first attribute of that local name counts. */
function foreignPrefix({ attributes }: XmlElement, name: string): string | undefined {
  const written = new RegExp(`\\s([\\w.-]{1,40}:${name})\\s*=`).exec(attributes)?.[1];
  return written === undefined ? undefined : attribute({ attributes }, written);
}
