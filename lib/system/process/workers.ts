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
