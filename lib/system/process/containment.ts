import type { Clock } from "../../base/clock.ts";
import { ConfigError, ToolError } from "../../base/errors.ts";
import type { Bounds } from "./bounds.ts";
import type { CommandLookup } from "./command_lookup.ts";

/** A bubblewrap that works here, and the walls that it can make beside its own. */
export interface Bubblewrap {
  /** Absolute path */
  readonly file: string;
  /** True: the system calls of a program are filtered, see `callFilter` */
  readonly filters: boolean;
  /** True: no program gets a user namespace of its own (`--disable-userns`, from bubblewrap 0.8 on) */
  readonly endsNamespaces: boolean;
  /** True: bubblewrap works inside bubblewrap, so that a filter may begin behind the way to a relay */
  readonly nests: boolean;
  /** Bounds that hold for a program. undefined: none, since `prlimit` is not there or does not work here */
  readonly bounds: Bounds | undefined;
}

/** Result of a look for bubblewrap on this machine. */
export type Containment =
  | { readonly kind: "bubblewrap" } & Bubblewrap
  /** There is none, or the system does not let it work */
  | { readonly kind: "none"; readonly reason: string }
  /** Installed, but the try brought no answer: nothing may run without it meanwhile */
  | { readonly kind: "unanswered"; readonly reason: string };

/** `[security.shell] sandbox`. */
export type SandboxMode = "auto" | "require" | "off";

/**
 * `[security.shell] network` of contained commands. `allowlist`: they reach the hosts of `[url_access] domain_allowlist`, through the
 * gateway's relay, and nothing else.
 */
export type CommandNetwork = "none" | "allowlist";

/** `[security.shell] syntax`. `contained`: bash reads the command, in the sandbox or not at all. */
export type CommandSyntax = "plain" | "contained";

/** Section of the configuration whose `sandbox` decides about a program. */
export type SandboxSection = "[security.shell]" | "[plugins]" | `[mcp.servers.${string}]`;

/** The part of a section that decides about containment. */
export interface ContainmentSettings {
  readonly sandbox: SandboxMode;
  /** Default `[security.shell]` */
  readonly section?: SandboxSection | undefined;
  /** Default `none` */
  readonly network?: CommandNetwork | undefined;
  /** Default `plain` */
  readonly syntax?: CommandSyntax | undefined;
  /** `[security.shell] local_sockets`. Default: none */
  readonly local_sockets?: readonly string[] | undefined;
}

/** How commands of tools are contained: the one answer that calls, approvals, banner, log, status and `policy explain` go by. */
export interface CommandContainment {
  /** `contained`: in bubblewrap; `uncontained`: they run with the rights of the gateway; `refused`: none runs */
  readonly kind: "contained" | "uncontained" | "refused";
  /** Sentence for a person that gives the reason, without a full stop */
  readonly text: string;
  /** Reason of a refusal that no later look changes, such as `bubblewrap is not installed` */
  readonly lacks?: string;
}

/** The one look for bubblewrap, and its result. */
export interface ContainmentFinder {
  /** Returns what was found last; waits for the first look only. Never starts a look when there was one. */
  known(): Promise<Containment>;
  /** Returns what was found. An unanswered look is made again, by all callers together. */
  find(): Promise<Containment>;
}

/** Options of one look for bubblewrap. */
export interface BubblewrapTry {
  readonly commands: Pick<CommandLookup, "find">;
  readonly clock: Clock;
  /** Ends a look that is under way */
  readonly signal: AbortSignal;
  /** Bounds that take the place of this machine's. Default: none */
  readonly bounds?: Partial<Bounds> | undefined;
}

/**
 * Looks for bubblewrap once. What is found, or known to be missing, stays so until the gateway ends: a machine that is busy later
 * never makes a contained command an uncontained one.
 * @param tryBubblewrap as the function of sandbox.ts, which need not be loaded before it is called
 * @param onLook told of each look. Default: nobody is
 */
export function createContainmentFinder(
  options: BubblewrapTry,
  tryBubblewrap: (options: BubblewrapTry) => Promise<Containment>,
  onLook?: (found: Containment) => void,
): ContainmentFinder {
  let last: Promise<Containment> | undefined;
  let looking: Promise<Containment> | undefined;
  const tryOnce = async () => {
    const found = await tryBubblewrap(options);
    if (!options.signal.aborted) onLook?.(found);
    return found;
  };
  const look = () => {
    looking ??= tryOnce().finally(() => looking = undefined);
    return last = looking;
  };
  return {
    known: () => last ?? look(),
    async find() {
      const found = await (last ?? look());
      return found.kind === "unanswered" ? await look() : found;
    },
  };
}

