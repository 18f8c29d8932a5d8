import { realpath } from "node:fs/promises";
import process from "node:process";
import { CancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import type { CommandLookup } from "./command_lookup.ts";
import { SEARCH_PATH } from "./create_command_lookup.ts";
import type { Processes, ProcessRequest } from "./processes.ts";
import { type CommandLine, runCommand } from "./run_command.ts";
import { contain, type Containment, findContainment } from "./sandbox.ts";
import { forbiddenOf, screenArguments, type ScreenOptions } from "./screen_arguments.ts";

export interface ProcessesOptions extends ScreenOptions {
  readonly commands: CommandLookup;
  readonly clock: Clock;
}

/** All that a program gets to know: no variable of the gateway, and a home without configuration files or keys. */
const ENVIRONMENT: Readonly<Record<string, string>> = {
  PATH: SEARCH_PATH.join(":"),
  HOME: "/nonexistent",
  LANG: "C.UTF-8",
  TERM: "dumb",
};

/** Programs for tools. Nothing is started before the first call. */
export function createProcesses(options: ProcessesOptions): Processes {
  const { commands, clock } = options;
  const closing = new AbortController();
  const running = new Set<Promise<unknown>>();
  let found: Promise<Containment> | undefined;
  const containment = () => (found ??= findContainment(commands, clock));
  let launcher: Promise<readonly string[]> | undefined;

  const lineOf = async ({ words, scope }: ProcessRequest): Promise<CommandLine> => {
    const [command = "", ...args] = words;
    const file = await commands.find(command);
    if (file === undefined) {
      throw new ToolError(
        "command_not_found",
        `Cannot run ${JSON.stringify(command)}: no folder of the fixed search path has it`,
      );
    }
    await screenArguments(args, scope, options);
    return { file, args, cwd: await realpath(scope.workspaceRoot), env: ENVIRONMENT };
  };

  const containedLine = async (line: CommandLine, request: ProcessRequest): Promise<CommandLine | undefined> => {
    if (request.sandbox === "off") return undefined;
    const { workspaceRoot } = request.scope;
    const kind = await containment();
    const contained = kind.kind === "none" ? undefined : await contain(line, {
      bubblewrap: kind.file,
      workspaceRoot,
      hidden: forbiddenOf(request.scope, options),
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

  const run = async (request: ProcessRequest) => {
    if (process.platform === "win32") {
      throw new ToolError("unsupported_platform", "Cannot run commands: they are not supported on Windows, use Linux");
    }
    const signal = AbortSignal.any([request.signal, closing.signal]);
    const line = await lineOf(request);
    const inside = await containedLine(line, request);
    const [file = line.file, ...prefix] = await (launcher ??= findLauncher(options));
    const outside = { ...line, file, args: prefix.length === 0 ? line.args : [...prefix, line.file, ...line.args] };
    const result = await runCommand(inside ?? outside, {
      timeoutMs: request.timeoutMs,
      maxOutputBytes: request.maxOutputBytes,
      signal,
      clock,
    });
    return { ...result, contained: inside !== undefined };
  };

  return {
    containment,
    run(request) {
      const work = run(request);
      const settled = work.catch(() => {}).finally(() => running.delete(settled));
      running.add(settled);
      return work;
    },
    async close() {
      closing.abort(new CancelError("shutdown"));
      await Promise.all(running);
    },
  };
}

/** What ends a command when the gateway is killed: `setpriv` with a parent-death signal, where it knows one; else nothing. */
async function findLauncher({ commands, clock }: ProcessesOptions): Promise<readonly string[]> {
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
  return tried?.ending.kind === "exit" && tried.ending.code === 0 ? [file, ...args] : [];
}
