import { realpath, stat } from "node:fs/promises";
import { basename, dirname, join, relative, sep } from "node:path";
import { ConfigError, type ConfigProblem } from "../base/errors.ts";
import { type Config, freeze } from "./config.ts";
import { type EnvironmentKey, environmentLayer, setAt } from "./layers.ts";
import { isTable } from "./schema_keys.ts";
import { findConfig, type FoundConfig, readText } from "./find_config.ts";
import { requireFolder, resolvePath, userConfigFile, userDataDir, type UserPlace } from "./folders.ts";
import { hasKey, type KeyPath, parseKeyText, parseToml, type RawTable, toKeyText } from "./toml.ts";
import type { LocatedKeys } from "./locate_keys.ts";
import { rulesOf, wideningRules, WORKSPACE_RULE } from "./rule_checks.ts";
import { switches } from "./schema/security.ts";
import { validateConfig, type ValidationFinding } from "./validate_config.ts";

/** Values of the command line. */
export interface ConfigFlags {
  readonly config?: string | undefined;
  readonly dataDir?: string | undefined;
  readonly workspace?: string | undefined;
  /** Further keys by their text, such as `gateway.port` */
  readonly keys?: Readonly<Record<string, unknown>>;
}

/** Environment, flags and folders that a configuration is loaded from. */
export interface LoadOptions extends UserPlace {
  readonly flags: ConfigFlags;
}

/** Where the value of a key came from. */
export type ConfigSource = "flag" | "environment" | "file" | "default";

type GivenBy = Exclude<ConfigSource, "default">;

/** A configuration ready for use. Its `data_dir` and `workspace` are absolute. */
export interface LoadedConfig {
  readonly config: Config;
  /** The file in use; undefined: none was found, all values are defaults */
  readonly file: FoundConfig | undefined;
  readonly dataDir: string;
  readonly workspace: string;
  /**
   * Paths that no tool may touch: the data directory, the file in use (also by its name in its real folder), and the paths that a start without
   * flags would use: the user's own data directory, with the list of accepted files, and the folder of the user's file. Absolute
   */
  readonly ownPaths: readonly string[];
  /** By key text; a key that is not in it has its default */
  readonly sources: ReadonlyMap<string, GivenBy>;
}

/**
 * Finds, reads, joins and checks the configuration: flags over `POSTERN__SECTION__KEY` over the file over the defaults.
 * @throws {ConfigError} one error with every problem, each with its place, key, reason and the nearest valid key
 */
export async function loadConfig(options: LoadOptions): Promise<LoadedConfig> {
  const environment = environmentLayer(options.env);
  const outside = dataDirOutside(options, environment.table);
  const { file } = await locateConfig(options);
  const fromFile = file === undefined ? {} : parseToml(file.text, file.path);
  const flags = flagLayer(options.flags);
  const result = validateConfig([fromFile, environment.table, flags]);
  if ("findings" in result) throw await toError(result.findings, { file, environment: environment.keys, flags });
  const folder = file === undefined ? options.cwd : dirname(file.path);
  const inFile = (path: string) => resolvePath(path, folder, options.home);
  const dataDir = outside ?? (result.config.data_dir === "" ? userDataDir(options) : inFile(result.config.data_dir));
  const workspace = workspaceOf(options, environment.table, fromFile, inFile);
  await requireFolder(workspace, "name another with --workspace");
  const isWorkspaceFile = file !== undefined && await isInWorkspace(file.path, workspace, options);
  const widening = isWorkspaceFile ? [...wideningRules(rulesOf(fromFile))] : [];
  if (widening.length > 0) throw await toError(widening, { file, environment: [], flags: {} });
  const rules = isWorkspaceFile ? [] : await workspaceRules(workspace);
  const { autonomy } = result.config;
  return {
    config: freeze({
      ...result.config,
      autonomy: { ...autonomy, rules: [...autonomy.rules, ...rules] },
      data_dir: dataDir,
      workspace,
    }),
    file,
    dataDir,
    workspace,
    ownPaths: [
      ...new Set([
        dataDir,
        userDataDir(options),
        dirname(userConfigFile(options)),
        ...(file === undefined ? [] : [file.path, join(await realpath(dirname(file.path)), basename(file.path))]),
      ]),
    ],
    sources: new Map<string, GivenBy>([
      ...sourcesOf(fromFile, "file"),
      ...sourcesOf(environment.table, "environment"),
      ...sourcesOf(flags, "flag"),
    ]),
  };
}

