import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { ConfigError } from "../../../lib/base/errors.ts";
import type { Logger } from "../../../lib/base/telemetry/log.ts";
import { migrateSchema, type MigrationSession } from "../../../lib/storage/postgres/migrate_schema.ts";
import { SCHEMA_STEPS } from "../../../lib/storage/postgres/schema.ts";
import { quoteName } from "../../../lib/storage/postgres/statement_text.ts";
import { NO_POSTGRES } from "../../support/postgres_server.ts";
import { openTestDatabase, withSchema } from "../../support/postgres_stores.ts";

const refusal = (code: string, words: RegExp) => (error: unknown) => {
  assert.ok(error instanceof ConfigError, String(error));
  assert.equal(error.code, code);
  assert.match(error.message, words);
  return true;
};

describe("the schema of a store in PostgreSQL", { skip: NO_POSTGRES }, () => {
  test("gateways that start at once make it once", () =>
    withSchema(async (url, schema) => {
      const database = await openTestDatabase(url);
      const said: string[] = [];
      const log = { info: (message: string) => void said.push(message) };
      await Promise.all(Array.from({ length: 6 }, async () => {
        const session = await database.dedicated();
        await migrateSchema(session, { schema, name: "x", log });
        await session.close();
      }));
      assert.deepEqual(await database.query(`SELECT version FROM ${quoteName(schema)}.schema_version`), [
        { version: SCHEMA_STEPS.length },
      ]);
      assert.deepEqual(said, [], "nobody reads of a next version at the first start");
      await database.close();
    }));

  test("goes forward by steps, each whole or not at all, and a newer one is refused", () =>
    withSchema(async (url, schema) => {
      const database = await openTestDatabase(url);
      const told: unknown[] = [];
      const log = { info: (_message: string, fields: unknown) => void told.push(fields) } as Pick<Logger, "info">;
      const migrate = (steps: readonly string[]) => migrateSchema(database, { schema, name: "x", steps, log });
      const version = async () => (await database.query(`SELECT version FROM ${quoteName(schema)}.schema_version`))[0];
      await migrate(["CREATE TABLE {s}.one (n int)"]);
      assert.deepEqual(told, [], "a new schema is brought to no next version");
      const broken = "CREATE TABLE {s}.two (n int); SELECT 1 / 0";
      await assert.rejects(migrate(["", broken]), /division by zero/);
      assert.deepEqual(await version(), { version: 1 });
      await migrate(["", "CREATE TABLE {s}.two (n int); INSERT INTO {s}.two VALUES (1)"]);
      assert.deepEqual(await version(), { version: 2 });
      assert.deepEqual(told.at(-1), { database: "x", from_version: 1, to_version: 2 });
      await assert.rejects(
        migrate([""]),
        refusal("database_too_new", /its version is 2, .* up to 1; .*storage\.schema/),
      );
      assert.deepEqual(await version(), { version: 2 });
      await database.close();
    }));

  test("finds the work of gateways that know earlier steps alone, written before and after it goes forward", () =>
    withSchema(async (url, schema) => {
      const database = await openTestDatabase(url);
      const name = quoteName(schema);
      const claim = (number: number, more: object = {}) =>
        JSON.stringify({ v: 1, gateway: null, fence: 0, conversation_id: null, parent_id: null, number, ...more });
      const write = async (key: string, body: string, collection = "run_claims", op = "put") => {
        const batches = JSON.stringify([[{ op, collection, key, body, fields: [] }]]);
        await database.query(`SELECT ${name}.write_group($1, $2::jsonb, 0)`, [`${key} ${body}`, batches]);
      };
      const found = async () =>
        (await database.query(
          `SELECT key, field1, field2, field3 FROM ${name}.records ORDER BY key COLLATE "C"`,
        )).map(({ key, field1, field2, field3 }) => [key, field1, field2, field3]);
      await migrateSchema(database, { schema, name: "x", steps: SCHEMA_STEPS.slice(0, 1) });
      await write("r1", claim(1));
      await write("r2", claim(1, { gateway: "gw_1", parent_id: "r1", conversation_id: "c:1" }));
      await write("r3", "{ damaged");
      await write("r4", claim(1, { gateway: "gw_2" }));
      await write("s1", '{"v":1}', "open_sops");
      await migrateSchema(database, { schema, name: "x" });
      const before = [
        ["r1", '""', null, null],
        ["r2", '"gw_1"', '"r1"', '"c:1"'],
        ["r3", '""', null, null],
      ];
      assert.deepEqual(await found(), [...before, ["r4", '"gw_2"', null, null], ["s1", '""', null, null]]);
      await write("r4", claim(2, { gateway: "gw_3", conversation_id: 'a "\n' }));
      await write("r5", claim(1, { parent_id: "r4" }));
      await write("r6", claim(1, { gateway: "a\0b" }));
      await write("s1", '{"v":1,"gateway":"gw_4"}', "open_sops");
      await write("s2", "{ damaged", "open_deliveries");
      await write("t1", '{"gateway":"gw_1"}', "tokens");
      assert.deepEqual(await found(), [
        ...before,
        ["r4", '"gw_3"', null, JSON.stringify('a "\n')],
        ["r5", '""', '"r4"', null],
        ["r6", '""', null, null],
        ["s1", '"gw_4"', null, null],
        ["s2", '""', null, null],
        ["t1", null, null, null],
      ]);
      await database.close();
    }));

  test("a user who may not make it is told which right is missing", () =>
    withSchema(async (url, schema) => {
      const owner = await openTestDatabase(url);
      const role = `reader_${schema.replaceAll(/\W/g, "")}`;
      await owner.query(`CREATE ROLE ${role} LOGIN PASSWORD 'of-the-reader'`);
      const other = new URL(url);
      [other.username, other.password] = [role, "of-the-reader"];
      const database = await openTestDatabase(other.href);
      await assert.rejects(
        migrateSchema(database, { schema, name: database.name }),
        refusal("database_unusable", /may not create tables there .*grant CREATE/),
      );
      await database.close();
      await owner.query(`DROP ROLE ${role}`);
      await owner.close();
    }));
});

