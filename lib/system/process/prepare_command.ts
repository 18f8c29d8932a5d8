import { realpath } from "node:fs/promises";
import process from "node:process";
import { cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { forbiddenNames } from "../files/forbidden_paths.ts";
import type { CommandLookup } from "./command_lookup.ts";
import { type ContainmentFinder, requireContainment, sandboxUnavailable } from "./containment.ts";
import { SEARCH_PATH } from "./create_command_lookup.ts";
import { findSensitive } from "./find_sensitive.ts";
import { createLauncherFinder } from "./launcher.ts";
import { MARKER_VARIABLE } from "./kill_leftovers.ts";
import type { CommandLine } from "./process_group.ts";
import type { ComposedCommand, ProcessRequest } from "./processes.ts";
import type { CommandResult } from "./run_command.ts";
import { contain } from "./sandbox.ts";
import { type ArgumentScope, screenArguments, type ScreenOptions } from "./screen_arguments.ts";

export interface PreparationOptions extends ScreenOptions {
  readonly commands: Pick<CommandLookup, "find">;
  readonly clock: Clock;
  /** The same at each start on one data directory and no other: what a killed gateway leaves is found by it. No secret */
  readonly marker: string;
  readonly containment: ContainmentFinder;
}

/** A request to `run` or to `start`. */
export type AnyRequest = ProcessRequest & { readonly composed?: ComposedCommand };

/** A command that may be started as it is. */
export interface PreparedCommand {
  readonly line: CommandLine;
  readonly contained: boolean;
}

/** What stands between a request and the start of its program: every check, and the sandbox. */
export interface Preparation {
  /** @throws {ToolError} as `Processes.screen` */
  screen(request: Pick<ProcessRequest, "words" | "scope" | "sandbox">): Promise<void>;
  /** @throws {ToolError} as `Processes.run` @throws {CancelError} when the request's signal aborts */
  prepare(request: AnyRequest): Promise<PreparedCommand>;
}

/** All that a program gets to know: no variable of the gateway, and a home without configuration files or keys. */
const ENVIRONMENT: Readonly<Record<string, string>> = {
  PATH: SEARCH_PATH.join(":"),
  HOME: "/nonexistent",
  LANG: "C.UTF-8",
  TERM: "dumb",
};

export function createPreparation(options: PreparationOptions): Preparation {
  const { commands, clock, marker, containment } = options;
  const env = { ...ENVIRONMENT, [MARKER_VARIABLE]: marker };
  const launcher = createLauncherFinder({ commands, clock, env: ENVIRONMENT });

  const lineOf = async (
    { words, scope, composed }: Pick<AnyRequest, "words" | "scope" | "composed">,
  ): Promise<CommandLine> => {
    if (process.platform === "win32") {
      throw new ToolError("unsupported_platform", "Cannot run commands: they are not supported on Windows, use Linux");
    }
    const [command = "", ...args] = words;
    const file = await commands.find(command);
    if (file === undefined) {
      throw new ToolError(
        "command_not_found",
        `Cannot run ${JSON.stringify(command)}: no folder of the fixed search path has it`,
      );
    }
    if (composed === undefined) await screenArguments(args, scope, options);
    return { file, args, cwd: await realpath(scope.workspaceRoot), env: { ...env, ...composed?.env } };
  };

  /** The line inside the sandbox; undefined for a command that runs without. @throws {ToolError} `sandbox_unavailable` */
  const containedLine = async (line: CommandLine, request: AnyRequest): Promise<CommandLine | undefined> => {
    const { sandbox, composed, scope: { workspaceRoot }, words: [command = ""] } = request;
    if (sandbox === "off") return undefined;
    const found = await unlessAborted(containment.find(), request.signal);
    requireContainment(command, sandbox, found);
    if (found.kind !== "bubblewrap") return undefined;
    const contained = await contain(line, {
      bubblewrap: found.file,
      workspaceRoot,
      hidden: composed === undefined ? await hiddenBy(request.scope, options) : [],
      network: composed?.network ?? false,
      readOnly: composed?.writes === false,
    });
    if (contained !== undefined) return contained;
    const wayOut = 'give --workspace a folder of your own, or set [security.shell] sandbox = "off"';
    throw sandboxUnavailable(
      command,
      "the workspace holds the system's own folders, so no sandbox contains it",
      wayOut,
    );
  };

  return {
    async screen(request) {
      await lineOf(request);
      const { words: [command = ""], sandbox } = request;
      if (sandbox !== "off") requireContainment(command, sandbox, await containment.find());
    },
    async prepare(request) {
      const line = await lineOf(request);
      const inside = await containedLine(line, request);
      if (inside !== undefined) return { line: inside, contained: true };
      // What ends an uncontained command with the gateway
      const [file, ...prefix] = await launcher();
      if (file === undefined) return { line, contained: false };
      return { line: { ...line, file, args: [...prefix, line.file, ...line.args] }, contained: false };
    },
  };
}

/** Refuses a result that is bubblewrap's own: it could not contain the command, which never ran. @throws {ToolError} */
export function requireStarted([command = ""]: readonly string[], { ending, stdout, stderr }: CommandResult): void {
  if (ending.kind !== "exit" || ending.code !== 1 || stdout.bytes > 0 || !stderr.text.startsWith("bwrap: ")) return;
  const wayOut = 'try again, or accept uncontained commands with [security.shell] sandbox = "off"';
  throw sandboxUnavailable(command, `the sandbox did not start it (${stderr.text.trim()})`, wayOut);
}

/** What a contained command must not read: what is forbidden, and what holds credentials unless they are allowed. */
async function hiddenBy(scope: ArgumentScope, options: ScreenOptions): Promise<readonly string[]> {
  const sensitive = scope.allowSensitive ? [] : await findSensitive(await realpath(scope.workspaceRoot));
  return [...forbiddenNames(scope, options), ...sensitive];
}

/** Waits for work that others wait for too. @throws {CancelError} when the signal aborts first; the work goes on */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  if (signal.aborted) throw cancelError(signal);
  const { promise, reject } = Promise.withResolvers<never>();
  const onAbort = () => reject(cancelError(signal));
  signal.addEventListener("abort", onAbort, { once: true });
  try {
    return await Promise.race([work, promise]);
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}
