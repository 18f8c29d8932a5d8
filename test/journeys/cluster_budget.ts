import assert from "node:assert/strict";
import { type FakeServer, startFakeServer } from "../../fixtures/upstream/fake_server.ts";
import { toChunk, toDelta, toSse } from "../../fixtures/upstream/openai_upstream.ts";
import { systemClock } from "../../lib/base/clock.ts";
import {
  type StruckCluster,
  type StruckClusterOptions,
  type StruckGateway,
  withStruckCluster,
} from "../support/struck_cluster.ts";

/** The budget of a day that is spent through failures. */
export interface SpendOptions extends StruckClusterOptions {
  /** Number of failures */
  readonly strikes: number;
}

/** Tokens that were spent of a budget. */
export interface Spent {
  readonly limit: number;
  /** Tokens of all calls that the model began to answer. */
  readonly used: number;
  /** Tokens that the record of the day counts as used or leased. */
  readonly recorded: number;
  readonly calls: number;
}

/** A gateway leases a twentieth of it, which is ten calls */
const LIMIT = 24_000;
const OUTPUT = 100;
const INPUT = 20;
/** Calls at work of one gateway, at most. */
const CLIENTS = 3;
const CALL_MS = 60;

/**
 * Spends the budget of a day at three gateways of which some fail, until each refuses. Asserts that the model never gave more than the
 * budget, and that what it gave is in the record, with what gateways had leased that were killed.
 */
export async function spendThroughFailures({ strikes, ...options }: SpendOptions): Promise<Spent> {
  const model = await startMeter();
  const env = { POSTERN__AGENT__TOOLS: "[]", POSTERN__BUDGET__TOKENS_PER_DAY: String(LIMIT) };
  let recorded = 0;
  try {
    await withStruckCluster(options, { baseUrl: `${model.server.origin}/v1`, env }, async (cluster) => {
      const spending = Promise.all(
        cluster.members.flatMap((member) =>
          Array.from({ length: CLIENTS }, () => spend(member, () => model.count().used > LIMIT))
        ),
      );
      spending.catch(() => {});
      for (let strike = 0; strike < strikes; strike++) {
        await systemClock.sleep(cluster.any([200, 400, 700]) ?? 0);
        await cluster.strike();
      }
      await cluster.calm();
      await spending;
      recorded = await readRecord(cluster);
    });
  } finally {
    await model.server.close();
  }
  const { used, calls } = model.count();
  const spent = { limit: LIMIT, used, recorded, calls };
  assert.ok(used <= recorded && recorded <= LIMIT, `more was used than the budget has: ${JSON.stringify(spent)}`);
  return spent;
}

/** Asks a gateway again and again until it says that the budget is spent, or more is spent already. */
async function spend({ gateway }: StruckGateway, isTooMuch: () => boolean): Promise<void> {
  while (!isTooMuch()) {
    try {
      const reply = await gateway.call("/v1/chat/completions", {
        body: { messages: [{ role: "user", content: "go" }], max_tokens: OUTPUT },
      });
      const text = await reply.text();
      if (reply.status === 429) return assert.match(text, /budget/);
      assert.ok(reply.status === 200 || reply.status >= 500, `${reply.status} ${text}`);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
    }
    await systemClock.sleep(20);
  }
}

async function readRecord(cluster: StruckCluster): Promise<number> {
  const rows = await cluster.run("SELECT body FROM postern.records WHERE collection = 'budget_days'");
  return rows.map(({ body }) => (JSON.parse(String(body)) as { readonly tokens: number }).tokens)
    .reduce((sum, tokens) => sum + tokens, 0);
}

/** Starts a model that counts what it gives, from the moment at which it is asked. */
async function startMeter(): Promise<{
  readonly server: FakeServer;
  readonly count: () => { readonly used: number; readonly calls: number };
}> {
  let used = 0;
  let calls = 0;
  const server = await startFakeServer((seen, response) => {
    const { max_tokens: output = 0 } = (seen.json ?? {}) as { readonly max_tokens?: number };
    const usage = { prompt_tokens: INPUT, completion_tokens: output, total_tokens: INPUT + output };
    used += usage.total_tokens;
    calls++;
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(toSse(toDelta({ content: "words" })));
    const rest = [toDelta({}, "stop"), toChunk([], { usage })].map(toSse).join("");
    void systemClock.sleep(CALL_MS).then(() => response.end(`${rest}data: [DONE]\n\n`));
  });
  return { server, count: () => ({ used, calls }) };
}
