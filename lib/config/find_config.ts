import { readFile, realpath } from "node:fs/promises";
import { join } from "node:path";
import { ConfigError, messageOf, systemCodeOf } from "../base/errors.ts";
import { resolvePath, userConfigFile, type UserPlace } from "./folders.ts";
import { readTrust } from "./trust_store.ts";

const MAX_FILE_CHARACTERS = 4_194_304;

/** A configuration file that was found. `path` is absolute; `trusted`: a `./postern.toml` that the user accepted. */
export interface FoundConfig {
  readonly path: string;
  readonly text: string;
  readonly trusted: boolean;
}

/**
 * Looks for the configuration: `--config`, POSTERN_CONFIG, `$XDG_CONFIG_HOME/postern/postern.toml`, then `./postern.toml`
 * when the user accepted its path and content. The first that is there is the only one.
 * @param options.config value of `--config`
 * @param options.dataDir where the list of accepted files is
 * @returns undefined when there is none
 * @throws {ConfigError} `config_untrusted`, `config_unreadable`, `trust_store`
 */
export async function findConfig(
  place: UserPlace,
  options: { readonly config: string | undefined; readonly dataDir: string },
): Promise<FoundConfig | undefined> {
  const named = options.config ?? (place.env["POSTERN_CONFIG"] || undefined);
  if (named !== undefined) {
    const path = resolvePath(named, place.cwd, place.home);
    const text = await readText(path);
    if (text !== undefined) return { path, text, trusted: false };
    throw new ConfigError("config_unreadable", `Cannot read the configuration "${path}": there is no such file`, {
      file: path,
    });
  }
  const own = userConfigFile(place);
  const ownText = await readText(own);
  if (ownText !== undefined) return { path: own, text: ownText, trusted: false };
  return await findHere(place.cwd, options.dataDir);
}

/** Text of a file, at most 4 MiB; undefined when it is not there. @throws {ConfigError} `config_unreadable` */
export async function readText(path: string): Promise<string | undefined> {
  let reason = `it is larger than ${MAX_FILE_CHARACTERS} characters`;
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(await readFile(path));
    if (text.length <= MAX_FILE_CHARACTERS) return text;
  } catch (cause) {
    const code = systemCodeOf(cause);
    if (code === "ENOENT" || code === "ENOTDIR") return undefined;
    reason = code?.startsWith("ERR_ENCODING") || cause instanceof TypeError ? "it is not UTF-8" : messageOf(cause);
  }
  throw new ConfigError("config_unreadable", `Cannot read the configuration "${path}": ${reason}`, { file: path });
}

async function findHere(cwd: string, dataDir: string): Promise<FoundConfig | undefined> {
  const here = join(cwd, "postern.toml");
  const text = await readText(here);
  if (text === undefined) return undefined;
  const path = await realpath(here);
  const trust = await readTrust(dataDir, { path, text });
  if (trust === "trusted") return { path, text, trusted: true };
  const reason = trust === "changed"
    ? "it has changed since you accepted it"
    : "you have not accepted it, and it may come from someone else";
  const wayOut = "read it, then accept it with `postern trust`, or use it this once with `--config ./postern.toml`";
  throw new ConfigError("config_untrusted", `Cannot use "${path}": ${reason}; ${wayOut}`, { file: path });
}
