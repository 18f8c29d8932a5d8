import { DocumentError, type DocumentErrorCode } from "../document_error.ts";
import { TextOutput, type WorkBudget } from "../work_budget.ts";
import { openPdf, type PdfFile } from "./open_pdf.ts";
import { pageText } from "./page_text.ts";
import type { PdfFont } from "./pdf_font.ts";
import { EMPTY_DICT, isKind, type PdfDict, type PdfObject, type PdfReader, textString } from "./pdf_object.ts";

/** Pages read by one call */
const MAX_PAGES_AT_ONCE = 200;
/** Errors that concern one page; the other pages stay readable */
const LOCAL: readonly DocumentErrorCode[] = ["document_invalid", "document_unsupported"];

/** The text of pages of a PDF document. */
export interface PdfText {
  /** Each page after a line `[Page 3 of 12]` */
  readonly text: string;
  readonly title: string | undefined;
  readonly author: string | undefined;
  /** Number of pages of the whole document */
  readonly pages: number;
  /** The last page that is in the text */
  readonly lastPage: number;
  /** The page to go on with; undefined when all that was asked for is there */
  readonly nextPage: number | undefined;
  /** Reason why the page after the last one was not read, although it was asked for; undefined when no bound was reached */
  readonly stoppedBy: string | undefined;
  /** True when a single page was too long and was cut */
  readonly truncated: boolean;
  /** Characters whose fonts do not say what they mean */
  readonly unknownCharacters: number;
  /** True when the file is damaged or cut off, so that pages may be missing without a trace */
  readonly isRepaired: boolean;
}

/**
 * Reads the text of pages, in the order in which they draw it, with what is filled into form fields.
 * @throws {DocumentError} damaged, no PDF, needs a password, or over a bound; `page_out_of_range`
 */
export function pdfText(bytes: Uint8Array, { start, end, budget }: {
  /** From 1 */
  readonly start: number;
  /** Included; undefined: to the last */
  readonly end: number | undefined;
  readonly budget: WorkBudget;
}): PdfText {
  const file = openPdf(bytes, budget);
  const { pages, isRepaired } = findPages(file, budget);
  if (pages.length === 0) {
    throw new DocumentError("document_invalid", "it is damaged or cut off: none of its pages is found");
  }
  if (start > pages.length) {
    throw new DocumentError("page_out_of_range", `"page_start" is ${start}, and it has ${pages.length} pages`);
  }
  const information = file.reader.dict(file.trailer, "Info");
  const properties = {
    title: propertyText(information, "Title", file.reader),
    author: propertyText(information, "Author", file.reader),
  };
  const wanted = pages.slice(start - 1, Math.min(end ?? pages.length, start - 1 + MAX_PAGES_AT_ONCE));
  const fonts = new Map<PdfDict, PdfFont>();
  const output = new TextOutput();
  let unknownCharacters = 0;
  let done = 0;
  let stoppedBy: string | undefined;
  for (const page of wanted) {
    const found = readPage(page, { file, budget, fonts });
    if (found instanceof DocumentError) {
      if (done === 0) throw found;
      // The pages before it are worth more than the error
      stoppedBy = found.message;
      break;
    }
    const { text, unknown } = found;
    const block = `${done === 0 ? "" : "\n\n"}[Page ${start + done} of ${pages.length}]\n${text}`;
    // A page is there as a whole, unless it alone is too long
    if (done > 0 && !output.fits(block)) break;
    output.add(block);
    unknownCharacters += unknown;
    done++;
    if (output.full) break;
  }
  const lastPage = start - 1 + done;
  return {
    text: output.text(),
    ...properties,
    pages: pages.length,
    lastPage,
    nextPage: lastPage < Math.min(end ?? pages.length, pages.length) ? lastPage + 1 : undefined,
    stoppedBy,
    truncated: output.full,
    unknownCharacters,
    isRepaired,
  };
}

interface PageOptions {
  readonly file: PdfFile;
  readonly budget: WorkBudget;
  readonly fonts: Map<PdfDict, PdfFont>;
}

/** Reads one page. A damaged page becomes a notice, so that the others stay readable. Returns the error when a bound is reached. */
function readPage(
  { dict, resources }: Page,
  options: PageOptions,
): { readonly text: string; readonly unknown: number } | DocumentError {
  try {
    const { text, unknown, pictures } = pageText(contentsOf(dict, options), resources, options);
    const fields = formFields(dict, options.file.reader, options.budget);
    const lines = [...(text === "" ? [] : [text]), ...(fields.length === 0 ? [] : ["[Form fields]", ...fields])];
    if (lines.length > 0) return { text: lines.join("\n"), unknown };
    return { text: pictures > 0 ? "[No text: the page is a picture, perhaps a scan]" : "[No text]", unknown };
  } catch (error) {
    if (!(error instanceof DocumentError)) throw error;
    if (!LOCAL.includes(error.code)) return error;
    return { text: `[The page cannot be read: ${error.message}]`, unknown: 0 };
  }
}

/** Bytes of the contents of one page, its filters undone */
const MAX_CONTENTS_BYTES = 134_217_728;

