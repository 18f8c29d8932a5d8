import assert from "node:assert/strict";
import { test } from "node:test";
import { DocumentError } from "../../../lib/documents/document_error.ts";
import { pdfText } from "../../../lib/documents/pdf/pdf_text.ts";
import { createWorkBudget } from "../../../lib/documents/work_budget.ts";
import { HOSTILE_PDFS } from "./hostile_pdfs.ts";

const LIMITS = { timeMs: 100, maxParts: 2_000_000, maxInflatedBytes: 134_217_728 };
/** Milliseconds that no file takes on a slow host, far below what one takes whose cost is not counted */
const MAX_MS = 10_000;
const CODES = [
  "document_invalid",
  "document_too_large",
  "document_too_slow",
  "document_encrypted",
  "document_unsupported",
];

for (const [name, build] of Object.entries(HOSTILE_PDFS)) {
  test(`${name}: the cost is bounded`, () => {
    const bytes = build();
    const started = performance.now();
    try {
      const budget = createWorkBudget(LIMITS, { stopped: () => false });
      const { text } = pdfText(bytes, { start: 1, end: undefined, budget });
      assert.ok(Buffer.byteLength(text) <= 250_000);
    } catch (error) {
      assert.ok(error instanceof DocumentError, error instanceof Error ? error.stack : String(error));
      assert.ok(CODES.includes(error.code), error.code);
    }
    assert.ok(performance.now() - started < MAX_MS, `${performance.now() - started} ms`);
  });
}
