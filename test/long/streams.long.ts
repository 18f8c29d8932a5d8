import assert from "node:assert/strict";
import { test } from "node:test";
import { withRunningGateway } from "../support/running_gateway.ts";
import { readSse } from "../support/sse.ts";

const STREAMS = 1000;
const CHUNKS = 20;

test("1,000 paced streams at once, each with every chunk and a clean end", async () => {
  const config = {
    gateway: { rate_limit_max: 0 },
    runs: { max_concurrent: STREAMS, max_queued: STREAMS },
    logging: { level: "error" },
  };
  const text = Array.from({ length: CHUNKS }, (_, i) => `${i} `);
  await withRunningGateway({ config, script: () => ({ text, chunkDelayMs: 250 }) }, async (gateway) => {
    const ask = async () => {
      const reply = await gateway.call("/v1/chat/completions", {
        body: { stream: true, messages: [{ role: "user", content: "Hi" }] },
        headers: { "x-postern-tools": "none" },
      });
      assert.equal(reply.status, 200);
      const { data } = readSse(await reply.text());
      assert.equal(data.at(-1), "[DONE]");
      const chunks = data.slice(0, -1).map((event) => JSON.parse(event).choices[0]);
      assert.equal(chunks.map(({ delta }) => delta.content ?? "").join(""), text.join(""));
      assert.equal(chunks.at(-1).finish_reason, "stop");
    };
    await Promise.all(Array.from({ length: STREAMS }, ask));
    assert.deepEqual(gateway.log, []);
    assert.match(gateway.services.metrics.render(), /postern_runs_active 0\n/);
  });
});
