import assert from "node:assert/strict";
import { initRepository } from "../../support/git_fixture.ts";
import {
  type ConfigChanges,
  createToolBench,
  type ToolBench,
  type ToolBenchOptions,
} from "../../support/tool_bench.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";
import type { CallChanges } from "../../support/tool_call.ts";

/** Configuration that allows every operation, without the sandbox: the sandbox costs time, and git's own limits do not come from it. */
export const GIT_ON: ConfigChanges = { autonomy: { level: "full" }, enable_git: true, shell: { sandbox: "off" } };
/** The same with the sandbox, where it works. */
export const GIT_CONTAINED: ConfigChanges = { ...GIT_ON, shell: { sandbox: "auto" } };

type Call = (input: Readonly<Record<string, unknown>>, more?: CallChanges) => Promise<string>;

/** A workspace that is a repository. */
export interface RepositoryWorkspace extends Workspace {
  readonly bench: ToolBench;
  /** Output of a call of `git_operations`; fails the test when it is an error */
  readonly ok: Call;
  /** The same of a call that must be an error */
  readonly refused: Call;
}

/** Runs `use` with a fresh workspace whose files are in the first commit of a repository. */
export async function withRepository(
  files: Readonly<Record<string, string | Uint8Array>>,
  use: (at: RepositoryWorkspace) => Promise<void>,
  options: Omit<ToolBenchOptions, "root"> = {},
): Promise<void> {
  await withWorkspace(files, async (workspace) => {
    initRepository(workspace.root);
    const bench = createToolBench({ config: GIT_ON, ...options, root: workspace.root });
    const outcome = (isError: boolean): Call => async (input, more) => {
      const { result } = await bench.call("git_operations", input, more);
      assert.equal(result.isError, isError, `${JSON.stringify(input)}: ${result.output}`);
      return result.output;
    };
    await use({ ...workspace, bench, ok: outcome(false), refused: outcome(true) });
  });
}
