import { realpath, stat } from "node:fs/promises";
import { join } from "node:path";
import { ConfigError } from "../../lib/base/errors.ts";
import { toKeyText } from "../../lib/config/toml.ts";
import type { LoadedConfig } from "../../lib/config/load_config.ts";
import { secretPlaces } from "../../lib/config/secret_checks.ts";
import { knownSecrets, missingSecrets } from "../../lib/config/secrets.ts";
import { type IdleSetting, idleSettings } from "../../lib/tools/idle_settings.ts";
import { pluginToolNames } from "../../lib/extensions/plugins/plugin_tool_names.ts";
import type { CommandContext } from "../command.ts";
import { failure, type Finding, fine, warning } from "./finding.ts";

const NAME = "configuration";

/** Checks where the configuration was found and whether it can be used. Most other checks need a configuration. */
export async function checkConfiguration(
  context: CommandContext,
): Promise<{ readonly loaded: LoadedConfig | undefined; readonly findings: readonly Finding[] }> {
  try {
    const loaded = await context.loadConfig();
    const { file } = loaded;
    const found = file === undefined
      ? fine(NAME, "No file: every value is the default; postern init writes one")
      : fine(NAME, `${file.path}${file.trusted ? ", which you accepted" : ""}`);
    return {
      loaded,
      findings: [
        found,
        ...await checkModes(loaded),
        ...await checkKeyFiles(loaded),
        ...await checkUnused(context, loaded),
        ...await checkIdle(loaded, context.io.home),
        ...await checkSecrets(loaded),
        ...await checkFloating(loaded),
        ...checkProxy(loaded),
      ],
    };
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    return { loaded: undefined, findings: [toFailure(error)] };
  }
}

function toFailure({ code, message, problems = [], key }: ConfigError): Finding {
  const [first = message] = message.split("\n");
  const more = problems.length > 1 ? ` (and ${problems.length - 1} more)` : "";
  const fix = code === "config_untrusted"
    ? "cat postern.toml && postern trust"
    : code === "config_unreadable"
    ? "name another with --config"
    : code === "trust_store"
    ? "remove the list, then postern trust"
    : key === undefined
    ? "postern config check"
    : `postern config check, then correct ${key}`;
  return failure(NAME, `${first}${more}`, fix);
}

/** Checks who may write the file, and so decide what the agent may do, and who may read the secrets in it. */
async function checkModes({ file, config }: LoadedConfig): Promise<readonly Finding[]> {
  if (file === undefined || process.platform === "win32") return [];
  const { mode } = await stat(file.path);
  if ((mode & 0o022) !== 0) {
    return [failure(NAME, "Other users can change it, and with it what the agent may do", `chmod go-w "${file.path}"`)];
  }
  const hasSecrets = knownSecrets(config, {}).length > 0;
  if (!hasSecrets || (mode & 0o044) === 0) return [];
  return [warning(NAME, "Other users can read it, and it has secrets in it", `chmod go= "${file.path}"`)];
}

/** Warns about files of API keys that other users can read. */
async function checkKeyFiles({ config: { provider, providers } }: LoadedConfig): Promise<readonly Finding[]> {
  if (process.platform === "win32") return [];
  const paths = [provider, ...Object.values(providers)].map((each) => each.api_key_file).filter((path) => path !== "");
  const found = await Promise.all([...new Set(paths)].map(async (path) => {
    // A missing file is reported by the check of its provider
    const mode = await stat(path).then((info) => info.mode, () => 0);
    if ((mode & 0o044) === 0) return [];
    return [warning(NAME, `Other users can read the key in ${path}`, `chmod 600 "${path}"`)];
  }));
  return found.flat();
}

/** Warns about settings that do nothing. */
async function checkIdle(loaded: LoadedConfig, home: string): Promise<readonly Finding[]> {
  const idle = await idleOf(loaded, home);
  const warnings = await located(idle, loaded);
  return warnings.map(({ key, message }, at) => {
    const use = idle[at]?.use;
    return warning(NAME, message, `${use === undefined ? "" : `${use}; else `}take ${key} out of the configuration`);
  });
}

/** Warns about secrets in files that cannot be read. Variables that are not set are found by the check of the environment. */
async function checkSecrets(loaded: LoadedConfig): Promise<readonly Finding[]> {
  const everySet = Object.fromEntries(Object.values(loaded.config.secrets).map(({ env }) => [env, "set"]));
  const missing = await secretWarnings(loaded, everySet);
  return missing.map(({ key, message }) => warning(NAME, message, `correct ${key}`));
}

