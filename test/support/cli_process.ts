import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { readPidFile } from "../../lib/host/daemon/daemon_state.ts";
import { mainOf, RUN, RUN_ENV } from "./gateway_process.ts";
import { killIfThere } from "./kill_if_there.ts";
import { withTemporaryFolder } from "./temporary_folder.ts";

/** How a command ended; code null: by a signal. */
export interface CliResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A user with a home of their own, whose commands are processes. */
export interface CliMachine {
  readonly home: string;
  readonly dataDir: string;
  /** Where temporary files go */
  readonly temporary: string;
  /** Runs the program until it ends. @param program folder with another copy of it. Default: this project */
  run(argv: readonly string[], program?: string): Promise<CliResult>;
  /** Starts the program, for one that is to be killed on the way */
  spawn(
    argv: readonly string[],
    program?: string,
    env?: Readonly<Record<string, string>>,
  ): { readonly child: ChildProcess; readonly ended: Promise<CliResult> };
  /** Numbers of the processes that were started here and are still there; Linux alone, elsewhere none */
  processes(): readonly number[];
}

/** Runs `use` with a machine; whatever runs on it afterwards is killed. */
export function withCliMachine(use: (machine: CliMachine) => Promise<void>): Promise<void> {
  return withTemporaryFolder(async (home) => {
    const cwd = join(home, "work");
    const temporary = join(home, "tmp");
    const dataDir = join(home, ".local/share/postern");
    for (const folder of [cwd, temporary]) mkdirSync(folder);
    const env = {
      ...RUN_ENV,
      HOME: home,
      TMPDIR: temporary,
      POSTERN__PROVIDER__KIND: "offline",
      POSTERN__SECURITY__ALLOWED_COMMANDS: '["sleep"]',
      POSTERN__GATEWAY__SHUTDOWN_GRACE_SECS: "5",
    };
    const start = (argv: readonly string[], program?: string, more: Readonly<Record<string, string>> = {}) => {
      const [command = "", ...options] = RUN;
      const child = spawn(command, [...options, mainOf(program), ...argv], {
        ...{ cwd, stdio: "pipe" },
        env: { ...env, ...more },
      });
      let stdout = "";
      let stderr = "";
      child.stdout.on("data", (part) => (stdout += part));
      child.stderr.on("data", (part) => (stderr += part));
      const ended = once(child, "close").then(([code]) => ({ code: code as number | null, stdout, stderr }));
      return { child, ended };
    };
    const machine: CliMachine = {
      home,
      dataDir,
      temporary,
      spawn: start,
      run: (argv, program) => start(argv, program).ended,
      processes: () => processesOf(home),
    };
    try {
      await use(machine);
    } finally {
      const left = await readPidFile(dataDir);
      if (left?.kind === "alive") killIfThere(left.process.pid);
      for (const pid of machine.processes()) killIfThere(pid);
    }
  });
}

/** Numbers of the processes that work in the folder, or were started with it in their environment; Linux alone, elsewhere none. */
export function processesOf(folder: string): readonly number[] {
  if (process.platform !== "linux") return [];
  return readdirSync("/proc").filter((name) => /^\d+$/.test(name)).map(Number).filter((pid) => {
    try {
      if (/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, "utf8"))) return false;
      return readlinkSync(`/proc/${pid}/cwd`).startsWith(folder) ||
        readFileSync(`/proc/${pid}/environ`, "utf8").includes(folder);
    } catch {
      return false;
    }
  });
}
