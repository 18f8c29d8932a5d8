import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { describe, test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { createLogger, SILENT } from "../../lib/base/telemetry/log.ts";
import { type ConfiguredPostgresOptions, openConfiguredPostgres } from "../../lib/storage/open_configured_postgres.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { freePort } from "../support/free_port.ts";
import { NO_POSTGRES, withDatabase } from "../support/postgres_server.ts";
import { until } from "../support/until.ts";

const open = (
  url: string,
  storage: Readonly<Record<string, unknown>> = {},
  parts: Partial<Pick<ConfiguredPostgresOptions, "clock" | "log">> = {},
) =>
  openConfiguredPostgres({
    storage: {
      ...{ url, url_env: "", url_file: "", direct_url_env: "", schema: "postern", pool_size: 10 },
      ...{ statement_timeout_secs: 30, engine_unchecked: false },
      ...storage,
    },
    environment: () => undefined,
    clock: systemClock,
    random: createSystemRandom(),
    log: SILENT,
    ...parts,
  });

describe("keys of [storage] for PostgreSQL", { skip: NO_POSTGRES }, () => {
  test("schema, pool_size and statement_timeout_secs are those of the connections", () =>
    withDatabase(async (url) => {
      const { store, database } = await open(url, { schema: "my records", pool_size: 2, statement_timeout_secs: 7 });
      try {
        assert.equal(await store.insertOnce("c", "k", 1), true);
        const schemas = await database.query(
          "SELECT nspname AS name FROM pg_namespace WHERE nspname IN ('postern', 'my records')",
        );
        assert.deepEqual(schemas, [{ name: "my records" }]);
        assert.deepEqual(await database.query("SHOW statement_timeout"), [{ statement_timeout: "7s" }]);
        await Promise.all(Array.from({ length: 20 }, () => store.get("c", "k")));
        const { inUse, idle } = database.pool();
        assert.equal(inUse + idle, 2);
      } finally {
        await store.close();
      }
    }));

  test("engine_unchecked takes an engine that calls itself something else", () =>
    withDatabase(async (url, server) => {
      const name = new URL(url).pathname.slice(1);
      const role = `other_${randomBytes(6).toString("hex")}`;
      await server.run(
        `CREATE ROLE ${role} LOGIN SUPERUSER PASSWORD 'of-another';
         CREATE SCHEMA other;
         CREATE FUNCTION other.version() RETURNS text LANGUAGE sql AS $$ SELECT 'CockroachDB CCL v24.1' $$;
         ALTER ROLE ${role} SET search_path = other, pg_catalog`,
        name,
      );
      const address = new URL(url);
      [address.username, address.password] = [role, "of-another"];
      try {
        await assert.rejects(open(address.href), { code: "database_unusable" });
        const { store } = await open(address.href, { engine_unchecked: true });
        assert.equal(await store.insertOnce("c", "k", 1), true);
        await store.close();
      } finally {
        await server.run(`REASSIGN OWNED BY ${role} TO CURRENT_USER; DROP OWNED BY ${role}; DROP ROLE ${role}`, name);
      }
    }));
});

test("a start whose server does not answer says so once, and waits for 30 seconds", async () => {
  const clock = createFakeClock();
  const said: string[] = [];
  const log = createLogger({
    now: clock.now,
    level: "info",
    redact: (text) => text,
    sink: ({ message }) => void said.push(message),
  });
  const url = `postgres://me@127.0.0.1:${await freePort()}/x`;
  const opening = open(url, {}, { clock, log }).then(() => "opened", (error: { code?: string }) => error.code);
  let outcome: string | undefined;
  void opening.then((found) => outcome = found);
  // Each try meets the real network
  await until(async () => {
    await clock.advance(500);
    return outcome !== undefined;
  });
  assert.equal(outcome, "storage_unavailable");
  assert.deepEqual(said, ["The database does not answer yet: the start waits 30 s for it"]);
});
