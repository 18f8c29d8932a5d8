import { CancelError } from "../../../lib/base/cancel.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { createSystemRandom } from "../../../lib/base/random.ts";
import { exactLine } from "../../../lib/base/text.ts";
import { VERSION } from "../../../lib/base/version.ts";
import { prepareDataDir } from "../../../lib/config/folders.ts";
import type { LoadedConfig } from "../../../lib/config/load_config.ts";
import { maskSecrets } from "../../../lib/config/secrets.ts";
import { toTomlValue } from "../../../lib/config/toml.ts";
import { findRegistry } from "../../../lib/extensions/mcp/install/find_registry.ts";
import { type InstalledPackage, installPackage } from "../../../lib/extensions/mcp/install/installed_package.ts";
import { openInstallers } from "../../../lib/extensions/mcp/install/installer_program.ts";
import { installFromNpm } from "../../../lib/extensions/mcp/install/npm_package.ts";
import {
  type PackageSpec,
  parseAddTarget,
  requireServerName,
  shownPackage,
  suggestServerName,
} from "../../../lib/extensions/mcp/install/package_spec.ts";
import { installFromPypi } from "../../../lib/extensions/mcp/install/python_package.ts";
import { programEntry, urlEntry } from "../../../lib/extensions/mcp/install/server_entry.ts";
import { speaksSseAlone, transportNotSpoken } from "../../../lib/extensions/mcp/old_transport.ts";
import { createServerFetch } from "../../../lib/extensions/mcp/server_fetch.ts";
import { createOwnAddress } from "../../../lib/system/net/address.ts";
import { createGuardedFetch, type GuardedFetch } from "../../../lib/system/net/guarded_fetch.ts";
import { createUrlPolicy } from "../../../lib/system/net/url_policy.ts";
import { type CommandContext, CommandError, defineCliCommand, EXIT, UsageError } from "../../command.ts";
import { enterInConfiguration, howToEnable } from "./enter_servers.ts";

/**
 * Command `postern mcp add <package or url> [args]`: installs a package of npm or PyPI once, by its exact version and without running its
 * scripts, and enters it as a server. An address is entered as it is.
 */
export const mcpAddCommand = defineCliCommand({
  args: {
    target: {
      type: "positional",
      required: true,
      description: "Package, as npm:<name>, npm:<name>@<version> or pypi:<name>==<version>, or the address of a server",
    },
    "...args": {
      type: "positional",
      required: false,
      description: 'Arguments of the server; those that begin with "-" come after "--"',
    },
    name: { type: "string", valueHint: "name", description: "Name of the server (default: made from the package)" },
    program: { type: "string", valueHint: "name", description: "Program of a package that has more than one" },
    enable: { type: "boolean", description: "Turn MCP servers on, and let this one through" },
    replace: { type: "boolean", description: "Put it into the place of the server that has this name" },
  },
  example: "postern mcp add npm:@modelcontextprotocol/server-memory --name memory",
  async run(context, args) {
    const target = parseAddTarget(args.target);
    const given = args._.slice(1);
    const loaded = await context.loadConfig();
    const suggested = args.name ?? nameOf(target.kind === "url" ? target.url : target.spec);
    if (suggested === undefined) throw new UsageError(`Cannot name a server after "${args.target}": give --name`);
    const name = requireServerName(suggested);
    const options = { name, enable: args.enable === true, replace: args.replace === true };
    requireFree(loaded, { ...options, isProgram: target.kind === "package" });
    if (target.kind === "url") {
      if (given.length > 0) throw new UsageError("Cannot add an address with arguments: only programs have them");
      return await addUrl(context, loaded, { ...options, url: target.url });
    }
    const installed = await install(context, loaded, { spec: target.spec, program: args.program });
    return await addInstalled(context, loaded, { ...options, installed, given });
  },
});

interface AddOptions {
  readonly name: string;
  readonly enable: boolean;
  readonly replace: boolean;
}

/** @throws {CommandError} the name is in use, and `--replace` is not given or cannot help */
function requireFree(
  { config }: LoadedConfig,
  { name, replace, isProgram }: AddOptions & { readonly isProgram: boolean },
): void {
  const known = Object.hasOwn(config.mcp.servers, name) ? config.mcp.servers[name] : undefined;
  if (known === undefined) return;
  const isSameKind = (known.command !== "") === isProgram;
  if (replace && isSameKind) return;
  const way = isSameKind
    ? "give another --name, or --replace to put this one in its place"
    : `give another --name, or remove it first: postern mcp remove ${name}`;
  throw new CommandError(`Cannot add the server "${name}": there is a [mcp.servers.${name}] already; ${way}`);
}