/** Says how commands are contained under settings, by what a look has found. @param found undefined with `off`, which needs none */
export function containmentOf(
  settings: ContainmentSettings,
  found: Containment | undefined,
): CommandContainment {
  const { sandbox, network = "none", section = "[security.shell]", local_sockets: sockets = [] } = settings;
  if (sandbox === "off" || found === undefined) return uncontained(`${section} sandbox is "off"`, settings);
  switch (found.kind) {
    case "bubblewrap":
      return {
        kind: "contained",
        text: ["Commands are contained by bubblewrap", ...gapsOf(found, network), ...reachedBy(network, sockets)].join(
          ", ",
        ),
      };
    case "unanswered":
      return { kind: "refused", text: `Commands are refused: ${found.reason}` };
    case "none":
      return sandbox === "require"
        ? {
          kind: "refused",
          text: `Commands are refused: ${section} sandbox is "require", and ${found.reason}`,
          lacks: found.reason,
        }
        : uncontained(found.reason, settings);
  }
}

/** Returns what containment is without on this machine. */
function gapsOf({ filters, nests, bounds }: Bubblewrap, network: CommandNetwork): readonly string[] {
  const unbounded = bounds === undefined
    ? ["without bounds on what they take, since prlimit does not work here"]
    : bounds.memory === undefined
    ? []
    : [`with at most ${bounds.memory.bytes / 2 ** 20} MiB of memory for all of them`];
  if (!filters) return ["without a filter of system calls, which this machine does not take", ...unbounded];
  if (network === "none" || nests) return unbounded;
  return [...unbounded, "may make Unix sockets, since bubblewrap does not work inside itself here"];
}

function reachedBy(network: CommandNetwork, sockets: readonly string[]): readonly string[] {
  return [
    ...network === "none" ? [] : ["and reach the hosts of [url_access] domain_allowlist through the gateway's relay"],
    ...sockets.length === 0
      ? []
      : [`and may connect to the sockets ${sockets.map((name) => JSON.stringify(name)).join(", ")}`],
  ];
}

/** Returns the setting that needs the sandbox, with the value that does not. undefined: none does */
export function needsSandbox(
  { network = "none", syntax = "plain" }: Pick<ContainmentSettings, "network" | "syntax">,
): { readonly reason: string; readonly wayOut: string } | undefined {
  const needs = (setting: string) => `[security.shell] ${setting} needs the sandbox`;
  const wayOut = "install bubblewrap and allow user namespaces, or set";
  if (syntax === "contained") return { reason: needs('syntax = "contained"'), wayOut: `${wayOut} syntax = "plain"` };
  if (network === "none") return undefined;
  const more = "with which an uncontained command has the network of the machine";
  return { reason: needs('network = "allowlist"'), wayOut: `${wayOut} network = "none", ${more}` };
}

/** An uncontained command has the whole machine: a setting that promises less refuses it. */
function uncontained(reason: string, settings: ContainmentSettings): CommandContainment {
  const needs = needsSandbox(settings);
  return needs === undefined
    ? { kind: "uncontained", text: `Commands are not contained: ${reason}` }
    : { kind: "refused", text: `Commands are refused: ${needs.reason}, and ${reason}`, lacks: reason };
}

/**
 * Refuses the syntax of contained lines on a machine that cannot contain them.
 * @param containment how commands are contained under the settings
 * @throws {ConfigError} `sandbox_unavailable`
 */
export function requireSyntax(settings: ContainmentSettings, { lacks }: CommandContainment): void {
  if (settings.syntax !== "contained" || lacks === undefined) return;
  const key = "security.shell.syntax";
  const reason = `it needs the sandbox, and ${lacks}; ${needsSandbox(settings)?.wayOut}`;
  throw new ConfigError("sandbox_unavailable", `Cannot use "${key}" = "contained": ${reason}`, { key });
}

/** Returns the refusal of one command, with the way out. @param why as `bubblewrap did not answer within 10 s` */
export function sandboxUnavailable(command: string, why: string, wayOut: string): ToolError {
  return new ToolError("sandbox_unavailable", `Cannot run ${JSON.stringify(command)}: ${why}; ${wayOut}`);
}

/**
 * Checks that a command may run as things are.
 * @param found undefined with `off`
 * @throws {ToolError} `sandbox_unavailable` for a command that must not run as things are
 */
export function requireContainment(
  command: string,
  settings: ContainmentSettings,
  found: Containment | undefined,
): void {
  const { sandbox, section = "[security.shell]" } = settings;
  const needs = needsSandbox(settings);
  if (needs !== undefined && (found === undefined || (found.kind === "none" && sandbox !== "require"))) {
    const reason = found === undefined ? 'sandbox is "off"' : found.reason;
    throw sandboxUnavailable(command, `${needs.reason}, and ${reason}`, needs.wayOut);
  }
  if (found === undefined) return;
  if (found.kind === "unanswered") {
    throw sandboxUnavailable(
      command,
      `it must run in the sandbox, and ${found.reason}`,
      `try again, or accept uncontained commands with ${section} sandbox = "off"`,
    );
  }
  if (found.kind === "none" && sandbox === "require") {
    throw sandboxUnavailable(
      command,
      `${section} sandbox = "require", and ${found.reason}`,
      'install bubblewrap and allow user namespaces, or set sandbox = "auto"',
    );
  }
}
