import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { CliIo } from "../../../cli/command.ts";
import { runCli } from "../../../cli/run_cli.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

/** The result of a finished command. */
export interface Finished {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface RunOptions {
  /** Absolute path of the current folder. Default: that of the machine */
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
  /** Standard input; undefined: a terminal */
  readonly stdin?: string;
  /** Lines that the person types, with pastes in brackets as a terminal has them */
  readonly answers?: readonly string[];
  /** Waits for the line of a person who takes their time, in place of `answers`; undefined: Ctrl-C */
  readonly onAsk?: () => Promise<string | undefined>;
  /** Receives each question that `answers` or `onAsk` answers */
  readonly onQuestion?: (question: string) => void;
  /** Receives the history that a chat begins with */
  readonly onHistory?: (history: readonly string[]) => void;
  /** Runs when stdout or stderr got text */
  readonly onOutput?: (
    io: { readonly stdout: string; readonly stderr: string; interrupt(): void; type(line: string): void },
  ) => void;
  readonly terminal?: boolean;
  /** Width of the terminal; undefined: unknown */
  readonly columns?: number;
  /** Receives once how to press Ctrl-C */
  readonly onInterruptible?: (interrupt: () => void) => void;
  /** Receives once how to send SIGHUP */
  readonly onReloadable?: (hangUp: () => void) => void;
}

/** A user with a home, a current folder and a data directory of their own. */
export interface Machine {
  readonly home: string;
  readonly cwd: string;
  readonly dataDir: string;
  run(argv: readonly string[], options?: RunOptions): Promise<Finished>;
  /** Starts `postern gateway` on a free port, ends it after `use` as Ctrl-C would */
  withGateway(
    argv: readonly string[],
    use: (started: { readonly banner: string; readonly address: string }) => Promise<void>,
    options?: Pick<RunOptions, "env" | "onReloadable">,
  ): Promise<Finished>;
}

/** Runs commands in-process on a machine that is made for it and removed afterwards. */
export function onMachine(use: (machine: Machine) => Promise<void>): Promise<void> {
  return withTemporaryFolder(async (home) => {
    const cwd = join(home, "work");
    mkdirSync(cwd);
    const dataDir = join(home, ".local/share/postern");
    const run = (argv: readonly string[], options: RunOptions = {}) => runOn({ home, cwd }, argv, options);
    await use({
      home,
      cwd,
      dataDir,
      run,
      async withGateway(argv, work, options) {
        let failure: unknown;
        let started: Promise<void> | undefined;
        const finished = await run(["gateway", "--port", "0", ...argv], {
          ...options,
          onOutput({ stdout, interrupt }) {
            const address = /http:\/\/[^\s"]+:\d+\//.exec(stdout)?.[0];
            if (address === undefined || started !== undefined) return;
            started = work({ banner: stdout, address }).catch((error) => void (failure = error)).finally(interrupt);
          },
        });
        await started;
        if (failure !== undefined) throw failure;
        return finished;
      },
    });
  });
}

/** A bracketed paste */
// deno-lint-ignore no-control-regex
const PASTE = /\x1b\[200~(.*?)\x1b\[201~/gs;

async function runOn(
  { home, cwd }: { readonly home: string; readonly cwd: string },
  argv: readonly string[],
  options: RunOptions,
): Promise<Finished> {
  let stdout = "";
  let stderr = "";
  const answers = [...(options.answers ?? [])];
  const pastes: string[] = [];
  const listeners = new Set<() => void>();
  const interrupt = () => {
    for (const listener of [...listeners]) listener();
  };
  options.onInterruptible?.(interrupt);
  const reloaders = new Set<() => void>();
  options.onReloadable?.(() => {
    for (const listener of [...reloaders]) listener();
  });
  let onLine: ((line: string) => boolean) | undefined;
  const type = (line: string) => void (onLine?.(line) ?? answers.push(line));
  const told = () => options.onOutput?.({ stdout, stderr, interrupt, type });
  /** The next line of the person, shown as a terminal shows it */
  const typed = (prompt: string) => {
    const line = answers.shift()?.replace(PASTE, (_, text: string) => (pastes.push(text), text));
    io.stderr(`${prompt}${line ?? ""}\n`);
    return line;
  };
  const io: CliIo = {
    stdout(text) {
      stdout += text;
      told();
    },
    stdoutReady: () => Promise.resolve(),
    stderr(text) {
      stderr += text;
      told();
    },
    readStdin: () => Promise.resolve(options.stdin),
    async *openStdin() {
      yield new TextEncoder().encode(options.stdin);
    },
    canAsk: options.answers !== undefined || options.onAsk !== undefined,
    ask(question) {
      options.onQuestion?.(question);
      return options.onAsk?.() ?? Promise.resolve(answers.shift());
    },
    openReader(history) {
      if (options.answers === undefined && options.onAsk === undefined) return Promise.resolve(undefined);
      options.onHistory?.(history);
      return Promise.resolve({
        read: (prompt) => Promise.resolve(typed(prompt)),
        pastes: () => pastes,
        ask: (question) => options.onAsk?.() ?? Promise.resolve(typed(question)),
        onInterrupt(listener) {
          listeners.add(listener);
          return () => void listeners.delete(listener);
        },
        onLine(listener) {
          onLine = listener;
          return () => void (onLine = undefined);
        },
        close: () => {},
      });
    },
    onInterrupt(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    onReload(listener) {
      reloaders.add(listener);
      return () => void reloaders.delete(listener);
    },
    onCrash: () => {},
    exit: (code) => void (stderr += `exit ${code}`),
    // Nothing on the machine that runs the tests is looked for
    env: { POSTERN__PROVIDER__KIND: "offline", ...options.env },
    cwd: options.cwd ?? cwd,
    home,
    isLaunched: false,
    isTerminal: { stdout: options.terminal === true, stderr: options.terminal === true },
    columns: options.columns,
  };
  const code = await runCli(argv, io);
  return { code, stdout, stderr };
}
