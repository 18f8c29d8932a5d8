import { DocumentError } from "../../documents/document_error.ts";
import { answerJobs } from "../../system/process/workers.ts";
import { readPage } from "../../web/read_page.ts";
import type { PageAnswer, PageJob } from "./convert_page.ts";

// Runs as a thread of its own, for one page
answerJobs(async (input, context): Promise<PageAnswer> => {
  // convert_page.ts gives exactly this
  const { body, contentType, url } = input as PageJob;
  // Copied, since not every decoder takes shared bytes
  const bytes = new Uint8Array(new Uint8Array(body));
  try {
    const page = await readPage({ bytes, contentType, url }, context);
    return page === undefined ? { kind: "unsupported" } : { kind: "page", page };
  } catch (error) {
    if (error instanceof DocumentError) return { kind: "refused", code: error.code, reason: error.message };
    // Any other error means a damaged document; the log gets the error
    return { kind: "stumbled", error: error instanceof Error ? String(error.stack) : String(error) };
  }
});
