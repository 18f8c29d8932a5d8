import { Backoff, systemClock } from "../lib/base/clock.ts";
import { lineDifference } from "../lib/base/line_difference.ts";
import { editConfigInUse } from "../lib/config/edit_config.ts";
import { type ControlRecord, readControlFile } from "../lib/host/control_file.ts";
import { type CommandContext, CommandError } from "./command.ts";
import { whileNobodyWrites } from "./configuration_lock.ts";
import { readGatewayStatus } from "./reach_gateway.ts";
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
  const { loadOptions } = context;
  const { path, isNew } = await whileNobodyWrites(
    loadOptions,
    () => editConfigInUse(loadOptions, edit, { now: systemClock.now() }),
  );
  await sayWhereItCounts(context, isNew);
  return path;
}

/**
 * Says when a change that was just written counts for a gateway that runs, once that gateway has looked at it. The value is set, even where
 * something else keeps the configuration from being loaded.
 */
export async function sayWhereItCounts(context: CommandContext, isNew: boolean): Promise<void> {
  const writtenAt = new Date(systemClock.now()).toISOString();
  const loaded = await context.loadConfig().catch(() => undefined);
  const running = loaded === undefined ? undefined : await readControlFile(loaded.dataDir);
  if (running === undefined) return;
  if (!isNew) await untilLooked(running, writtenAt);
  context.say(
    isNew
      ? "A gateway is running without this file: it uses the file from its next start"
      : "A gateway is running: it takes the change over where it can; postern doctor says what waits for a restart",
  );
}

/** Pauses between two questions to a gateway, in ms: longer each time, for each question is a line in its log */
const PAUSES = { firstMs: 50, mostMs: 800 } as const;
/** Questions to a gateway after a change. */
const MAX_QUESTIONS = 5;

/** Waits until a gateway has looked at its configuration, through pauses of 1.6 s in all: the next command then finds the change there. */
async function untilLooked(running: ControlRecord, writtenAt: string): Promise<void> {
  const backoff = new Backoff(PAUSES);
  for (let asked = 0; asked < MAX_QUESTIONS; asked++) {
    const status = await readGatewayStatus(running);
    if (status === undefined || (status.config.last_reload?.at ?? "") >= writtenAt) return;
    await systemClock.sleep(backoff.next());
  }
}

/** Change of a file's text that a person sees before it is made. */
export interface ShownChange {
  readonly path: string;
  /** Text that was read. Undefined: there was no file */
  readonly before: string | undefined;
  readonly after: string;
}

/** Returns the new text where the file still has the text that the change was made of. @throws {CommandError} it has another one by now */
export function unlessChanged({ path, before, after }: ShownChange, text: string | undefined): string {
  if ((text ?? "") === (before ?? "")) return after;
  throw new CommandError(`Nothing was written: ${path} was changed meanwhile; try again`);
}

/** Returns the difference between two texts of a configuration for people. Empty where there is none. */
export function shownChange(before: string, after: string): string {
  return printable(lineDifference(before, after));
}

/**
 * Shows the change of a configuration file, and asks whether to write it.
 * @param options.yes true: a flag agreed
 * @returns the difference. Empty where there is none: then nothing is asked
 * @throws {CommandError} the person said no or cannot be asked
 */
export async function agreeToChange(
  context: CommandContext,
  { path, before, after }: ShownChange,
  { yes }: { readonly yes: boolean },
): Promise<string> {
  const change = shownChange(before ?? "", after);
  if (before !== undefined && change !== "" && !yes) await ask(context, path, change);
  return change;
}

async function ask(context: CommandContext, path: string, change: string): Promise<void> {
  const colours: ReadonlyMap<string | undefined, TextColour> = new Map(
    takesColour(context.io, "stderr") ? [["+", "green"], ["-", "red"]] : [],
  );
  const lines = change.split("\n").map((line) => paint(line, colours.get(line[0])));
  context.say(`Changes of ${path}:\n${lines.join("\n")}`);
  await requireYes(context, "Write them?", {
    unasked: "Nothing was written: there is no terminal to ask; say --yes to write the change",
    refused: "Nothing was written",
  });
}
