import { type Clock, withTimeout } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import type { RedactPart } from "../../base/redact.ts";
import type { Taint } from "../../base/taint.ts";
import type { Bounds } from "./bounds.ts";
import type { CommandNetwork } from "./containment.ts";
import type { RelayProblem } from "../net/relay.ts";
import { createOutputRing, type OutputPart, type OutputRing } from "./command_output.ts";
import type { Aftermath } from "./quarantine.ts";
import { startWithRight } from "./gated_start.ts";
import type { CommandLine, ProcessGroup, ProgramEnd } from "./process_group.ts";

/** A process that was started to run on. */
export interface ProcessInfo {
  /** `p1`, `p2`, ...; new ones after a restart of the gateway */
  readonly id: string;
  readonly words: readonly string[];
  /** `killed`: by `kill`, by the end of the gateway, or for writing more than MAX_WRITTEN_BYTES */
  readonly state: { readonly kind: "running" | "killed" } | ProgramEnd;
  /** Milliseconds since the epoch */
  readonly startedAt: number;
  readonly contained: boolean;
  /** Bounds that it runs in. Undefined: none */
  readonly bounds: Bounds | undefined;
  readonly network: CommandNetwork;
  /** Id of the token whose call started it; null: no token's */
  readonly owner: string | null;
  /** Call that started it: its tool, and the run that made it */
  readonly startedBy: { readonly tool: string; readonly runId: string };
  /** Outside content that the run had read whose call started it */
  readonly taint: Taint;
  /** Findings after the process had ended; undefined while it runs */
  readonly after: Aftermath | undefined;
  /** Requests that the relay of the process refused or could not carry out until now */
  readonly refused: readonly RelayProblem[];
}

interface ProcessStart {
  readonly words: readonly string[];
  readonly contained: boolean;
  readonly bounds: Bounds | undefined;
  readonly network: CommandNetwork;
  /** Returns what the relay of the process has refused until now */
  readonly refused: () => readonly RelayProblem[];
  readonly owner: string | null;
  readonly startedBy: ProcessInfo["startedBy"];
  readonly taint: Taint;
  /** Runs once nothing of it runs; its end counts as such afterwards. Must not throw */
  readonly onEnd: () => Promise<Aftermath>;
  /** Running at the same time; as many ended ones are kept to be read */
  readonly maxProcesses: number;
  /** Bytes that are kept of the output */
  readonly maxOutputBytes: number;
}

/** Bytes that a process may write in all: to read them costs time of the gateway. */
const MAX_WRITTEN_BYTES = 1_073_741_824;
/** How long a process that was just started is watched, so that one that cannot start is an error */
const SETTLE_MS = 50;
/** A process that outlived its leader may hold the output open */
const CLOSE_MS = 250;

interface Entry {
  readonly info: Omit<ProcessInfo, "state" | "after" | "refused">;
  readonly refused: ProcessStart["refused"];
  readonly group: ProcessGroup;
  readonly ring: OutputRing;
  /** Settles once nothing of it runs */
  readonly ended: Promise<void>;
  state: ProcessInfo["state"];
  after: Aftermath | undefined;
  killed: boolean;
}

/** Id of a process of a gateway in a cluster: a run that goes on elsewhere must not meet another process by the number of its own. */
const CLUSTER_ID = /^p\d+-[0-9a-z]{6}$/;

/** Processes that were started to run on, and the last that ended. */
export class ProcessTable {
  readonly #clock: Clock;
  readonly #redact: RedactPart | undefined;
  readonly #entries = new Map<string, Entry>();
  readonly #suffix: string;
  #count = 0;

  /**
   * @param redact masks secrets in their output
   * @param gateway id of the gateway in a cluster, of which each id of a process has a part. Default: the gateway is alone
   */
  constructor(clock: Clock, redact?: RedactPart, gateway?: string) {
    this.#clock = clock;
    this.#redact = redact;
    this.#suffix = gateway === undefined ? "" : `-${gateway.slice(-6)}`;
  }

