import { Worker } from "node:worker_threads";
import { cancelError } from "../../base/cancel.ts";
import { type Clock, withTimeout } from "../../base/clock.ts";
import { type Survey, type Surveys, UNFINISHED } from "./survey.ts";
import { workerModule } from "./worker_module.ts";

/** Surveys that wait at once: with more, the disk does not answer */
const MAX_WAITING = 32;
/** A survey ends by its own clock; a thread that hangs in a call of the system does not */
const LATE_MS = 2000;
const MAX_HEAP_MB = 512;

/** A thread, started by the first survey. It keeps no process alive while nobody waits. */
interface Thread {
  readonly worker: Worker;
  readonly waiting: Map<number, (survey: Survey) => void>;
}

export function createSurveys({ clock }: { readonly clock: Clock }): Surveys {
  let thread: Thread | undefined;
  let closed = false;
  let count = 0;

  const startThread = (): Thread => {
    const worker = new Worker(workerModule(import.meta.url, "survey_worker"), {
      env: {},
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB },
    });
    const waiting: Thread["waiting"] = new Map();
    const started = { worker, waiting };
    worker.on(
      "message",
      ({ id, survey }: { readonly id: number; readonly survey: Survey }) => waiting.get(id)?.(survey),
    );
    const broken = () => {
      if (thread === started) thread = undefined;
      for (const answer of waiting.values()) answer(UNFINISHED);
    };
    // Every one is listened to: an error nobody hears would end the process
    worker.on("error", broken);
    worker.once("exit", broken);
    worker.unref();
    return thread = started;
  };

  return {
    async survey(request, signal) {
      if (signal.aborted) throw cancelError(signal);
      if (closed) return UNFINISHED;
      const { worker, waiting } = thread ?? startThread();
      if (waiting.size >= MAX_WAITING) return UNFINISHED;
      const id = ++count;
      const { promise, resolve, reject } = Promise.withResolvers<Survey>();
      const onAbort = () => reject(cancelError(signal));
      waiting.set(id, resolve);
      signal.addEventListener("abort", onAbort, { once: true });
      worker.ref();
      try {
        worker.postMessage({ id, request });
        return await withTimeout(promise, { ms: request.timeoutMs + LATE_MS, clock }) ?? UNFINISHED;
      } finally {
        signal.removeEventListener("abort", onAbort);
        waiting.delete(id);
        if (waiting.size === 0) worker.unref();
      }
    },
    async close() {
      closed = true;
      await thread?.worker.terminate();
    },
  };
}
