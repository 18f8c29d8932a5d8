import { parentPort, workerData } from "node:worker_threads";

/** What a job is given beside its input. */
export interface JobContext {
  /** Whether somebody wants the job to end: long work looks often, since not every runtime can end a busy thread */
  stopped(): boolean;
}

/** Does the job this thread was started for; called once by the module a WorkerJob names. Must not throw. */
export async function answerJob(work: (input: unknown, context: JobContext) => unknown): Promise<void> {
  // createWorkers gives exactly this
  const { input, stop } = workerData as { readonly input: unknown; readonly stop: Int32Array };
  const answer = await work(input, { stopped: () => Atomics.load(stop, 0) !== 0 });
  parentPort?.postMessage(answer);
}
