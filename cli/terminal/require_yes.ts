import { type CommandContext, CommandError } from "../command.ts";

/** Errors of `requireYes`. */
export interface YesErrors {
  /** Error where nobody can be asked, with the way out */
  readonly unasked: string;
  /** Error where the person does not say yes */
  readonly refused: string;
}

/**
 * Asks a question that only an explicit yes answers.
 * @param question without the choices, such as `Trust it?`
 * @throws {CommandError} the person did not say yes, or cannot be asked
 */
export async function requireYes(
  { io }: Pick<CommandContext, "io">,
  question: string,
  { unasked, refused }: YesErrors,
): Promise<void> {
  if (!io.canAsk) throw new CommandError(unasked);
  const line = await io.ask(`${question} [y/N] `);
  if (!isYes(line ?? "")) throw new CommandError(refused);
}

/** Tells whether a line says yes. */
export function isYes(line: string): boolean {
  return /^y(es)?$/i.test(line.trim());
}