/** Tells whether a configuration file lies in the workspace, and is not the user's own: its rules may only narrow. */
export async function isInWorkspace(path: string, workspace: string, place: UserPlace): Promise<boolean> {
  if (path === userConfigFile(place)) return false;
  const [real, root] = await Promise.all([realpath(path), realpath(workspace)]);
  const way = relative(root, real);
  return way !== ".." && !way.startsWith(`..${sep}`) && way !== real;
}

/**
 * Returns the written rules of a workspace's own file beside the configuration in use. They need no trust, since they only narrow what the
 * agent may do. Nothing else of the file counts.
 * @throws {ConfigError} the file cannot be read, or a rule of it cannot be used
 */
async function workspaceRules(workspace: string): Promise<Config["autonomy"]["rules"]> {
  const path = join(workspace, "postern.toml");
  if (!await stat(path).then((info) => info.isFile(), () => false)) return [];
  const text = await readText(path) ?? "";
  const rules = rulesOf(parseToml(text, path));
  if (rules === undefined) return [];
  const result = validateConfig([{ autonomy: { rules } }]);
  const findings = [...wideningRules(rules), ..."findings" in result ? result.findings : []];
  if ("findings" in result || findings.length > 0) {
    throw await toError(findings, { file: { path, text, trusted: false }, environment: [], flags: {} });
  }
  return result.config.autonomy.rules.map((rule) => ({ ...rule, name: WORKSPACE_RULE + rule.name }));
}

/**
 * The file that `loadConfig` would read, not looked into, and the directory of the list of accepted files.
 * @throws {ConfigError} as findConfig
 */
export async function locateConfig(
  options: LoadOptions,
): Promise<{ readonly file: FoundConfig | undefined; readonly trustDir: string }> {
  const trustDir = trustDirectory(options);
  return { file: await findConfig(options, { config: options.flags.config, dataDir: trustDir }), trustDir };
}

/** Where the list of accepted files is: the data directory as flags and environment say, whatever the file says. */
export function trustDirectory(options: LoadOptions): string {
  return dataDirOutside(options, environmentLayer(options.env).table) ?? userDataDir(options);
}

/**
 * Finds the data directory, even by a configuration that cannot be used: a running daemon must be found and stopped whatever became
 * of its file since the start.
 * @param onProblem told what is wrong with the configuration
 */
export async function findDataDir(options: LoadOptions, onProblem: (message: string) => void): Promise<string> {
  try {
    return (await loadConfig(options)).dataDir;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    onProblem(error.message);
    return await dataDirInFile(options) ?? trustDirectory(options);
  }
}

async function dataDirInFile(options: LoadOptions): Promise<string | undefined> {
  if (options.flags.dataDir !== undefined || (options.env["POSTERN_DATA_DIR"] ?? "") !== "") return undefined;
  try {
    const { file } = await locateConfig(options);
    const named = file === undefined ? undefined : parseToml(file.text, file.path)["data_dir"];
    if (file === undefined || typeof named !== "string" || named === "") return undefined;
    return resolvePath(named, dirname(file.path), options.home);
  } catch (error) {
    if (error instanceof ConfigError) return undefined;
    throw error;
  }
}

/**
 * Checks one file's text by itself, as `config check` and `config set` do.
 * @throws {ConfigError} with every problem
 */
