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
export const UNFINISHED: Survey = { finished: false, sensitive: [], guarded: [], unnamable: [] };
