import assert from "node:assert/strict";
import { toDelta, toSse, USAGE_CHUNK } from "../../fixtures/upstream/openai_upstream.ts";
import { systemClock } from "../../lib/base/clock.ts";
import type { PostgresServer } from "./postgres_server.ts";
import { jsonOf, type KillableGateway, until, withWorld } from "./world.ts";

const RUNS = 6;
/** Shorter ones run out on a host with much else to do */
export const LEASE_SECS = 2;

/**
 * Lets six runs work at two gateways in processes of their own, stops their database for a time, with leases of two seconds, and asserts that
 * each run goes on at its gateway as if nothing had been.
 */
export function withstandOutage(server: PostgresServer, awaySecs: number): Promise<void> {
  return withWorld(async (world) => {
    const isBack = Promise.withResolvers<void>();
    const upstream = await world.server((_seen, response) => {
      response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(toSse(toDelta({ content: "before " })));
      void isBack.promise.then(() =>
        response.end(
          [toDelta({ content: "after" }), toDelta({}, "stop"), USAGE_CHUNK].map(toSse).join("") +
            "data: [DONE]\n\n",
        )
      );
    });
    const database = await server.createDatabase();
    const env = {
      POSTERN__STORAGE__DRIVER: "postgres",
      POSTERN__STORAGE__URL_ENV: "RECORDS",
      POSTERN__CLUSTER__LEASE_SECS: String(LEASE_SECS),
      RECORDS: server.url(database),
    };
    const baseUrl = `${upstream.origin}/v1`;
    const [a, b] = await Promise.all([
      world.killableGateway({ baseUrl, env }),
      world.killableGateway({ baseUrl, env }),
    ]);
    const ids: string[] = [];
    for (const [index, gateway] of [a, b, a, b, a, b].entries()) {
      ids.push((await jsonOf(gateway.call("/v1/runs", { body: { message: `go ${index}` } }))).id);
    }
    // A gateway also asks the server what its models can, once it has started
    const turns = () => upstream.requests.filter(({ method }) => method === "POST").length;
    await until(() => turns() === RUNS, () => `${turns()} turns have begun`);
    const claims = () =>
      server.run("SELECT key, body FROM postern.records WHERE collection = 'run_claims' ORDER BY key", database);
    const owners = await claims();
    assert.equal(owners.length, RUNS);
    await server.stop();
    await systemClock.sleep(awaySecs * 1_000);
    await server.start();
    // Time in which a takeover would show
    await systemClock.sleep(2_500 * LEASE_SECS);
    assert.deepEqual(await claims(), owners);
    isBack.resolve();
    const runOf = async (gateway: KillableGateway, id: string) => await jsonOf(gateway.call(`/v1/runs/${id}`));
    for (const id of ids) {
      await until(async () => (await runOf(b, id)).status === "completed");
      assert.equal((await runOf(a, id)).result, "before after");
    }
    assert.equal(turns(), RUNS, "no turn was begun twice");
  });
}
