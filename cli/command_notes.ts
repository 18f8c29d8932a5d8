import { systemClock } from "../lib/base/clock.ts";
import type { Config } from "../lib/config/config.ts";
import { launchersIn } from "../lib/guard/launchers.ts";
import { createCommandLookup } from "../lib/system/process/create_command_lookup.ts";
import { findContainment } from "../lib/system/process/sandbox.ts";

/** What a person should know of every command that tools run: whether it is contained here, and what is too widely allowed. */
export async function commandNotes({ security }: Config): Promise<readonly string[]> {
  const allowed = [...new Set([...security.allowed_commands, ...security.process.allowed_commands])];
  const launchers = launchersIn(allowed);
  const warning = launchers.length === 0
    ? []
    : [`Allowed commands that can run any program: ${launchers.join(", ")}; remove them from allowed_commands`];
  return [await containmentNote(security.shell.sandbox), ...warning];
}

async function containmentNote(sandbox: Config["security"]["shell"]["sandbox"]): Promise<string> {
  if (sandbox === "off") return 'Sandbox: commands are not contained, [security.shell] sandbox is "off"';
  const found = await findContainment(createCommandLookup(), systemClock);
  if (found.kind === "bubblewrap") return "Sandbox: commands are contained by bubblewrap";
  return sandbox === "require"
    ? `Sandbox: commands are refused, [security.shell] sandbox is "require" and ${found.reason}`
    : `Sandbox: commands are not contained, ${found.reason}`;
}
