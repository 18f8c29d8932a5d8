/**
 * Reasons why a document cannot be read. `document_invalid`: it is damaged or no such document; `document_unsupported`: it is of a
 * kind that is not read; `document_encrypted`: it needs a password; `document_too_large` and `document_too_slow`: a bound was
 * reached; `page_out_of_range`.
 */
export type DocumentErrorCode =
  | "document_invalid"
  | "document_unsupported"
  | "document_encrypted"
  | "document_too_large"
  | "document_too_slow"
  | "page_out_of_range";

/** Error of the readers, which do not know the document's name; `message` is what follows `Cannot read "path": `. */
export class DocumentError extends Error {
  override readonly name = "DocumentError";
  readonly code: DocumentErrorCode;
  constructor(code: DocumentErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}