/** The contents may be in several streams, which count as one. */
function contentsOf(page: PdfDict, { file, budget }: PageOptions): Uint8Array {
  const contents = file.reader.get(page, "Contents");
  const streams = (Array.isArray(contents) ? contents : [contents]).map((item) => file.reader.resolve(item));
  let length = 0;
  const parts = streams.flatMap((stream) => {
    budget.step(20);
    if (!isKind(stream, "stream")) return [];
    const bytes = file.decode(stream);
    length += bytes.length;
    // The same stream may be listed many times
    if (length > MAX_CONTENTS_BYTES) {
      throw new DocumentError(
        "document_too_large",
        `a page has more than the ${MAX_CONTENTS_BYTES} bytes that are read`,
      );
    }
    return [bytes, Buffer.from("\n")];
  });
  return Buffer.concat(parts);
}

const MAX_PAGES = 100_000;
const MAX_DEPTH = 100;

/** A page, with what it takes from the nodes above it. */
export interface Page {
  readonly dict: PdfDict;
  readonly resources: PdfDict;
}

/** Returns the pages of the tree and, where it has none or fewer than it says, the other pages of the file by their numbers. */
function findPages(
  file: PdfFile,
  budget: WorkBudget,
): { readonly pages: readonly Page[]; readonly isRepaired: boolean } {
  const { reader, catalog, isRepaired } = file;
  const listed = listPages(file, budget);
  const count = reader.number(reader.dict(catalog, "Pages") ?? EMPTY_DICT, "Count") ?? 0;
  if (listed.length > 0 && count <= listed.length) return { pages: listed, isRepaired };
  const known = new Set(listed.map(({ dict }) => dict));
  const others: Page[] = [];
  for (const object of file.objects()) {
    if (!isKind(object, "dict") || known.has(object) || reader.name(object, "Type") !== "Page") continue;
    if (listed.length + others.length >= MAX_PAGES) break;
    let resources = reader.dict(object, "Resources");
    let above = reader.dict(object, "Parent");
    for (let i = 0; i < MAX_ANCESTORS && resources === undefined && above !== undefined; i++) {
      resources = reader.dict(above, "Resources");
      above = reader.dict(above, "Parent");
    }
    others.push({ dict: object, resources: resources ?? EMPTY_DICT });
  }
  return { pages: [...listed, ...others], isRepaired: isRepaired || others.length > 0 };
}

/** All pages in order. What leads in a circle is left out. Source: ISO 32000-2, section 7.7.3 */
export function listPages({ reader, catalog }: PdfFile, budget: WorkBudget): readonly Page[] {
  const pages: Page[] = [];
  const visited = new Set<PdfObject>();
  const visit = (object: PdfObject, inherited: PdfDict, depth: number): void => {
    budget.step(20);
    const node = reader.resolve(object);
    if (!isKind(node, "dict") || visited.has(node) || depth > MAX_DEPTH || pages.length >= MAX_PAGES) return;
    visited.add(node);
    const resources = reader.dict(node, "Resources") ?? inherited;
    if (!node.entries.has("Kids")) {
      if (reader.name(node, "Type") === "Pages") return;
      pages.push({ dict: node, resources });
      return;
    }
    for (const kid of reader.array(node, "Kids")) visit(kid, resources, depth + 1);
  };
  visit(reader.get(catalog, "Pages"), EMPTY_DICT, 0);
  return pages;
}

const MAX_FIELDS = 1000;
const MAX_ANCESTORS = 10;
const MAX_VALUE = 2000;

/** Lists the filled form fields of a page as `name: value`. Their values do not stand in the page's contents. */
export function formFields(page: PdfDict, reader: PdfReader, budget: WorkBudget): readonly string[] {
  return reader.array(page, "Annots").slice(0, MAX_FIELDS).flatMap((item) => {
    budget.step(200);
    const field = reader.resolve(item);
    if (!isKind(field, "dict") || reader.name(field, "Subtype") !== "Widget") return [];
    const chain = [field];
    for (
      let at = reader.dict(field, "Parent");
      at !== undefined && chain.length < MAX_ANCESTORS;
      at = reader.dict(at, "Parent")
    ) {
      chain.push(at);
    }
    const first = <T>(read: (dict: PdfDict) => T | undefined) => chain.map(read).find((found) => found !== undefined);
    const kind = first((dict) => reader.name(dict, "FT"));
    const value = kind === "Btn" ? first((dict) => reader.name(dict, "V")) : first((dict) => reader.string(dict, "V"));
    if (kind === undefined || value === undefined || value === "" || value === "Off") return [];
    const names = chain.map((dict) => reader.string(dict, "T")).filter((name) => name !== undefined).reverse();
    return [`${names.map(beginning).join(".").slice(0, MAX_VALUE)}: ${beginning(value)}`];
  });
}

/** Returns the beginning of a string's text. Only its bytes are decoded, since many fields may share a long string. */
function beginning(bytes: string): string {
  return textString(bytes.slice(0, MAX_VALUE * 2 + 2)).slice(0, MAX_VALUE);
}

const MAX_PROPERTY = 500;
/** An entry of the document's information as one line; undefined when there is none. */
export function propertyText(information: PdfDict | undefined, key: string, reader: PdfReader): string | undefined {
  const bytes = information === undefined ? undefined : reader.string(information, key);
  // deno-lint-ignore no-control-regex
  const text = textString(bytes ?? "").slice(0, MAX_PROPERTY).replace(/[\u0000-\u001f\u007f-\u009f]+/g, " ").trim();
  return text === "" ? undefined : text;
}
