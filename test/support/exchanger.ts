/**
 * An attacker for the gap between a look and the use of what was looked at: fixtures/exchanger/exchanger.c exchanges what lies in a place at
 * the n-th event of a file or folder. As a stray process it runs beside the gateway; contained, it is the dev server of a hostile project,
 * which `process_tool` started in the sandbox.
 */
import assert from "node:assert/strict";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { systemClock } from "../../lib/base/clock.ts";
import type { ToolBench } from "./tool_bench.ts";
import { until } from "./until.ts";
import type { Workspace } from "./workspace.ts";

const SOURCE = "fixtures/exchanger/exchanger.c";

/** Reason to skip a test of attacks; false where they can be made. */
export const NO_EXCHANGER = process.platform !== "linux"
  ? "inotify is there on Linux alone"
  : spawnSync("cc", ["--version"]).status === 0
  ? false
  : "there is no C compiler";

/** When the attacker strikes. */
export interface Moment {
  /** Kind of event that is waited for; `ring`: of the test itself, by `Exchanger.ring` */
  readonly on: "open" | "access" | "close" | "rename" | "any" | "ring";
  /** 1 is the first, 0 none */
  readonly nth: number;
  /** Microseconds before the first exchange, after a ring before each: many looks, as lstat, make no event. Default 0 */
  readonly delayUs?: number;
  /** Exchanges in all, back and forth: after a ring without waiting, otherwise one at each event that follows. Default 1 */
  readonly times?: number;
}

/** An attack. Paths are absolute, or relative to the folder that the attacker runs in, wherever that is moved. */
export interface Exchange {
  readonly at: Moment;
  /** `exchange`: both change places; `rename`: `other` takes the place; `link`: a link with the text `other` does */
  readonly by: "exchange" | "rename" | "link";
  /** File whose events count, or folder with all folders below */
  readonly watched: string;
  /** Path that is exchanged. Default: `watched` */
  readonly target?: string;
  /** A path; the text of the link for `link` */
  readonly other: string;
}

/** Events and exchanges that an attacker tells of in the end. */
export interface Report {
  /** Events, such as `open a.txt` */
  readonly seen: readonly string[];
  /** Number of events at which it made exchanges */
  readonly struck: number;
  /** Number of events at which it could make none: what it wanted to exchange was gone */
  readonly missed: number;
  /** Microseconds since the ring */
  readonly us: number;
}

/** An attacker that waits for its moment. */
export interface Exchanger {
  /** Tells it that the call begins. */
  ring(): void;
  /** Waits until it has told of all that happened until now. */
  report(): Promise<Report>;
  end(): Promise<void>;
}

/** Compiles the program once a run: the runner gives all its processes one folder for temporary files. @returns its absolute path */
function program(): string {
  const digest = createHash("sha256").update(readFileSync(SOURCE)).digest("hex").slice(0, 16);
  const path = join(tmpdir(), `exchanger-${digest}`);
  if (existsSync(path)) return path;
  const fresh = `${path}-${process.pid}`;
  execFileSync("cc", ["-O2", "-Wall", "-Werror", "-o", fresh, SOURCE]);
  renameSync(fresh, path);
  return path;
}

function wordsOf(exchange: Exchange, bell: string): readonly string[] {
  const { at: { on, nth, delayUs = 0, times = 1 }, by, watched, target = watched, other } = exchange;
  return [on, `${nth}`, `${delayUs}`, by, watched, target, other, `${times}`, bell];
}

/** Runs `use` beside an attacker in a process of its own, which nothing contains. @param bell a folder for the attacker alone, made again */
export async function withExchanger<T>(
  exchange: Exchange,
  bell: string,
  use: (exchanger: Exchanger) => Promise<T>,
): Promise<T> {
  rmSync(bell, { recursive: true, force: true });
  mkdirSync(bell);
  const child = spawn(program(), wordsOf(exchange, bell), { stdio: "pipe" });
  let output = "";
  let hasEnded = false;
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding("utf8").on("data", (part: string) => void (output += part));
  }
  child.once("close", () => void (hasEnded = true));
  const exchanger = toExchanger(bell, () => ({ output, hasEnded }), async () => {
    child.stdin.end();
    await until(() => hasEnded, "the exchanger did not end");
  });
  try {
    await until(() => output.includes("watching\n") || hasEnded, "the exchanger did not begin");
    assert.equal(hasEnded, false, output);
    return await use(exchanger);
  } finally {
    await exchanger.end();
  }
}

/** Folder of a hostile project's dev server, relative to the workspace. */
const SERVER = "dev_server";

/** Settings that let a bench run the dev server of `startDevServer`. */
export const DEV_SERVER_CONFIG = { allowed_commands: ["sh", "mv"] } as const;

