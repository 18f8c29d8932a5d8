import { dirname, join } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import { createCommandLookup } from "../../lib/system/process/command_lookup.ts";
import { Processes, type ProcessesOptions } from "../../lib/system/process/processes.ts";

/**
 * Creates the programs for tools over a workspace, with the system's clock and commands and a home folder that is not there. Quarantine
 * and notes are folders beside the workspace.
 * @param changes options that take the place of these
 */
export function createWorkspaceProcesses(root: string, changes: Partial<ProcessesOptions> = {}): Processes {
  const beside = dirname(root);
  return new Processes({
    commands: createCommandLookup(),
    clock: systemClock,
    home: "/home/nobody",
    ownPaths: [],
    quarantine: { folder: join(beside, "quarantine") },
    notes: join(beside, "commands"),
    marker: "test",
    ...changes,
  });
}
