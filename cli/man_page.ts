import { VERSION } from "../lib/base/version.ts";
import { EXIT } from "./command.ts";
import { GLOBAL_FLAGS, helpOfEach } from "./help_text.ts";
import { HELP_GROUPS, VERBS } from "./verbs.ts";

/** Meanings of the exit codes, by their names in `EXIT`. */
const EXIT_MEANINGS: Readonly<Record<keyof typeof EXIT, string>> = {
  ok: "Done.",
  failed: "Refused or failed; the message says why.",
  usage: "An unknown command, flag or argument.",
  internal: "A fault of this program.",
  config: "The configuration cannot be used.",
};

/** Returns the manual page postern(1), made from the table of verbs and their help. Source: man(7) */
export async function manPage(): Promise<string> {
  const helps = await helpOfEach();
  const commands = Object.entries(HELP_GROUPS).flatMap(([heading, nouns]) => [
    `.SS "${heading}"`,
    ...Object.keys(VERBS).filter((name) => (name.split(" ", 1)[0] ?? "") in nouns).flatMap((name) => [
      ".TP",
      `.B postern ${plain(name)}`,
      ...lines(helps.get(name) ?? ""),
    ]),
  ]);
  return [
    `.TH POSTERN 1 "" "postern ${VERSION}"`,
    // Lines that are spread to the margin would pull columns apart
    ".ad l",
    ".SH NAME",
    "postern \\- a small, locked side gate to your AI agents",
    ".SH SYNOPSIS",
    ".B postern",
    "<command> [flags]",
    ".SH COMMANDS",
    ...commands,
    ".SH FLAGS FOR EVERY COMMAND",
    ...GLOBAL_FLAGS.flatMap(([flag, about]) => [".TP", `.B ${plain(flag)}`, ...lines(about)]),
    ".SH EXIT STATUS",
    ...Object.entries(EXIT).flatMap(([name, code]) => [".TP", `.B ${code}`, EXIT_MEANINGS[name as keyof typeof EXIT]]),
    "",
  ].join("\n");
}

/** Returns the lines of a text, each on a line of its own in the page. */
function lines(text: string): readonly string[] {
  return text.split("\n").flatMap((line) => (line.trim() === "" ? [".br"] : [plain(line), ".br"]));
}

/** Returns a text in which nothing is a request or an escape, and hyphens can be copied. */
function plain(text: string): string {
  return text.trim().replaceAll("\\", "\\\\").replaceAll("-", "\\-").replace(/^[.']/, "\\&$&");
}
