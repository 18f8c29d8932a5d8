import { withProgramName } from "../lib/base/program_name.ts";
import { type CliIo, type CommandContext, EXIT, type GlobalFlags } from "./command.ts";
import { findGroup, findVerb } from "./find_verb.ts";
import { commandHelpText, helpOfEach, helpText } from "./help_text.ts";
import { programName } from "./program_name.ts";
import { readGlobalFlags } from "./read_global_flags.ts";
import { messageColumns } from "./terminal/terminal_text.ts";
import { VERBS } from "./verbs.ts";

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
  const { flags, help, version, rest: words } = readGlobalFlags(argv);
  if (version) {
    const { VERSION } = await import("../lib/base/version.ts");
    io.stdout(`${VERSION}\n`);
    return EXIT.ok;
  }
  const rest = verbFirst(words);
  const found = findVerb(rest);
  if (found === undefined) return await withoutVerb(rest, { io, flags, help });
  const { name, verb, oldSpelling } = found;
  const command = await verb.load();
  if (help) {
    io.stdout(namedFor(io)(commandHelpText(name, command, io.columns)));
    return EXIT.ok;
  }
  const { readArguments } = await import("./read_arguments.ts");
  const args = readArguments(name, rest.slice(found.words), command.args);
  if (oldSpelling !== undefined) io.stderr(`"postern ${oldSpelling}" is now "postern ${name}"\n`);
  return await command.run(contextOf(io, flags), args);
}

async function withoutVerb(
  rest: readonly string[],
  { io, flags, help }: { readonly io: CliIo; readonly flags: GlobalFlags; readonly help: boolean },
): Promise<number> {
  const [first] = rest;
  const group = findGroup(first ?? "");
  if (help || (rest.length === 1 && group !== undefined)) {
    if (help && first !== undefined && group === undefined) throw await unknownVerb(rest);
    if (help) io.stdout(namedFor(io)(helpText(io.columns, group)));
    else io.stderr(namedFor(io)(helpText(messageColumns(io), group)));
    return help ? EXIT.ok : EXIT.usage;
  }
  if (first !== undefined) throw await unknownVerb(rest);
  if (io.isTerminal.stdout) return await (await import("./commands/overview.ts")).showOverview(contextOf(io, flags));
  io.stderr(namedFor(io)(helpText(messageColumns(io))));
  return EXIT.usage;
}

async function unknownVerb(rest: readonly string[]): Promise<Error> {
  const [{ UsageError }, { nearest }, { unknownFlag }] = await Promise.all([
    import("./command.ts"),
    import("../lib/config/nearest.ts"),
    import("./read_arguments.ts"),
  ]);
  const first = rest[0] ?? "";
  if (first.startsWith("-")) return unknownFlag("", first, []);
  const names = [...Object.keys(VERBS), ...Object.keys(VERBS).map((name) => name.split(" ", 1)[0] ?? name)];
  const meant = nearest(rest.slice(0, 2).join(" "), names) ?? nearest(first, names);
  const meantOf = meant === undefined ? verbsOfGroups(first) : [meant];
  const hint = meantOf.length === 0
    ? "see postern --help"
    : `did you mean ${meantOf.map((name) => `postern ${name}`).join(" or ")}?`;
  const said = findGroup(first) === undefined ? first : rest.slice(0, 2).join(" ");
  return new UsageError(`Cannot run "${said}": there is no such command; ${hint}`);
}

/** Returns the verbs of groups that end with a word: `status` stands for `daemon status` and `service status`. */
function verbsOfGroups(word: string): readonly string[] {
  return Object.keys(VERBS).filter((name) => name.endsWith(` ${word}`));
}

function contextOf(io: CliIo, flags: GlobalFlags): CommandContext {
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
    verbs: VERBS,
    help: helpOfEach,
  };
}

function namedFor({ env }: CliIo): CommandContext["named"] {
  const name = programName(env);
  return (message) => withProgramName(message, name);
}

/** Flags, each with a value, that may also stand between a group and its verb, by group. */
const GROUP_FLAGS: Readonly<Record<string, readonly string[]>> = { service: ["--service-init"] };

/** Moves the flags of a group behind its verb: `service --service-init openrc install` becomes `service install --service-init openrc`. */
export function verbFirst(words: readonly string[]): readonly string[] {
  const [group = "", ...rest] = words;
  const flags = Object.hasOwn(GROUP_FLAGS, group) ? GROUP_FLAGS[group] ?? [] : [];
  const moved: string[] = [];
  for (;;) {
    const [word = ""] = rest;
    if (flags.includes(word)) moved.push(...rest.splice(0, 2));
    else if (flags.some((flag) => word.startsWith(`${flag}=`))) moved.push(...rest.splice(0, 1));
    else break;
  }
  const [verb, ...after] = rest;
  return verb === undefined ? words : [group, verb, ...moved, ...after];
}
