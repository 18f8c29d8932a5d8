import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { createGateway, createMemoryDatabase, type Gateway } from "../../handlers/mod.ts";
import { systemClock } from "../../lib/base/clock.ts";

// Fan-out of one run to 1,000 followers at 3 gateways: the delay from the model's piece to each follower, and what it costs.

const FOLLOWERS = 1_000;
const PIECES = 200;
const PAUSE_MS = 20;
const TOKEN = "a-token-of-the-benchmark";
const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };

const folder = mkdtempSync(join(tmpdir(), "postern-bench-"));
const gateways = new Map<string, Gateway>();
const database = await createMemoryDatabase();
let links = 0;

/** Opens a gateway whose model says the time, again and again. */
async function open(name: string, isLinked: boolean): Promise<Gateway> {
  const gateway = await createGateway({
    dataDir: join(folder, `${name}-${isLinked}`),
    workspace: folder,
    database,
    environment: { POSTERN_TOKEN: TOKEN, CLUSTER_TOKEN: "a-token-of-the-cluster-of-the-benchmark" },
    config: {
      agent: { tools: [] },
      gateway: { allowed_hosts: [`${name}.test`], rate_limit_max: 0 },
      cluster: isLinked ? { advertise_url: `https://${name}.test`, token_env: "CLUSTER_TOKEN" } : {},
    },
    providers: {
      clock: {
        models: ["ticks"],
        async *stream() {
          for (let piece = 0; piece < PIECES; piece++) {
            await systemClock.sleep(PAUSE_MS);
            yield { type: "text_delta", delta: `@${systemClock.monotonic()} ` };
          }
          yield { type: "finish", finish_reason: "stop", usage: { prompt_tokens: 1, completion_tokens: PIECES } };
        },
      },
    },
    cluster: {
      fetch(request) {
        links++;
        const other = gateways.get(new URL(request.url).hostname.replace(".test", ""));
        return other?.fetch(request) ?? Promise.reject(new TypeError("No gateway has this address"));
      },
    },
  });
  gateways.set(name, gateway);
  return gateway;
}

/** Reads the stream of a run to its end. @returns the delay of each piece, in milliseconds */
async function follow(gateway: Gateway, id: string): Promise<readonly number[]> {
  const { body } = await gateway.request(`/v1/runs/${id}/events`, { headers });
  const delays: number[] = [];
  const decoder = new TextDecoder();
  for await (const bytes of body ?? []) {
    const now = systemClock.monotonic();
    for (const [, at] of decoder.decode(bytes, { stream: true }).matchAll(/@([\d.]+)/g)) delays.push(now - Number(at));
  }
  return delays;
}

function quantile(sorted: readonly number[], share: number): string {
  return (sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0).toFixed(1);
}

for (const isLinked of [true, false]) {
  const members = [await open("a", isLinked), await open("b", isLinked), await open("c", isLinked)];
  const [owner] = members;
  links = 0;
  const body = JSON.stringify({ message: "Go", model: "clock/ticks" });
  const reply = await owner?.request("/v1/runs", { method: "POST", headers, body });
  const { id } = await reply?.json() as { id: string };
  const before = process.cpuUsage();
  const following = Array.from({ length: FOLLOWERS }, (_, at) => follow(members[at % 3] as Gateway, id));
  const delays = await Promise.all(following);
  const { user, system } = process.cpuUsage(before);
  const at = (gateway: number) => delays.filter((_, index) => index % 3 === gateway).flat().sort((x, y) => x - y);
  const ofOwner = at(0);
  const ofOthers = [...at(1), ...at(2)].sort((x, y) => x - y);
  const cpu = (user + system) / FOLLOWERS / PIECES;
  console.log(
    `${isLinked ? "with links   " : "without links"}: owner p50 ${quantile(ofOwner, 0.5)} p99 ${
      quantile(ofOwner, 0.99)
    } ms, ` +
      `others p50 ${quantile(ofOthers, 0.5)} p99 ${quantile(ofOthers, 0.99)} ms, ${links} links, ` +
      `${cpu.toFixed(1)} us CPU a piece and follower, ${delays.flat().length} of ${FOLLOWERS * PIECES} pieces`,
  );
  for (const gateway of members) await gateway.close();
  gateways.clear();
}
rmSync(folder, { recursive: true, force: true });
