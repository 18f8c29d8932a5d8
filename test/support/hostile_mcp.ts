import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { systemClock } from "../../lib/base/clock.ts";
import { createFakeClock, type FakeClock } from "./fake_clock.ts";
import { isGone } from "./is_gone.ts";
import { jsonOf } from "./json_of.ts";
import { mcpConfig } from "./mcp_bench.ts";
import { type RunningGateway, withRunningGateway } from "./running_gateway.ts";
import { PROJECT_ROOT } from "./source_files.ts";
import { until } from "./until.ts";

/** Argument of `fixtures/mcp/hostile_server.mjs`, and the settings of its server. */
export interface Attack {
  readonly at: string;
  readonly act: string;
  readonly era?: "legacy" | "modern";
  readonly tools?: readonly unknown[];
  /** True when calls get no answer */
  readonly silent?: boolean;
  /** Keys of `[mcp.servers.<name>]` */
  readonly settings?: Readonly<Record<string, unknown>>;
}

/** Gateway among hostile servers. Its clock moves when it is told to. */
export interface AttackedGateway extends RunningGateway {
  readonly clock: FakeClock;
  /** Moves the clock on, while the servers and the gateway do what they do. */
  pass(ms: number): Promise<void>;
  /** Waits until the server has attacked, or has noted another word. The gateway answers meanwhile. */
  noted(server: string, word?: string): Promise<void>;
  /** Returns the reasons of the failures that the log has of a server. */
  failures(server: string): readonly string[];
  /** True when the log says that the server is ready. */
  isReady(server: string): boolean;
  /** Waits for something about the servers. The gateway answers meanwhile. */
  wait(holds: () => boolean, what: string): Promise<void>;
  /** Names of the tools that the gateway offers of a server. */
  tools(server: string): Promise<readonly string[]>;
  /** Calls the tool `echo` of a server. */
  echo(server: string, signal?: AbortSignal): Promise<{ readonly output: string; readonly is_error: boolean }>;
}

/** Servers by `url` in the place of programs. */
export interface RemoteAttackers {
  url(server: string): string;
  /** Returns the words that a server has noted. */
  notes(server: string): readonly string[];
}

const STEP_MS = 500;
/** Milliseconds in which the gateway answers, on a machine that has much else to do. */
const HEALTH_MS = 15_000;

/**
 * Runs `use` with a gateway and hostile servers by name, and ends them. Looks that the gateway answers `/health` all the time, and that
 * no process and no timer is left.
 * @throws {Error} when something is left
 */
export async function withHostileServers(
  attacks: Readonly<Record<string, Pick<Attack, "at" | "act" | "settings">>>,
  use: (gateway: AttackedGateway) => Promise<void>,
  more: {
    readonly config?: Readonly<Record<string, unknown>>;
    readonly environment?: Readonly<Record<string, string>>;
    /** Default: each server is a program */
    readonly remote?: RemoteAttackers;
  } = {},
): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "postern-hostile-"));
  const noteOf = (server: string) => join(folder, server);
  const notesOf = more.remote?.notes ?? ((server: string) => readNotes(noteOf(server)));
  const clock = createFakeClock();
  const names = Object.keys(attacks);
  const servers = Object.fromEntries(names.map((name) => {
    const { settings = {}, ...attack } = attacks[name] ?? {};
    if (more.remote !== undefined) return [name, { url: more.remote.url(name), ...settings }];
    const argument = JSON.stringify({ log: noteOf(name), ...attack });
    return [name, {
      command: "node",
      args: [join(PROJECT_ROOT, "fixtures/mcp/hostile_server.mjs"), argument],
      ...settings,
    }];
  }));
  const config = {
    ...mcpConfig(servers),
    autonomy: { auto_approve: names.map((name) => `mcp__${name}__echo`) },
    gateway: { rate_limit_max: 0 },
    ...more.config,
  };
  const environment = { PATH: process.env["PATH"] ?? "", ...more.environment };
  const closing: { over: boolean; passing: Promise<void> } = { over: false, passing: Promise.resolve() };
  const failures: unknown[] = [];
  try {
    await withRunningGateway({ clock, config, environment }, async (gateway) => {
      try {
        await use(attacked(gateway, { clock, notesOf }));
      } finally {
        // The end of the gateway waits for programs by the clock
        closing.passing = pass(clock, () => closing.over);
      }
    });
  } catch (error) {
    failures.push(error);
  }
  closing.over = true;
  await closing.passing;
  const left = await processesLeft(names.flatMap(notesOf));
  rmSync(folder, { recursive: true, force: true });
  if (left.length > 0) failures.push(new Error(`Processes are left: ${left.join(", ")}`));
  // An aborted request of HTTP ends some turns of the event loop later
  const leftTimers = () => `${clock.pending()} timers are left`;
  await until(() => clock.pending() === 0, leftTimers).catch((error: unknown) => failures.push(error));
  if (failures.length > 1) throw new AggregateError(failures, failures.map(String).join("; "));
  if (failures.length === 1) throw failures[0];
}

