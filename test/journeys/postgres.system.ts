import assert from "node:assert/strict";
import { after, before, describe, test } from "node:test";
import { countingCommand } from "../support/killable_gateway.ts";
import { NO_POSTGRES, type PostgresServer, startPostgres } from "../support/postgres_server.ts";
import { jsonOf, until, withWorld } from "../support/world.ts";

describe("a gateway over PostgreSQL", { skip: NO_POSTGRES }, () => {
  let server: PostgresServer;
  before(async () => void (server = await startPostgres()));
  after(() => server.end());

  const withGateway = (use: Parameters<typeof withWorld>[0]) => withWorld(use);
  const storage = async () => ({
    POSTERN__STORAGE__DRIVER: "postgres",
    POSTERN__STORAGE__URL_ENV: "RECORDS",
    POSTERN__CLUSTER__LEASE_SECS: "1",
    RECORDS: server.url(await server.createDatabase()),
  });

  test("keeps what it accepted over a kill -9, and has an effect once", () =>
    withGateway(async (world) => {
      const count = { kind: "tool_call", name: "shell", arguments: [JSON.stringify({ command: countingCommand() })] };
      const upstream = await world.upstream(count as never, { kind: "stall", chunks: ["half an "] });
      const gateway = await world.killableGateway({ baseUrl: upstream.baseUrl, env: await storage() });
      const request = {
        headers: { "idempotency-key": "once" },
        body: { messages: [{ role: "user", content: "Count once" }] },
      };
      const cutOff = gateway.call("/v1/chat/completions", request).then(() => "answered", () => "cut off");
      await until(() => upstream.requests.filter(({ path }) => path === "/v1/chat/completions").length === 2);
      await gateway.kill();
      assert.equal(await cutOff, "cut off");
      upstream.script({ kind: "text", chunks: ["the ", "answer"] });
      await gateway.restart();
      const reply = await gateway.call("/v1/chat/completions", request);
      assert.equal(reply.status, 200);
      assert.match(await reply.text(), /the answer/);
      assert.equal(gateway.counted(), 1);
      const { output } = await gateway.stop();
      assert.ok(!output.includes(server.password), "the password is in the log");
    }));

  test("is degraded and refuses by 503 while the server is down, and goes on when it is back", () =>
    withGateway(async (world) => {
      const upstream = await world.upstream();
      const gateway = await world.killableGateway({ baseUrl: upstream.baseUrl, env: await storage() });
      const health = async () => (await jsonOf(await gateway.call("/health"))) as { readonly status: string };
      const store = () => gateway.call("/v1/runs", { body: { message: "Hi" } });
      assert.equal((await health()).status, "ok");
      await server.stop();
      try {
        await until(async () => (await health()).status === "degraded");
        const refused = await store();
        assert.equal(refused.status, 503, await refused.clone().text());
        assert.equal(refused.headers.get("retry-after"), "5");
        const { error } = (await jsonOf(refused)) as {
          readonly error: { readonly code: string; readonly message: string };
        };
        assert.equal(error.code, "storage_unavailable");
        assert.ok(!error.message.includes(server.password));
      } finally {
        await server.start();
      }
      await until(async () => (await health()).status === "ok");
      await until(async () => (await store()).status < 300);
      const { output } = await gateway.stop();
      assert.match(output, /The database is down/);
      assert.match(output, /The database answers again/);
      assert.ok(!output.includes(server.password), "the password is in the log");
    }));
});
