import { ToolError } from "../../base/errors.ts";
import type { Config } from "../../config/config.ts";
import { tokenize } from "../../system/process/tokenize.ts";

/** Allowed commands named in a refusal */
const MAX_NAMES_SHOWN = 20;

/**
 * The words of a command that is allowed, by the rules of `[security.shell]`.
 * @param list where the allowed commands stand, for the refusal
 * @throws {ToolError} those of `tokenize`, `command_not_allowed`
 */
export function allowedWords(
  command: string,
  config: Config,
  { allowed, list }: { readonly allowed: readonly string[]; readonly list: string },
): readonly string[] {
  const { forbidden_chars: forbiddenChars, max_args: maxArgs, max_arg_length: maxArgLength } = config.security.shell;
  const words = tokenize(command, { forbiddenChars, maxArgs, maxArgLength });
  const [name = ""] = words;
  if (allowed.includes(name)) return words;
  const shown = allowed.slice(0, MAX_NAMES_SHOWN).join(", ") || "none";
  throw new ToolError(
    "command_not_allowed",
    `Cannot run ${JSON.stringify(name.slice(0, 80))}: ${list} has ${shown}; add it there, as a bare name`,
  );
}
