import { ToolError } from "../../base/errors.ts";
import { type CommandLineParts, parseCommandLine } from "../../base/parse_command_line.ts";
import { joinTaints, type Taint } from "../../base/taint.ts";
import { listSome } from "../../base/text.ts";
import type { Config } from "../../config/config.ts";
import type { RelayProblem } from "../../system/net/relay.ts";
import type { CommandNetwork } from "../../system/process/containment.ts";
import { isTameBuiltin, placeParts } from "../../system/process/placed_parts.ts";
import { howEnded } from "../../system/process/process_group.ts";
import type { ProcessInfo } from "../../system/process/process_table.ts";
import type { Aftermath } from "../../system/process/quarantine.ts";
import type { ProcessRequest, ProcessResult } from "../../system/process/run_command.ts";
import { type ArgumentScope, candidatesOf } from "../../system/process/screen_arguments.ts";
import { tokenize } from "../../system/process/tokenize.ts";
import type { BoundParts, Effects, ToolContext, ToolServices } from "../runtime/tool.ts";

/** Allowed commands that a refusal names */
const MAX_NAMES_SHOWN = 20;

/** Allowed commands, and the keys of the configuration that hold them, for a refusal. */
export interface AllowedCommands {
  readonly allowed: readonly string[];
  readonly list: string;
}

/**
 * Returns the words of an allowed command, by the rules of `[security.shell]`.
 * @throws {ToolError} those of `tokenize`, `command_not_allowed`
 */
export function allowedWords(
  command: string,
  config: Config,
  { allowed, list }: AllowedCommands,
): readonly string[] {
  const { forbidden_chars: forbiddenChars, max_args: maxArgs, max_arg_length: maxArgLength } = config.security.shell;
  const words = tokenize(command, { forbiddenChars, maxArgs, maxArgLength });
  const [name = ""] = words;
  if (allowed.includes(name)) return words;
  throw notAllowed(name, { allowed, list });
}

function notAllowed(name: string, { allowed, list }: AllowedCommands): ToolError {
  const shown = listSome(allowed, MAX_NAMES_SHOWN) || "none";
  return new ToolError(
    "command_not_allowed",
    `Cannot run ${JSON.stringify(name.slice(0, 80))}: ${list} has ${shown}; add it there, as a bare name`,
  );
}

/**
 * Returns the paths that the arguments of a command may name under the newest configuration: a command may read and write every path
 * that it names.
 */
export function commandScope(
  context: Pick<
    ToolContext,
    "workspaceRoot" | "allowSensitiveFileReads" | "allowSensitiveFileWrites" | "config"
  >,
): ArgumentScope {
  const { autonomy } = context.config;
  return {
    workspaceRoot: context.workspaceRoot,
    workspaceOnly: autonomy.workspace_only,
    forbiddenPaths: autonomy.forbidden_paths,
    allowSensitive: context.allowSensitiveFileReads && context.allowSensitiveFileWrites,
  };
}

/** Returns the words of a command as they are read under a configuration. @throws {ToolError} as `tokenize` */
export function commandEffects(command: string, { security }: Pick<Config, "security">): Effects {
  if (security.shell.syntax === "plain") return { command: tokenize(command) };
  return { command: bashWords(command), line: parseCommandLine(command) };
}

/** Command that a call starts under a configuration, as `Processes` takes it. */
type CallCommand =
  & Required<Pick<ProcessRequest, "words" | "scope" | "sandbox" | "network">>
  & Pick<ProcessRequest, "line">;

/**
 * Returns the command that a call starts.
 * @throws {ToolError} as `allowedWords` and `bashWords`; `command_not_allowed` for a line with a part that is not on the list
 */
export function callCommand(
  command: string,
  context: Parameters<typeof commandScope>[0],
  rulesOf: (config: Config) => AllowedCommands,
): CallCommand {
  const rules = rulesOf(context.config);
  const { sandbox, network, syntax } = context.config.security.shell;
  const scope = commandScope(context);
  if (syntax === "plain") return { words: allowedWords(command, context.config, rules), scope, sandbox, network };
  admitCommand(command, context.config, rules);
  const line = placeParts(parseCommandLine(command), context.workspaceRoot);
  // Outside of the workspace the sandbox has the system's programs and an empty /tmp alone
  return { words: bashWords(command), line, scope: { ...scope, workspaceOnly: false }, sandbox, network };
}

/** Refuses a command that the configuration does not allow. @throws {ToolError} as `callCommand` */
export function admitCommand(command: string, config: Config, rules: AllowedCommands): void {
  if (config.security.shell.syntax === "plain") return void allowedWords(command, config, rules);
  bashWords(command);
  const line = parseCommandLine(command);
  requireFewPlaces(line);
  const { allowed, list } = rules;
  if (allowed.includes("*")) return;
  const { parts, asks } = line;
  if (asks !== undefined) {
    const reason = `nobody can tell whether ${list} has all that it runs: ${asks}`;
    throw new ToolError("command_not_allowed", `Cannot run the command: ${reason}; write it in plainer parts`);
  }
  for (const { words: [name] } of parts) {
    if (name !== undefined && !isTameBuiltin(name) && !allowed.includes(name)) throw notAllowed(name, rules);
  }
}

