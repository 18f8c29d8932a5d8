import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import process from "node:process";
import { ROOT, RUN } from "./gateway_process.ts";

/** A `postern` command in a process of its own. */
export interface PosternProcess {
  /** What matched when it was ready */
  readonly match: RegExpExecArray;
  /** Both streams so far */
  output(): string;
  /** Resolves when its output has matched anew, after what has matched before. @throws {Error} when it ends first */
  until(pattern: RegExp): Promise<RegExpExecArray>;
  /** @returns its exit code, null after SIGKILL */
  end(signal: "SIGTERM" | "SIGKILL"): Promise<number | null>;
  /** Its exit code, once it ends */
  readonly ended: Promise<number | null>;
}

/** Starts it and waits for `ready` in its output; the caller ends it. @throws {Error} when it ends before, with its output */
export async function startPostern(
  argv: readonly string[],
  { env, ready }: { readonly env: Readonly<Record<string, string>>; readonly ready: RegExp },
): Promise<PosternProcess> {
  const [command = "", ...first] = RUN;
  const child = spawn(command, [...first, "cli/main.ts", ...argv], {
    cwd: ROOT,
    env: { PATH: process.env["PATH"] ?? "", NO_COLOR: "1", ...env },
  });
  let output = "";
  let seen = 0;
  const heard = new Set<() => void>();
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (part: string) => {
      output += part;
      for (const look of [...heard]) look();
    });
  }
  const ended = once(child, "close").then(([code]) => code as number | null);
  const until = async (pattern: RegExp): Promise<RegExpExecArray> => {
    const { promise, resolve } = Promise.withResolvers<RegExpExecArray>();
    const look = () => {
      const match = pattern.exec(output.slice(seen));
      if (match === null) return;
      seen += match.index + match[0].length;
      heard.delete(look);
      resolve(match);
    };
    heard.add(look);
    look();
    const found = await Promise.race([promise, ended.then(() => undefined)]);
    if (found === undefined) throw new Error(`It ended before ${pattern}: ${output}`);
    return found;
  };
  return {
    match: await until(ready),
    output: () => output,
    until,
    ended,
    end: (signal) => end(child, { signal, ended }),
  };
}

async function end(
  child: ChildProcess,
  { signal, ended }: { readonly signal: "SIGTERM" | "SIGKILL"; readonly ended: Promise<number | null> },
): Promise<number | null> {
  // On Deno, child.kill() reports the signal in place of the exit code
  if (child.exitCode === null && child.signalCode === null && child.pid !== undefined) process.kill(child.pid, signal);
  return await ended;
}
