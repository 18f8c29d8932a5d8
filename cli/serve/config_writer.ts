import { realpath } from "node:fs/promises";
import { systemClock } from "../../lib/base/clock.ts";
import { ConfigError } from "../../lib/base/errors.ts";
import { type LoadedConfig, type LoadOptions, locateConfig } from "../../lib/config/load_config.ts";
import { parseKeyText } from "../../lib/config/toml.ts";
import type { ConfigWriter } from "../../lib/tools/turn_on_tool.ts";
import { isReachedThrough } from "./watch_config.ts";

/**
 * Returns the writer of the configuration file that a gateway started with, or of the user's file where there was none.
 * @param options.reload loads the configuration again, in the same way as for the start
 * @returns undefined for a file in the workspace that the user has not accepted: what programs of tools wrote there would be taken over too
 */
export async function configWriterOf(
  { file, workspace, sources }: LoadedConfig,
  { loadOptions, reload }: { readonly loadOptions: LoadOptions; readonly reload: () => Promise<LoadedConfig> },
): Promise<ConfigWriter | undefined> {
  if (file?.trusted === false && await isReachedThrough(file.path, await realpath(workspace)).catch(() => true)) {
    return undefined;
  }
  let path = file?.path;
  const set: ConfigWriter["set"] = async (key, value) => {
    const source = sources.get(key);
    if (source === "environment" || source === "flag") {
      throw new ConfigError(
        "config_edit",
        `the ${source} sets "${key}", which counts before the file; change it there`,
      );
    }
    const { file: found } = await locateConfig(loadOptions);
    if (found?.path !== path) throw new ConfigError("config_moved", "it uses another configuration file; restart it");
    const [{ editConfigInUse, setConfigValue }, { whileNobodyWrites }] = await Promise.all([
      import("../../lib/config/edit_config.ts"),
      import("../configuration_lock.ts"),
    ]);
    const edit = (text: string) => setConfigValue(text, parseKeyText(key) ?? [key], value);
    ({ path } = await whileNobodyWrites(
      loadOptions,
      () => editConfigInUse(loadOptions, edit, { now: systemClock.now() }),
    ));
    return (await reload()).config;
  };
  let last: Promise<unknown> = Promise.resolve();
  return {
    set(key, value) {
      const done = last.then(() => set(key, value));
      // Two clicks at once would change the same text
      last = done.catch(() => {});
      return done;
    },
  };
}