test("another engine, one without locks and a server that is too old are refused, unless engine_unchecked is set", async () => {
  const engine = (version: string, number: string, locks: number): MigrationSession => {
    const query: MigrationSession["query"] = async (text) => {
      if (text.includes("version()")) return [{ version, number }];
      if (text.includes("pg_locks")) return [{ n: locks }];
      if (text.includes("has_schema")) return [{ has_schema: true, has_version: true }];
      return [{ version: 0 }];
    };
    return { query, transaction: (work) => work({ query }) };
  };
  const open = (session: MigrationSession, engineUnchecked = false) =>
    migrateSchema(session, { schema: "s", name: "x", steps: [], engineUnchecked });
  for (
    const [version, number, locks, words] of [
      ["CockroachDB CCL v24.1", "130000", 1, /not PostgreSQL, but "CockroachDB/],
      ["PostgreSQL 15.2-YB-2.21 on x86_64", "150002", 1, /not PostgreSQL/],
      ["PostgreSQL 8.0.2 on i686, Redshift 1.0", "80002", 1, /not PostgreSQL/],
      ["PostgreSQL 13.9 on x86_64", "130009", 1, /PostgreSQL 14 or later is needed, and it is 13\.9/],
      ["PostgreSQL 16.1 on x86_64", "160001", 0, /ignores advisory locks/],
    ] as const
  ) {
    const session = engine(version, number, locks);
    await assert.rejects(open(session), refusal("database_unusable", words), version);
    await assert.rejects(open(session), /storage\.engine_unchecked = true/, version);
    await open(session, true);
  }
  await open(engine("PostgreSQL 16.1 on x86_64", "160001", 1));
});
