import { access } from "node:fs/promises";
import * as nodeModule from "node:module";
import { dirname } from "node:path";
import process from "node:process";
import { parentPort, Worker } from "node:worker_threads";
import { cancelError } from "../../base/cancel.ts";
import { ConfigError } from "../../base/errors.ts";
import { batchPerTick } from "../../base/tick.ts";
import type { Clock, Timer } from "../../base/clock.ts";

/** Work for a thread of its own. */
export interface WorkerJob {
  /** A module that calls `answerJobs` */
  readonly module: URL;
  /** Data that is copied to the thread. Many bytes stand in a SharedArrayBuffer, which is not: on Deno, handing over others takes seconds */
  readonly input: unknown;
  /**
   * Mebibytes of JavaScript heap, as a second line: typed arrays do not count, and the limit is heard between function calls
   * only, so the module bounds its memory itself
   */
  readonly maxHeapMb: number;
  /**
   * Milliseconds that the thread waits for the next job of its module once it has answered: to start one takes longer than a short job.
   * At most one thread of a module waits. Default 0: the thread ends with the job
   */
  readonly keepMs?: number;
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

/** Variable by which Node keeps what it has compiled */
const CACHE_VARIABLE = "NODE_COMPILE_CACHE";
const MAX_YOUNG_MB = 32;
const STACK_MB = 4;

/** Thread without a job, and the timer that ends it. */
interface KeptThread {
  readonly thread: Thread;
  readonly timer: Timer;
}

/**
 * Threads for work that cannot hear a signal: documents, patterns (docs/design/architecture.md "Signals").
 * Nothing is started before the first job.
 */
export class Workers {
  readonly #clock: Clock;
  readonly #running = new Set<Promise<unknown>>();
  readonly #waiting: (() => void)[] = [];
  /** Threads without a job by their kind: at most one of each */
  readonly #kept = new Map<string, KeptThread>();
  readonly #closing = new AbortController();
  #free: number;

  /** @param options.maxWorkers how many run at once */
  constructor({ maxWorkers, clock }: { readonly maxWorkers: number; readonly clock: Clock }) {
    this.#clock = clock;
    this.#free = maxWorkers;
  }

  /**
   * Runs a job in a thread that does nothing else meanwhile; waits while as many as allowed are running.
   * @returns what the job's module returned, copied
   * @throws {CancelError} when the signal aborts; the thread is terminated at once
   * @throws {WorkerError} the thread ran out of memory, or broke
   */
  run(job: WorkerJob): Promise<unknown> {
    const result = this.#run(job);
    const settled = result.then(() => {}, () => {}).finally(() => this.#running.delete(settled));
    this.#running.add(settled);
    return result;
  }

  /** Terminates what is running and what is kept; jobs from now on are refused */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.all(this.#running);
    await Promise.all([...this.#kept.keys()].map((kind) => this.#takeKept(kind)?.end()));
  }

  async #run(job: WorkerJob): Promise<unknown> {
    const signal = AbortSignal.any([job.signal, this.#closing.signal]);
    if (signal.aborted) throw cancelError(signal);
    await this.#takePlace(signal);
    try {
      return await this.#runInThread(job, signal);
    } finally {
      this.#givePlace();
    }
  }

  async #takePlace(signal: AbortSignal): Promise<void> {
    if (this.#free > 0) {
      this.#free--;
      return;
    }
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const abort = () => {
      const at = this.#waiting.indexOf(resolve);
      // A job that just got its slot is not in the list: its thread sees the signal
      if (at !== -1) this.#waiting.splice(at, 1);
      reject(cancelError(signal));
    };
    this.#waiting.push(resolve);
    signal.addEventListener("abort", abort, { once: true });
    await promise.finally(() => signal.removeEventListener("abort", abort));
  }

  #givePlace(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#free++;
    else next();
  }

  async #runInThread({ module, input, maxHeapMb, keepMs = 0 }: WorkerJob, signal: AbortSignal): Promise<unknown> {
    if (signal.aborted) throw cancelError(signal);
    const kind = `${maxHeapMb} ${module.href}`;
    const thread = this.#takeKept(kind) ?? new Thread(module, maxHeapMb);
    let isKept = false;
    try {
      const answer = await thread.run(input, signal);
      isKept = keepMs > 0 && !this.#closing.signal.aborted && !this.#kept.has(kind);
      if (isKept) this.#keep(kind, { thread, ms: keepMs });
      return answer;
    } finally {
      if (!isKept) await thread.end();
    }
  }

  #keep(kind: string, { thread, ms }: { readonly thread: Thread; readonly ms: number }): void {
    this.#kept.set(kind, { thread, timer: this.#clock.after(ms, () => void this.#takeKept(kind)?.end()) });
  }

  /** Returns the thread that waits for a job, which is then no longer kept. undefined when none waits */
  #takeKept(kind: string): Thread | undefined {
    const kept = this.#kept.get(kind);
    this.#kept.delete(kind);
    kept?.timer.clear();
    return kept?.thread.hasEnded() === true ? undefined : kept?.thread;
  }
}

/** Message to a thread: the input of its next job, and the place where the job is told to stop. */
interface JobMessage {
  readonly input: unknown;
  readonly stop: Int32Array;
}

