import { Worker } from "node:worker_threads";
import { cancelError } from "../../base/cancel.ts";
import { WorkerError, type WorkerJob, type Workers } from "./workers.ts";

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
      // Its turn may just have come: then the thread is what sees the signal
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
