import type { PdfDict, PdfReader } from "./pdf_object.ts";

const MAX_PROPERTY = 500;
/** PDFDocEncoding from 0x80 to 0xa0, where it is not Latin 1 */
const UPPER = "•†‡…—–ƒ⁄‹›−‰„“”‘’‚™ﬁﬂŁŒŠŸŽıłœšž\u009f€";

/** The text of a string outside of a page's contents: UTF-16 or UTF-8 with a mark, else Latin. Source: ISO 32000-2, section 7.9.2.2 and annex D.3 */
export function textString(bytes: string): string {
  const buffer = Buffer.from(bytes, "latin1");
  if (bytes.startsWith("\xfe\xff")) return new TextDecoder("utf-16be").decode(buffer);
  if (bytes.startsWith("\xff\xfe")) return new TextDecoder("utf-16le").decode(buffer);
  if (bytes.startsWith("\xef\xbb\xbf")) return new TextDecoder().decode(buffer);
  return bytes.replace(/[\u0080-\u009e\u00a0]/g, (byte) => UPPER[byte.charCodeAt(0) - 0x80] ?? "");
}

/** An entry of the document's information as one line; undefined when there is none. */
export function propertyText(information: PdfDict | undefined, key: string, reader: PdfReader): string | undefined {
  const bytes = information === undefined ? undefined : reader.string(information, key);
  // deno-lint-ignore no-control-regex
  const text = textString(bytes ?? "").slice(0, MAX_PROPERTY).replace(/[\u0000-\u001f\u007f-\u009f]+/g, " ").trim();
  return text === "" ? undefined : text;
}
