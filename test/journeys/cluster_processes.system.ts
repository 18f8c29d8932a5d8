import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import type { AuditReport } from "../../lib/guard/audit/verify_audit.ts";
import { startLinkFront } from "../support/link_front.ts";
import { checkFollowed, followElsewhere, linkEnvironment, startBehind } from "../support/linked_processes.ts";
import { NO_POSTGRES, type PostgresServer, startPostgres } from "../support/postgres_server.ts";
import { jsonOf, type KillableGateway, until, withWorld } from "../support/world.ts";

interface AuditList {
  readonly data: readonly { readonly chain: string; readonly seq: number }[];
  readonly has_more: boolean;
  readonly last_id: string;
}

/** Returns the number of gateways that have an open chain. */
function openGateways({ chains = [] }: AuditReport): number {
  return new Set(chains.flatMap(({ chain, state }) => state === "open" ? [chain.split(".")[0]] : [])).size;
}

describe("two gateways over one PostgreSQL, each in a process of its own", { skip: NO_POSTGRES }, () => {
  let server: PostgresServer;
  before(async () => void (server = await startPostgres()));
  after(() => server.end());

  test("share runs and show them live: one that dies leaves its run and its readers to the other", () =>
    withWorld(async (world) => {
      const upstream = await world.upstream({ kind: "stall", chunks: ["half an "] });
      const { baseUrl } = upstream;
      const env = linkEnvironment(server.url(await server.createDatabase()));
      const [a, b] = await Promise.all([1, 2].map(async () => {
        const front = await startLinkFront();
        world.onEnd(() => front.close());
        return await startBehind(world, front, { baseUrl, env });
      }));
      assert.ok(a && b);
      const run = async (gateway: KillableGateway, id: string) =>
        (await jsonOf(await gateway.call(`/v1/runs/${id}`))) as Readonly<Record<string, unknown>>;
      const followed = await followElsewhere({ owner: a, other: b, word: "half an " });
      const { id } = followed;
      assert.equal((await run(b, id))["status"], "running");
      upstream.script({ kind: "text", chunks: ["the ", "answer"] });
      await a.kill();
      const events = await checkFollowed(followed, [b], { isWhole: false });
      assert.equal(events.filter(({ type }) => type === "turn_restart").length, 1);
      assert.equal((await run(b, id))["result"], "the answer");
      // The killed gateway comes back under another id, and answers for a run that the other one ended
      await a.restart();
      assert.equal((await run(a, id))["result"], "the answer");
      const report = async (gateway: KillableGateway) =>
        (await jsonOf(await gateway.call("/v1/audit/verify"))) as AuditReport;
      // The start ends the chain that the killed gateway left
      await until(async () => (await report(a)).chains?.some(({ state }) => state === "left_off") === true);
      for (const gateway of [a, b]) {
        const { ok, problems } = await report(gateway);
        assert.deepEqual([ok, problems], [true, []]);
        // A gateway that was late with its lease goes on in another chain
        await until(async () => openGateways(await report(gateway)) === 2);
      }
      const pages: string[] = [];
      for (let after = "", more = true; more;) {
        const list = (await jsonOf(await b.call(`/v1/audit?limit=2${after}`))) as AuditList;
        pages.push(...list.data.map(({ chain, seq }) => `${chain} ${seq}`));
        [after, more] = [`&after=${list.last_id}`, list.has_more];
      }
      assert.equal(new Set(pages).size, pages.length, "no record is shown twice");
      assert.ok(pages.length >= (await report(a)).records - 1);
      const { exitCode, output } = await b.stop();
      assert.equal(exitCode, 0, output);
    }));
});
