import { ToolError } from "../../base/errors.ts";
import { WorkerError, workerModule } from "../../system/process/workers.ts";
import type { WebPage } from "../../web/read_page.ts";
import type { DocumentErrorCode } from "../../documents/document_error.ts";
import type { ContextWith } from "../runtime/define_tool.ts";

/** Heap of the thread. The bounds of the readers are met first, since a thread at its limit may end the process. */
const MAX_HEAP_MB = 1024;

/** Input of the thread. */
export interface PageJob {
  readonly body: SharedArrayBuffer;
  readonly contentType: string | undefined;
  readonly url: string;
}

/** Answer of the thread. `unsupported`: the body is no text. */
export type PageAnswer =
  | { readonly kind: "page"; readonly page: WebPage }
  | { readonly kind: "unsupported" }
  | { readonly kind: "refused"; readonly code: DocumentErrorCode; readonly reason: string }
  | { readonly kind: "stumbled"; readonly error: string };

/**
 * Reads a body as text in a thread of its own, within bounds of time and memory.
 * @returns undefined for a body that is no text
 * @throws {ToolError} `page_unreadable`, and the codes of DocumentError
 * @throws {CancelError} when the signal aborts
 */
export async function convertPage(
  { bytes, contentType, url }: {
    readonly bytes: Uint8Array;
    readonly contentType: string | undefined;
    readonly url: string;
  },
  context: Pick<ContextWith<"workers">, "services" | "signal" | "log">,
): Promise<WebPage | undefined> {
  const refusal = (code: string, reason: string, cause?: unknown) =>
    new ToolError(code, `Cannot read what "${hostOf(url)}" sent: ${reason}`, { cause });
  const body = new SharedArrayBuffer(bytes.length);
  new Uint8Array(body).set(bytes);
  let answer: PageAnswer;
  try {
    // page_worker.ts answers exactly this
    answer = await context.services.workers.run({
      module: workerModule(import.meta.url, "page_worker"),
      input: { body, contentType, url } satisfies PageJob,
      maxHeapMb: MAX_HEAP_MB,
      signal: context.signal,
    }) as PageAnswer;
  } catch (error) {
    if (!(error instanceof WorkerError)) throw error;
    throw refusal("page_unreadable", "it needs more memory than a page gets", error);
  }
  switch (answer.kind) {
    case "page":
      return answer.page;
    case "unsupported":
      return undefined;
    case "refused":
      throw refusal(answer.code, answer.reason);
    case "stumbled":
      context.log.warn("A page could not be read", { error: answer.error });
      throw refusal("page_unreadable", "it is damaged in a way the reader does not understand");
  }
}

function hostOf(url: string): string {
  return (URL.parse(url)?.host ?? "the address").slice(0, 100);
}
