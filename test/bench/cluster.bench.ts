/**
 * Measures gateways in processes of their own over one PostgreSQL: `node test/bench/cluster.bench.ts [part ...]`: durable runs a second
 * with 1, 2 and 4 gateways beside SQLite, round trips of a run, the way from a claim to the first event, completions that write
 * nothing, recovery after a kill, and claims beside long queues. Gateways, server, model and clients share the processors of the machine.
 */
import { Buffer } from "node:buffer";
import { globSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { type FakeServer, startFakeServer } from "../../fixtures/upstream/fake_server.ts";
import { toDelta, toSse, USAGE_CHUNK } from "../../fixtures/upstream/openai_upstream.ts";
import { systemClock } from "../../lib/base/clock.ts";
import { startCuttingProxy } from "../support/cutting_proxy.ts";
import { type KillableGateway, withKillableGateway } from "../support/killable_gateway.ts";
import { type PostgresServer, startPostgres } from "../support/postgres_server.ts";
import { median } from "./median.ts";

const RUNS = 300;
const ROUNDS = Number(process.env["ROUNDS"] ?? 3);
const AT_ONCE = 16;
const PATIENCE_MS = 120_000;

const QUIET = {
  POSTERN__LOGGING__LEVEL: "error",
  POSTERN__RUNS__MAX_QUEUED: "100000",
  POSTERN__RUNS__MAX_CONCURRENT: String(AT_ONCE),
};

/** Starts a model that calls a tool that reads once, and then answers. Users who say "hang" wait for ever. */
function startModel(): Promise<FakeServer> {
  return startFakeServer((seen, response) => {
    const { messages = [] } = seen.json as { messages?: readonly { role: string; content: unknown }[] };
    response.writeHead(200, { "content-type": "text/event-stream" });
    if (messages.some(({ content }) => content === "hang")) {
      return void response.write(toSse(toDelta({ content: "." })));
    }
    const isFirst = messages.at(-1)?.role !== "tool" && messages.some(({ content }) => content === "work");
    const input = { op: "list" };
    const call = {
      index: 0,
      id: "call_0",
      type: "function",
      function: { name: "task_plan", arguments: JSON.stringify(input) },
    };
    const chunks = [
      toDelta(isFirst ? { tool_calls: [call] } : { content: "Done" }),
      toDelta({}, isFirst ? "tool_calls" : "stop"),
      USAGE_CHUNK,
    ];
    response.end(chunks.map(toSse).join("") + "data: [DONE]\n\n");
  });
}

interface Bench {
  readonly server: PostgresServer;
  readonly model: FakeServer;
}

/** Runs `use` with gateways over a fresh database, or with one over SQLite. */
async function withGateways<T>(
  { server, model }: Bench,
  { count, database, env = {}, url }: {
    readonly count: number;
    /** Undefined: SQLite */
    readonly database: string | undefined;
    readonly env?: Readonly<Record<string, string>>;
    /** Default: the server's own */
    readonly url?: string;
  },
  use: (gateways: readonly KillableGateway[]) => Promise<T>,
): Promise<T> {
  const storage = database === undefined ? {} : {
    POSTERN__STORAGE__DRIVER: "postgres",
    POSTERN__STORAGE__URL_ENV: "RECORDS",
    RECORDS: url ?? server.url(database),
  };
  const workspace = mkdtempSync(join(tmpdir(), "postern-bench-"));
  const shared = { POSTERN__CLUSTER__WORKSPACE_ID: "bench" };
  const result: T[] = [];
  const start = async (gateways: readonly KillableGateway[]): Promise<void> => {
    if (gateways.length === count) return void result.push(await use(gateways));
    const options = {
      baseUrl: `${model.origin}/v1`,
      workspace,
      env: { ...QUIET, ...storage, ...(database === undefined ? {} : shared), ...env },
    };
    await withKillableGateway(options, (gateway) => start([...gateways, gateway]));
  };
  try {
    await start([]);
  } finally {
    rmSync(workspace, { recursive: true, force: true });
  }
  return result[0] as T; // the innermost start has pushed it
}

async function post(gateway: KillableGateway, body: unknown): Promise<string> {
  const reply = await gateway.call("/v1/runs", { body });
  const text = await reply.text();
  if (reply.status !== 202) throw new Error(text);
  return (JSON.parse(text) as { id: string }).id;
}

async function waitFor(holds: () => Promise<boolean>): Promise<void> {
  for (const end = performance.now() + PATIENCE_MS; !await holds();) {
    if (performance.now() > end) throw new Error("It never came to pass");
    await systemClock.sleep(10);
  }
}

/** Starts runs at all gateways, and waits for the end of each by its events. @returns runs a second */
async function runsPerSecond(gateways: readonly KillableGateway[], count: number): Promise<number> {
  let left = count;
  const began = performance.now();
  await Promise.all(Array.from({ length: 2 * AT_ONCE }, async (_, client) => {
    const gateway = gateways[client % gateways.length] as KillableGateway; // the index is below the length
    while (left-- > 0) {
      const id = await post(gateway, { message: "work" });
      await (await gateway.call(`/v1/runs/${id}/events`)).text();
    }
  }));
  return count / ((performance.now() - began) / 1_000);
}

const open = (server: PostgresServer, database: string) => async (where = "true"): Promise<number> => {
  const [row] = await server.run(
    `SELECT count(*)::int AS n FROM postern.records WHERE collection = 'run_claims' AND ${where}`,
    database,
  );
  return Number(row?.["n"]);
};

/** Returns the seconds of a processor that a server has used, with all its processes. Linux only: 0 elsewhere. */
function secondsOfServer({ folder }: PostgresServer): number {
  let ticks = 0;
  const statOf = (pid: string) => {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    // State, parent, and so on, after the name in brackets
    return text.slice(text.lastIndexOf(")") + 2).split(" ");
  };
  const pids = globSync("/proc/[0-9]*").map((path) => path.slice("/proc/".length));
  const parent = pids.find((pid) => {
    try {
      const [program, ...rest] = readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
      return program?.endsWith("/postgres") && rest.includes(`${folder}/data`);
    } catch {
      return false;
    }
  });
  for (const pid of pids) {
    try {
      const [, parentPid, ...rest] = statOf(pid);
      if (pid !== parent && parentPid !== parent) continue;
      // Own time, and for the first process that of those which have ended
      for (const index of pid === parent ? [9, 10, 11, 12] : [9, 10]) ticks += Number(rest[index]);
    } catch {
      // The process has ended meanwhile
    }
  }
  return ticks / 100;
}

/** Returns the seconds of a processor that gateways have used. */
async function secondsOf(gateways: readonly KillableGateway[]): Promise<number> {
  let seconds = 0;
  for (const gateway of gateways) {
    const text = await (await gateway.call("/metrics")).text();
    seconds += Number(/^postern_process_cpu_seconds_total (\S+)$/m.exec(text)?.[1] ?? NaN);
  }
  return seconds;
}

const PARTS: Readonly<Record<string, (bench: Bench) => Promise<void>>> = {
  async throughput(bench) {
    const rates = new Map<string, number[]>();
    for (let round = 0; round < ROUNDS; round++) {
      for (const count of [0, 1, 2, 4]) {
        const database = count === 0 ? undefined : await bench.server.createDatabase();
        const rate = await withGateways(bench, { count: Math.max(1, count), database }, async (gateways) => {
          await runsPerSecond(gateways, 100);
          const before = { server: secondsOfServer(bench.server), gateways: await secondsOf(gateways) };
          const rate = await runsPerSecond(gateways, RUNS);
          const each = (seconds: number) => ((seconds * 1_000) / RUNS).toFixed(1);
          console.log(
            `${count} gateways, a run: ${
              each(secondsOfServer(bench.server) - before.server)
            } ms of a processor at the server, ${each(await secondsOf(gateways) - before.gateways)} ms at the gateways`,
          );
          return rate;
        });
        const name = count === 0 ? "SQLite" : `PostgreSQL, gateways: ${count}`;
        rates.set(name, [...rates.get(name) ?? [], rate]);
      }
    }
    const base = median(rates.get("SQLite") ?? []);
    for (const [name, all] of rates) {
      console.log(`${name}: ${median(all).toFixed(0)} durable runs/s, ${(median(all) / base).toFixed(2)} of SQLite`);
    }
  },

  async trips(bench) {
    const database = await bench.server.createDatabase();
    const seen = { statements: 0, writes: 0, notes: 0 };
    const proxy = await startCuttingProxy(bench.server.port, (sent) => {
      if (sent.startsWith("Q")) seen.statements++;
      if (sent.includes("write_group")) seen.writes++;
      if (sent.includes("pg_notify")) seen.notes++;
      return undefined;
    });
    const url = new URL(bench.server.url(database));
    url.port = String(proxy.port);
    try {
      await withGateways(bench, { count: 1, database, url: url.href }, async ([gateway]) => {
        if (gateway === undefined) return;
        const during = async (work: () => Promise<void>) => {
          const before = { ...seen };
          const began = performance.now();
          await work();
          return {
            statements: seen.statements - before.statements,
            writes: seen.writes - before.writes,
            notes: seen.notes - before.notes,
            seconds: (performance.now() - began) / 1_000,
          };
        };
        const idle = await during(() => systemClock.sleep(5_000));
        const perSecond = idle.statements / idle.seconds;
        const tell = (what: string, { statements, writes, notes, seconds }: typeof idle, of: number) => {
          const reads = statements - writes - notes - perSecond * seconds;
          const each = (count: number) => (count / of).toFixed(1);
          console.log(`${what}: ${each(writes)} writes, ${each(reads)} reads, ${each(notes)} notes beside the way`);
        };
        console.log(`gateway at rest: ${perSecond.toFixed(1)} statements a second`);
        const status = async (id: string) =>
          ((await (await gateway.call(`/v1/runs/${id}`)).json()) as { status: string }).status;
        const unseen = await during(async () => {
          for (let i = 0; i < 50; i++) {
            await post(gateway, { message: "work" });
            await systemClock.sleep(60);
          }
        });
        tell("durable run with one tool call, that nobody follows", unseen, 50);
        const followed = await during(async () => {
          for (let i = 0; i < 50; i++) {
            await (await gateway.call(`/v1/runs/${await post(gateway, { message: "work" })}/events`)).text();
          }
        });
        tell("the same, followed over HTTP", followed, 50);
        const id = await post(gateway, { message: "work" });
        await waitFor(async () => await status(id) === "completed");
        const plain = await during(async () => {
          for (let i = 0; i < 200; i++) await complete(gateway);
        });
        tell("completion that writes nothing", plain, 200);
      });
    } finally {
      await proxy.close();
    }
  },

  async first_event(bench) {
    const database = await bench.server.createDatabase();
    await withGateways(bench, { count: 4, database }, async (gateways) => {
      const times: number[] = [];
      for (let i = 0; i < 170; i++) {
        const [one, other] = [gateways[i % 4], gateways[(i + 1) % 4]];
        if (one === undefined || other === undefined) return;
        // A run of a conversation waits for a claim, by whichever gateway is first
        const began = performance.now();
        const id = await post(one, { message: "Hello", conversation_id: `c${i}` });
        const reader = (await other.call(`/v1/runs/${id}/events`)).body?.getReader();
        for (let text = ""; !text.includes("data: ");) {
          const { value, done } = await reader?.read() ?? { value: undefined, done: true };
          if (done) break;
          text += Buffer.from(value ?? []).toString();
        }
        if (i >= 20) times.push(performance.now() - began);
        await reader?.cancel();
      }
      times.sort((a, b) => a - b);
      const at = (share: number) => (times[Math.floor(share * times.length)] ?? 0).toFixed(0);
      console.log(
        `4 gateways, from the request to the first event at another gateway: p50 ${at(0.5)} ms, p99 ${at(0.99)} ms`,
      );
    });
  },

  async completions(bench) {
    const times = new Map<string, number[]>();
    for (let round = 0; round < ROUNDS; round++) {
      for (const name of ["SQLite", "a cluster"]) {
        const database = name === "SQLite" ? undefined : await bench.server.createDatabase();
        await withGateways(bench, { count: 1, database }, async ([gateway]) => {
          if (gateway === undefined) return;
          const all: number[] = [];
          for (let i = 0; i < 4_000; i++) {
            const began = performance.now();
            await complete(gateway);
            if (i >= 3_000) all.push(performance.now() - began);
          }
          times.set(name, [...times.get(name) ?? [], median(all)]);
        });
      }
    }
    for (const [name, all] of times) {
      console.log(`completion that writes nothing over ${name}: p50 ${median(all).toFixed(2)} ms`);
    }
  },

  async recovery(bench) {
    const database = await bench.server.createDatabase();
    const count = open(bench.server, database);
    const env = { POSTERN__RUNS__MAX_CONCURRENT: "1000", POSTERN__CLUSTER__LEASE_SECS: "1" };
    await withGateways(bench, { count: 2, database, env }, async ([a, b]) => {
      if (a === undefined || b === undefined) return;
      for (let i = 0; i < 20; i++) {
        await Promise.all(Array.from({ length: 50 }, () => post(a, { message: "hang" })));
      }
      const [row] = await bench.server.run(
        "SELECT field1 AS owner FROM postern.records WHERE collection = 'run_claims' GROUP BY 1 ORDER BY count(*) DESC LIMIT 1",
        database,
      );
      const lost = `field1 = '${String(row?.["owner"])}'`;
      const [all, dying] = [await count(), await count(lost)];
      const began = performance.now();
      await a.kill();
      await waitFor(async () => await count(`${lost} OR field1 = '""'`) < dying);
      const first = performance.now() - began;
      await waitFor(async () => await count(`${lost} OR field1 = '""'`) === 0);
      console.log(
        `recovery with a lease of 1 s, ${all} open runs, ${dying} of them at the gateway that is killed: the first is claimed after ${
          (first / 1_000).toFixed(1)
        } s, the last after ${((performance.now() - began) / 1_000).toFixed(1)} s`,
      );
    });
  },

  async queues(bench) {
    for (const waiting of [0, 1_000, 10_000]) {
      const database = await bench.server.createDatabase();
      const env = { POSTERN__RUNS__MAX_CONCURRENT: "1" };
      await withGateways(bench, { count: 3, database, env }, async (gateways) => {
        const [gateway] = gateways;
        if (gateway === undefined) return;
        await Promise.all(gateways.map((one) => post(one, { message: "hang" })));
        // Claims that wait, as acceptance writes them
        await bench.server.run(
          `INSERT INTO postern.records (collection, key, id, version, body, searchable, field1, created_at, updated_at)
           SELECT 'run_claims', 'run_waits' || n, nextval('postern.record_ids'), 1,
             '{"v":1,"gateway":null,"fence":0,"conversation_id":null,"parent_id":null}', false, '""', 0, 0
           FROM generate_series(1, ${waiting}) n`,
          database,
        );
        const cpu = () => secondsOf([gateway]);
        const read = async () => {
          const [row] = await bench.server.run(
            "SELECT idx_tup_fetch::int8 AS n FROM pg_stat_user_tables WHERE relname = 'records'",
            database,
          );
          return Number(row?.["n"]);
        };
        const before = { cpu: await cpu(), read: await read() };
        const times: number[] = [];
        for (let i = 0; i < 100; i++) {
          const began = performance.now();
          await complete(gateway);
          times.push(performance.now() - began);
          await systemClock.sleep(100);
        }
        const seconds = 10;
        console.log(
          `3 gateways, ${waiting} runs waiting: ${
            (((await read()) - before.read) / seconds).toFixed(0)
          } rows read a second, ${
            (((await cpu() - before.cpu) / seconds) * 100).toFixed(1)
          } % of a processor at a gateway`,
        );
      });
    }
  },
};

async function complete(gateway: KillableGateway): Promise<void> {
  const reply = await gateway.call("/v1/chat/completions", {
    headers: { "x-postern-tools": "none" },
    body: { messages: [{ role: "user", content: "Hello" }] },
  });
  await reply.text();
  if (reply.status !== 200) throw new Error(`Status ${reply.status}`);
}

const server = await startPostgres({ durable: true });
const model = await startModel();
try {
  const names = process.argv.slice(2);
  for (const name of names.length === 0 ? Object.keys(PARTS) : names) await PARTS[name]?.({ server, model });
} finally {
  await model.close();
  await server.end();
}
