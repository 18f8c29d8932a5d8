import { parentPort, Worker, workerData } from "node:worker_threads";
import { cancelError } from "../../base/cancel.ts";

/** Threads for work that cannot hear a signal: documents, patterns (docs/design/architecture.md "Signals"). */
export interface Workers {
  /**
   * Runs a job in a thread of its own, which ends with it; waits while as many as allowed are running.
   * @returns what the job's module returned, copied
   * @throws {CancelError} when the signal aborts; the thread is terminated at once
   * @throws {WorkerError} the thread ran out of memory, or broke
   */
  run(job: WorkerJob): Promise<unknown>;
  /** Terminates what is running; jobs from now on are refused */
  close(): Promise<void>;
}

/** Work for a thread of its own. */
export interface WorkerJob {
  /** A module that calls `answerJob` */
  readonly module: URL;
  /** Copied to the thread. Many bytes stand in a SharedArrayBuffer, which is not: on Deno, handing over others takes seconds */
  readonly input: unknown;
  /**
   * Mebibytes of JavaScript heap, as a second line: typed arrays do not count, and the limit is heard between function calls
   * only, so the module bounds its memory itself
   */
  readonly maxHeapMb: number;
  readonly signal: AbortSignal;
}

/** Reasons why a thread gave no answer: `out_of_memory` is the limit of its heap, `broken` any other end. */
export type WorkerErrorCode = "out_of_memory" | "broken";

/** The thread ended without an answer. */
export class WorkerError extends Error {
  override readonly name = "WorkerError";
  readonly code: WorkerErrorCode;
  constructor(code: WorkerErrorCode, options?: { readonly cause?: unknown }) {
    super(code === "out_of_memory" ? "A worker ran out of memory" : "A worker ended without an answer", options);
    this.code = code;
  }
}

const MAX_YOUNG_MB = 32;
const STACK_MB = 4;

/**
 * Threads on demand; nothing is started before the first job.
 * @param options.maxWorkers how many run at once
 */
export function createWorkers({ maxWorkers }: { readonly maxWorkers: number }): Workers {
  const running = new Set<Promise<unknown>>();
  const waiting: (() => void)[] = [];
  const closing = new AbortController();
  let free = maxWorkers;

  const takePlace = async (signal: AbortSignal) => {
    if (free > 0) {
      free--;
      return;
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const abort = () => {
      const at = waiting.indexOf(resolve);
      // A job that just got its slot is not in the list: its thread sees the signal
      if (at !== -1) waiting.splice(at, 1);
      reject(cancelError(signal));
    };
    waiting.push(resolve);
    signal.addEventListener("abort", abort, { once: true });
    await promise.finally(() => signal.removeEventListener("abort", abort));
  };
  const givePlace = () => {
    const next = waiting.shift();
    if (next === undefined) free++;
    else next();
  };

  const run = async (job: WorkerJob) => {
    const signal = AbortSignal.any([job.signal, closing.signal]);
    if (signal.aborted) throw cancelError(signal);
    await takePlace(signal);
    try {
      return await runThread(job, signal);
    } finally {
      givePlace();
    }
  };

  return {
    run(job) {
      const result = run(job);
      const settled = result.then(() => {}, () => {}).finally(() => running.delete(settled));
      running.add(settled);
      return result;
    },
    async close() {
      closing.abort();
      await Promise.all(running);
    },
  };
}

async function runThread({ module, input, maxHeapMb }: WorkerJob, signal: AbortSignal) {
  if (signal.aborted) throw cancelError(signal);
  // Deno does not stop a looping thread, so the job is told as well
  const stop = new Int32Array(new SharedArrayBuffer(4));
  const { promise, resolve, reject } = Promise.withResolvers<unknown>();
  const worker = new Worker(module, {
    workerData: { input, stop },
    // The job gets nothing that it is not given: neither the environment nor the program's own options
    env: {},
    execArgv: [],
    resourceLimits: {
      maxOldGenerationSizeMb: maxHeapMb,
      maxYoungGenerationSizeMb: MAX_YOUNG_MB,
      stackSizeMb: STACK_MB,
    },
  });
  const abort = () => {
    Atomics.store(stop, 0, 1);
    reject(cancelError(signal));
  };
  worker.once("message", resolve);
  // Every one is listened to: an error nobody hears would end the process
  worker.on("error", (error: Error & { readonly code?: string }) => {
    const outOfMemory = error.code === "ERR_WORKER_OUT_OF_MEMORY";
    reject(new WorkerError(outOfMemory ? "out_of_memory" : "broken", { cause: error }));
  });
  worker.once("exit", () => reject(new WorkerError("broken")));
  signal.addEventListener("abort", abort, { once: true });
  try {
    return await promise;
  } finally {
    signal.removeEventListener("abort", abort);
    await worker.terminate();
  }
}

/** Context of a job beside its input. */
export interface JobContext {
  /** Tells whether somebody wants the job to end. Long work asks often, since not every runtime can end a busy thread. */
  stopped(): boolean;
}

/** Does the job this thread was started for; called once by the module a WorkerJob names. Must not throw. */
export async function answerJob(work: (input: unknown, context: JobContext) => unknown): Promise<void> {
  // createWorkers gives exactly this
  const { input, stop } = workerData as { readonly input: unknown; readonly stop: Int32Array };
  const answer = await work(input, { stopped: () => Atomics.load(stop, 0) !== 0 });
  parentPort?.postMessage(answer);
}

/**
 * Returns the module of a thread, beside the module that starts it: as source it is TypeScript, as a package JavaScript.
 * @param importer `import.meta.url` of the module that starts it
 * @param name without its ending, as `document_worker`
 */
export function workerModule(importer: string, name: string): URL {
  return new URL(`./${name}.${importer.endsWith(".ts") ? "ts" : "js"}`, importer);
}
