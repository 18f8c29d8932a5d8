import { makeZip, type ZipPart } from "./make_zip.ts";

const WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main";
const OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";

export interface DocxParts {
  /** Inside `w:body` */
  readonly body: string;
  /** Inside the root of the part of that kind: `styles`, `numbering`, `footnotes`, `endnotes`, `comments` */
  readonly parts?: Readonly<Record<string, string>>;
  /** Addresses by relationship id */
  readonly links?: Readonly<Record<string, string>>;
  /** Addresses by relationship id, by the kind of the part that names them */
  readonly partLinks?: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** Files that go to the archive, or in place of its own */
  readonly entries?: readonly ZipPart[];
}

/** A Word document of hand-written parts, with the prefixes w, r, m, mc and wp declared. */
export function makeDocx(
  { body, parts = {}, links = {}, partLinks = {}, entries = [] }: DocxParts,
): Uint8Array<ArrayBuffer> {
  const relationships = [
    ...Object.keys(parts).map((kind) => `<Relationship Id="${kind}" Type="${OFFICE}/${kind}" Target="${kind}.xml"/>`),
    ...linkRelationships(links),
  ];
  const all: ZipPart[] = [
    { name: "[Content_Types].xml", content: "<Types/>" },
    {
      name: "_rels/.rels",
      content: toRelationships([
        `<Relationship Id="main" Type="${OFFICE}/officeDocument" Target="word/document.xml"/>`,
      ]),
    },
    { name: "word/_rels/document.xml.rels", content: toRelationships(relationships) },
    { name: "word/document.xml", content: toPart("document", `<w:body>${body}</w:body>`) },
    ...Object.entries(parts).map(([kind, content]) => ({ name: `word/${kind}.xml`, content: toPart(kind, content) })),
    ...Object.entries(partLinks).map(([kind, own]) => (
      { name: `word/_rels/${kind}.xml.rels`, content: toRelationships(linkRelationships(own)) }
    )),
  ];
  const replaced = new Set(entries.map(({ name }) => name));
  return makeZip([...all.filter(({ name }) => !replaced.has(name)), ...entries]);
}

/** A paragraph of plain text. @param properties inside `w:pPr` */
export function paragraph(text: string, properties = ""): string {
  return `<w:p><w:pPr>${properties}</w:pPr><w:r><w:t xml:space="preserve">${text}</w:t></w:r></w:p>`;
}

function linkRelationships(links: Readonly<Record<string, string>>): string[] {
  return Object.entries(links).map(([id, target]) =>
    `<Relationship Id="${id}" Type="${OFFICE}/hyperlink" Target="${target}" TargetMode="External"/>`
  );
}

function toPart(kind: string, content: string): string {
  const names = `xmlns:w="${WORD}" xmlns:r="${OFFICE}" ` +
    'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math" ' +
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" ' +
    'xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing"';
  return `<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n<w:${kind} ${names}>${content}</w:${kind}>`;
}

function toRelationships(relationships: readonly string[]): string {
  const name = "http://schemas.openxmlformats.org/package/2006/relationships";
  return `<?xml version="1.0"?><Relationships xmlns="${name}">${relationships.join("")}</Relationships>`;
}
