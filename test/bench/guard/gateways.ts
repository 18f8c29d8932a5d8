import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { memoryOf, spawnReaped, type StartedServer, startServer } from "../started_server.ts";
import { TOKEN } from "./figures.ts";
import type { Load, Loaded } from "./load.ts";
import type { Round } from "./verdict.ts";

type Side = keyof Round;

/** Processors for the gateways and for all else, as taskset(1) takes them. */
export interface Pins {
  readonly gateways: string;
  readonly others: string;
}

/** A gateway of each build, side by side. */
export interface Pair {
  /** Milliseconds from the start to the first 200 of /health */
  readonly startMs: Round;
  /** Processor time so far in milliseconds, or resident memory in MiB */
  used(what: "cpuMs" | "rss"): Promise<Round>;
  /** Memory in MiB, with a share of what other processes have too; NaN where the system does not tell */
  pss(): Round;
  /** Sends both the same requests, the other one first the next time. @returns how many each has answered. @throws {Error} an answer is not right */
  load(load: Omit<Load, "ports">): Promise<number>;
}

/** Starts a pair of fresh gateways at the same moment, so that whatever slows the machine slows both, and ends them after `use`. */
export type WithPair = (use: (pair: Pair) => Promise<void>) => Promise<void>;

const REPORT_USAGE = new URL("report_usage.js", import.meta.url).href;
const LOAD = fileURLToPath(new URL("load.ts", import.meta.url));

/** Chooses a processor for the gateways and leaves the rest to all else; undefined where there is no taskset(1), or one processor. */
export function choosePins(): Pins | undefined {
  const { stdout } = spawnSync("taskset", ["-cp", String(process.pid)], { encoding: "utf8" });
  const list = /: ([\d,-]+)\n$/.exec(stdout ?? "")?.[1] ?? "";
  const [first, ...rest] = list.split(",").flatMap((range) => {
    const [from = 0, to = from] = range.split("-").map(Number);
    return Array.from({ length: to - from + 1 }, (_, index) => from + index);
  });
  return rest.length === 0 ? undefined : { gateways: String(first), others: rest.join(",") };
}

/**
 * Starts the process that loads gateways. It, the gateways and their folder are gone when this process exits, after Ctrl-C too.
 * @param mains path of cli/main.js of each build
 */
export async function createPairs(mains: Readonly<Record<Side, string>>, pins: Pins | undefined): Promise<WithPair> {
  const folder = mkdtempSync(join(tmpdir(), "postern-bench-"));
  process.on("exit", () => rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 50 }));
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) process.on(signal, () => process.exit(130));
  const pinned = (cpus: string | undefined, command: readonly string[]) =>
    cpus === undefined ? command : ["taskset", "-c", cpus, ...command];
  const loader = spawnReaped(pinned(pins?.others, [process.execPath, LOAD]), {
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
  const [baseUrl] = await once(loader, "message") as [string];
  const environment: NodeJS.ProcessEnv = {
    PATH: process.env["PATH"],
    // The code that V8 compiles is kept for later starts, as between any two on one machine
    NODE_COMPILE_CACHE: join(folder, "compiled"),
    POSTERN_TOKEN: TOKEN,
    POSTERN__PROVIDER__KIND: "openai_compatible",
    POSTERN__PROVIDER__BASE_URL: baseUrl,
    POSTERN__PROVIDER__MODEL: "bench-model",
    POSTERN__GATEWAY__RATE_LIMIT_MAX: "0",
    POSTERN__LOGGING__LEVEL: "warn",
  };

  const start = (side: Side) => {
    const home = mkdtempSync(join(folder, "home-"));
    const node = [process.execPath, `--import=${REPORT_USAGE}`];
    const commandOf = (port: number) =>
      pinned(pins?.gateways, [...node, mains[side], "gateway", "--port", String(port)]);
    return startServer(commandOf, { cwd: home, env: { ...environment, HOME: home }, takesMessages: true });
  };
  const sides: Side[] = ["tree", "base"];
  return async (use) => {
    sides.reverse();
    const started = await Promise.all(sides.map(start));
    const [tree, base] = (sides[0] === "tree" ? started : started.toReversed()) as [StartedServer, StartedServer]; // of two sides
    const ports = started.map(({ port }) => port);
    await use({
      startMs: { tree: tree.startMs, base: base.startMs },
      async used(what) {
        const [ours, theirs] = await Promise.all([usageOf(tree), usageOf(base)]);
        return { tree: ours[what], base: theirs[what] };
      },
      pss: () => ({ tree: memoryOf(tree.child.pid).pss, base: memoryOf(base.child.pid).pss }),
      async load(load) {
        ports.reverse();
        loader.send({ ...load, ports } satisfies Load);
        const [{ answered, failure }] = await once(loader, "message") as [Loaded];
        if (failure !== undefined) throw new Error(`Cannot measure: a gateway gave a wrong answer: ${failure}`);
        return answered;
      },
    });
    await Promise.all(started.map((gateway) => gateway.end()));
  };
}

async function usageOf({ child }: StartedServer): Promise<Readonly<Record<"cpuMs" | "rss", number>>> {
  child.send("usage");
  const [{ user, system, rss }] = await once(child, "message") as [NodeJS.CpuUsage & { readonly rss: number }];
  return { cpuMs: (user + system) / 1000, rss: rss / 2 ** 20 };
}