/** Message of a thread about the job that it was given. */
type JobAnswer = { readonly kind: "done"; readonly answer: unknown } | {
  readonly kind: "broken";
  readonly error: string;
};

/** Thread that does one job at a time. It keeps no process alive while it has none. */
class Thread {
  readonly #worker: Worker;
  #job: PromiseWithResolvers<unknown> | undefined;
  #hasEnded = false;

  constructor(module: URL, maxHeapMb: number) {
    this.#worker = new Worker(module, {
      // The job gets nothing that it is not given: neither the environment nor the program's own options
      env: threadEnvironment(),
      execArgv: [],
      resourceLimits: {
        maxOldGenerationSizeMb: maxHeapMb,
        maxYoungGenerationSizeMb: MAX_YOUNG_MB,
        stackSizeMb: STACK_MB,
      },
    });
    this.#worker.on("message", (message: JobAnswer) => {
      if (message.kind === "done") this.#job?.resolve(message.answer);
      else this.#job?.reject(new WorkerError("broken", { cause: message.error }));
    });
    // Every one is listened to: an error nobody hears would end the process
    this.#worker.on("error", (error: Error & { readonly code?: string }) => {
      const outOfMemory = error.code === "ERR_WORKER_OUT_OF_MEMORY";
      this.#break(new WorkerError(outOfMemory ? "out_of_memory" : "broken", { cause: error }));
    });
    this.#worker.once("exit", () => this.#break(new WorkerError("broken")));
  }

  hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Does a job. After an error the thread is of no use any more. @throws as Workers.run */
  async run(input: unknown, signal: AbortSignal): Promise<unknown> {
    // Deno does not stop a looping thread, so the job is told as well
    const stop = new Int32Array(new SharedArrayBuffer(4));
    const job = Promise.withResolvers<unknown>();
    const abort = () => {
      Atomics.store(stop, 0, 1);
      job.reject(cancelError(signal));
    };
    this.#job = job;
    signal.addEventListener("abort", abort, { once: true });
    this.#worker.ref();
    try {
      const message: JobMessage = { input, stop };
      this.#worker.postMessage(message);
      return await job.promise;
    } finally {
      this.#job = undefined;
      this.#worker.unref();
      signal.removeEventListener("abort", abort);
    }
  }

  async end(): Promise<void> {
    await this.#worker.terminate();
  }

  #break(error: WorkerError): void {
    this.#hasEnded = true;
    this.#job?.reject(error);
  }
}

/** Context of a job beside its input. */
export interface JobContext {
  /** Tells whether somebody wants the job to end. Long work asks often, since not every runtime can end a busy thread. */
  stopped(): boolean;
}

/** Does the jobs that this thread is given, one after the other; called once by the module a WorkerJob names. */
export function answerJobs(work: (input: unknown, context: JobContext) => unknown): void {
  // The thread has used it when it loaded this module
  delete process.env[CACHE_VARIABLE];
  // Thread posts exactly this
  const answer = async ({ input, stop }: JobMessage) =>
    parentPort?.postMessage(await answerOf(() => work(input, { stopped: () => Atomics.load(stop, 0) !== 0 })));
  // In a tick of its own: a thread of Deno that runs out of memory while it handles a message tells nobody
  parentPort?.on("message", batchPerTick(1, (message: JobMessage) => void answer(message)));
}

async function answerOf(work: () => unknown): Promise<JobAnswer> {
  try {
    return { kind: "done", answer: await work() };
  } catch (error) {
    return { kind: "broken", error: error instanceof Error ? String(error.stack) : String(error) };
  }
}

/** Returns the environment of a thread: empty, save for the folder where Node keeps what it has compiled, which halves the thread's start. */
export function threadEnvironment(): Readonly<Record<string, string>> {
  // Called through the namespace: Deno has no such function
  const folder = nodeModule.getCompileCacheDir?.();
  // Node appends its version to the folder that it is given
  return folder === undefined ? {} : { [CACHE_VARIABLE]: dirname(folder) };
}

/**
 * Returns the module of a thread, beside the module that starts it: as source it is TypeScript, as a package JavaScript.
 * @param importer `import.meta.url` of the module that starts it
 * @param name without its ending, such as `document_worker`
 */
export function workerModule(importer: string, name: string): URL {
  const module = new URL(`./${name}.${importer.endsWith(".ts") ? "ts" : "js"}`, importer);
  // Modules of a server: a thread of Deno begins with a file or with data
  return module.protocol === "file:" ? module : new URL(`data:text/javascript,import ${JSON.stringify(module.href)}`);
}

/** Checks that the module of a thread is beside the code that starts it. In a bundle it is not. @throws {ConfigError} `package_bundled` */
export async function requireThread(module: URL): Promise<void> {
  if (module.protocol !== "file:") return;
  try {
    await access(module);
  } catch (cause) {
    const cure =
      'leave the package out of it: --external:postern for esbuild, external: ["postern"] for Rollup, Vite and Nitro, serverExternalPackages: ["postern"] for Next.js';
    const message = `Cannot use Postern from a bundle, where the files of its threads are missing: ${cure}`;
    throw new ConfigError("package_bundled", message, { cause });
  }
}
