/** Variable that tells a process which service manager runs it. */
export const SERVICE_VARIABLE = "POSTERN_SERVICE";

/** What every service manager is told, each in its own words. Paths are absolute. */
export interface ServiceDescription {
  /** Program and arguments; taken as they are, with spaces, quotes, `%` and `$` */
  readonly command: readonly string[];
  /** Where it is started: Postern's own folder, in which no tool may leave a configuration */
  readonly directory: string;
  /** What work gets to finish when the service is stopped, in seconds */
  readonly graceSeconds: number;
  /** Beside SERVICE_VARIABLE; never a secret, since service files are read by all */
  readonly environment: Readonly<Record<string, string>>;
}

/** Name of the service's file, as `postern.service`, and what managers list it as. */
export const SERVICE_NAME = "postern";
/** One line for people. */
export const SERVICE_SUMMARY = "Postern, a gateway to AI agents";
/** Between the end of the grace and the end of the process: the last frames, and the database */
export const STOP_MARGIN_SECONDS = 15;
/** A wrong command line or configuration: no restart mends it (exit codes of DESIGN.md section 9) */
export const HOPELESS_EXIT_CODES = [2, 78] as const;
/** Up to five starts in five minutes, two seconds apart */
export const RESTARTS = { delaySeconds: 2, most: 5, withinSeconds: 300 } as const;
