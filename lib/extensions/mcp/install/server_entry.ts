import { join } from "node:path";
import { removeConfigTable, setConfigValue } from "../../../config/edit_config.ts";
import type { ImportedServer } from "./import_servers.ts";

/** Server as it is entered into the configuration. */
export interface ServerEntry {
  readonly name: string;
  /** Keys of `[mcp.servers.<name>]` with their values; nested ones by their whole path */
  readonly values: readonly (readonly [key: readonly string[], value: unknown])[];
}

/** Secret that moves out of an entry: a file of its own, and the name that takes its place. */
export interface MovedSecret {
  /** Name of the `[secrets.<name>]` */
  readonly name: string;
  /** Server that may have it */
  readonly server: string;
  /** Table and key that it stood in, such as `["env", "API_KEY"]` */
  readonly place: readonly [table: "env" | "headers", key: string];
  /** Text that stays before the value, such as `Bearer ` */
  readonly prefix: string;
  readonly value: string;
  /** Hosts that it may go to: that of the server's address */
  readonly hosts: readonly string[];
  /** Absolute path of the file with the value */
  readonly file: string;
}

/** Folder of the values that were imported, in the data directory. */
export function secretsFolder(dataDir: string): string {
  return join(dataDir, "mcp", "secrets");
}

/**
 * Returns the secrets of an imported server, each for a file of its own. A value that a file would not keep as it is stays where it is.
 * @param taken names of secrets that are in use
 */
export function movedSecrets(
  server: ImportedServer,
  { dataDir, taken }: { readonly dataDir: string; readonly taken: ReadonlySet<string> },
): readonly MovedSecret[] {
  const names = new Set(taken);
  const hosts = server.url === "" ? [] : [new URL(server.url).hostname];
  return server.secrets.flatMap(({ table, key }) => {
    const whole = server[table][key] ?? "";
    const prefix = /^(?:Bearer|Basic|Token) +(?=\S)/i.exec(whole)?.[0] ?? "";
    const value = whole.slice(prefix.length);
    if (value === "" || value !== value.trim()) return [];
    const base = `${server.name}_${key}`.toLowerCase().replace(/[^a-z0-9]+/g, "_").slice(0, 64);
    let name = base;
    for (let number = 2; names.has(name); number++) name = `${base}_${number}`;
    names.add(name);
    const file = join(secretsFolder(dataDir), name);
    return [{ name, server: server.name, place: [table, key] as const, prefix, value, hosts, file }];
  });
}

/** Returns the entry of a program. @param paths that its sandbox shows */
export function programEntry(
  name: string,
  { command, args, paths = [] }: {
    readonly command: string;
    readonly args: readonly string[];
    readonly paths?: readonly string[];
  },
): ServerEntry {
  return {
    name,
    values: [[["command"], command], [["args"], args], ...paths.length === 0 ? [] : [[["paths"], paths] as const]],
  };
}

/** Returns the entry of a server that runs already. */
export function urlEntry(name: string, url: string): ServerEntry {
  return { name, values: [[["url"], url]] };
}

/** Returns the entry of an imported server. @param moved its secrets, whose names stand in the place of their values */
export function importedEntry(server: ImportedServer, moved: readonly MovedSecret[] = []): ServerEntry {
  const { name, command, args, url } = server;
  const first = url === "" ? programEntry(name, { command, args }) : urlEntry(name, url);
  const table = (of: "env" | "headers") =>
    Object.entries(server[of]).map(([key, value]) => {
      const secret = moved.find(({ place }) => place[0] === of && place[1] === key);
      return [[of, key], secret === undefined ? value : placeOf(secret)] as const;
    });
  return { name, values: [...first.values, ...table("env"), ...table("headers")] };
}

function placeOf({ name, prefix }: MovedSecret): { readonly secret: string; readonly prefix?: string } {
  return prefix === "" ? { secret: name } : { secret: name, prefix };
}

/** Enters servers and secrets into the text of a configuration. @throws {ConfigError} `config_syntax`, `config_edit` */
export async function enterServers(
  text: string,
  entries: readonly ServerEntry[],
  secrets: readonly MovedSecret[] = [],
): Promise<string> {
  let next = text;
  for (const { name, server, hosts, file } of secrets) {
    const values = { file, ...hosts.length === 0 ? {} : { hosts }, mcp: [server] };
    for (const [key, value] of Object.entries(values)) next = await setConfigValue(next, ["secrets", name, key], value);
  }
  for (const { name, values } of entries) {
    for (const [key, value] of values) next = await setConfigValue(next, ["mcp", "servers", name, ...key], value);
  }
  return next;
}

/** Turns servers on, and lets those through that are named. @param allowed the names that are let through already */
export async function allowServers(
  text: string,
  names: readonly string[],
  allowed: readonly string[],
): Promise<string> {
  const list = [...new Set([...allowed, ...names])];
  const on = await setConfigValue(text, ["security", "mcp", "enabled"], true);
  return await setConfigValue(on, ["security", "mcp", "allowed_servers"], list);
}

/** Server to remove, with what belongs to it alone. */
export interface RemovedServer {
  readonly name: string;
  /** Names that `[security.mcp]` lets through now */
  readonly allowed: readonly string[];
  /** Names of secrets that nothing else uses */
  readonly secrets: readonly string[];
}

/** Removes a server with its leave and its secrets from the text of a configuration. @throws {ConfigError} `config_syntax`, `config_edit` */
export async function removeServer(text: string, { name, allowed, secrets }: RemovedServer): Promise<string> {
  let next = await removeConfigTable(text, ["mcp", "servers", name]);
  for (const secret of secrets) next = await removeConfigTable(next, ["secrets", secret]);
  if (!allowed.includes(name)) return next;
  const others = allowed.filter((other) => other !== name);
  return await setConfigValue(next, ["security", "mcp", "allowed_servers"], others);
}