/**
 * Starts the attacker as a background program of the workspace by `process_tool`, in the sandbox where there is one.
 * @param first script of a shell that runs before it, in the workspace
 */
export async function startDevServer(
  { bench, workspace }: { readonly bench: ToolBench; readonly workspace: Workspace },
  exchange: Exchange,
  first = ":",
): Promise<Exchanger> {
  const bell = workspace.path(SERVER);
  rmSync(bell, { recursive: true, force: true });
  mkdirSync(bell);
  copyFileSync(program(), join(bell, "exchanger"));
  const words = wordsOf(exchange, bell).map((word) => `'${word}'`).join(" ");
  writeFileSync(join(bell, "serve.sh"), `${first}\nexec '${bell}/exchanger' ${words} 2>&1\n`);
  const { result } = await bench.call("process_tool", { op: "start", command: `sh ${SERVER}/serve.sh` }, {
    approver: () => Promise.resolve({ decision: "approve", reason: "" }),
  });
  const id = /id=(\S+)/.exec(result.output)?.[1] ?? assert.fail(result.output);
  const state = () => ({
    output: bench.processes.output(id, { offset: 0, maxBytes: 1_000_000 }).text,
    hasEnded: bench.processes.get(id).state.kind !== "running",
  });
  const exchanger = toExchanger(bell, state, async () => void await bench.processes.kill(id));
  await until(() => state().output.includes("watching\n") || state().hasEnded, "the dev server did not begin");
  assert.equal(state().hasEnded, false, state().output);
  return exchanger;
}

/** Names of the files that ring are new: a folder may be the bell of several attackers, one after the other. */
let rings = 0;

function toExchanger(
  bell: string,
  state: () => { readonly output: string; readonly hasEnded: boolean },
  end: () => Promise<void>,
): Exchanger {
  let begun = systemClock.monotonic();
  const ring = (): string => {
    const name = `ring-${++rings}`;
    writeFileSync(join(bell, name), "");
    return name;
  };
  return {
    ring() {
      begun = systemClock.monotonic();
      ring();
    },
    async report() {
      const us = (systemClock.monotonic() - begun) * 1000;
      const name = ring();
      await until(() => state().output.includes(`rung ${name}\n`) || state().hasEnded, "the exchanger does not answer");
      const { output } = state();
      assert.ok(output.includes(`rung ${name}\n`), `The exchanger has ended: ${output}`);
      const lines = output.split("\n");
      return {
        seen: lines.flatMap((line) => /^seen (.*)$/.exec(line)?.[1] ?? []),
        struck: lines.filter((line) => line === "struck").length,
        missed: lines.filter((line) => line.startsWith("missed ")).length,
        us,
      };
    },
    end,
  };
}

/** Share of the attempts in which the attacker must have struck: the kernel makes one event of two that it cannot tell apart. */
const LEAST_STRUCK = 0.8;
/** Microseconds between two of the many exchanges of one attempt: looks that make no event lie so close together */
const FLURRIES_US = [20, 40, 80, 160];
const MAX_TIMES = 2_000;
const QUIET: Moment = { on: "any", nth: 0 };

/**
 * Makes one attempt in quiet, and then one for each event that it has seen, so that the attacker strikes in every gap between them, and
 * some in which it exchanges back and forth all the time.
 * @param attempt makes everything again, rings when its call begins, fails where the attack has won, and returns the attacker's report
 * @param flurries attempts of the latter kind
 * @throws {AssertionError} also where the quiet attempt has seen nothing, or hardly any attack struck
 */
export async function atEveryMoment(attempt: (at: Moment) => Promise<Report>, flurries = 8): Promise<void> {
  // The first call may do more than those after it
  const [first, second] = [await attempt(QUIET), await attempt(QUIET)];
  const { seen, us } = first.seen.length < second.seen.length ? first : second;
  assert.ok(seen.length > 0, "nothing was seen of a quiet call");
  const moments: readonly Moment[] = [
    ...seen.map((_, index): Moment => ({ on: "any", nth: index + 1 })),
    ...Array.from({ length: flurries }, (_, index): Moment => {
      const delayUs = FLURRIES_US[index % FLURRIES_US.length] ?? 0;
      // An even number leaves the old thing in its place
      return { on: "ring", nth: 1, delayUs, times: Math.min(MAX_TIMES, 2 * Math.ceil(us / delayUs / 2)) };
    }),
  ];
  let [able, struck] = [0, 0];
  for (const moment of moments) {
    const report = await attempt(moment);
    // Other work of the gateway makes events too, in one attempt and not in another
    if (report.missed === 0 && (moment.on === "ring" || report.seen.length >= moment.nth)) able++;
    if (report.struck > 0) struck++;
  }
  assert.ok(
    struck > moments.length / 3 && struck >= able * LEAST_STRUCK,
    `${struck} of ${able} attacks struck: ${seen}`,
  );
}