export async function checkConfigText(text: string, path: string): Promise<Config> {
  const result = validateConfig([parseToml(text, path)]);
  if ("config" in result) return result.config;
  throw await toError(result.findings, { file: { path, text, trusted: false }, environment: [], flags: {} });
}

/** The data directory as flags and environment say: the file must not decide where its own acceptance is looked up. */
function dataDirOutside({ flags, env, cwd, home }: LoadOptions, environment: RawTable): string | undefined {
  const named = flags.dataDir ?? (env["POSTERN_DATA_DIR"] || environment["data_dir"]);
  return typeof named === "string" && named !== "" ? resolvePath(named, cwd, home) : undefined;
}

function workspaceOf(
  options: LoadOptions,
  environment: RawTable,
  file: RawTable,
  inFile: (path: string) => string,
): string {
  const outside = options.flags.workspace ?? environment["workspace"];
  if (typeof outside === "string" && outside !== "") return resolvePath(outside, options.cwd, options.home);
  const own = file["workspace"];
  return typeof own === "string" && own !== "" ? inFile(own) : options.cwd;
}

function flagLayer(flags: ConfigFlags): RawTable {
  const table: RawTable = {};
  for (const [key, value] of Object.entries(flags.keys ?? {})) setAt(table, parseKeyText(key) ?? [key], value);
  return table;
}

function* sourcesOf(table: RawTable, source: GivenBy, path: KeyPath = []): Iterable<[string, GivenBy]> {
  for (const [key, value] of Object.entries(table)) {
    const here = [...path, key];
    if (isTable(value)) yield* sourcesOf(value, source, here);
    else yield [toKeyText(here), source];
    for (const rule of here.join(".") === "autonomy.rules" && Array.isArray(value) ? value : []) {
      yield [toKeyText([...here, String(rule.name)]), source];
    }
    // A switch is in two places with one value
    if (path.length === 0 && Object.hasOwn(switches, key)) yield [toKeyText(["security", key]), source];
    if (path.length === 1 && path[0] === "security" && Object.hasOwn(switches, key)) yield [key, source];
  }
}

interface Sources {
  readonly file: FoundConfig | undefined;
  readonly environment: readonly EnvironmentKey[];
  readonly flags: RawTable;
}

async function toError(findings: readonly ValidationFinding[], sources: Sources): Promise<ConfigError> {
  const located = sources.file === undefined
    ? undefined
    : await (await import("./locate_keys.ts")).locateKeys(sources.file.text);
  const problems = findings.map((finding) => toProblem(finding, sources, located)).sort((a, b) =>
    (a.line ?? 0) - (b.line ?? 0)
  );
  const message = problems.map((problem) => problem.message).join("\n");
  const { key, file, line } = problems[0] ?? {};
  return new ConfigError("config_invalid", message, { key, file, line, problems });
}

function toProblem(
  { path, reason }: ValidationFinding,
  sources: Sources,
  located: LocatedKeys | undefined,
): ConfigProblem {
  const key = toKeyText(path);
  const problem = (place: string, file?: string, line?: number) => ({
    message: `Cannot use "${key}" (${place}): ${reason}`,
    key,
    file,
    line,
  });
  const ways = [path, ...(path[0] === "security" && Object.hasOwn(switches, String(path[1])) ? [path.slice(1)] : [])];
  if (ways.some((way) => hasKey(sources.flags, way))) return problem("command line");
  const variable = sources.environment.find((one) =>
    ways.some((way) => one.path.join(".") === way.slice(0, one.path.length).join("."))
  );
  if (variable !== undefined) return problem(`environment variable ${variable.variable}`);
  if (sources.file === undefined) return problem("configuration");
  const line = located?.lineOf(ways.find((way) => located.lineOf(way.slice(0, 1)) !== undefined) ?? path);
  return problem(line === undefined ? sources.file.path : `${sources.file.path}:${line}`, sources.file.path, line);
}
