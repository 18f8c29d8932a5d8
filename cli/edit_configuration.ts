import { systemClock } from "../lib/base/clock.ts";
import { lineDifference } from "../lib/base/line_difference.ts";
import { changeConfigFile } from "../lib/config/edit_config.ts";
import { userConfigFile } from "../lib/config/folders.ts";
import { locateConfig } from "../lib/config/load_config.ts";
import { acceptFile } from "../lib/config/trust_store.ts";
import { readControlFile } from "../lib/host/control_file.ts";
import type { CommandContext } from "./command.ts";
import { requireYes } from "./terminal/require_yes.ts";
import { paint, printable, takesColour } from "./terminal/terminal_text.ts";

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
  const { file, trustDir } = await locateConfig(context.loadOptions);
  const target = file?.path ?? userConfigFile(context.io);
  const text = await changeConfigFile(target, edit);
  if (file?.trusted === true) await acceptFile(trustDir, { path: file.path, text }, { now: systemClock.now() });
  await sayWhereItCounts(context, file === undefined);
  return target;
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

/** Change of a configuration file that a person is shown. */
export interface ShownChange {
  /** Absolute path of the file */
  readonly path: string;
  /** Lines of the difference */
  readonly change: string;
  /** True: the change was agreed to by a flag */
  readonly yes: boolean;
}

/** Returns the difference between two texts of a configuration as a terminal shows it. Empty where there is none. */
export function shownChange(
  { io, flags }: CommandContext,
  { before, after }: { readonly before: string; readonly after: string },
): string {
  const colour = takesColour(io, "stderr") && !flags.json;
  const lines = printable(lineDifference(before, after)).split("\n");
  return lines.map((line) => paint(line, colour ? COLOURS[line[0] ?? ""] : undefined)).join("\n");
}

const COLOURS: Readonly<Record<string, "green" | "red">> = { "+": "green", "-": "red" };

/** Shows a change of a configuration file, and asks whether to write it. @throws {CommandError} the person said no, or cannot be asked */
export async function requireAgreed(context: CommandContext, { path, change, yes }: ShownChange): Promise<void> {
  if (yes) return;
  context.say(`Changes of ${path}:\n${change}`);
  await requireYes(context, "Write them?", {
    unasked: "Nothing was written: there is no terminal to ask; say --yes to write the change",
    refused: "Nothing was written",
  });
}
