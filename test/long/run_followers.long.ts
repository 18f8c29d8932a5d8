import assert from "node:assert/strict";
import { once } from "node:events";
import { get, type IncomingMessage } from "node:http";
import { test } from "node:test";
import { startOpenAiUpstream } from "../../fixtures/upstream/openai_upstream.ts";
import { jsonOf } from "../support/json_of.ts";
import { type KillableGateway, withKillableGateway } from "../support/killable_gateway.ts";

const FOLLOWERS = 1000;
const SLOW = 200;
const CHUNKS = 2000;
const CHUNK = "x".repeat(200);
/** The run's events are 0.7 MB: kept for each slow reader they would be 140 MB, for all 700 MB */
const MAX_GROWTH_BYTES = 120 * 1024 * 1024;
const AT_ONCE = 50;

async function residentBytes(gateway: KillableGateway): Promise<number> {
  const text = await (await gateway.call("/metrics")).text();
  return Number(/^postern_process_resident_memory_bytes (\S+)$/m.exec(text)?.[1]);
}

async function open(gateway: KillableGateway, id: string): Promise<IncomingMessage> {
  const headers = { authorization: `Bearer ${gateway.token}` };
  const request = get(`${gateway.url}/v1/runs/${id}/events`, { headers, agent: false });
  const [reply] = await once(request, "response") as [IncomingMessage];
  reply.pause();
  return reply;
}

/** @returns how many deltas came, and whether the end did */
async function readAll(reply: IncomingMessage): Promise<{ readonly deltas: number; readonly done: boolean }> {
  let deltas = 0;
  let rest = "";
  let done = false;
  for await (const part of reply.setEncoding("utf8")) {
    const blocks = (rest + part).split("\n\n");
    rest = blocks.pop() ?? "";
    for (const block of blocks) {
      if (block.includes('"type":"text_delta"')) deltas++;
      if (block.includes('"type":"done"')) done = true;
    }
  }
  return { deltas, done };
}

test("1,000 followers of one run, 200 of them reading nothing before its end: all get all, within bounded memory", async () => {
  const upstream = await startOpenAiUpstream({ kind: "text", chunks: Array.from({ length: CHUNKS }, () => CHUNK) });
  try {
    await withKillableGateway(upstream, async (gateway) => {
      const { id } = await jsonOf(gateway.call("/v1/runs", { body: { message: "Hi" } }));
      const before = await residentBytes(gateway);
      const replies: IncomingMessage[] = [];
      while (replies.length < FOLLOWERS) {
        replies.push(...await Promise.all(Array.from({ length: AT_ONCE }, () => open(gateway, id))));
      }
      const counts = await Promise.all(replies.slice(SLOW).map(readAll));
      const growth = await residentBytes(gateway) - before;
      counts.push(...await Promise.all(replies.slice(0, SLOW).map(readAll)));
      assert.deepEqual(counts.filter(({ deltas, done }) => deltas !== CHUNKS || !done), []);
      console.log(`${FOLLOWERS} followers, ${SLOW} slow: the gateway grew by ${Math.round(growth / 1048576)} MiB`);
      assert.ok(growth < MAX_GROWTH_BYTES, `${growth} bytes`);
    });
  } finally {
    await upstream.close();
  }
});