/** Places where the words of one line may name a file. Each is looked at on the disk, several times */
const MAX_PLACES = 4096;

/** @throws {ToolError} `command_too_long` for a line that would take a minute to look at */
function requireFewPlaces(line: CommandLineParts): void {
  let places = 0;
  for (const { args, folders = [""] } of placeParts(line, "/")) {
    for (const arg of args) places += candidatesOf(arg).size * folders.length;
    if (places <= MAX_PLACES) continue;
    const reason =
      `its words may name files at more than ${MAX_PLACES} places; write a script to a file, or make several calls`;
    throw new ToolError("command_too_long", `Cannot run the command: ${reason}`);
  }
}

/** Bytes of one argument of a program on Linux, with the NUL at its end */
const MAX_LINE_BYTES = 131_071;

/** Returns the words that have bash run a line: it reads no file of the user before. @throws {ToolError} `command_invalid`, `command_too_long` */
function bashWords(command: string): readonly string[] {
  const bytes = Buffer.byteLength(command);
  if (bytes > MAX_LINE_BYTES) {
    const reason = `the line has ${bytes} bytes, and the system takes ${MAX_LINE_BYTES}; write a script to a file`;
    throw new ToolError("command_too_long", `Cannot run the command: ${reason}`);
  }
  if (command.includes("\0") || !command.isWellFormed()) {
    throw new ToolError("command_invalid", "Cannot run the command: it holds a NUL byte, or is no valid Unicode");
  }
  return [...BASH, command];
}

/** bash without the files that it reads at its start. */
const BASH: readonly string[] = ["bash", "--noprofile", "--norc", "-c"];

/** Returns the line that bash was started for. undefined for another command */
export function lineTextOf(words: readonly string[]): string | undefined {
  return BASH.every((word, index) => words[index] === word) ? words[BASH.length] : undefined;
}

/** Returns the parts of the line that bash was started for. undefined for another command */
export function lineOf(words: readonly string[]): CommandLineParts | undefined {
  const text = lineTextOf(words);
  return text === undefined ? undefined : parseCommandLine(text);
}

/**
 * Returns the state that an approval of a command is bound to: each path of the workspace that its arguments name, file or not, and the
 * programs of a line. bash itself is bound as the program of the call.
 */
export async function boundFiles(
  command: string,
  context: Pick<ToolContext, "workspaceRoot" | "signal" | "config"> & {
    readonly services: Pick<ToolServices, "processes" | "commands">;
  },
): Promise<BoundParts> {
  const { workspaceRoot, signal, services: { processes, commands } } = context;
  const { command: words = [], line } = commandEffects(command, context.config);
  const parts = line === undefined ? undefined : placeParts(line, workspaceRoot);
  const named = await processes.named({ words, line: parts, scope: { workspaceRoot }, signal });
  const files = named.filter(({ kind }) => kind === "file");
  const programs = [...new Set(parts?.map(({ program }) => program).filter((name) => name !== undefined))];
  const identified = await Promise.all(programs.map(async (name) => [name, await commands.identify(name) ?? null]));
  return {
    shown: files.map(({ path, sha256 }) => ({ kind: "file", name: path, sha256 })),
    more: parts === undefined ? named : { named, programs: identified },
  };
}

/** Returns the outside content that the files of a command are made from: what the run has read, and what the network says to it. */
export function writtenTaint(
  tool: string,
  { taint, config: { security } }: Pick<ToolContext, "taint" | "config">,
): Taint {
  return security.shell.network === "none" ? taint : joinTaints(taint, [tool]);
}

/** Returns the access of every call that starts commands: under `network = "allowlist"` such a call reaches the network too. */
export function commandAccess({ security: { shell } }: Pick<Config, "security">): "write" | "network" {
  return shell.network === "none" ? "write" : "network";
}

/** Returns a line in brackets for a command that was ended since its sandbox lost a cover, with the way out, for the model. */
export function uncoveredLines(end: ProcessInfo["state"] | ProcessResult["ending"]): readonly string[] {
  return end.kind === "uncovered" ? [`[${howEnded(end)}; start it again]`] : [];
}

/** Returns a line in brackets for each protected name that a command has made, for the model. */
export function aftermathLines({ quarantined, unchecked }: Aftermath): readonly string[] {
  return [
    ...quarantined.map(({ path, place }) =>
      place === undefined
        ? `[${
          JSON.stringify(path)
        } appeared during the call, is a protected name and could not be moved to quarantine: a person must remove it]`
        : `[${
          JSON.stringify(path)
        } appeared during the call and was moved to quarantine, since it is a protected name; a person finds it at ${
          JSON.stringify(place)
        }]`
    ),
    ...(unchecked
      ? [
        "[Whether protected names appeared during the call is not known: the workspace could not be looked through in time, or holds a name that is not UTF-8]",
      ]
      : []),
  ];
}

