import { messageOf } from "../../../lib/base/errors.ts";
import { resolve } from "node:path";
import { exactLine } from "../../../lib/base/text.ts";
import type { LoadedConfig } from "../../../lib/config/load_config.ts";
import { maskSecrets } from "../../../lib/config/secrets.ts";
import {
  clientConfigPaths,
  type McpClientProgram,
  readClientConfig,
} from "../../../lib/extensions/mcp/install/client_configs.ts";
import {
  type ImportedServer,
  readServers,
  type UntakenServer,
} from "../../../lib/extensions/mcp/install/import_servers.ts";
import { importedEntry, type MovedSecret, movedSecrets } from "../../../lib/extensions/mcp/install/server_entry.ts";
import { type CommandContext, CommandError, defineCliCommand, EXIT, UsageError } from "../../command.ts";
import { requireYes } from "../../terminal/require_yes.ts";
import { enterInConfiguration, howToEnable } from "./enter_servers.ts";

const PROGRAMS: readonly McpClientProgram[] = ["claude", "cursor", "vscode"];

/** Command `postern mcp import claude|cursor|vscode`: shows the servers of another program's configuration, asks, and enters them here. */
export const mcpImportCommand = defineCliCommand({
  args: {
    program: {
      type: "positional",
      required: false,
      description: "claude (Claude Desktop), cursor or vscode: whose own configuration is read",
    },
    file: { type: "string", valueHint: "path", description: "File to read in place of the usual ones" },
    enable: { type: "boolean", description: "Turn MCP servers on, and let these through" },
    yes: { type: "boolean", description: "Enter them without a question" },
  },
  example: "postern mcp import claude",
  async run(context, { program, file, enable = false, yes = false }) {
    const paths = pathsOf(context, program, file);
    const loaded = await context.loadConfig();
    const found = await readAll(paths, loaded, file !== undefined);
    const { files, taken, refused } = found;
    sayFound(context, found);
    const secrets = moved(taken, loaded);
    const added = taken.map(({ name, from, warnings }) => ({
      ...{ name, from, warnings },
      secrets: secrets.filter(({ server }) => server === name).map((secret) => secret.name),
    }));
    if (taken.length === 0) {
      const reason = refused.length === 0
        ? `${files.join(" and ")} ${files.length === 1 ? "has" : "have"} no server, under "mcpServers" or "servers"`
        : "none of these servers can be taken";
      context.print({ files, added, refused, file: null }, `Nothing was entered: ${reason}`);
      return EXIT.ok;
    }
    if (!yes) await askToEnter(context, taken);
    const target = await enterInConfiguration(context, loaded, {
      entries: taken.map((server) => importedEntry(server, secrets.filter((one) => one.server === server.name))),
      ...{ secrets, enable },
      changes: taken.map(({ name, url }) => ({
        ...{ server: name, action: "imported", integrity: null },
        source: url === "" ? null : maskSecrets(url),
      })),
    });
    const names = taken.map(({ name }) => name);
    const lines = [`Entered ${names.map((name) => `[mcp.servers.${name}]`).join(", ")} into ${target}`];
    const report = { files, added, refused, file: target, enabled: enable };
    context.print(report, [...lines, ...howToEnable(loaded, names, enable)].join("\n"));
    return EXIT.ok;
  },
});

function pathsOf({ io }: CommandContext, program: string | undefined, file: string | undefined): readonly string[] {
  const known = PROGRAMS.find((one) => one === program);
  if (program !== undefined && known === undefined) {
    throw new UsageError(`Cannot import from "${program}": it must be one of ${PROGRAMS.join(", ")}`);
  }
  if (file !== undefined) return [resolve(io.cwd, file)];
  if (known !== undefined) return clientConfigPaths(known, io);
  throw new UsageError(`Cannot import: name one of ${PROGRAMS.join(", ")}, or a file with --file`);
}

interface FoundServers {
  /** Paths of the files that were read */
  readonly files: readonly string[];
  readonly taken: readonly ImportedServer[];
  readonly refused: readonly UntakenServer[];
}

/** @throws {CommandError} there is no file, or one cannot be read */
async function readAll(paths: readonly string[], { config }: LoadedConfig, isNamed: boolean): Promise<FoundServers> {
  const names = new Set(Object.keys(config.mcp.servers));
  const files: string[] = [];
  const all: { readonly taken: ImportedServer[]; readonly refused: UntakenServer[] } = { taken: [], refused: [] };
  for (const path of paths) {
    try {
      const file = await readClientConfig(path);
      if (file === undefined) continue;
      const { taken, refused } = readServers(file.text, names);
      files.push(path);
      all.taken.push(...taken);
      all.refused.push(...refused);
      for (const { name } of taken) names.add(name);
    } catch (cause) {
      throw new CommandError(`Cannot import from "${path}": ${messageOf(cause)}`, { cause });
    }
  }
  if (files.length > 0) return { files, ...all };
  const places = paths.map((path) => `"${path}"`).join(" and no ");
  throw new CommandError(`Cannot import: there is no ${places}${isNamed ? "" : "; name another with --file"}`);
}

/** Shows every server of the files: what would be entered, and why the others are not. Values of variables and headers are never shown. */
function sayFound({ say }: CommandContext, { files, taken, refused }: FoundServers): void {
  say(`Read ${files.join(", ")}`);
  for (const { name, command, args, url, env, headers, secrets, warnings } of taken) {
    const shown = url === "" ? [command, ...maskSecrets(args, ["args"])].join(" ") : maskSecrets(url);
    const names = [
      ...Object.keys(env).map((key) => `env.${key}`),
      ...Object.keys(headers).map((key) => `headers.${key}`),
    ];
    const more = names.length === 0 ? "" : ` (with ${names.join(", ")})`;
    say(exactLine(`+ [mcp.servers.${name}] ${shown}${more}`));
    for (const warning of warnings) say(exactLine(`  Warning: ${warning}`));
    if (secrets.length > 0) {
      const shown = secrets.map(({ table, key }) => `${table}.${key}`).join(", ");
      say(
        exactLine(
          `  ${shown} looks like a secret: the value goes into a file of its own, and [secrets.<name>] names it`,
        ),
      );
    }
  }
  for (const { from, reason } of refused) {
    say(exactLine(`- ${JSON.stringify(from.slice(0, 64))} is not taken: ${reason}`));
  }
}

function moved(servers: readonly ImportedServer[], { config, dataDir }: LoadedConfig): readonly MovedSecret[] {
  const taken = new Set(Object.keys(config.secrets));
  return servers.flatMap((server) => {
    const secrets = movedSecrets(server, { dataDir, taken });
    for (const { name } of secrets) taken.add(name);
    return secrets;
  });
}

/** @throws {CommandError} the person does not want it, or cannot be asked */
async function askToEnter({ io }: CommandContext, { length }: readonly ImportedServer[]): Promise<void> {
  await requireYes({ io }, `Enter ${length === 1 ? "this server" : `these ${length} servers`}?`, {
    unasked: "Cannot import: nobody can be asked here; --yes enters them",
    refused: "Nothing was entered",
  });
}
