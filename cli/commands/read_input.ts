import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { CommandError, UsageError } from "../cli_error.ts";
import type { CliIo } from "../command.ts";

/** The `--input` flag of commands that take a tool's input. */
export const INPUT_ARG = {
  type: "string",
  valueHint: "input",
  description: "JSON, the tool's text form, @file, or - for standard input (default: {})",
} as const;

/**
 * The text that `--input` means: itself, `@file`, or `-` for standard input.
 * @throws {UsageError} `-` on a terminal
 * @throws {CommandError} a file that cannot be read
 */
export async function readInput(text: string, io: CliIo): Promise<string> {
  if (text === "-") {
    const given = await io.readStdin();
    if (given === undefined) {
      throw new UsageError('Cannot read "--input -": standard input is a terminal; pipe the input in');
    }
    return given;
  }
  if (!text.startsWith("@")) return text;
  const path = resolve(io.cwd, text.slice(1));
  return await readFile(path, "utf8").catch((cause: Error) => {
    throw new CommandError(`Cannot read the input "${path}": ${cause.message}`, { cause });
  });
}