function attacked(
  gateway: RunningGateway,
  { clock, notesOf }: { readonly clock: FakeClock; readonly notesOf: (server: string) => readonly string[] },
): AttackedGateway {
  const requireHealth = async () => {
    const started = systemClock.monotonic();
    const { status } = await gateway.call("/health");
    const ms = systemClock.monotonic() - started;
    if (status !== 200 || ms > HEALTH_MS) throw new Error(`/health answered ${status} after ${Math.round(ms)} ms`);
  };
  const wait = async (holds: () => boolean, what: string) => {
    await until(async () => {
      if (holds()) return true;
      await requireHealth();
      return holds();
    }, what);
    await requireHealth();
  };
  const recordsOf = (server: string, message: string) =>
    gateway.log.filter(({ message: own, fields }) => own === message && fields["server"] === server);
  return {
    ...gateway,
    ...{ clock, wait },
    async pass(ms) {
      const end = clock.monotonic() + ms;
      await pass(clock, () => clock.monotonic() >= end, Math.min(ms, STEP_MS));
      await requireHealth();
    },
    noted: (server, word = "acted") => wait(() => notesOf(server).includes(word), `"${server}" notes "${word}"`),
    failures: (server) => recordsOf(server, "An MCP server has failed").map(({ fields }) => String(fields["reason"])),
    isReady: (server) => recordsOf(server, "An MCP server is ready").length > 0,
    async tools(server) {
      const { data } = await (await gateway.call("/v1/tools")).json() as { readonly data: readonly { name: string }[] };
      return data.map(({ name }) => name).filter((name) => name.startsWith(`mcp__${server}__`));
    },
    async echo(server, signal) {
      const body = { input: JSON.stringify({ text: "hello" }) };
      const init = { method: "POST", body, ...(signal === undefined ? {} : { signal }) };
      return await jsonOf(gateway.call(`/v1/tools/mcp__${server}__echo/call`, init));
    },
  };
}

/** Moves the clock on in steps, with turns of the event loop and of other processes between them. */
async function pass(clock: FakeClock, isOver: () => boolean, stepMs = STEP_MS): Promise<void> {
  while (!isOver()) {
    await clock.advance(stepMs);
    await systemClock.sleep(2);
  }
}

function readNotes(path: string): readonly string[] {
  try {
    return readFileSync(path, "utf8").split("\n");
  } catch {
    return [];
  }
}

/** Returns the processes that servers noted, themselves and those they left, which still run. */
async function processesLeft(notes: readonly string[]): Promise<readonly string[]> {
  const ids = notes.flatMap((note) => /^(?:pid|left) (\d+)$/.exec(note)?.[1] ?? []);
  const found = await Promise.all(ids.map(async (id) => (await isGone(id) ? [] : [id])));
  return found.flat();
}
