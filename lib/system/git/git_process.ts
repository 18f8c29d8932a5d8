import { ToolError } from "../../base/errors.ts";
import type { Processes } from "../process/processes.ts";
import type { GitResult, GitScope } from "./git.ts";

/** Request to run one git process. */
export interface GitCommand {
  readonly args: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly scope: GitScope;
  readonly timeoutMs: number;
  readonly maxOutputBytes: number;
  readonly signal: AbortSignal;
  /** Default false */
  readonly writes?: boolean;
  /** Default false */
  readonly network?: boolean;
  /** `off` for a command that starts programs of the user's configuration, which need the user's own files. Default: the scope's */
  readonly sandbox?: "off";
}

/**
 * Runs git once.
 * @throws {ToolError} `git_timeout`, and those of `Processes.run`
 * @throws {CancelError} when the signal aborts
 */
export async function runGit(processes: Pick<Processes, "run">, call: GitCommand): Promise<GitResult> {
  const { workspaceRoot, forbiddenPaths, sandbox } = call.scope;
  const { ending, stdout, stderr } = await processes.run({
    words: ["git", ...call.args],
    scope: { workspaceRoot, forbiddenPaths, workspaceOnly: true, allowSensitive: true },
    sandbox: call.sandbox ?? sandbox,
    maxOutputBytes: call.maxOutputBytes,
    timeoutMs: call.timeoutMs,
    signal: call.signal,
    composed: { env: call.env, network: call.network ?? false, writes: call.writes ?? false },
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

/** User and password of each URL in a text replaced by `***`. */
export function maskUserinfo(text: string): string {
  return text.replace(/:\/\/[^\s/'"]*@/g, "://***@");
}
