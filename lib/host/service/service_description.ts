/** Variable that tells a process which service manager runs it. */
export const SERVICE_VARIABLE = "POSTERN_SERVICE";
/** Name of the service with every manager. */
export const SERVICE_NAME = "postern";
/** Description of the service for people, in one line. */
export const SERVICE_SUMMARY = "Postern, a gateway to AI agents";
/** From the end of the grace to the end of the process, in seconds: the last frames, and the database */
export const STOP_MARGIN_SECONDS = 15;
/** A wrong command line or configuration: no restart mends it (exit codes of docs/design/processes.md "Command line"). */
export const HOPELESS_EXIT_CODES = [2, 78] as const;
/** After a crash: when, and up to how often within which time. */
export const RESTARTS = { delaySeconds: 2, most: 5, withinSeconds: 300 } as const;

/** Description of the service, the same for every service manager. Paths are absolute, every text is one line. */
export interface ServiceDescription {
  /** Program and arguments, taken as they are: with spaces, quotes, `%` and `$` */
  readonly command: readonly string[];
  /** Where it is started: Postern's own folder, in which no tool may leave a configuration */
  readonly directory: string;
  /** Seconds that work gets to finish when the service is stopped */
  readonly graceSeconds: number;
}

const MARK = "postern-service: ";

/** The description as one line of a comment, so that what was installed can be read again. */
export function toServiceMark(description: ServiceDescription): string {
  // XML allows no two hyphens in a comment
  return MARK + JSON.stringify(description).replaceAll("--", "\\u002d\\u002d");
}

/** The description in a service's file; undefined in one that was not written by this program. */
export function readServiceMark(text: string): ServiceDescription | undefined {
  const line = text.split("\n").find((each) => each.includes(MARK));
  if (line === undefined) return undefined;
  try {
    const json = line.slice(line.indexOf(MARK) + MARK.length).replace(/\s*-->\s*$/, "");
    const { command, directory, graceSeconds } = JSON.parse(json) as Partial<ServiceDescription>;
    if (!Array.isArray(command) || typeof directory !== "string" || typeof graceSeconds !== "number") return undefined;
    return { command: command.map(String), directory, graceSeconds };
  } catch {
    return undefined;
  }
}
