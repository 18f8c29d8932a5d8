import { lstatSync, statSync } from "node:fs";
import { availableParallelism } from "node:os";
import { Worker } from "node:worker_threads";
import { cancelError } from "../../base/cancel.ts";
import { type Clock, withTimeout } from "../../base/clock.ts";
import { threadEnvironment, workerModule } from "./workers.ts";

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
  /** Milliseconds since the epoch: files whose content or place changed since are told. Default: none are */
  readonly changedSince?: number | undefined;
  /** Share of one of several threads. Each looks at every name, and at its own share of the files. Default: all files */
  readonly part?: { readonly index: number; readonly count: number };
}

/** A protected name that is there. */
export interface Guarded {
  /** Absolute */
  readonly path: string;
  /** See nameIdentity: another file of the same name has another */
  readonly identity: string;
  /** True for a folder that a link or another git folder leads to: without them it is a folder like others. Default false */
  readonly isLed?: boolean;
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
  /** Unix sockets */
  readonly sockets: readonly string[];
  /**
   * Folders and sockets whose names are not UTF-8, which nobody looks into; with `secrets` also such files that hold credentials or cannot be looked
   * at, since nothing can hide them. U+FFFD stands for the bytes that are wrong
   */
  readonly unnamable: readonly string[];
  /** Files that changed since `changedSince`, outside of folders of git. At most MAX_CHANGED: with more the survey is unfinished */
  readonly changed: readonly string[];
  /** Number of files that were looked at for their content */
  readonly files: number;
}

/** The survey of whom nobody answered. */
export const UNFINISHED: Survey = {
  finished: false,
  sensitive: [],
  gitConfigs: [],
  guarded: [],
  sockets: [],
  unnamable: [],
  changed: [],
  files: 0,
};

/** Changed files that a survey tells. */
export const MAX_CHANGED = 100_000;

/** Surveys that wait at once: with more, the disk does not answer */
const MAX_WAITING = 32;
/** A survey ends by its own clock; a thread that hangs in a call of the system does not */
const LATE_MS = 2000;
const MAX_HEAP_MB = 512;
/** Memory for short-lived objects. A start of a program takes 0.05 ms more for each megabyte of the gateway, since Node forks */
const MAX_YOUNG_MB = 4;

/** A survey of fewer files takes less than 5 ms in one thread */
const MANY_FILES = 2000;
const MAX_THREADS = 4;

/** Services of surveys. */
export interface SurveysOptions {
  readonly clock: Clock;
  /** Threads that share a survey of many files. Default: one for each processor, at most MAX_THREADS */
  readonly maxThreads?: number;
  /** Module of a thread. Default: `survey_worker` */
  readonly module?: URL;
}

/**
 * Surveys in threads of their own: a slow disk delays nobody else, and an answer that is late is a refusal.
 *
 * Most of the time of a survey are calls of the system, one for each file, so threads share the files. Each thread looks at all names for
 * itself. Where one thread ends or is late, the survey is unfinished. The first survey starts one thread, the first after a survey of many
 * files starts the others.
 */
export class Surveys {
  readonly #clock: Clock;
  readonly #maxThreads: number;
  readonly #module: URL;
  readonly #threads: SurveyThread[] = [];
  #isClosed = false;
  /** True once a survey has looked at many files */
  #isLarge = false;

  constructor({ clock, maxThreads, module }: SurveysOptions) {
    this.#clock = clock;
    this.#maxThreads = maxThreads ?? Math.min(availableParallelism(), MAX_THREADS);
    this.#module = module ?? workerModule(import.meta.url, "survey_worker");
  }

