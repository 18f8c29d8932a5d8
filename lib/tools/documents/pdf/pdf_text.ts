import { DocumentError, type DocumentErrorCode } from "../document_error.ts";
import { createTextOutput } from "../text_output.ts";
import type { WorkBudget } from "../work_budget.ts";
import { propertyText } from "./document_strings.ts";
import { formFields } from "./form_fields.ts";
import { listPages, type Page } from "./list_pages.ts";
import { openPdf, type PdfFile } from "./open_pdf.ts";
import { pageText } from "./page_text.ts";
import type { PdfFont } from "./pdf_font.ts";
import { isKind, type PdfDict } from "./pdf_object.ts";

/** Pages read by one call */
const MAX_PAGES = 200;
/** What is wrong with a page alone */
const LOCAL: readonly DocumentErrorCode[] = ["document_invalid", "document_unsupported"];

/** The text of pages of a PDF document. */
export interface PdfText {
  /** Each page after a line `[Page 3 of 12]` */
  readonly text: string;
  readonly title: string | undefined;
  readonly author: string | undefined;
  /** Of the whole document */
  readonly pages: number;
  /** The last page that is in the text */
  readonly lastPage: number;
  /** The page to go on with; undefined when all that was asked for is there */
  readonly nextPage: number | undefined;
  /** One page alone was too long, and is cut */
  readonly truncated: boolean;
  /** Characters whose fonts do not say what they mean */
  readonly unknownCharacters: number;
}

export interface PdfTextOptions {
  /** From 1 */
  readonly start: number;
  /** Included; undefined: to the last */
  readonly end: number | undefined;
  readonly budget: WorkBudget;
}

/**
 * Reads the text of pages, in the order in which they draw it, with what is filled into form fields.
 * @throws {DocumentError} damaged, no PDF, needs a password, or over a bound; `page_out_of_range`
 */
export function pdfText(bytes: Uint8Array, { start, end, budget }: PdfTextOptions): PdfText {
  const file = openPdf(bytes, budget);
  const pages = listPages(file, budget);
  if (pages.length === 0) throw new DocumentError("document_invalid", "it is damaged: none of its pages is found");
  if (start > pages.length) {
    throw new DocumentError("page_out_of_range", `"page_start" is ${start}, and it has ${pages.length} pages`);
  }
  const wanted = pages.slice(start - 1, Math.min(end ?? pages.length, start - 1 + MAX_PAGES));
  const fonts = new Map<PdfDict, PdfFont>();
  const output = createTextOutput();
  let unknownCharacters = 0;
  let done = 0;
  for (const page of wanted) {
    const { text, unknown } = readPage(page, { file, budget, fonts });
    const block = `${done === 0 ? "" : "\n\n"}[Page ${start + done} of ${pages.length}]\n${text}`;
    // A page is there as a whole, unless it alone is too long
    if (done > 0 && !output.fits(block)) break;
    output.add(block);
    unknownCharacters += unknown;
    done++;
    if (output.full) break;
  }
  const information = file.reader.dict(file.trailer, "Info");
  const lastPage = start - 1 + done;
  return {
    text: output.text(),
    title: propertyText(information, "Title", file.reader),
    author: propertyText(information, "Author", file.reader),
    pages: pages.length,
    lastPage,
    nextPage: lastPage < Math.min(end ?? pages.length, pages.length) ? lastPage + 1 : undefined,
    truncated: output.full,
    unknownCharacters,
  };
}

interface PageOptions {
  readonly file: PdfFile;
  readonly budget: WorkBudget;
  readonly fonts: Map<PdfDict, PdfFont>;
}

/** One page that is damaged leaves the others readable. */
function readPage(
  { dict, resources }: Page,
  options: PageOptions,
): { readonly text: string; readonly unknown: number } {
  try {
    const { text, unknown, pictures } = pageText(contentsOf(dict, options), resources, options);
    const fields = formFields(dict, options.file.reader);
    const lines = [...(text === "" ? [] : [text]), ...(fields.length === 0 ? [] : ["[Form fields]", ...fields])];
    if (lines.length > 0) return { text: lines.join("\n"), unknown };
    return { text: pictures > 0 ? "[No text: the page is a picture, perhaps a scan]" : "[No text]", unknown };
  } catch (error) {
    if (!(error instanceof DocumentError) || !LOCAL.includes(error.code)) throw error;
    return { text: `[The page cannot be read: ${error.message}]`, unknown: 0 };
  }
}

/** The contents may be in several streams, which count as one. */
function contentsOf(page: PdfDict, { file, budget }: PageOptions): Uint8Array {
  const contents = file.reader.get(page, "Contents");
  const streams = (Array.isArray(contents) ? contents : [contents]).map((item) => file.reader.resolve(item));
  const parts = streams.flatMap((stream) => {
    budget.step(20);
    return isKind(stream, "stream") ? [file.decode(stream), Buffer.from("\n")] : [];
  });
  return Buffer.concat(parts);
}
