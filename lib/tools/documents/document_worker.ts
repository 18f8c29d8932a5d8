import { answerJobs } from "../../system/process/workers.ts";
import { DocumentError } from "../../documents/document_error.ts";
import type { DocumentAnswer, DocumentJob } from "./read_document.ts";
import { createWorkBudget } from "../../documents/work_budget.ts";

// Runs as a thread of its own, for one document, and loads only the reader of that kind
answerJobs(async (input, context): Promise<DocumentAnswer> => {
  // read_document.ts gives exactly this
  const job = input as DocumentJob;
  const budget = createWorkBudget(job.limits, context);
  // Copied, since not every decoder takes shared bytes
  const bytes = new Uint8Array(new Uint8Array(job.file));
  try {
    switch (job.kind) {
      case "docx": {
        const { docxText } = await import("../../documents/docx/docx_text.ts");
        return { kind: "content", content: docxText(bytes, budget) };
      }
      case "pdf": {
        const { pdfText } = await import("../../documents/pdf/pdf_text.ts");
        return { kind: "content", content: pdfText(bytes, { ...job.pages, budget }) };
      }
    }
  } catch (error) {
    if (error instanceof DocumentError) return { kind: "refused", code: error.code, reason: error.message };
    // Any other error means a damaged document; the log gets the error
    return { kind: "stumbled", error: error instanceof Error ? String(error.stack) : String(error) };
  }
});
