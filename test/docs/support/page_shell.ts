import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import process from "node:process";
import type { Machine } from "../../cli/support/run_in.ts";
import { RUN_ENV } from "../../support/gateway_process.ts";
import { killIfThere } from "../../support/kill_if_there.ts";
import { until } from "../../support/until.ts";

/** How one command of a page ended. */
export interface Said {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
  /** Output as a terminal shows it: in its order, with the answers typed, where any were; else stdout before stderr */
  readonly shown: string;
}

/** A shell as a reader of one page has it: what a command sets, the next one finds. */
export interface PageShell {
  /** Environment that a program of the page starts with */
  readonly environment: Readonly<Record<string, string>>;
  /** Runs one command to its end. @param types lines that the reader types while it asks. Default: nobody is there to ask */
  run(command: string, types?: readonly string[]): Promise<Said>;
  /** Starts one command that runs on, and waits for a text of its output. */
  start(command: string, text: string): Promise<void>;
}

/** A `postern` that hands its words, input and environment to the process of the tests: a start would take half a second each. */
const SHIM = `#!/usr/bin/env bash
call=$(mktemp -d "$DOCS_CALLS/XXXXXX")
printf '%s\\0' "$@" > "$call/words"
env -0 > "$call/environment"
cat > "$call/input"
code=$(curl -sS "$DOCS_URL/\${call##*/}")
cat "$call/stdout"
cat "$call/stderr" >&2
exit "\${code:-1}"
`;

/** Runs `use` with a shell on the machine; what still runs afterwards is ended. */
export async function withPageShell(
  { machine, environment }: { readonly machine: Machine; readonly environment: Readonly<Record<string, string>> },
  use: (shell: PageShell) => Promise<void>,
): Promise<void> {
  const folder = join(machine.home, "shell");
  for (const name of ["calls", "bin"]) mkdirSync(join(folder, name), { recursive: true });
  writeFileSync(join(folder, "bin/postern"), SHIM);
  chmodSync(join(folder, "bin/postern"), 0o755);
  let answers: readonly string[] | undefined;
  const commands = await serveCommands(machine, { calls: join(folder, "calls"), answers: () => answers });
  const env = {
    ...RUN_ENV,
    ...environment,
    HOME: machine.home,
    PATH: `${join(folder, "bin")}:${process.env["PATH"] ?? ""}`,
    DOCS_CALLS: join(folder, "calls"),
    DOCS_URL: commands.url,
  };
  // A group of its own, so that what runs on is ended with it
  const bash = spawn("bash", ["--noprofile", "--norc"], { cwd: machine.cwd, env, detached: true, stdio: "pipe" });
  const ended = once(bash, "close");
  let codes = "";
  bash.stdout.setEncoding("utf8").on("data", (part: string) => (codes += part));
  // A reader has the token as a variable of the shell: a program gets it from a page that says "export"
  bash.stdin.write("set -o pipefail\nexport -n TOKEN\n");
  let number = 0;
  const send = (command: string, isLeft: boolean) => {
    const file = join(folder, `${++number}`);
    writeFileSync(file, `${command}\n`);
    const line = `. ${file} >${file}.out 2>${file}.err </dev/null`;
    bash.stdin.write(isLeft ? `{ ${line}; } &\n` : `${line}; echo "${number} $?"\n`);
    return { number, read: (kind: string) => readIfThere(`${file}.${kind}`) };
  };
  try {
    await use({
      environment: env,
      async run(command, types) {
        answers = types;
        commands.forget();
        const { number, read } = send(command, false);
        const pattern = new RegExp(`^${number} (\\d+)$`, "m");
        await until(() => pattern.test(codes) || bash.exitCode !== null, () => `Nothing came of: ${command}`);
        const code = Number(pattern.exec(codes)?.[1] ?? bash.exitCode);
        const [stdout, stderr] = [read("out"), read("err")];
        return { code, stdout, stderr, shown: types === undefined ? `${stdout}${stderr}` : commands.shown() };
      },
      async start(command, text) {
        const { read } = send(command, true);
        const told = () => `${read("out")}${read("err")}${commands.output()}`;
        await until(() => told().includes(text), () => `"${text}" never came from: ${command}\n${told()}`);
      },
    });
  } finally {
    await commands.end();
    if (bash.pid !== undefined) killIfThere(-bash.pid);
    await ended;
  }
}

/** Serves the shim: each request names the folder of one call. */
async function serveCommands(
  machine: Machine,
  { calls, answers }: { readonly calls: string; readonly answers: () => readonly string[] | undefined },
) {
  let output = "";
  let forgotten = 0;
  const running = new Set<() => void>();
  const server = createServer((request, response) => {
    const folder = join(calls, (request.url ?? "/").slice(1));
    const words = readFileSync(join(folder, "words"), "utf8").split("\0").slice(0, -1);
    const pairs = readFileSync(join(folder, "environment"), "utf8").split("\0").slice(0, -1);
    const stdin = readFileSync(join(folder, "input"), "utf8");
    const env = Object.fromEntries(
      pairs.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]),
    );
    const seen = { stdout: 0, stderr: 0 };
    const stops: (() => void)[] = [];
    const typed = answers();
    let asked = 0;
    const call = machine.run(words, {
      env,
      ...(typed === undefined
        ? {}
        : { answers: typed, onQuestion: (question) => output += `${question}${typed[asked++]}\n` }),
      ...(stdin === "" ? {} : { stdin }),
      onInterruptible: (interrupt) => stops.push(interrupt),
      onOutput({ stdout, stderr }) {
        output += `${stdout.slice(seen.stdout)}${stderr.slice(seen.stderr)}`;
        [seen.stdout, seen.stderr] = [stdout.length, stderr.length];
      },
    }).then(({ code, stdout, stderr }) => {
      writeFileSync(join(folder, "stdout"), stdout);
      writeFileSync(join(folder, "stderr"), stderr);
      response.end(`${code}`);
    }, (error) => {
      writeFileSync(join(folder, "stdout"), "");
      writeFileSync(join(folder, "stderr"), String(error));
      response.end("70");
    });
    const stop = () => stops.forEach((interrupt) => interrupt());
    running.add(stop);
    void call.finally(() => running.delete(stop));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    output: () => output,
    /** Output since `forget`, as a terminal shows it */
    shown: () => output.slice(forgotten),
    forget: () => void (forgotten = output.length),
    async end() {
      for (const stop of running) stop();
      await until(() => running.size === 0, () => `A command of the page does not end: ${output}`);
      server.closeAllConnections();
      server.close();
    },
  };
}

function readIfThere(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}
