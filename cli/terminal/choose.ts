import { type CliIo, CommandError, UsageError } from "../command.ts";
import { printable } from "./terminal_text.ts";

/** Tries for one answer: a script may type anything. */
export const MAX_TRIES = 5;

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
