import { type ArgsDef, runCommand } from "citty";
import { withProgramName } from "../lib/base/program_name.ts";
import { nearest } from "../lib/config/nearest.ts";
import { type CliIo, type CommandContext, EXIT, GLOBAL_ARGS, UsageError } from "./command.ts";
import { findGroup, findVerb } from "./find_verb.ts";
import { commandHelpText, helpOfEach, helpText } from "./help_text.ts";
import { programName } from "./program_name.ts";
import { checkArguments, findFlag, readGlobalFlags } from "./read_arguments.ts";
import { messageColumns } from "./terminal/terminal_text.ts";
import { NOUNS, VERBS } from "./verbs.ts";

/**
 * Runs one command line and returns its exit code. The caller ends the process. Help and version load no other file.
 * @param argv without the program's own name
 */
export async function runCli(argv: readonly string[], io: CliIo): Promise<number> {
  try {
    return await dispatch(argv, io);
  } catch (error) {
    const { reportFailure } = await import("./report_failure.ts");
    return reportFailure(error, { io, json: argv.includes("--json") });
  }
}

async function dispatch(argv: readonly string[], io: CliIo): Promise<number> {
  const end = argv.includes("--") ? argv.indexOf("--") : argv.length;
  const asked = argv.slice(0, end).filter((word) => ASKED_FOR.has(word));
  if (asked.includes("--version")) {
    const { VERSION } = await import("../lib/base/version.ts");
    io.stdout(`${VERSION}\n`);
    return EXIT.ok;
  }
  const line = splitWords(argv.filter((word, index) => index >= end || !ASKED_FOR.has(word)));
  const found = findVerb(line.words);
  if (found === undefined) return await withoutVerb(line, { io, isHelp: asked.length > 0 });
  const { name, verb, oldSpelling } = found;
  if (asked.length > 0) {
    io.stdout(namedFor(io)(await commandHelpText(name, verb, io.columns)));
    return EXIT.ok;
  }
  const raw = [...line.words.slice(found.words), ...line.rest];
  const { own, global } = checkArguments(name, raw, await verb.args());
  if (oldSpelling !== undefined) io.stderr(`"postern ${oldSpelling}" is now "postern ${name}"\n`);
  const { result } = await runCommand(verb, { rawArgs: own, data: contextOf(io, global) });
  return result as number; // of the command's own `run`
}

/** Flags that count wherever they stand, before everything else is looked at. */
const ASKED_FOR: ReadonlySet<string> = new Set(["--help", "-h", "--version"]);

/** Noun and verb of a command line, as far as it begins with them, and what is left. */
interface CommandLine {
  readonly words: readonly string[];
  readonly rest: readonly string[];
}

/** Finds noun and verb, before which flags of every command may stand, and those of the noun: `service --service-init openrc install`. */
function splitWords(argv: readonly string[]): CommandLine {
  const left = [...argv];
  const words: string[] = [];
  const flags: string[] = [];
  while (words.length < 2 && left.length > 0) {
    const [token = "", next = "-"] = left;
    if (!token.startsWith("-")) {
      words.push(...left.splice(0, 1));
      continue;
    }
    const [shown = "", given] = token.split("=", 2);
    const [, flag] = findFlag(shown, { ...GLOBAL_ARGS, ...argsOfGroup(findGroup(words[0] ?? "")) }) ?? [];
    if (flag === undefined) break;
    const isAlone = flag.type === "boolean" || given !== undefined || (next.startsWith("-") && next !== "-");
    flags.push(...left.splice(0, isAlone ? 1 : 2));
  }
  return { words, rest: [...flags, ...left] };
}

/** Returns the flags that may stand between a group and its verb. */
function argsOfGroup(group = ""): ArgsDef {
  const { args } = NOUNS[group] ?? {};
  return typeof args === "object" ? args : {};
}

async function withoutVerb(
  { words, rest }: CommandLine,
  { io, isHelp }: { readonly io: CliIo; readonly isHelp: boolean },
): Promise<number> {
  const [first] = words;
  const group = findGroup(first ?? "");
  if (first !== undefined && (group === undefined || (words.length > 1 && !isHelp))) throw unknownVerb(words);
  if (isHelp) {
    io.stdout(namedFor(io)(helpText(io.columns, group)));
    return EXIT.ok;
  }
  const { global } = checkArguments(group ?? "", rest, argsOfGroup(group));
  if (group === undefined && io.isTerminal.stdout) {
    return await (await import("./commands/overview.ts")).showOverview(contextOf(io, global));
  }
  io.stderr(namedFor(io)(helpText(messageColumns(io), group)));
  return EXIT.usage;
}

function unknownVerb(words: readonly string[]): UsageError {
  const [first = ""] = words;
  const names = [...Object.keys(VERBS), ...Object.keys(NOUNS)];
  const meant = nearest(words.join(" "), names) ?? nearest(first, names);
  const meantOf = meant === undefined ? verbsOfGroups(first) : [meant];
  const hint = meantOf.length === 0
    ? "see postern --help"
    : `did you mean ${meantOf.map((name) => `postern ${name}`).join(" or ")}?`;
  const said = findGroup(first) === undefined ? first : words.join(" ");
  return new UsageError(`Cannot run "${said}": there is no such command; ${hint}`);
}

/** Returns the verbs of groups that end with a word: `status` stands for `daemon status` and `service status`. */
function verbsOfGroups(word: string): readonly string[] {
  return Object.keys(VERBS).filter((name) => name.endsWith(` ${word}`));
}

/** @param global the flags of every command, as they have passed */
function contextOf(io: CliIo, global: string[]): CommandContext {
  const flags = readGlobalFlags(global);
  const { config, dataDir, workspace } = flags;
  const named = namedFor(io);
  const loadOptions = { flags: { config, dataDir, workspace }, env: io.env, cwd: io.cwd, home: io.home };
  return {
    io,
    flags,
    loadOptions,
    async loadConfig(keys = {}) {
      const { loadConfig } = await import("../lib/config/load_config.ts");
      return await loadConfig({ ...loadOptions, flags: { ...loadOptions.flags, keys } });
    },
    print(data, text) {
      const shown = flags.json ? JSON.stringify(data, null, 2) : text;
      io.stdout(shown.endsWith("\n") ? shown : `${shown}\n`);
    },
    say: (message) => io.stderr(`${named(message)}\n`),
    named,
    nouns: NOUNS,
    help: helpOfEach,
  };
}

function namedFor({ env }: CliIo): CommandContext["named"] {
  const name = programName(env);
  return (message) => withProgramName(message, name);
}
