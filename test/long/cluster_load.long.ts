import assert from "node:assert/strict";
import process from "node:process";
import { test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { NO_POSTGRES, startPostgres } from "../support/postgres_server.ts";
import { type KillableGateway, withWorld } from "../support/world.ts";

/** Minutes of full load. Variable `MINUTES` */
const MINUTES = Number(process.env["MINUTES"] ?? 60);
/** Seconds of a lease. Variable `LEASE_SECS`. Default: that of the configuration */
const LEASE_SECS = process.env["LEASE_SECS"] ?? "10";
const CLIENTS = 24;
const TIMEOUT_MS = (MINUTES + 10) * 60_000;

test(
  `no gateway is taken over in ${MINUTES} minutes of full load`,
  { skip: NO_POSTGRES, timeout: TIMEOUT_MS },
  async () => {
    const server = await startPostgres();
    try {
      await withWorld(async (world) => {
        const upstream = await world.upstream({ kind: "text", chunks: ["some ", "words"] });
        const env = {
          POSTERN__STORAGE__DRIVER: "postgres",
          POSTERN__STORAGE__URL_ENV: "RECORDS",
          POSTERN__CLUSTER__LEASE_SECS: LEASE_SECS,
          POSTERN__CLUSTER__WORKSPACE_ID: "shared",
          RECORDS: server.url(await server.createDatabase()),
        };
        const workspace = await world.folder();
        const start = () => world.killableGateway({ baseUrl: upstream.baseUrl, env, workspace });
        const gateways = await Promise.all([start(), start(), start()]);
        const end = systemClock.monotonic() + MINUTES * 60_000;
        let runs = 0;
        const work = async (gateway: KillableGateway) => {
          while (systemClock.monotonic() < end) {
            const reply = await gateway.call("/v1/runs", { body: { message: "go" } });
            const text = await reply.text();
            assert.equal(reply.status, 202, text);
            const events = await gateway.call(`/v1/runs/${JSON.parse(text).id}/events`);
            assert.match(await events.text(), /"type":"done"/);
            runs++;
            upstream.forget();
          }
        };
        await Promise.all(Array.from({ length: CLIENTS }, (_, index) => {
          const gateway = gateways[index % gateways.length] ?? assert.fail();
          return work(gateway);
        }));
        const outputs = await Promise.all(gateways.map((gateway) => gateway.stop()));
        for (const { exitCode, output } of outputs) {
          assert.equal(exitCode, 0);
          assert.doesNotMatch(output, /A gateway is gone|Another gateway has taken over/);
        }
        console.log(`${runs} runs in ${MINUTES} minutes, leases of ${LEASE_SECS} s, no takeover`);
      });
    } finally {
      await server.end();
    }
  },
);
