import { MessageChannel, type MessagePort, Worker } from "node:worker_threads";
import type { Clock } from "../../../base/clock.ts";
import type { HostRequest } from "./kernel.ts";
import { ModuleFailure } from "./module_failure.ts";
import { threadEnvironment, workerModule } from "../../../system/process/workers.ts";
import {
  type HostAnswer,
  type JobEnd,
  PLACES,
  STOPS,
  type ThreadData,
  type ThreadJob,
  type ThreadMessage,
} from "./wasm_messages.ts";

/** Milliseconds that a module has to stop once it is told to. Metered code needs far less; then the thread is ended. */
const STOP_MS = 2000;
/** Mebibytes of JavaScript heap of a thread, as a second line: the memory of modules does not count. */
const HEAP_MB = 256;
const YOUNG_MB = 32;
const STACK_MB = 4;

/** Time limit of a job, and the answers that its module gets. */
export interface JobServices {
  /** Answers a request of the module. Must not throw, and ends when the signal aborts */
  readonly answer: (request: HostRequest, signal: AbortSignal) => Promise<HostAnswer>;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** Thread with one module. It does one job at a time, and keeps no process alive while it has none. */
export class WasmThread {
  readonly #worker: Worker;
  readonly #answers: MessagePort;
  readonly #clock: Clock;
  readonly #shared = new Int32Array(new SharedArrayBuffer(PLACES.count * Int32Array.BYTES_PER_ELEMENT));
  #job: PromiseWithResolvers<JobEnd> | undefined;
  #services: JobServices | undefined;
  #over = new AbortController();
  #hasEnded = false;

  /** @param module content of the module, in shared memory, or what another thread has made of it */
  constructor(
    module: ThreadData["module"],
    { bounds, settings, clock }: Pick<ThreadData, "bounds" | "settings"> & { readonly clock: Clock },
  ) {
    const { port1, port2 } = new MessageChannel();
    this.#clock = clock;
    this.#answers = port1;
    const workerData: ThreadData = { module, bounds, settings, shared: this.#shared, answers: port2 };
    this.#worker = new Worker(workerModule(import.meta.url, "wasm_worker"), {
      workerData,
      transferList: [port2],
      env: threadEnvironment(),
      // Extism loads the WASI of Node, of which Node warns, and does not use it
      execArgv: "Deno" in globalThis ? [] : ["--disable-warning=ExperimentalWarning"],
      resourceLimits: {
        maxOldGenerationSizeMb: HEAP_MB,
        maxYoungGenerationSizeMb: YOUNG_MB,
        stackSizeMb: STACK_MB,
      },
    });
    this.#worker.on("message", (message: ThreadMessage) => {
      if (message.kind === "end") this.#job?.resolve(message.end);
      else void this.#answer(message.request);
    });
    // Every one is listened to: an error nobody hears would end the process
    this.#worker.on("error", (error: Error & { readonly code?: string }) => {
      const isOutOfMemory = error.code === "ERR_WORKER_OUT_OF_MEMORY";
      this.#break(isOutOfMemory ? "its thread ran out of memory" : `its thread broke: ${error.message}`);
    });
    this.#worker.once("exit", () => this.#break("its thread ended"));
    this.#answers.unref();
    this.#worker.unref();
  }

  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  /** Does a job. One that takes too long, or is cancelled, ends as failed. @throws {ModuleFailure} when the thread ended */
  async run(job: ThreadJob, services: JobServices): Promise<JobEnd> {
    const { timeoutMs, signal } = services;
    if (this.#hasEnded) throw new ModuleFailure("failed", "its thread ended");
    this.#job = Promise.withResolvers();
    this.#services = services;
    this.#over = new AbortController();
    Atomics.store(this.#shared, PLACES.stop, 0);
    const timer = this.#clock.after(timeoutMs, () => this.#stop(STOPS.timeout));
    const onAbort = () => this.#stop(STOPS.cancelled);
    signal.addEventListener("abort", onAbort, { once: true });
    this.#worker.ref();
    try {
      this.#worker.postMessage(job);
      if (signal.aborted) onAbort();
      return await this.#job.promise;
    } finally {
      timer.clear();
      signal.removeEventListener("abort", onAbort);
      this.#over.abort();
      this.#job = undefined;
      this.#services = undefined;
      if (!this.#hasEnded) this.#worker.unref();
    }
  }

  /** Ends the thread, whatever it does. */
  async end(): Promise<void> {
    this.#break("its thread was ended");
    // Deno ends no thread that runs or waits: it must end itself
    Atomics.store(this.#shared, PLACES.stop, STOPS.ended);
    Atomics.notify(this.#shared, PLACES.stop);
    Atomics.notify(this.#shared, PLACES.reply);
    this.#answers.close();
    // The process waits for the end
    this.#worker.ref();
    await this.#worker.terminate();
  }

  /** Tells the module to stop, which it hears at the latest when its fuel is counted again. */
  #stop(reason: number): void {
    if (Atomics.compareExchange(this.#shared, PLACES.stop, 0, reason) !== 0) return;
    Atomics.notify(this.#shared, PLACES.stop);
    this.#over.abort();
    const job = this.#job;
    // Nothing but the engine's own work, such as the compilation of a large module, takes longer
    const timer = this.#clock.after(STOP_MS, () => void this.end());
    job?.promise.finally(() => timer.clear()).catch(() => {});
  }

  async #answer(request: HostRequest): Promise<void> {
    const signal = this.#over.signal;
    const answer = await this.#services?.answer(request, signal) ??
      { kind: "refusal", code: "failed", reason: "nobody answers" } as const;
    if (this.#hasEnded) return;
    this.#answers.postMessage(answer);
    Atomics.store(this.#shared, PLACES.reply, 1);
    Atomics.notify(this.#shared, PLACES.reply);
  }

  #break(reason: string): void {
    this.#hasEnded = true;
    this.#over.abort();
    this.#job?.reject(new ModuleFailure("failed", reason));
  }
}
