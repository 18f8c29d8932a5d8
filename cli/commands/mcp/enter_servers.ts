import { writeAtomically } from "../../../lib/base/durable_files.ts";
import type { LoadedConfig } from "../../../lib/config/load_config.ts";
import {
  allowServers,
  enterServers,
  type MovedSecret,
  type ServerEntry,
} from "../../../lib/extensions/mcp/install/server_entry.ts";
import type { McpServerEvent } from "../../../lib/guard/audit/audit_event.ts";
import { commandsToEnable } from "../../../lib/tools/idle_settings.ts";
import type { CommandContext } from "../../command.ts";
import { editConfiguration } from "../../edit_configuration.ts";
import { withGateway } from "../../reach_gateway.ts";

/** Change of the configuration that the audit is told of. */
export type ServerChange = Pick<McpServerEvent, "server" | "action" | "source" | "integrity">;

/** Servers to enter, and what the audit is told of them. */
export interface EnteredServers {
  readonly entries: readonly ServerEntry[];
  /** Values that go into files of their own. Default: none */
  readonly secrets?: readonly MovedSecret[];
  /** True: servers are turned on, and these are let through */
  readonly enable: boolean;
  readonly changes: readonly ServerChange[];
}

/** Enters servers into the configuration, and tells the audit. @returns path of the configuration file */
export async function enterInConfiguration(
  context: CommandContext,
  { config }: LoadedConfig,
  { entries, secrets = [], enable, changes }: EnteredServers,
): Promise<string> {
  const allowed = config.security.mcp.allowed_servers;
  return await editWithAudit(context, changes, async (text) => {
    const entered = await enterServers(text, entries, secrets);
    // Each value is there before the configuration names it
    for (const { file, value } of secrets) await writeAtomically(file, `${value}\n`);
    return enable ? await allowServers(entered, entries.map(({ name }) => name), allowed) : entered;
  });
}

/**
 * Changes the configuration file and tells the audit what was changed. The gateway is reached first: without it nothing is changed.
 * @returns path of the file
 */
export async function editWithAudit(
  context: CommandContext,
  changes: readonly ServerChange[],
  edit: (text: string) => Promise<string>,
): Promise<string> {
  let file = "";
  await withGateway(context, async (gateway) => {
    file = await editConfiguration(context, edit);
    for (const { server, ...body } of changes) {
      await gateway.call("POST /v1/mcp-servers/:name/changes", { params: { name: server }, body });
    }
  });
  return file;
}

/** Returns the lines that say what a person must still set before servers are used. */
export function howToEnable(
  { config }: LoadedConfig,
  names: readonly string[],
  isEnabled: boolean,
): readonly string[] {
  const [it, be] = names.length === 1 ? ["it", "It is"] : ["them", "They are"];
  if (isEnabled) return [`The agent may use ${it}: [security.mcp] lets ${names.join(", ")} through`];
  const lines = commandsToEnable(config.security.mcp, names).map((command) => `  ${command}`);
  return lines.length === 0 ? [] : [`${be} off. To let the agent use ${it}:`, ...lines];
}
