import { systemClock } from "../lib/base/clock.ts";
import { editConfigInUse } from "../lib/config/edit_config.ts";
import { readControlFile } from "../lib/host/control_file.ts";
import type { CommandContext } from "./command.ts";

/**
 * Changes the text of the configuration file in use, or of a new file of the user. Writes nothing when the result could not be used. A
 * `./postern.toml` that the user accepted stays accepted. Says so where a gateway is running.
 * @returns path of the file
 * @throws {ConfigError} the change or its result cannot be used
 */
export async function editConfiguration(
  context: CommandContext,
  edit: (text: string) => Promise<string>,
): Promise<string> {
  const { path, isNew } = await editConfigInUse(context.loadOptions, edit, { now: systemClock.now() });
  await sayWhereItCounts(context, isNew);
  return path;
}

/** The value is set, even where something else keeps the configuration from being loaded. */
async function sayWhereItCounts(context: CommandContext, isNew: boolean): Promise<void> {
  const loaded = await context.loadConfig().catch(() => undefined);
  const running = loaded === undefined ? undefined : await readControlFile(loaded.dataDir);
  if (running === undefined) return;
  context.say(
    isNew
      ? "A gateway is running without this file: it uses the file from its next start"
      : "A gateway is running: it takes the change over where it can; postern doctor says what waits for a restart",
  );
}
