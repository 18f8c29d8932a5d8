/**
 * Prints what reading each hostile PDF file costs: seconds, peak of resident memory in MB, and how it ends. Each file is read in a
 * process of its own, within the bounds of `pdf_read`: `node test/bench/hostile_pdfs.bench.ts [part of a name]`, or with Deno.
 */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { DocumentError } from "../../lib/documents/document_error.ts";
import { pdfText } from "../../lib/documents/pdf/pdf_text.ts";
import { createWorkBudget } from "../../lib/documents/work_budget.ts";
import { HOSTILE_PDFS } from "../tools/documents/hostile_pdfs.ts";

const LIMITS = { timeMs: 20_000, maxParts: 2_000_000, maxInflatedBytes: 134_217_728 };
const [mode = "", name = ""] = process.argv.slice(2);

if (mode === "--read") readOne(name);
else {
  for (const hostile of Object.keys(HOSTILE_PDFS).filter((key) => key.includes(mode))) {
    const runtime = "Deno" in globalThis ? ["run", "--allow-all"] : [];
    const args = [...runtime, fileURLToPath(import.meta.url), "--read", hostile];
    const { stdout, status } = spawnSync(process.execPath, args, { encoding: "utf8", timeout: 120_000 });
    console.log(status === 0 ? stdout.trimEnd() : `                 ${hostile}: ended by ${status ?? "its time"}`);
  }
}

function readOne(hostile: string): void {
  const bytes = HOSTILE_PDFS[hostile]?.() ?? new Uint8Array(0);
  const before = peakMb();
  const started = performance.now();
  const ending = read(bytes);
  const seconds = (performance.now() - started) / 1000;
  const memory = [before, peakMb()].map((mb) => mb.toFixed(0).padStart(5));
  console.log(`${seconds.toFixed(2).padStart(6)} s ${memory.join(" ->")} MB  ${hostile}: ${ending}`);
}

function read(bytes: Uint8Array): string {
  try {
    const budget = createWorkBudget(LIMITS, { stopped: () => false });
    const { text, stoppedBy } = pdfText(bytes, { start: 1, end: undefined, budget });
    return stoppedBy ?? `${text.length} characters`;
  } catch (error) {
    return error instanceof DocumentError ? error.message : String(error);
  }
}

/** Returns the most memory that the process has had, which Linux alone tells on both runtimes. */
function peakMb(): number {
  return Number(/VmHWM:\s+(\d+)/.exec(readFileSync("/proc/self/status", "utf8"))?.[1] ?? 0) / 1024;
}
