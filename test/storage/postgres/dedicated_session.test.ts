import assert from "node:assert/strict";
import { test } from "node:test";
import pg from "pg";
import { openDedicatedSession } from "../../../lib/storage/postgres/dedicated_session.ts";
import { startCuttingProxy } from "../../support/cutting_proxy.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { NO_POSTGRES, withDatabase } from "../../support/postgres_server.ts";
import { until } from "../../support/until.ts";

test(
  "close() ends, and leaves no socket, with a server that answers no more",
  { skip: NO_POSTGRES },
  () =>
    withDatabase(async (url, server) => {
      const proxy = await startCuttingProxy(server.port);
      const clock = createFakeClock();
      const client = new pg.Client({ connectionString: url.replace(`:${server.port}/`, `:${proxy.port}/`) });
      try {
        const session = await openDedicatedSession(client, { name: "test", timeoutMs: 30_000, hasTls: false, clock });
        proxy.freeze(true);
        let isClosed = false;
        void session.close().then(() => (isClosed = true));
        await until(async () => {
          await clock.advance(1_000);
          return isClosed;
        });
        assert.ok(client.connection.stream.destroyed);
        assert.equal(clock.pending(), 0);
      } finally {
        await proxy.close();
      }
    }),
);
