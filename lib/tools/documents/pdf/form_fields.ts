import { textString } from "./document_strings.ts";
import { isKind, type PdfDict, type PdfReader } from "./pdf_object.ts";

const MAX_FIELDS = 1000;
const MAX_ANCESTORS = 10;
const MAX_VALUE = 2000;

/** What is filled into the form fields of a page, as `name: value`; it does not stand in the page's contents. */
export function formFields(page: PdfDict, reader: PdfReader): readonly string[] {
  return reader.array(page, "Annots").slice(0, MAX_FIELDS).flatMap((item) => {
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
    return [`${names.map(textString).join(".").slice(0, MAX_VALUE)}: ${textString(value).slice(0, MAX_VALUE)}`];
  });
}