/** Returns the name that a server gets without `--name`. */
function nameOf(target: string | PackageSpec): string | undefined {
  if (typeof target !== "string") return suggestServerName(target.name);
  const host = new URL(target).hostname;
  if (/^\[|^[\d.]+$/.test(host)) return "local";
  return suggestServerName(host.split(".").at(-2) ?? host);
}

async function addUrl(
  context: CommandContext,
  loaded: LoadedConfig,
  { name, url, enable }: AddOptions & { readonly url: string },
): Promise<number> {
  const { protocol, hostname } = new URL(url);
  if (protocol === "http:" && !/^(?:localhost|127\.[\d.]+|\[::1\])$/.test(hostname)) {
    context.say(`Warning: requests to ${hostname} are not encrypted: everybody on the way can read and change them`);
  }
  const shown = maskSecrets(url);
  const fetch = createServerFetch({ name, settings: { url, headers: {} } }, {
    guardedFetch: () => Promise.resolve(createFetch(context, loaded)),
    config: () => loaded.config,
    // The headers are none, so none names a secret
    secrets: { fill: (settings) => Promise.resolve(settings as Readonly<Record<string, string>>) },
  });
  if (await speaksSseAlone(new URL(url), { fetch, clock: systemClock, signal: new AbortController().signal })) {
    throw new CommandError(`Cannot add the server "${name}": ${transportNotSpoken("sse")}`);
  }
  const file = await enterInConfiguration(context, loaded, {
    ...{ entries: [urlEntry(name, url)], enable },
    changes: [{ server: name, action: "added", source: shown, integrity: null }],
  });
  const lines = [`Entered [mcp.servers.${name}] into ${file}`, `  url = ${toTomlValue(shown)}`];
  context.print(
    { name, url: shown, file, enabled: enable },
    [...lines, ...howToEnable(loaded, [name], enable)].join("\n"),
  );
  return EXIT.ok;
}

async function addInstalled(
  context: CommandContext,
  loaded: LoadedConfig,
  { name, installed, given, enable }: AddOptions & {
    readonly installed: InstalledPackage;
    readonly given: readonly string[];
  },
): Promise<number> {
  const { command, integrity, version, registry, notes, folder } = installed;
  const args = [...installed.args, ...given];
  const source = shownPackage({ registry, name: installed.name, version });
  const file = await enterInConfiguration(context, loaded, {
    ...{ entries: [programEntry(name, { command, args, paths: installed.paths })], enable },
    changes: [{ server: name, action: "added", source, integrity }],
  });
  const shown = maskSecrets(args, ["args"]);
  const report = { name, package: source, integrity, folder, command, args: shown, file, notes, enabled: enable };
  context.print(
    report,
    [
      `Installed ${exactLine(source)} (${integrity}) into ${folder}`,
      ...notes.map((note) => `  ${exactLine(note)}`),
      `Entered [mcp.servers.${name}] into ${file}`,
      `  command = ${toTomlValue(command)}`,
      `  args = ${toTomlValue(shown)}`,
      ...howToEnable(loaded, [name], enable),
    ].join("\n"),
  );
  return EXIT.ok;
}

function createFetch({ io: { env } }: CommandContext, { config }: LoadedConfig): GuardedFetch {
  return createGuardedFetch({
    policy: createUrlPolicy({ own: createOwnAddress([]).gateway }),
    clock: systemClock,
    userAgent: `postern/${VERSION}`,
    proxy: () => ({ ...config.proxy, environment: (name) => env[name] }),
  });
}

/** Installs a package with the programs of this machine. Ctrl-C ends it, and nothing is left. */
async function install(
  context: CommandContext,
  loaded: LoadedConfig,
  { spec, program }: { readonly spec: PackageSpec; readonly program: string | undefined },
): Promise<InstalledPackage> {
  const { io, say } = context;
  const { config, dataDir, workspace } = loaded;
  const ending = new AbortController();
  const forget = io.onInterrupt(() => ending.abort(new CancelError("cancelled", "Nothing was installed")));
  const { env, home } = io;
  try {
    await prepareDataDir(dataDir);
    const fetch = createFetch(context, loaded);
    const registry = spec.registry ??
      await findRegistry(spec.name, { fetch, rules: config.url_access, env, signal: ending.signal });
    const programs = openInstallers({ env, home, workspace, clock: systemClock, signal: ending.signal });
    say(`Installing ${exactLine(shownPackage({ ...spec, registry }))}...`);
    const request = { name: spec.name, version: spec.version, program };
    const place = { dataDir, clock: systemClock, random: createSystemRandom() };
    return await installPackage(
      place,
      (folder) =>
        registry === "npm"
          ? installFromNpm(request, { folder, programs })
          : installFromPypi(request, { folder, programs }),
    );
  } finally {
    forget();
  }
}
