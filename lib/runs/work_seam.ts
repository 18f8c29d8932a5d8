import type { ToolExecutor } from "../tools/runtime/tool_executor.ts";
import type { RunSupervisor } from "./run_request.ts";

/**
 * Tools and runs of a gateway, for the services that are made before them.
 *
 * Schedules, procedures and sub-agents are tools, and they start runs, which use the tools: one of them must be made first. They are
 * given the functions of the seam, which is joined once both are made.
 */
export interface WorkSeam {
  /** Returns the tools. @throws {TypeError} before `join` */
  readonly tools: () => ToolExecutor;
  /** Returns the run supervisor. Undefined before `join`, and without an agent */
  readonly runs: () => RunSupervisor | undefined;
  /** Hands in what was made; once, before any run goes on. */
  join(work: { readonly tools: ToolExecutor; readonly runs: RunSupervisor | undefined }): void;
}

/** Creates a seam that is not joined yet. */
export function createWorkSeam(): WorkSeam {
  let joined: Parameters<WorkSeam["join"]>[0] | undefined;
  return {
    tools() {
      if (joined === undefined) throw new TypeError("Cannot use the tools: they are not made yet");
      return joined.tools;
    },
    runs: () => joined?.runs,
    join: (work) => void (joined = work),
  };
}
