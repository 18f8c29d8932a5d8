import { systemClock } from "../../lib/base/clock.ts";
import type { Config } from "../../lib/config/config.ts";
import { launchersIn } from "../../lib/guard/launchers.ts";
import { createCommandLookup } from "../../lib/system/process/create_command_lookup.ts";
import { type CommandContainment, containmentOf, type SandboxMode } from "../../lib/system/process/containment.ts";
import { tryBubblewrap } from "../../lib/system/process/sandbox.ts";

/** What a person should know of every command that tools run: whether it is contained here, and what is too widely allowed. */
export async function commandNotes({ security }: Config): Promise<readonly string[]> {
  const allowed = [...new Set([...security.allowed_commands, ...security.process.allowed_commands])];
  const launchers = launchersIn(allowed);
  const warning = launchers.length === 0
    ? []
    : [`Allowed commands that can run any program: ${launchers.join(", ")}; remove them from allowed_commands`];
  const { text } = await containmentHere(security.shell.sandbox);
  return [`Sandbox: ${text}`, ...warning];
}

/** Looks how commands of tools would be contained by a gateway that starts now on this machine; at most 10 s. */
export async function containmentHere(sandbox: SandboxMode): Promise<CommandContainment> {
  if (sandbox === "off") return containmentOf(sandbox, undefined);
  const { signal } = new AbortController();
  return containmentOf(sandbox, await tryBubblewrap({ commands: createCommandLookup(), clock: systemClock, signal }));
}
