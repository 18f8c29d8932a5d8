import { stat } from "node:fs/promises";
import { join } from "node:path";
import { messageOf } from "../../lib/base/errors.ts";
import { resolvePath } from "../../lib/config/folders.ts";
import { INSTRUCTION_FILES } from "../../lib/system/files/forbidden_paths.ts";
import { type CliIo, CommandError } from "../command.ts";
import { requireSandboxFor } from "../doctor/check_containment.ts";
import { type Preset, PRESETS, presetTable } from "../presets.ts";
import type { StarterChoices } from "../starter_config.ts";
import { type AskedProvider, askProvider } from "./ask_provider.ts";
import { choose, nobodyToAsk, type Read } from "./choose.ts";
import { isYes } from "./require_yes.ts";
import { messageColumns } from "./terminal_text.ts";

/** Choices of a person or of flags, with a key that is not stored yet. */
export interface AskedChoices extends StarterChoices {
  readonly provider?: AskedProvider | undefined;
}

/**
 * Asks a person for the choices of a configuration that flags have not made: which model, which folder, how far the agent may go, and whether
 * it follows the AGENTS.md or its like that the folder has.
 * @param options.isThere true: there is a configuration, of which an empty answer keeps the value
 * @throws {UsageError} there is no terminal, or its input ended
 * @throws {CommandError} no answer could be used
 */
export async function askChoices(
  io: CliIo,
  { given, isThere }: { readonly given: AskedChoices; readonly isThere: boolean },
): Promise<AskedChoices> {
  if (!io.canAsk) throw nobodyToAsk();
  const empty = (standard: string) => isThere ? "as it is in the file" : standard;
  const provider = given.provider ?? await askProvider(io, empty("1"));
  const workspace = given.workspace ?? await choose(io, {
    question: `\nWhich folder may the agent work in?\n  Empty: ${empty("the one the gateway is started in")}`,
    read: (answer) => answer === "" ? { value: undefined } : readFolder(answer, io),
  });
  const preset = given.preset ?? await choose(io, {
    question: presetQuestion(empty("look"), messageColumns(io)),
    read: readHowFar,
  });
  const file = await instructionsIn(workspace ?? io.cwd);
  return {
    ...{ provider, workspace, preset },
    instructions: file === undefined
      ? undefined
      : await choose(io, { question: instructionsQuestion(file), read: toInstructions }),
  };
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
