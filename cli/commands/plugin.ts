import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { exactLine } from "../../lib/base/text.ts";
import type { PluginInfo, RegistryInstall } from "../../lib/base/records/extension_views.ts";
import { type CommandContext, CommandError, defineCliCommand, UsageError } from "../command.ts";
import { type ReachedGateway, withGateway } from "../reach_gateway.ts";
import { requireYes } from "../terminal/require_yes.ts";
import { toTable } from "../terminal/terminal_text.ts";

/** Media type of a package. */
export const TAR_TYPE = "application/x-tar";

const ID = { type: "positional", required: true, description: "Id of the plugin, from postern plugin list" } as const;

/** Command `postern plugin list`: all plugins, and why each is on or off. */
export const pluginListCommand = defineCliCommand({
  args: {},
  example: "postern plugin list",
  run: (context) =>
    withGateway(context, async (gateway) => {
      const plugins = await listPlugins(gateway);
      const rows = plugins.map(({ id, version, kind, source, state, description, reason }) => [
        ...[id, version ?? "", kind ?? "", source, state],
        exactLine(reason ?? description ?? ""),
      ]);
      const none = "No plugin is installed or found";
      const heads = ["ID", "VERSION", "KIND", "FROM", "STATE", "ABOUT"];
      context.print(plugins, rows.length === 0 ? none : toTable(heads, rows, context.io.columns));
    }),
});

/** Command `postern plugin show <id>`: everything about one plugin. */
export const pluginShowCommand = defineCliCommand({
  args: { id: ID },
  example: "postern plugin show words",
  run: (context, { id }) =>
    withGateway(context, async (gateway) => {
      const plugin = await readPlugin(gateway, id);
      context.print(plugin, describePlugin(plugin));
    }),
});

/** Command `postern plugin add`: installs a package, or a plugin of the registry. It is off until it is enabled. */
export const pluginAddCommand = defineCliCommand({
  args: {
    id: { type: "positional", required: false, description: "Id in the registry, as words or words@1.2.0" },
    package: { type: "string", valueHint: "file", description: "Package to install in place of one from the registry" },
  },
  example: "postern plugin add --package words-1.0.0.tar",
  async run(context, { id, package: file }) {
    if ((id === undefined) === (file === undefined)) {
      throw new UsageError("Cannot install: give the id of a plugin in the registry, or --package with a file");
    }
    return await withGateway(context, async (gateway) => {
      if (file !== undefined) {
        const bytes = await readPackageFile(context, file);
        const raw = { type: TAR_TYPE, bytes };
        return tellInstalled(context, await gateway.call("POST /v1/plugins", { raw }));
      }
      const installed = await installFromRegistry(gateway, id ?? "");
      tellInstalled(context, installed.plugin, installed);
    });
  },
});

/** Command `postern plugin update [id]`: installs newer versions from the registry. */
export const pluginUpdateCommand = defineCliCommand({
  args: {
    id: {
      type: "positional",
      required: false,
      description: "Id of the plugin (default: all that came from the registry)",
    },
  },
  example: "postern plugin update",
  run: (context, { id }) =>
    withGateway(context, async (gateway) => {
      const ids = id === undefined
        ? (await listPlugins(gateway)).filter(({ registry }) => registry !== null).map((plugin) => plugin.id)
        : [(await readPlugin(gateway, id)).id];
      const updates: RegistryInstall[] = [];
      for (const one of ids) updates.push(await installFromRegistry(gateway, one));
      const lines = updates.map(({ plugin, changed }) => {
        if (!changed) return `${plugin.id} ${plugin.version} is the newest`;
        return `${plugin.id} is now ${plugin.version}${plugin.reason === null ? "" : `: ${exactLine(plugin.reason)}`}`;
      });
      context.print(updates, lines.length === 0 ? "No plugin came from the registry" : lines.join("\n"));
    }),
});

