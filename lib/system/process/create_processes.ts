import { realpath } from "node:fs/promises";
import process from "node:process";
import { CancelError, cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import type { RedactPart } from "../../base/redact.ts";
import { forbiddenNames } from "../files/forbidden_paths.ts";
import type { CommandLookup } from "./command_lookup.ts";
import { SEARCH_PATH } from "./create_command_lookup.ts";
import { findSensitive } from "./find_sensitive.ts";
import { killLeftovers, MARKER_VARIABLE } from "./kill_leftovers.ts";
import { namedFiles } from "./named_files.ts";
import type { CommandLine } from "./process_group.ts";
import { createProcessTable } from "./process_table.ts";
import type { ComposedCommand, Processes, ProcessRequest } from "./processes.ts";
import { runCommand } from "./run_command.ts";
import { contain, type Containment, findContainment } from "./sandbox.ts";
import { type ArgumentScope, screenArguments, type ScreenOptions } from "./screen_arguments.ts";

export interface ProcessesOptions extends ScreenOptions {
  readonly commands: Pick<CommandLookup, "find">;
  readonly clock: Clock;
  /** The same at each start on one data directory and no other: what a killed gateway leaves is found by it. No secret */
  readonly marker: string;
  /** Masks secrets in the output of the model's commands. Default: nothing is masked */
  readonly redact?: RedactPart;
}

/** All that a program gets to know: no variable of the gateway, and a home without configuration files or keys. */
const ENVIRONMENT: Readonly<Record<string, string>> = {
  PATH: SEARCH_PATH.join(":"),
  HOME: "/nonexistent",
  LANG: "C.UTF-8",
  TERM: "dumb",
};

/** What a composed command has to remove its lock files once it is told to stop */
const GRACE_MS = 1000;

/** Commands that wait for a try of something that hangs; those after them do without */
const MAX_TRIES = 3;

/** A request to `run` or to `start`. */
type AnyRequest = ProcessRequest & { readonly composed?: ComposedCommand };

/** Programs for tools. Nothing is started before the first call. */
export function createProcesses(options: ProcessesOptions): Processes {
  const { commands, clock, marker } = options;
  const env = { ...ENVIRONMENT, [MARKER_VARIABLE]: marker };
  const closing = new AbortController();
  const working = new Set<Promise<unknown>>();
  const table = createProcessTable(clock, options.redact);
  const containment = keepFound<Containment>(
    () => findContainment(commands, clock),
    (found) => found.kind === "none" && found.timedOut === true,
  );
  const launcher = keepFound(() => findLauncher(options), (words) => words === undefined);

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

  const containedLine = async (line: CommandLine, request: AnyRequest): Promise<CommandLine | undefined> => {
    if (request.sandbox === "off") return undefined;
    const { composed, scope: { workspaceRoot } } = request;
    const kind = await containment();
    const contained = kind.kind === "none" ? undefined : await contain(line, {
      bubblewrap: kind.file,
      workspaceRoot,
      hidden: composed === undefined ? await hiddenBy(request.scope, options) : [],
      network: composed?.network ?? false,
      readOnly: composed?.writes === false,
    });
    if (contained !== undefined || request.sandbox === "auto") return contained;
    const reason = kind.kind === "none" ? kind.reason : "the workspace holds the system's own folders";
    throw new ToolError(
      "sandbox_unavailable",
      `Cannot run "${
        request.words[0]
      }": [security.shell] sandbox = "require", and ${reason}; install bubblewrap and allow user namespaces, or set sandbox = "auto"`,
    );
  };

  /** The line to start: inside the sandbox, else behind what ends it with the gateway. */
  const prepare = async (request: AnyRequest) => {
    const line = await lineOf(request);
    const inside = await containedLine(line, request);
    if (inside !== undefined) return { line: inside, contained: true };
    const [file, ...prefix] = (await launcher()) ?? [];
    if (file === undefined) return { line, contained: false };
    return { line: { ...line, file, args: [...prefix, line.file, ...line.args] }, contained: false };
  };

  /** `close()` waits for it. */
  const track = <T>(work: Promise<T>): Promise<T> => {
    const settled = work.catch(() => {}).finally(() => working.delete(settled));
    working.add(settled);
    return work;
  };

  const run: Processes["run"] = async (request) => {
    const { line, contained } = await prepare(request);
    const { timeoutMs, maxOutputBytes, composed } = request;
    const signal = AbortSignal.any([request.signal, closing.signal]);
    const graceMs = composed === undefined ? 0 : GRACE_MS;
    // A composed command is read by Postern itself, before the model gets anything of it
    const redact = composed === undefined ? options.redact : undefined;
    return { ...await runCommand(line, { timeoutMs, maxOutputBytes, signal, clock, redact, graceMs }), contained };
  };

  const start: Processes["start"] = async (request) => {
    const { line, contained } = await prepare(request);
    const { words, maxProcesses, maxOutputBytes } = request;
    const signal = AbortSignal.any([request.signal, closing.signal]);
    if (signal.aborted) throw cancelError(signal);
    return await table.start(line, { words, contained, maxProcesses, maxOutputBytes });
  };

  return {
    containment,
    screen: async (request) => void await lineOf(request),
    named: ({ words, scope, signal }) => namedFiles(words.slice(1), { workspaceRoot: scope.workspaceRoot, signal }),
    run: (request) => track(run(request)),
    start: (request) => track(start(request)),
    list: table.list,
    output: (id, read) => ({ ...table.output(id, read), process: table.get(id) }),
    kill: table.kill,
    killLeftovers: () => killLeftovers(marker),
    async close() {
      closing.abort(new CancelError("shutdown"));
      await Promise.all(working);
      await table.killAll();
    },
  };
}

/** What a contained command must not read: what is forbidden, and what holds credentials unless they are allowed. */
async function hiddenBy(scope: ArgumentScope, options: ScreenOptions): Promise<readonly string[]> {
  const sensitive = scope.allowSensitive ? [] : await findSensitive(await realpath(scope.workspaceRoot));
  return [...forbiddenNames(scope, options), ...sensitive];
}

/**
 * What is found out once, save that a try which took too long is made again: a machine that is busy for a moment, as when it starts,
 * is none without a sandbox.
 */
function keepFound<T>(find: () => Promise<T>, tookTooLong: (found: T) => boolean): () => Promise<T> {
  let finding: Promise<T> | undefined;
  let tries = 0;
  return async () => {
    const found = await (finding ??= find());
    if (tookTooLong(found) && ++tries < MAX_TRIES) finding = undefined;
    return found;
  };
}

/**
 * What ends a command when the gateway is killed: `setpriv` with a parent-death signal, where it knows one; else nothing.
 * @returns undefined when the try took too long
 */
async function findLauncher({ commands, clock }: ProcessesOptions): Promise<readonly string[] | undefined> {
  if (process.platform !== "linux") return [];
  const [file, program] = await Promise.all([commands.find("setpriv"), commands.find("true")]);
  if (file === undefined || program === undefined) return [];
  const args = ["--pdeathsig", "KILL", "--"];
  const signal = new AbortController().signal;
  const tried = await runCommand({ file, args: [...args, program], cwd: "/", env: ENVIRONMENT }, {
    timeoutMs: 5000,
    maxOutputBytes: 256,
    signal,
    clock,
  }).catch(() => undefined);
  if (tried?.ending.kind === "timeout") return undefined;
  return tried?.ending.kind === "exit" && tried.ending.code === 0 ? [file, ...args] : [];
}
