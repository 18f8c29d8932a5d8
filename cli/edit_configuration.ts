import { systemClock } from "../lib/base/clock.ts";
import { lineDifference } from "../lib/base/line_difference.ts";
import { editConfigInUse } from "../lib/config/edit_config.ts";
import { readText } from "../lib/config/find_config.ts";
import { readControlFile } from "../lib/host/control_file.ts";
import { type CommandContext, CommandError } from "./command.ts";
import { requireYes } from "./terminal/require_yes.ts";
import { paint, printable, takesColour, type TextColour } from "./terminal/terminal_text.ts";

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

/** Says when a change counts for a gateway that runs. The value is set, even where something else keeps the configuration from being loaded. */
export async function sayWhereItCounts(context: CommandContext, isNew: boolean): Promise<void> {
  const loaded = await context.loadConfig().catch(() => undefined);
  const running = loaded === undefined ? undefined : await readControlFile(loaded.dataDir);
  if (running === undefined) return;
  context.say(
    isNew
      ? "A gateway is running without this file: it uses the file from its next start"
      : "A gateway is running: it takes the change over where it can; postern doctor says what waits for a restart",
  );
}

/** Returns the difference between two texts of a configuration for people. Empty where there is none. */
export function shownChange(before: string, after: string): string {
  return printable(lineDifference(before, after));
}

/**
 * Shows the change of a configuration file, and asks whether to write it.
 * @param options.before text that was read. Undefined: there was no file, so that nothing is asked
 * @param options.yes true: a flag agreed
 * @returns the difference. Empty where there is none: then nothing is asked
 * @throws {CommandError} the person said no or cannot be asked, or the file was changed meanwhile
 */
export async function agreeToChange(
  context: CommandContext,
  { path, before, after, yes }: {
    readonly path: string;
    readonly before: string | undefined;
    readonly after: string;
    readonly yes: boolean;
  },
): Promise<string> {
  const change = shownChange(before ?? "", after);
  if (before !== undefined && change !== "" && !yes) await ask(context, path, change);
  if (await readText(path) === before) return change;
  throw new CommandError(`Nothing was written: ${path} was changed meanwhile; try again`);
}

async function ask(context: CommandContext, path: string, change: string): Promise<void> {
  const colours = takesColour(context.io, "stderr") ? { "+": "green", "-": "red" } as const : {};
  const lines = change.split("\n").map((line) => paint(line, (colours as Record<string, TextColour>)[line[0] ?? ""]));
  context.say(`Changes of ${path}:\n${lines.join("\n")}`);
  await requireYes(context, "Write them?", {
    unasked: "Nothing was written: there is no terminal to ask; say --yes to write the change",
    refused: "Nothing was written",
  });
}