/** Command `postern plugin enable <id>`: shows what the plugin may do and asks. Counts for exactly the content that was shown. */
export const pluginEnableCommand = defineCliCommand({
  args: {
    id: ID,
    digest: { type: "string", valueHint: "sha256", description: "Enable it only with this content" },
    yes: { type: "boolean", description: "Enable it without a question" },
  },
  example: "postern plugin enable words --yes",
  run: (context, { id, digest, yes }) =>
    withGateway(context, async (gateway) => {
      const plugin = await readPlugin(gateway, id);
      if (plugin.digest === null) throw new CommandError(`Cannot enable "${id}": ${exactLine(plugin.reason ?? "")}`);
      if (digest !== undefined && digest !== plugin.digest) {
        throw new CommandError(`Cannot enable "${id}": its digest is ${plugin.digest}, and not the one that was given`);
      }
      // A plugin that is enabled has been shown with this content
      if (yes !== true && plugin.state !== "enabled") await askToEnable(context, plugin);
      const body = { digest: plugin.digest };
      const enabled = await gateway.call("POST /v1/plugins/:id/enable", { params: { id }, body });
      context.print(enabled, enabledText(enabled));
    }),
});

function enabledText({ id, version, reason }: PluginInfo): string {
  if (reason === null) return `Enabled ${id} ${version}`;
  const [, missing] = /^it is off; (set .*)$/.exec(exactLine(reason)) ?? [];
  return missing === undefined
    ? `Enabled ${id} ${version}, and ${exactLine(reason)}`
    : `${id} ${version} is enabled but will not run until you ${missing}`;
}

/** Command `postern plugin disable <id>`: turns the tools of a plugin off. */
export const pluginDisableCommand = defineCliCommand({
  args: { id: ID },
  example: "postern plugin disable words",
  run: (context, { id }) =>
    withGateway(context, async (gateway) => {
      const plugin = await gateway.call("POST /v1/plugins/:id/disable", { params: { id } });
      context.print(plugin, `Disabled ${id} ${plugin.version ?? ""}`.trim());
    }),
});

/** Command `postern plugin remove --id <id>`: removes an installed package. */
export const pluginRemoveCommand = defineCliCommand({
  args: { id: { type: "string", valueHint: "id", description: "Id of the plugin (required)" } },
  example: "postern plugin remove --id words",
  async run(context, { id }) {
    if (id === undefined) throw new UsageError("Cannot remove a plugin without --id");
    return await withGateway(context, async (gateway) => {
      await gateway.request({ method: "DELETE", path: `/v1/plugins/${encodeURIComponent(id)}` });
      context.print({ id, removed: true }, `Removed ${exactLine(id)}`);
    });
  },
});

/** Command `postern plugin search <query>`: finds plugins in the registry. */
export const pluginSearchCommand = defineCliCommand({
  args: {
    query: {
      type: "positional",
      required: false,
      description: "Words of the id or the description (default: all plugins)",
    },
  },
  example: "postern plugin search words",
  run: (context, { query = "" }) =>
    withGateway(context, async (gateway) => {
      const { data } = await gateway.call("GET /v1/plugin-registry", { query: { query } });
      const rows = data.map((
        { id, version, kind, key, description },
      ) => [id, version, kind, key === null ? "no" : "yes", exactLine(description)]);
      const none = "No plugin of the registry has these words";
      const heads = ["ID", "VERSION", "KIND", "SIGNED", "ABOUT"];
      context.print(data, rows.length === 0 ? none : toTable(heads, rows, context.io.columns));
    }),
});

/** Command `postern plugin trust-key <id> <key>`: accepts the key of a publisher in place of the pinned one. */
export const pluginTrustKeyCommand = defineCliCommand({
  args: {
    id: { ...ID, description: "Id of the plugin" },
    key: { type: "positional", required: true, description: "Ed25519 public key in base64, as the publisher tells it" },
  },
  example: "postern plugin trust-key words DlYqyk0j0Jf0pAx7oDmVb2i6BuzYwJ1i1gu1u9UBzDA=",
  run: (context, { id, key }) =>
    withGateway(context, async (gateway) => {
      const path = "/v1/plugin-registry/trust-key";
      const reply = await gateway.request({ method: "POST", path, body: { id, key } });
      context.print(reply, `The key of ${exactLine(id)} is now ${exactLine(key)}`);
    }),
});

