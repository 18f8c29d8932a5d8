import { ToolError } from "../../base/errors.ts";
import type { Processes } from "../process/processes.ts";
import { FIXED_OVERRIDES, type Override } from "./config_overrides.ts";
import type { FrozenPlaces } from "./frozen_places.ts";
import type { GitResult, GitScope } from "./git.ts";

/** Request to run one git process. */
export interface GitCommand {
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly scope: GitScope;
  readonly timeoutMs: number;
  readonly maxOutputBytes: number;
  readonly signal: AbortSignal;
  /** Repositories that it works on. Default: none */
  readonly frozen?: FrozenPlaces | undefined;
  /** Places that it may write to, as in ComposedCommand. Default false */
  readonly writes?: boolean | readonly string[];
  /** Default false */
  readonly network?: boolean;
  /** Content of its first further descriptor. Default: none */
  readonly given?: Uint8Array | undefined;
  /** `off` for a command that reads the user's configuration. Default: the scope's */
  readonly sandbox?: "off";
}

/**
 * Runs git once.
 * @throws {ToolError} `git_timeout`, and those of `Processes.run`
 * @throws {CancelError} when the signal aborts
 */
export async function runGit(processes: Pick<Processes, "run">, call: GitCommand): Promise<GitResult> {
  const { workspaceRoot, forbiddenPaths, sandbox, taint } = call.scope;
  const { ending, stdout, stderr } = await processes.run({
    words: ["git", ...call.args],
    scope: { workspaceRoot, forbiddenPaths, workspaceOnly: true, allowSensitive: true },
    sandbox: call.sandbox ?? sandbox,
    taint,
    maxOutputBytes: call.maxOutputBytes,
    timeoutMs: call.timeoutMs,
    signal: call.signal,
    composed: {
      env: call.env,
      network: call.network ?? false,
      writes: call.writes ?? false,
      given: call.given,
      ...call.frozen,
    },
  });
  if (ending.kind === "timeout") {
    throw new ToolError(
      "git_timeout",
      `Cannot finish git: it was stopped after ${
        call.timeoutMs / 1000
      } s; if it left a ".lock" file in .git, remove that`,
    );
  }
  return {
    code: ending.kind === "exit" ? ending.code : 128,
    stdout: stdout.text,
    stderr: maskUserinfo(stderr.text),
    truncated: stdout.truncated || ending.kind === "flood",
  };
}

/** Replaces user and password of each URL in a text by `***`. */
export function maskUserinfo(text: string): string {
  return text.replace(/:\/\/[^\s/'"]*@/g, "://***@");
}

/** Variables by which git asks nobody. Set and empty: whatever is configured. */
export const NO_QUESTIONS: Readonly<Record<string, string>> = {
  GIT_TERMINAL_PROMPT: "0",
  GIT_ASKPASS: "",
  SSH_ASKPASS: "",
};

/** The part that is the same for each command: no configuration but the repository's, no prompt, no program. */
const FIXED: Readonly<Record<string, string>> = {
  ...NO_QUESTIONS,
  GIT_CONFIG_NOSYSTEM: "1",
  GIT_CONFIG_SYSTEM: "/dev/null",
  GIT_CONFIG_GLOBAL: "/dev/null",
  GIT_ATTR_NOSYSTEM: "1",
  XDG_CONFIG_HOME: "/nonexistent",
  GIT_EDITOR: ":",
  GIT_SEQUENCE_EDITOR: ":",
  GIT_MERGE_AUTOEDIT: "no",
  GIT_PAGER: "cat",
  GIT_SSH_COMMAND: "false",
  GIT_NO_LAZY_FETCH: "1",
};

/** Repository and settings of one git process. */
export interface GitEnvironment {
  readonly gitDir: string;
  readonly top: string;
  /** Overrides of the repository's own keys. */
  readonly overrides: readonly Override[];
  /** Further settings, which come last. Default: none. */
  readonly added?: readonly Override[];
  /** false: git does not even refresh its index */
  readonly writes: boolean;
  /** The scheme it may use, such as `https`; it wins over the configuration's `protocol.*`. Default: none */
  readonly protocol?: string | undefined;
}

/** Returns the variables of a command. Configuration goes in by number: a key may hold any character. */
export function gitEnvironment(options: GitEnvironment): Readonly<Record<string, string>> {
  const { gitDir, top, writes, protocol } = options;
  const config = [...options.overrides, ...FIXED_OVERRIDES, ...options.added ?? []];
  const numbered = config.flatMap(([key, value], index) => [
    [`GIT_CONFIG_KEY_${index}`, key],
    [`GIT_CONFIG_VALUE_${index}`, value],
  ]);
  return {
    ...FIXED,
    GIT_DIR: gitDir,
    GIT_WORK_TREE: top,
    GIT_ALLOW_PROTOCOL: protocol ?? "none",
    GIT_OPTIONAL_LOCKS: writes ? "1" : "0",
    GIT_CONFIG_COUNT: String(config.length),
    ...Object.fromEntries(numbered),
  };
}
