import { lstatSync, statSync } from "node:fs";
import { Worker } from "node:worker_threads";
import { cancelError } from "../../base/cancel.ts";
import { type Clock, withTimeout } from "../../base/clock.ts";
import { workerModule } from "./workers.ts";

/** Request to look through a folder before a command is started there, and after it. Plain data: it is handed to a thread. */
export interface SurveyRequest {
  /** Real, absolute path of a folder, or of a file that is looked at alone */
  readonly root: string;
  /** Real, absolute paths that are not looked into, since no command sees them: forbidden folders, Postern's own */
  readonly skip: readonly string[];
  /** Looks for what holds credentials. false: protected names alone, which takes a fifth of the time */
  readonly secrets: boolean;
  /** The user's home folder and Postern's own places: files of the root that are hard links of their secrets are found too */
  readonly home: string;
  readonly ownPaths: readonly string[];
  readonly timeoutMs: number;
}

/** A protected name that is there. */
export interface Guarded {
  /** Absolute */
  readonly path: string;
  /** See nameIdentity: another file of the same name has another */
  readonly identity: string;
}

/** Findings of a survey. The lists of an unfinished survey are not whole. */
export interface Survey {
  readonly finished: boolean;
  /** Files and folders that hold credentials: by name, by content, or as hard links of such files. Links by name too */
  readonly sensitive: readonly string[];
  /** Configurations of git repositories. They are among the sensitive files */
  readonly gitConfigs: readonly string[];
  /** Protected names, none of them below another */
  readonly guarded: readonly Guarded[];
  /**
   * Folders whose names are not UTF-8, which nobody looks into; with `secrets` also such files that hold credentials or cannot be looked
   * at, since nothing can hide them. U+FFFD stands for the bytes that are wrong
   */
  readonly unnamable: readonly string[];
}

/** Surveys in a thread of their own: a slow disk delays nobody else, and an answer that is late is a refusal. */
export interface Surveys {
  /** An unfinished survey where no answer came in time. @throws {CancelError} when the signal aborts */
  survey(request: SurveyRequest, signal: AbortSignal): Promise<Survey>;
  /** Ends the thread. Later surveys are unfinished */
  close(): Promise<void>;
}

/** The survey of whom nobody answered. */
export const UNFINISHED: Survey = {
  finished: false,
  sensitive: [],
  gitConfigs: [],
  guarded: [],
  unnamable: [],
};

/** Surveys that wait at once: with more, the disk does not answer */
const MAX_WAITING = 32;
/** A survey ends by its own clock; a thread that hangs in a call of the system does not */
const LATE_MS = 2000;
const MAX_HEAP_MB = 512;
/** Memory for short-lived objects. A start of a program takes 0.05 ms more for each megabyte of the gateway, since Node forks */
const MAX_YOUNG_MB = 4;

/** A thread, started by the first survey. It keeps no process alive while nobody waits. */
interface Thread {
  readonly worker: Worker;
  readonly waiting: Map<number, (survey: Survey) => void>;
}

/** Creates surveys without a thread. The first survey starts the thread. */
export function createSurveys({ clock }: { readonly clock: Clock }): Surveys {
  let thread: Thread | undefined;
  let closed = false;
  let count = 0;

  const startThread = (): Thread => {
    const worker = new Worker(workerModule(import.meta.url, "survey_worker"), {
      env: {},
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB, maxYoungGenerationSizeMb: MAX_YOUNG_MB },
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

/**
 * Tells what lies at a path: device, inode and time of birth, and those of what a symbolic link leads to. Another file, or a link
 * that leads to another place by now, has another identity.
 * @throws the error of the system where nothing can be seen
 */
export function nameIdentity(path: string): string {
  const found = lstatSync(path, { bigint: true });
  const own = idOf(found);
  if (!found.isSymbolicLink()) return own;
  try {
    return `${own}>${idOf(statSync(path, { bigint: true }))}`;
  } catch {
    return `${own}>none`;
  }
}

function idOf({ dev, ino, birthtimeNs }: { readonly dev: bigint; readonly ino: bigint; readonly birthtimeNs: bigint }) {
  return `${dev}:${ino}:${birthtimeNs}`;
}
