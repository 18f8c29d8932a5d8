import { stat } from "node:fs/promises";
import { join } from "node:path";
import { messageOf } from "../../lib/base/errors.ts";
import { resolvePath } from "../../lib/config/folders.ts";
import { INSTRUCTION_FILES } from "../../lib/system/files/forbidden_paths.ts";
import { type CliIo, CommandError, UsageError } from "../command.ts";
import { requireSandboxFor } from "../doctor/check_containment.ts";
import { type Preset, PRESETS, presetTable } from "../presets.ts";
import type { StarterChoices } from "../starter_config.ts";
import { isYes } from "./require_yes.ts";
import { messageColumns, printable } from "./terminal_text.ts";

/** Tries for one answer: a script may type anything. */
export const MAX_TRIES = 5;

/**
 * Asks a person for the choices of a configuration that flags have not made: which folder, how far the agent may go, and whether it follows
 * the AGENTS.md or its like that the folder has.
 * @param options.empty says what an empty answer means, in place of a default: that of a file which is there
 * @throws {UsageError} there is no terminal, or its input ended
 * @throws {CommandError} no answer could be used
 */
export async function askChoices(
  io: CliIo,
  { given, empty }: { readonly given: StarterChoices; readonly empty: (standard: string) => string },
): Promise<StarterChoices> {
  const workspace = given.workspace ?? await choose(io, {
    question: `\nWhich folder may the agent work in?\n  Empty: ${empty("the one the gateway is started in")}`,
    read: (answer) => answer === "" ? { value: undefined } : readFolder(answer, io),
  });
  const preset = given.preset ?? await choose(io, {
    question: presetQuestion(empty("look"), messageColumns(io)),
    read: readHowFar,
  });
  const file = await instructionsIn(workspace ?? io.cwd);
  if (file === undefined) return { workspace, preset };
  const instructions = await choose(io, { question: instructionsQuestion(file), read: toInstructions });
  return { workspace, preset, instructions };
}

/** Meaning of an answer, or the reason why it cannot be used. An undefined value keeps what is there. */
export type Read<T> = { readonly value: T | undefined } | { readonly wrong: string };

/** Asks until an answer can be used. @throws {CommandError} none of MAX_TRIES could; {UsageError} as askLine */
export async function choose<T>(
  io: CliIo,
  { question, read }: { readonly question: string; readonly read: (answer: string) => Read<T> | Promise<Read<T>> },
): Promise<T | undefined> {
  for (let attempt = 0; attempt < MAX_TRIES; attempt++) {
    const answer = await askLine(io, attempt === 0 ? `${question}\n> ` : "> ");
    const result = await read(answer);
    if ("value" in result) return result.value;
    io.stderr(`${printable(result.wrong)}\n`);
  }
  throw new CommandError(
    `Nothing was written: none of ${MAX_TRIES} answers could be taken; postern init --yes asks nothing`,
  );
}

/** Asks for a line. @throws {UsageError} there is no terminal, or its input ended */
export async function askLine(io: CliIo, question: string, options?: { readonly isHidden: boolean }): Promise<string> {
  const answer = await io.ask(question, options);
  if (answer === undefined) throw nobodyToAsk();
  return answer.trim();
}

/** Returns the error of a question that nobody can answer. */
export function nobodyToAsk(): UsageError {
  return new UsageError(
    "Nothing was written: there is no terminal to ask, or no answer; say --yes to take the defaults, beside flags such as --preset write",
  );
}

/** Reads a folder. @returns its absolute path, or why it cannot be used */
export async function readFolder(answer: string, { cwd, home }: CliIo): Promise<Read<string>> {
  const path = resolvePath(answer, cwd, home);
  const isFolder = await stat(path).then((found) => found.isDirectory(), () => false);
  return isFolder ? { value: path } : { wrong: `"${path}" is no folder` };
}

function presetQuestion(empty: string, columns: number | undefined): string {
  const numbers = PRESETS.map((name, index) => `\n  ${index + 1}  ${name}`);
  return `\nHow far may the agent go?\n\n${presetTable(columns)}\n${numbers.join("")}\n  Empty: ${empty}`;
}

async function readHowFar(answer: string): Promise<Read<Preset>> {
  if (answer === "") return { value: undefined };
  const preset = PRESETS[Number(answer) - 1] ?? PRESETS.find((name) => name === answer.toLowerCase());
  if (preset === undefined) return { wrong: `"${answer}" is none of 1, 2 and 3` };
  try {
    await requireSandboxFor(preset);
    return { value: preset };
  } catch (error) {
    if (!(error instanceof CommandError)) throw error;
    return { wrong: messageOf(error) };
  }
}

/** Returns the name of the file in a folder that instructs agents. Undefined: there is none. */
async function instructionsIn(folder: string): Promise<string | undefined> {
  for (const name of INSTRUCTION_FILES) {
    if (await stat(join(folder, name)).then((found) => found.isFile(), () => false)) return name;
  }
  return undefined;
}

function instructionsQuestion(file: string): string {
  return `
Shall the agent follow ${file} of that folder, once you trust its content (postern instructions trust)?
  1  no (default)
  2  yes`;
}

function toInstructions(answer: string): Read<true> {
  if (answer === "" || answer === "1" || /^no?$/i.test(answer)) return { value: undefined };
  return answer === "2" || isYes(answer) ? { value: true } : { wrong: `"${answer}" is neither 1 nor 2` };
}