/** Warns about MCP servers that may run other code tomorrow. */
async function checkFloating(loaded: LoadedConfig): Promise<readonly Finding[]> {
  const floating = await floatingWarnings(loaded);
  return floating.map(({ message }) => {
    const [problem = message, fix = "postern mcp add"] = message.split("; install it once with: ");
    return warning(NAME, problem, fix);
  });
}

/** Warns about names that a proxy looks up: no address is checked then. */
function checkProxy({ config: { proxy } }: LoadedConfig): readonly Finding[] {
  if (proxy.resolve === "local") return [];
  const problem =
    "The proxy looks up names, so that no address is checked: a name may lead a tool to a private network";
  return [warning(NAME, problem, 'set [proxy] resolve = "local"')];
}

/** Warns about a `./postern.toml` that is not used because another file comes first. */
async function checkUnused({ io, flags }: CommandContext, { file }: LoadedConfig): Promise<readonly Finding[]> {
  if (flags.config !== undefined || (io.env["POSTERN_CONFIG"] ?? "") !== "") return [];
  const here = await realpath(join(io.cwd, "postern.toml")).catch(() => undefined);
  if (here === undefined || file === undefined || here === await realpath(file.path)) return [];
  return [warning(NAME, `${here} is not used: ${file.path} comes first`, "postern gateway --config ./postern.toml")];
}

/** Setting that does nothing, or secret that is not there, with its place. */
export interface ConfigWarning {
  readonly key: string;
  readonly message: string;
  /** Line of the file. Null: the setting comes from the environment or the command line */
  readonly line: number | null;
}

/** Lists the settings of a configuration that do nothing in this version, such as `postern.toml:12: [plugins] does nothing: ...`. */
export async function configWarnings(loaded: LoadedConfig, home: string): Promise<readonly ConfigWarning[]> {
  return await located(await idleOf(loaded, home), loaded);
}

async function idleOf({ config, dataDir, workspace }: LoadedConfig, home: string): Promise<readonly IdleSetting[]> {
  const others = await pluginToolNames({ dataDir, workspace, home, userDir: config.plugins.user_dir });
  return idleSettings(config, { others });
}

/** Lists the secrets that are not there, such as `postern.toml:12: [secrets.forge] cannot be used: the variable "FORGE" is not set`. */
export async function secretWarnings(
  loaded: LoadedConfig,
  env: Readonly<Record<string, string | undefined>>,
): Promise<readonly ConfigWarning[]> {
  const missing = await missingSecrets(loaded.config, env);
  return await located(
    missing.map(({ name, reason }) => {
      const users = secretPlaces(loaded.config).filter(({ secret }) => secret === name).map(({ path }) =>
        toKeyText(path)
      );
      const needed = users.length === 0 ? "" : `; ${users.join(" and ")} needs it`;
      return { path: ["secrets", name], message: `[secrets.${name}] cannot be used: ${reason}${needed}` };
    }),
    loaded,
  );
}

/** Lists the MCP servers whose program is fetched at each start, with the command that installs each once. */
export async function floatingWarnings(loaded: LoadedConfig): Promise<readonly ConfigWarning[]> {
  const { servers } = loaded.config.mcp;
  if (Object.keys(servers).length === 0) return [];
  const { floatingServers } = await import("../../lib/extensions/mcp/install/floating_command.ts");
  const found = floatingServers(servers);
  return await located(
    found.map(({ name, message }) => ({ path: ["mcp", "servers", name], message })),
    loaded,
  );
}

/** Adds the places of settings to what is said of them. */
async function located(
  said: readonly Pick<IdleSetting, "path" | "message">[],
  { file, sources }: Pick<LoadedConfig, "file" | "sources">,
): Promise<readonly ConfigWarning[]> {
  if (said.length === 0) return [];
  const { locateKeys } = await import("../../lib/config/locate_keys.ts");
  const places = file === undefined ? undefined : await locateKeys(file.text);
  return said.map(({ path, message }) => {
    const key = toKeyText(path);
    const isInFile = [...sources].some(([name, source]) =>
      source === "file" && (name === key || name.startsWith(`${key}.`))
    );
    const line = isInFile ? places?.lineOf(path) : undefined;
    return { key, message: line === undefined ? message : `${file?.path}:${line}: ${message}`, line: line ?? null };
  });
}
