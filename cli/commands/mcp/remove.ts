import { rm } from "node:fs/promises";
import { dirname } from "node:path";
import type { Config } from "../../../lib/config/config.ts";
import { maskSecrets } from "../../../lib/config/secrets.ts";
import { packageFolderOf, removePackage } from "../../../lib/extensions/mcp/install/installed_package.ts";
import { removeServer, secretsFolder } from "../../../lib/extensions/mcp/install/server_entry.ts";
import { CommandError, defineCliCommand, EXIT } from "../../command.ts";
import { editWithAudit } from "./enter_servers.ts";

/** Command `postern mcp remove <name>`: takes a server out of the configuration, and removes its package where no other server uses it. */
export const mcpRemoveCommand = defineCliCommand({
  args: { name: { type: "positional", required: true, description: "Name of the server, as in [mcp.servers.<name>]" } },
  example: "postern mcp remove memory",
  async run(context, { name }) {
    const { config, dataDir } = await context.loadConfig();
    const { servers } = config.mcp;
    const server = Object.hasOwn(servers, name) ? servers[name] : undefined;
    if (server === undefined) {
      const names = Object.keys(servers).map((one) => JSON.stringify(one)).join(", ");
      const known = names === "" ? "the configuration has no server" : `the servers are ${names}`;
      throw new CommandError(`Cannot remove the server ${JSON.stringify(name.slice(0, 64))}: ${known}`);
    }
    const source = server.url === "" ? null : maskSecrets(server.url);
    const own = ownSecrets(config, { name, dataDir });
    const file = await editWithAudit(
      context,
      [{ server: name, action: "removed", source, integrity: null }],
      (text) => removeServer(text, { name, allowed: config.security.mcp.allowed_servers, secrets: Object.keys(own) }),
    );
    for (const { file: value } of Object.values(own)) await rm(value, { force: true });
    const folder = packageFolderOf(dataDir, [server.command, ...server.args]);
    const isShared = folder !== undefined &&
      Object.entries(servers).some(([other, { command, args }]) =>
        other !== name && packageFolderOf(dataDir, [command, ...args]) === folder
      );
    const goes = folder !== undefined && !isShared;
    if (goes) await removePackage(dataDir, folder);
    const rest = goes ? `, and ${folder}` : "";
    context.print({ name, file, folder: goes ? folder : null }, `Removed [mcp.servers.${name}] from ${file}${rest}`);
    return EXIT.ok;
  },
});

/** Returns the secrets that were imported with a server, and that nothing else may use. */
function ownSecrets(
  { secrets }: Config,
  { name, dataDir }: { readonly name: string; readonly dataDir: string },
): Config["secrets"] {
  const folder = secretsFolder(dataDir);
  return Object.fromEntries(
    Object.entries(secrets).filter(([, { file, mcp, tools, plugins }]) =>
      dirname(file) === folder && mcp.length === 1 && mcp[0] === name && tools.length + plugins.length === 0
    ),
  );
}
