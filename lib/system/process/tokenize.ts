import { ToolError } from "../../base/errors.ts";

/** `[security.shell]`, as far as the words of a command go. */
export interface TokenizeRules {
  /** Characters that are refused where they are not quoted; a backslash before one does not quote it */
  readonly forbiddenChars?: readonly string[];
  /** Without the command itself */
  readonly maxArgs?: number;
  /** Limit for each argument, in bytes of UTF-8. */
  readonly maxArgLength?: number;
}

/** Characters a backslash takes the meaning of inside double quotes; before any other it stands for itself (POSIX 2.2.3) */
const ESCAPABLE = new Set(['"', "\\", "$", "\n"]);
const BLANK = new Set([" ", "\t", "\n", "\r"]);
/** Characters that are refused inside quotes too, whatever the configuration says */
const ALWAYS_FORBIDDEN = new Set(["`", "\0"]);

const NAMES: Readonly<Record<string, string>> = {
  "\n": "a line break",
  "\r": "a carriage return",
  "\0": "a NUL byte",
  "`": "a backtick",
};

/**
 * Returns the words of a command, quoted as in a POSIX shell: single quotes, double quotes with escapes, backslash. Nothing is
 * expanded: `*`, `~` and a quoted `$` are themselves.
 * @returns the command and its arguments, at least one word
 * @throws {ToolError} `command_invalid`: empty, an open quote, a backslash at the end, a text that is no Unicode;
 * `command_forbidden_character`; `command_too_long`: too many arguments or one that is too long
 * Source: docs/design/paths_and_commands.md "Commands"; POSIX.1-2017 XCU 2.2
 */
export function tokenize(command: string, rules: TokenizeRules = {}): readonly string[] {
  // A lone surrogate would reach the program as another character than the one that was checked
  if (/\p{Surrogate}/u.test(command)) throw invalid("it is not valid Unicode");
  const words = splitWords(command, new Set(rules.forbiddenChars));
  if (words[0] === undefined || words[0] === "") throw invalid("it names no command");
  const { maxArgs = Infinity, maxArgLength = Infinity } = rules;
  if (words.length - 1 > maxArgs) {
    throw new ToolError(
      "command_too_long",
      `Cannot run the command: it has ${
        words.length - 1
      } arguments, and [security.shell] max_args allows ${maxArgs}; use fewer`,
    );
  }
  for (const [index, word] of words.entries()) {
    const bytes = Buffer.byteLength(word);
    if (index === 0 || bytes <= maxArgLength) continue;
    throw new ToolError(
      "command_too_long",
      `Cannot run the command: argument ${index} has ${bytes} bytes, and [security.shell] max_arg_length allows ${maxArgLength}`,
    );
  }
  return words;
}

function splitWords(command: string, forbidden: ReadonlySet<string>): string[] {
  const words: string[] = [];
  /** undefined between words: `''` is a word, nothing is none */
  let word: string | undefined;
  let quote: '"' | "'" | undefined;
  for (let at = 0; at < command.length; at++) {
    const char = command.charAt(at);
    if (ALWAYS_FORBIDDEN.has(char)) throw forbiddenCharacter(char, "even inside quotes");
    if (quote === undefined) {
      if (forbidden.has(char)) {
        throw forbiddenCharacter(char, 'where it is not quoted; put it inside quotes, such as "..."');
      }
      if (BLANK.has(char)) {
        if (word !== undefined) words.push(word);
        word = undefined;
      } else if (char === "'" || char === '"') {
        quote = char;
        word ??= "";
      } else if (char === "\\") {
        const next = command.charAt(++at);
        if (next === "") throw invalid("it ends with a backslash");
        if (ALWAYS_FORBIDDEN.has(next)) throw forbiddenCharacter(next, "even inside quotes");
        if (forbidden.has(next)) {
          throw forbiddenCharacter(next, 'also after a backslash; put it inside quotes, such as "..."');
        }
        word = (word ?? "") + next;
      } else word = (word ?? "") + char;
    } else if (char === quote) quote = undefined;
    else if (quote === '"' && char === "\\" && ESCAPABLE.has(command.charAt(at + 1))) {
      const next = command.charAt(++at);
      // A line break after a backslash joins the lines
      if (next !== "\n") word += next;
    } else word += char;
  }
  if (quote !== undefined) throw invalid(`the quote ${quote} is not closed`);
  if (word !== undefined) words.push(word);
  return words;
}

function invalid(reason: string): ToolError {
  return new ToolError("command_invalid", `Cannot run the command: ${reason}`);
}

function forbiddenCharacter(char: string, where: string): ToolError {
  const shown = NAMES[char] ?? JSON.stringify(char);
  return new ToolError(
    "command_forbidden_character",
    `Cannot run the command: ${shown} is refused ${where}. No shell is started: run one command at a time`,
  );
}
