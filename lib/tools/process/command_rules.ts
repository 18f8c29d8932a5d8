import { ToolError } from "../../base/errors.ts";
import { joinTaints, type Taint } from "../../base/taint.ts";
import { listSome } from "../../base/text.ts";
import type { Config } from "../../config/config.ts";
import type { RelayProblem } from "../../system/net/relay.ts";
import type { CommandNetwork } from "../../system/process/containment.ts";
import { howEnded } from "../../system/process/process_group.ts";
import type { ProcessInfo } from "../../system/process/process_table.ts";
import type { Aftermath } from "../../system/process/quarantine.ts";
import type { ProcessResult } from "../../system/process/run_command.ts";
import type { ArgumentScope } from "../../system/process/screen_arguments.ts";
import { tokenize } from "../../system/process/tokenize.ts";
import type { BoundParts, ToolContext, ToolServices } from "../runtime/tool.ts";

/** Allowed commands that a refusal names */
const MAX_NAMES_SHOWN = 20;

/**
 * Returns the words of an allowed command, by the rules of `[security.shell]`.
 * @param options.list keys of the configuration that hold the allowed commands, for the refusal
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
  const shown = listSome(allowed, MAX_NAMES_SHOWN) || "none";
  throw new ToolError(
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

/** Returns the state that an approval of a command is bound to: each path of the workspace that its arguments name, file or not. */
export async function boundFiles(
  words: readonly string[],
  context: Pick<ToolContext, "workspaceRoot" | "signal"> & { readonly services: Pick<ToolServices, "processes"> },
): Promise<BoundParts> {
  const { workspaceRoot, signal, services } = context;
  const named = await services.processes.named({ words, scope: { workspaceRoot }, signal });
  const files = named.filter(({ kind }) => kind === "file");
  return { shown: files.map(({ path, sha256 }) => ({ kind: "file", name: path, sha256 })), more: named };
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