  /** @throws {ToolError} `too_many_processes`, `command_not_started`; {RightUncertain} as `startWithRight` */
  async start(line: CommandLine, options: ProcessStart): Promise<ProcessInfo> {
    this.#makeRoom(options.maxProcesses);
    const entry = this.#open(startWithRight(line), options);
    readOutput(entry);
    this.#entries.set(entry.info.id, entry);
    // When the program cannot be started, `exited` rejects, and `start` with it
    const settled = entry.group.exited.then(() => entry.ended);
    await withTimeout(settled, { ms: SETTLE_MS, clock: this.#clock });
    return toInfo(entry);
  }

  list(): readonly ProcessInfo[] {
    return [...this.#entries.values()].map(toInfo);
  }

  /** @throws {ToolError} `process_not_found` */
  get(id: string): ProcessInfo {
    return toInfo(this.#find(id));
  }

  /** Both streams as they came. @throws {ToolError} `process_not_found` */
  output(id: string, { offset, maxBytes }: { readonly offset: number; readonly maxBytes: number }): OutputPart {
    return this.#find(id).ring.read(offset, maxBytes);
  }

  /** Kills the whole group and waits for its end; nothing when it has ended. @throws {ToolError} `process_not_found` */
  async kill(id: string): Promise<ProcessInfo> {
    const entry = this.#find(id);
    await killEntry(entry);
    return toInfo(entry);
  }

  /** Kills those that calls of these tools and runs started, and waits for their end. Default: all of them */
  async killAll(isMeant: (tool: string, runId: string) => boolean = () => true): Promise<void> {
    const meant = [...this.#entries.values()].filter(({ info: { startedBy } }) =>
      isMeant(startedBy.tool, startedBy.runId)
    );
    await Promise.all(meant.map(killEntry));
  }

  #open(
    group: ProcessGroup,
    { words, contained, bounds, network, refused, owner, startedBy, taint, maxOutputBytes, onEnd }: ProcessStart,
  ): Entry {
    const ring = createOutputRing(maxOutputBytes, this.#redact);
    const entry: Entry = {
      info: {
        id: `p${++this.#count}${this.#suffix}`,
        words,
        startedAt: this.#clock.now(),
        contained,
        bounds,
        network,
        owner,
        startedBy,
        taint,
      },
      refused,
      group,
      ring,
      ended: group.exited.then(async (exit) => {
        await withTimeout(group.closed, { ms: CLOSE_MS, clock: this.#clock });
        group.kill();
        group.stdout.destroy();
        group.stderr.destroy();
        ring.end();
        entry.after = await onEnd();
        entry.state = entry.killed ? { kind: "killed" } : exit;
      }).catch(() => void this.#entries.delete(entry.info.id)),
      state: { kind: "running" },
      after: undefined,
      killed: false,
    };
    return entry;
  }

  #find(id: string): Entry {
    const entry = this.#entries.get(id);
    if (entry !== undefined) return entry;
    const ids = [...this.#entries.keys()].join(", ") || "none";
    if (this.#suffix !== "" && CLUSTER_ID.test(id) && !id.endsWith(this.#suffix)) {
      throw new ToolError(
        "process_not_found",
        `Cannot find the process "${id}" here: it belongs to another gateway of the cluster, and ends with that one; the processes of this ` +
          `one are ${ids}`,
      );
    }
    throw new ToolError(
      "process_not_found",
      `Cannot find the process ${JSON.stringify(id.slice(0, 40))}: the processes are ${ids}`,
    );
  }

  /** Forgets the oldest ended processes. @throws {ToolError} `too_many_processes` */
  #makeRoom(maxProcesses: number): void {
    const ended = [...this.#entries].filter(([, entry]) => entry.state.kind !== "running");
    const running = this.#entries.size - ended.length;
    if (running >= maxProcesses) {
      throw new ToolError(
        "too_many_processes",
        `Cannot start a process: ${running} are running, and [security.process] max_processes allows ${maxProcesses}; kill one first`,
      );
    }
    for (const [id] of ended.slice(0, Math.max(0, ended.length - maxProcesses + 1))) this.#entries.delete(id);
  }
}

function toInfo({ info, refused, state, after }: Entry): ProcessInfo {
  return { ...info, state, after, refused: refused() };
}

/** Keeps what a process writes, and kills a process that writes too much. */
function readOutput(entry: Entry): void {
  const { group, ring } = entry;
  let written = 0;
  for (const stream of [group.stdout, group.stderr]) {
    stream.on("data", (chunk: Uint8Array) => {
      ring.write(chunk);
      written += chunk.length;
      if (written <= MAX_WRITTEN_BYTES || entry.killed) return;
      entry.killed = true;
      group.kill();
    });
    // A pipe that breaks has ended; how the process ended says why
    stream.on("error", () => {});
  }
}

async function killEntry(entry: Entry): Promise<void> {
  if (entry.state.kind === "running") {
    entry.killed = true;
    entry.group.kill();
  }
  await entry.ended;
}
