import { Buffer } from "node:buffer";
import { HttpError, refuse, ToolError } from "../../base/errors.ts";
import { neutralize } from "../../base/neutral_text.ts";
import { type ContentPart, documentText } from "../../base/records/message.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { DOCX, type Upload } from "../../memory/uploads.ts";
import type { Workers } from "../../system/process/workers.ts";
import { readDocumentBytes } from "./read_document.ts";

/** Characters of a document that the model is shown */
const MAX_TEXT = 200_000;

/** Threads, log and signal that a document is read with. */
export interface UploadPartOptions {
  readonly workers: Pick<Workers, "run">;
  readonly log: Pick<Logger, "warn">;
  readonly signal: AbortSignal;
  /** Field that names the file, for the refusal */
  readonly param: string;
}

/**
 * Returns a file that a client sent as a part of a message: a picture as itself, a document as its text.
 * @throws {HttpError} 400 `invalid_request` for a file that cannot be read; {CancelError} when the signal aborts
 */
export async function uploadPart(
  { filename, media_type: type, sha256 }: Upload,
  bytes: Uint8Array,
  options: UploadPartOptions,
): Promise<ContentPart> {
  if (type.startsWith("image/")) {
    const url = `data:${type};base64,${Buffer.from(bytes).toString("base64")}`;
    return { type: "image_url", image_url: { url } };
  }
  const { text, notice } = await textOf(bytes, { type, filename, ...options });
  const cut = text.length > MAX_TEXT ? `, cut after ${MAX_TEXT} characters` : notice;
  const name = neutralize(JSON.stringify(filename));
  const content = neutralize(text.slice(0, MAX_TEXT).toWellFormed());
  // Attack: a text that ends itself, behind which it would speak for the user. None can hold the hash of its own bytes
  return { type: "text", text: documentText({ name, mark: sha256.slice(0, 24), text: content, cut }) };
}

async function textOf(
  bytes: Uint8Array,
  { type, filename, workers, log, signal, param }: UploadPartOptions & {
    readonly type: string;
    readonly filename: string;
  },
): Promise<{ readonly text: string; readonly notice: string }> {
  if (type.startsWith("text/")) return { text: new TextDecoder().decode(bytes), notice: "" };
  const reading = { name: filename, workers, log, signal };
  try {
    if (type === "application/pdf") {
      const pages = { start: 1, end: undefined };
      const read = await readDocumentBytes(toShared(bytes), { kind: "pdf", pages }, reading);
      const isCut = read.truncated || read.nextPage !== undefined;
      return { text: read.text, notice: isCut ? `, cut after page ${read.lastPage} of ${read.pages}` : "" };
    }
    if (type === DOCX) {
      const read = await readDocumentBytes(toShared(bytes), { kind: "docx" }, reading);
      return { text: read.text, notice: read.truncated ? ", cut" : "" };
    }
  } catch (error) {
    if (error instanceof HttpError || !(error instanceof ToolError)) throw error;
    throw refuse("invalid_request", error.message, { param, cause: error });
  }
  const known = "pictures (PNG, JPEG, WebP, GIF), PDF, Word documents (.docx) and text in UTF-8";
  throw refuse("invalid_request", `Cannot show this file to the model: what is shown are ${known}`, { param });
}

function toShared(bytes: Uint8Array): SharedArrayBuffer {
  const shared = new SharedArrayBuffer(bytes.length);
  new Uint8Array(shared).set(bytes);
  return shared;
}