/** Returns the protected names that a command has made, as data for programs. */
export function aftermathData({ quarantined, unchecked }: Aftermath): Readonly<Record<string, unknown>> {
  return {
    quarantined: quarantined.map(({ path, place = null }) => ({ path, place })),
    ...(unchecked ? { quarantine_unchecked: true } : {}),
  };
}

/** Hosts that one result names */
const MAX_HOSTS_SHOWN = 10;

/** Returns a line in brackets for each host that the relay refused or could not reach, with what would allow it, for the model. */
export function relayLines(problems: readonly RelayProblem[]): readonly string[] {
  const more = problems.length - MAX_HOSTS_SHOWN;
  return [
    ...problems.slice(0, MAX_HOSTS_SHOWN).map(({ reason }) => `[Relay: ${reason}]`),
    ...(more > 0 ? [`[Relay: ${more} more hosts]`] : []),
  ];
}

/** Returns the hosts that the relay refused or could not reach, as data for programs. */
export function relayData(problems: readonly RelayProblem[]): Readonly<Record<string, unknown>> {
  return problems.length === 0 ? {} : { relay_refused: problems.map(({ host, reason }) => ({ host, reason })) };
}

/** End of a command, as far as a hint about the network needs it. */
export interface CommandEnd {
  readonly contained: boolean;
  /** `[security.shell] network` of the command */
  readonly network: CommandNetwork;
  /** True when the command was stopped at its time limit */
  readonly isTimeout: boolean;
  /** True unless the command ended with the code 0 */
  readonly isFailure: boolean;
  /** Parts of its output */
  readonly texts: readonly string[];
}

/** Messages of programs, libraries and systems about a name that is not looked up, or a connection that is not made */
const NETWORK_ERROR = new RegExp(
  [
    "\\b(?:EAI_AGAIN|EAI_NONAME|ENOTFOUND|ENETUNREACH|EHOSTUNREACH|ECONNREFUSED)\\b",
    "could(?: not|n't) resolve (?:host|proxy)",
    "unable to resolve host",
    "temporary failure (?:in name resolution|resolving)",
    "name or service not known",
    "no address associated with hostname",
    "no such host\\b",
    "failed to lookup address",
    "network is unreachable",
    "connection refused",
  ].join("|"),
  "i",
);
const GIVES_NETWORK =
  '[security.shell] network = "allowlist" lets commands reach the hosts of [url_access] domain_allowlist';
const ONLY_RELAY =
  "[The command reaches the network through the relay alone, which HTTP_PROXY and HTTPS_PROXY name; its output names a failed look-up or connection of its own]";

/** Returns a line in brackets for the model when the missing network of the sandbox may be why a command failed. */
export function noNetworkLines({ contained, network, isTimeout, isFailure, texts }: CommandEnd): readonly string[] {
  if (!contained || !isFailure) return [];
  if (network === "allowlist") return texts.some((text) => NETWORK_ERROR.test(text)) ? [ONLY_RELAY] : [];
  if (texts.some((text) => NETWORK_ERROR.test(text))) {
    return [`[The command ran without network, and its output names a failed look-up or connection. ${GIVES_NETWORK}]`];
  }
  return isTimeout ? [`[The command ran without network and may have waited for it. ${GIVES_NETWORK}]`] : [];
}

/** Messages about a program that is not there: of bash, of dash, and of `env` */
const NO_PROGRAM = /: (?:command )?not found$|^(?:\S*\/)?env: .*: No such file or directory$/m;
const OTHER_PROGRAMS =
  "[Commands find the programs of the system (/usr/bin, /usr/local/bin) and of the workspace, and none of your home, where nvm, pyenv or cargo keep theirs; a person installs a missing one for the whole system]";
const HIDDEN =
  "[Files of credentials are hidden from commands, so git cannot compare one that it tracks; the tool git_operations compares the others: status, diff]";
const READ_ONLY =
  "[Commands write to the workspace and to /tmp alone, and never to .git, .claude, .agents and others of Postern's protected names]";

/**
 * Returns a line in brackets for the model for what a command did not find, or could not write, since it is in the sandbox: the way out.
 * @param end.texts parts of its output. A command that went well is looked at too: its end may be that of another part of the line
 */
export function wallLines(
  { contained, isFailure, command, texts }: Pick<CommandEnd, "contained" | "isFailure" | "texts"> & {
    readonly command: string;
  },
  { security }: Pick<Config, "security">,
): readonly string[] {
  if (!contained) return [];
  const says = (message: RegExp) => texts.some((text) => message.test(text));
  const isReadOnly = says(/Read-only file system|\bEROFS\b/);
  // A stash fails without a word
  if ((isReadOnly && says(/\.git\/|\bgit\b/)) || (isFailure && /\bgit\s+stash\b/.test(command))) {
    const on = security.enable_git ? "" : ", which a person turns on with [security] enable_git = true";
    return [`[Commands change no git repository; the tool git_operations does: add, commit, checkout, stash${on}]`];
  }
  if (says(/unsupported file type/)) return [HIDDEN];
  return [...(says(NO_PROGRAM) ? [OTHER_PROGRAMS] : []), ...(isReadOnly ? [READ_ONLY] : [])];
}
