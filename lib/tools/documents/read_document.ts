import { ToolError } from "../../base/errors.ts";
import { shown } from "../../system/files/parse_path.ts";
import { readShared } from "../../system/files/read_shared.ts";
import { WorkerError, workerModule } from "../../system/process/workers.ts";
import { readScope } from "../files/file_scope.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Workers } from "../../system/process/workers.ts";
import type { ContextWith } from "../runtime/define_tool.ts";
import type { DocumentErrorCode } from "../../documents/document_error.ts";
import type { DocxText } from "../../documents/docx/docx_text.ts";
import type { PdfText } from "../../documents/pdf/pdf_text.ts";
import type { WorkLimits } from "../../documents/work_budget.ts";

const MAX_FILE_BYTES = 33_554_432;
/** Heap of the thread: far more than the bounds below allow, since a thread at its limit may end the process */
const MAX_HEAP_MB = 1024;
const LIMITS: WorkLimits = { timeMs: 20_000, maxParts: 2_000_000, maxInflatedBytes: 134_217_728 };

/** Milliseconds that a call may take: the document's own time, and the wait for a thread. */
export const DOCUMENT_TIMEOUT_MS = 60_000;

/** Input of the thread. */
export type DocumentJob = { readonly file: SharedArrayBuffer; readonly limits: WorkLimits } & DocumentRequest;

/** Kind of a document and the part of it to read. */
export type DocumentRequest =
  | { readonly kind: "docx" }
  /** Pages from 1, both included; undefined: to the last */
  | { readonly kind: "pdf"; readonly pages: { readonly start: number; readonly end: number | undefined } };

/** Contents that the readers return, by the kind of document. */
export interface DocumentContents {
  readonly docx: DocxText;
  readonly pdf: PdfText;
}

/** Answer of the thread, with the content for the kind of document that the input named. */
export type DocumentAnswer =
  | { readonly kind: "content"; readonly content: DocumentContents[keyof DocumentContents] }
  | { readonly kind: "refused"; readonly code: DocumentErrorCode; readonly reason: string }
  | { readonly kind: "stumbled"; readonly error: string };

/**
 * Reads a document in a thread of its own, within bounds of bytes, memory and time.
 * @throws {ToolError} as Files.open, and the codes of DocumentError
 * @throws {CancelError} when the signal aborts
 */
export async function readDocument<R extends DocumentRequest>(
  path: string,
  request: R,
  context: ContextWith<"files" | "workers">,
): Promise<{ readonly content: DocumentContents[R["kind"]]; readonly size: number }> {
  const file = await readBytes(path, context);
  const { services: { workers }, log, signal } = context;
  const content = await readDocumentBytes(file, request, { name: path, workers, log, signal });
  return { content, size: file.byteLength };
}

/** Name, threads, log and signal that the bytes of a document are read with. */
export interface DocumentReading {
  /** Name for the refusals */
  readonly name: string;
  readonly workers: Pick<Workers, "run">;
  readonly log: Pick<Logger, "warn">;
  readonly signal: AbortSignal;
}

/** Reads a document whose bytes are there already. @throws as `readDocument` */
export async function readDocumentBytes<R extends DocumentRequest>(
  file: SharedArrayBuffer,
  request: R,
  { name, workers, log, signal }: DocumentReading,
): Promise<DocumentContents[R["kind"]]> {
  const job: DocumentJob = { ...request, file, limits: LIMITS };
  const refusal = (code: string, reason: string, cause?: unknown) =>
    new ToolError(code, `Cannot read ${shown(name)}: ${reason}`, { cause });
  let answer: DocumentAnswer;
  try {
    // document_worker.ts answers exactly this
    answer = await workers.run({
      module: workerModule(import.meta.url, "document_worker"),
      input: job,
      maxHeapMb: MAX_HEAP_MB,
      signal,
    }) as DocumentAnswer;
  } catch (error) {
    if (!(error instanceof WorkerError) || error.code !== "out_of_memory") throw error;
    throw refusal("document_too_large", `it needs more than ${MAX_HEAP_MB} MB of memory`, error);
  }
  if (answer.kind === "refused") throw refusal(answer.code, answer.reason);
  if (answer.kind === "stumbled") {
    log.warn("A document could not be read", { error: answer.error });
    throw refusal("document_invalid", "it is damaged in a way the reader does not understand");
  }
  // The thread answers with the content for the kind in its input
  return answer.content as DocumentContents[R["kind"]];
}

async function readBytes(
  path: string,
  context: ContextWith<"files" | "workers">,
): Promise<SharedArrayBuffer> {
  const file = await context.services.files.open(path, readScope(context));
  try {
    if (file.size > MAX_FILE_BYTES) {
      throw new ToolError(
        "document_too_large",
        `Cannot read ${shown(path)}: it has ${file.size} bytes, and documents are read up to ${MAX_FILE_BYTES}`,
      );
    }
    return await readShared(file, { path, signal: context.signal });
  } finally {
    await file.close();
  }
}
