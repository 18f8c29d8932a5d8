import type { Config } from "../../config/config.ts";
import type { CommandContainment } from "../../system/process/containment.ts";
import type { Processes } from "../../system/process/processes.ts";
import type { PreparedCall, Tool } from "./tool.ts";

/**
 * Says how the programs that a call starts are contained.
 * @returns null for a call that starts none
 */
export async function callContainment(
  tool: Pick<Tool, "needs">,
  { effects, access }: Pick<PreparedCall, "effects" | "access">,
  { config, processes }: { readonly config: Config; readonly processes: Pick<Processes, "containment"> },
): Promise<CommandContainment | null> {
  const isGit = tool.needs.includes("git");
  if (effects.command === undefined && !isGit) return null;
  const { shell, git } = config.security;
  if (isGit && access === "network" && git.credentials) {
    return {
      kind: "uncontained",
      text:
        "git is not contained in this call: [security.git] credentials = true gives it the user's stored credentials",
    };
  }
  return await processes.containment(shell.sandbox);
}
