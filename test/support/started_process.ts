import { spawn } from "node:child_process";
import { once } from "node:events";
import { killIfThere } from "./kill_if_there.ts";
import { until } from "./until.ts";

/** A process that is ready, and whose output is kept. */
export interface StartedProcess {
  readonly pid: number | undefined;
  /** Match of the line that said it was ready */
  readonly match: RegExpExecArray;
  /** Both streams so far */
  output(): string;
  /** stderr so far */
  errors(): string;
  /** Resolves when its output has matched again, after what has matched before. @throws {Error} it ends first, or 60 s pass */
  until(pattern: RegExp): Promise<RegExpExecArray>;
  /** Sends the signal, unless it has ended, and waits for its end. @returns its exit code, null after SIGKILL. @throws {AssertionError} it runs on for 60 s */
  end(signal: "SIGINT" | "SIGTERM" | "SIGKILL"): Promise<number | null>;
  /** Exit code, once the process ends */
  readonly ended: Promise<number | null>;
}

export interface StartProcessOptions {
  readonly cwd: string;
  /** Default: that of this process */
  readonly env?: Readonly<Record<string, string>>;
  readonly ready: RegExp;
  /** Text that it reads once it is ready. Default: its input is empty */
  readonly input?: string;
}

/** Starts it and waits for `ready` in its output; the caller ends it. @throws {Error} it ends before, or 60 s pass; with its output */
export async function startProcess(
  [command = "", ...argv]: readonly string[],
  { ready, input, ...options }: StartProcessOptions,
): Promise<StartedProcess> {
  const child = spawn(command, argv, { ...options, stdio: "pipe" });
  let output = "";
  let errors = "";
  let seen = 0;
  let hasEnded = false;
  child.stdout.setEncoding("utf8").on("data", (part: string) => (output += part));
  child.stderr.setEncoding("utf8").on("data", (part: string) => {
    output += part;
    errors += part;
  });
  const ended = once(child, "close").then(([code]) => {
    hasEnded = true;
    return code as number | null;
  });
  const started = {
    pid: child.pid,
    output: () => output,
    errors: () => errors,
    async until(pattern: RegExp) {
      const matches: RegExpExecArray[] = [];
      await until(() => {
        const match = pattern.exec(output.slice(seen));
        if (match !== null) return matches.push(match) > 0;
        if (hasEnded) throw new Error(`It ended before ${pattern}: ${output}`);
        return false;
      }, () => `${pattern} never came: ${output}`);
      const [match] = matches as [RegExpExecArray]; // the wait ends with one
      seen += match.index + match[0].length;
      return match;
    },
    async end(signal: "SIGINT" | "SIGTERM" | "SIGKILL") {
      // On Deno, child.kill() reports the signal in place of the exit code
      if (!hasEnded) killIfThere(child.pid, signal);
      await until(() => hasEnded, () => `It did not end: ${output}`);
      return await ended;
    },
    ended,
  };
  try {
    const match = await started.until(ready);
    if (input !== undefined) child.stdin.write(input);
    return { ...started, match };
  } catch (error) {
    await started.end("SIGKILL");
    throw error;
  }
}
