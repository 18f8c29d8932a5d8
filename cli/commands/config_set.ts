import { writeConfigValue } from "../../lib/config/edit_config.ts";
import { userConfigFile } from "../../lib/config/folders.ts";
import { locateConfig } from "../../lib/config/load_config.ts";
import { parseValue } from "../../lib/config/parse_value.ts";
import { readControlFile } from "../../lib/host/control_file.ts";
import { acceptFile } from "../../lib/config/trust_store.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { defineCliCommand } from "../command.ts";
import { EXIT } from "../exit_codes.ts";
import { readKey } from "./config.ts";

/**
 * `postern config set <key> <value>`: changes that one value's text in the file in use, or in a new one of the user. Nothing is
 * written when the result would be refused. A `./postern.toml` the user accepted stays accepted.
 */
export const configSetCommand = defineCliCommand({
  args: {
    key: { type: "positional", required: true, description: "The key, as gateway.port" },
    value: { type: "positional", required: true, description: "A TOML value; what is none is taken as text" },
  },
  example: "postern config set gateway.port 8080",
  async run(context, { key, value }) {
    const path = readKey(key);
    const parsed = parseValue(value, path);
    const { file, trustDir } = await locateConfig(context.loadOptions);
    const target = file?.path ?? userConfigFile(context.io);
    const text = await writeConfigValue(target, path, parsed);
    if (file?.trusted === true) await acceptFile(trustDir, { path: file.path, text }, { now: systemClock.now() });
    context.print({ file: target, key }, `Set ${key} in ${target}`);
    // Whatever else is wrong with the environment, the value is set
    const loaded = await context.loadConfig().catch(() => undefined);
    const running = loaded === undefined ? undefined : await readControlFile(loaded.dataDir);
    if (running !== undefined) {
      context.say(
        "A gateway is running: it takes the change over where it can; postern doctor says what waits for a restart",
      );
    }
    return EXIT.ok;
  },
});
