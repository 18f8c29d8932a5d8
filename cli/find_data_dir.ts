import { dirname } from "node:path";
import { ConfigError } from "../lib/base/errors.ts";
import { resolvePath } from "../lib/config/folders.ts";
import { locateConfig, trustDirectory } from "../lib/config/load_config.ts";
import { parseToml } from "../lib/config/toml.ts";
import type { CommandContext } from "./command.ts";

/**
 * Finds the data directory, even by a configuration that cannot be used. Says on stderr what is wrong with the configuration: a
 * running daemon must be found and stopped whatever became of its file since the start.
 */
export async function findDataDir(context: CommandContext): Promise<string> {
  try {
    return (await context.loadConfig()).dataDir;
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    context.say(error.message);
    return await fromFile(context) ?? trustDirectory(context.loadOptions);
  }
}

async function fromFile({ flags, loadOptions }: CommandContext): Promise<string | undefined> {
  if (flags.dataDir !== undefined || (loadOptions.env["POSTERN_DATA_DIR"] ?? "") !== "") return undefined;
  try {
    const { file } = await locateConfig(loadOptions);
    const named = file === undefined ? undefined : parseToml(file.text, file.path)["data_dir"];
    if (file === undefined || typeof named !== "string" || named === "") return undefined;
    return resolvePath(named, dirname(file.path), loadOptions.home);
  } catch (error) {
    if (error instanceof ConfigError) return undefined;
    throw error;
  }
}