  /** An unfinished survey where no answer came in time. @throws {CancelError} when the signal aborts */
  async survey(request: SurveyRequest, signal: AbortSignal): Promise<Survey> {
    if (signal.aborted) throw cancelError(signal);
    if (this.#isClosed) return UNFINISHED;
    const count = request.secrets && this.#isLarge ? this.#maxThreads : 1;
    const threads = Array.from({ length: count }, (_, index) => this.#threadAt(index));
    const parts = threads.map((thread, index) => thread.survey({ ...request, part: { index, count } }, signal));
    const whole = joinParts(await Promise.all(parts));
    this.#isLarge ||= whole.files >= MANY_FILES;
    return whole;
  }

  /** Ends the threads. Later surveys are unfinished */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all(this.#threads.map((thread) => thread.close()));
  }

  #threadAt(index: number): SurveyThread {
    const thread = this.#threads[index];
    if (thread?.isAlive === true) return thread;
    return this.#threads[index] = new SurveyThread(this.#clock, this.#module);
  }
}

/** Joins the parts of one survey. A part has found all that names tell, and what its own share of the files holds. */
function joinParts(parts: readonly Survey[]): Survey {
  const [first = UNFINISHED] = parts;
  if (parts.length < 2) return first;
  const all = (listOf: (part: Survey) => readonly string[]) => [...new Set(parts.flatMap(listOf))].sort();
  return {
    finished: parts.every(({ finished }) => finished),
    sensitive: all(({ sensitive }) => sensitive),
    gitConfigs: all(({ gitConfigs }) => gitConfigs),
    guarded: first.guarded,
    sockets: first.sockets,
    unnamable: all(({ unnamable }) => unnamable),
    changed: first.changed,
    files: parts.reduce((sum, { files }) => sum + files, 0),
  };
}

/** A thread. It keeps no process alive while nobody waits. */
class SurveyThread {
  readonly #clock: Clock;
  readonly #worker: Worker;
  readonly #waiting = new Map<number, (survey: Survey) => void>();
  #isAlive = true;
  #count = 0;

  constructor(clock: Clock, module: URL) {
    this.#clock = clock;
    this.#worker = new Worker(module, {
      env: threadEnvironment(),
      execArgv: [],
      resourceLimits: { maxOldGenerationSizeMb: MAX_HEAP_MB, maxYoungGenerationSizeMb: MAX_YOUNG_MB },
    });
    this.#worker.on(
      "message",
      ({ id, survey }: { readonly id: number; readonly survey: Survey }) => this.#waiting.get(id)?.(survey),
    );
    const onBroken = () => {
      this.#isAlive = false;
      for (const answer of this.#waiting.values()) answer(UNFINISHED);
    };
    // Every one is listened to: an error nobody hears would end the process
    this.#worker.on("error", onBroken);
    this.#worker.once("exit", onBroken);
    this.#worker.unref();
  }

  /** False once the thread has ended. */
  get isAlive(): boolean {
    return this.#isAlive;
  }

  async survey(request: SurveyRequest, signal: AbortSignal): Promise<Survey> {
    if (this.#waiting.size >= MAX_WAITING) return UNFINISHED;
    const id = ++this.#count;
    const { promise, resolve, reject } = Promise.withResolvers<Survey>();
    const onAbort = () => reject(cancelError(signal));
    this.#waiting.set(id, resolve);
    signal.addEventListener("abort", onAbort, { once: true });
    this.#worker.ref();
    try {
      this.#worker.postMessage({ id, request });
      return await withTimeout(promise, { ms: request.timeoutMs + LATE_MS, clock: this.#clock }) ?? UNFINISHED;
    } finally {
      signal.removeEventListener("abort", onAbort);
      this.#waiting.delete(id);
      if (this.#waiting.size === 0) this.#worker.unref();
    }
  }

  async close(): Promise<void> {
    await this.#worker.terminate();
  }
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

/** Tells what lies at a path as nameIdentity does. A link counts as itself, wherever it leads. @throws the error of the system */
export function entryIdentity(path: string): string {
  return idOf(lstatSync(path, { bigint: true }));
}

function idOf({ dev, ino, birthtimeNs }: { readonly dev: bigint; readonly ino: bigint; readonly birthtimeNs: bigint }) {
  return `${dev}:${ino}:${birthtimeNs}`;
}
