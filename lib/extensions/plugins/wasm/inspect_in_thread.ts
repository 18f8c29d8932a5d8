import { workerModule, type Workers } from "../../../system/process/workers.ts";
import type { InspectJob, ModuleReport } from "./inspect_module.ts";

/** Mebibytes of JavaScript heap of the thread that looks at a module. */
const MAX_HEAP_MB = 1024;
const KEEP_THREAD_MS = 5000;

/** Looks at a module in a thread of its own, since a large one takes seconds. @throws as `Workers.run` */
export async function inspectInThread(
  job: InspectJob,
  { workers, signal }: { readonly workers: Workers; readonly signal: AbortSignal },
): Promise<ModuleReport> {
  // inspect_worker.ts answers exactly this
  return await workers.run({
    module: workerModule(import.meta.url, "inspect_worker"),
    input: job,
    maxHeapMb: MAX_HEAP_MB,
    keepMs: KEEP_THREAD_MS,
    signal,
  }) as ModuleReport;
}