async function listPlugins(gateway: ReachedGateway): Promise<readonly PluginInfo[]> {
  return (await gateway.call("GET /v1/plugins")).data;
}

async function readPlugin(gateway: ReachedGateway, id: string): Promise<PluginInfo> {
  return await gateway.call("GET /v1/plugins/:id", { params: { id } });
}

async function installFromRegistry(gateway: ReachedGateway, named: string): Promise<RegistryInstall> {
  const [id = "", version] = named.split("@", 2);
  const body = version === undefined ? { id } : { id, version };
  return await gateway.call("POST /v1/plugin-registry/install", { body });
}

async function readPackageFile({ io }: CommandContext, file: string): Promise<Uint8Array> {
  const path = resolve(io.cwd, file);
  return await readFile(path).catch((cause: Error) => {
    throw new CommandError(`Cannot read the package "${path}": ${cause.message}`, { cause });
  });
}

const SIGNATURES: Readonly<Record<RegistryInstall["signature"], string>> = {
  pinned: "It is signed, and its publisher's key counts from now on",
  signed: "It is signed by its publisher",
  unsigned: "It is not signed",
};

function tellInstalled(context: CommandContext, plugin: PluginInfo, from?: RegistryInstall): void {
  const { id, version, on, reason } = plugin;
  const done = from?.changed === false ? `${id} ${version} is installed already` : `Installed ${id} ${version}`;
  const state = on ? "it is enabled" : exactLine(reason ?? "it is off");
  const signed = from === undefined ? "" : `\n${SIGNATURES[from.signature]}`;
  context.print(from ?? plugin, `${done}: ${state}${signed}`);
}

/** Describes a plugin to the person who decides about it. Characters that nobody can see are spelled out. */
function describePlugin(plugin: PluginInfo): string {
  const { id, version, kind, source, folder, state, reason, description, rights, asks, tools, digest, registry } =
    plugin;
  const { last_error: failed } = plugin;
  const place = folder ?? registry;
  return [
    `${id} ${version ?? ""} (${kind ?? "unusable"}, ${source}), ${state}`,
    ...(description === null ? [] : [exactLine(description)]),
    ...(reason === null ? [] : [exactLine(reason)]),
    ...(failed === null ? [] : [`Last error, ${failed.at}: ${exactLine(failed.message)}`]),
    "",
    ...(rights === null ? [] : [rights]),
    ...(asks.length === 0 ? ["Asks for no capability"] : ["Asks for:", ...asks.map((line) => `  ${exactLine(line)}`)]),
    "Tools:",
    ...tools.map((tool) => `  ${tool.name}: ${exactLine(tool.description)}`),
    ...(place === null ? [] : [`From: ${exactLine(place)}`]),
    ...(digest === null ? [] : [`Digest: ${digest}`]),
  ].join("\n");
}

/** Shows a plugin and asks the person for consent. @throws {CommandError} it was not given */
async function askToEnable({ io, say }: CommandContext, plugin: PluginInfo): Promise<void> {
  const { id, asks, asks_more: more } = plugin;
  say(describePlugin(plugin));
  if (more.length < asks.length || (more.length > 0 && plugin.state !== "installed")) {
    const lines = more.length === 0 ? ["  nothing"] : more.map((line) => `  ${exactLine(line)}`);
    say(["Beyond what was enabled before it asks for:", ...lines].join("\n"));
  }
  await requireYes({ io }, "Enable it?", {
    unasked: `Cannot enable "${id}": nobody can be asked here; --yes enables it`,
    refused: `"${id}" was not enabled`,
  });
}
