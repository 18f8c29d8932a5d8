import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { createSystemRandom } from "../../../lib/base/random.ts";
import pg from "pg";
import { DatabaseAwayError, sqlStateOf } from "../../../lib/storage/postgres/database_errors.ts";
import {
  openPostgresDatabase,
  type PostgresDatabase,
  type PostgresDatabaseOptions,
} from "../../../lib/storage/postgres/postgres_database.ts";
import type { PostgresSession } from "../../../lib/storage/postgres/postgres_session.ts";
import { NO_EMBEDDED_POSTGRES, NO_POSTGRES, startPostgres, withDatabase } from "../../support/postgres_server.ts";
import { until } from "../../support/until.ts";

const open = (url: string, options: Partial<PostgresDatabaseOptions> = {}) =>
  openPostgresDatabase({ url, clock: systemClock, random: createSystemRandom(), ...options });

const withOpened = (
  use: (database: PostgresDatabase, url: string) => Promise<void>,
  options?: Partial<PostgresDatabaseOptions>,
) =>
  withDatabase(async (url) => {
    const database = await open(url, options);
    try {
      await use(database, url);
    } finally {
      await database.close();
    }
  });

describe("a PostgreSQL database", { skip: NO_POSTGRES }, () => {
  test("values come back as they were given, whatever quotes they have", () =>
    withOpened(async (database) => {
      const texts = ["", "'", "\\", "\\'; DROP TABLE x; --", "$1", "E'\\x", "\u{1F600}", "a\nb\t$$"];
      for (const end of ["", "$", "$p0", "$p0$", "$p", "'", "\\"]) texts.push(`${"$p0$ $p1$ '\\ ".repeat(200)}${end}`);
      for (const text of texts) {
        const [row] = await database.query("SELECT $1::text AS text, $2::text[] AS texts", [text, texts]);
        assert.deepEqual(row, { text, texts });
      }
      const bytes = Uint8Array.of(0, 1, 39, 92, 255);
      const [row] = await database.query(
        "SELECT $1::int8 AS big, $2::bytea AS bytes, $3::text AS nothing, $4::boolean AS yes, $5::text[] AS none",
        [2 ** 40, bytes, null, true, []],
      );
      assert.deepEqual({ ...row, bytes: Uint8Array.from(row?.["bytes"] as Uint8Array) }, {
        big: 2 ** 40,
        bytes,
        nothing: null,
        yes: true,
        none: [],
      });
      await assert.rejects(database.query("SELECT $1::text", ["a\0b"]), TypeError);
      await assert.rejects(database.query("SELECT $1::text", ["\ud800"]), TypeError);
    }));

  test("several statements of one query are one transaction", () =>
    withOpened(async (database) => {
      await assert.rejects(
        database.query("CREATE TABLE t (n int); INSERT INTO t VALUES (1); SELECT 1 / 0"),
        (error) => sqlStateOf(error) === "22012",
      );
      assert.deepEqual(await database.query("SELECT to_regclass('t') AS t"), [{ t: null }]);
    }));

  test("a transaction is all or nothing, and is done again after a deadlock and a conflict", () =>
    withOpened(async (database) => {
      await database.query("CREATE TABLE t (k int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 0), (2, 0)");
      await assert.rejects(
        database.transaction(async (session) => {
          await session.query("UPDATE t SET n = 7");
          throw new RangeError("given up");
        }),
        RangeError,
      );
      let meet = 0;
      const cross = (first: number, second: number) =>
        database.transaction(async (session) => {
          await session.query("UPDATE t SET n = n + 1 WHERE k = $1", [first]);
          meet++;
          await until(() => meet >= 2);
          await session.query("UPDATE t SET n = n + 1 WHERE k = $1", [second]);
        });
      await Promise.all([cross(1, 2), cross(2, 1)]);
      assert.deepEqual(await database.query("SELECT n FROM t"), [{ n: 2 }, { n: 2 }]);
      assert.ok(meet >= 3, "one of the two was done again");
      const conflictTwice = "IF nextval('n') < 3 THEN RAISE EXCEPTION 'conflict' USING ERRCODE = '40001'; END IF;";
      await database.query("CREATE SEQUENCE n");
      await database.query(`DO $$ BEGIN ${conflictTwice} END $$`);
      assert.deepEqual(await database.query("SELECT last_value AS tries FROM n"), [{ tries: 3 }]);
    }));

  test("a statement that takes too long is given up by the server", () =>
    withOpened(async (database) => {
      await assert.rejects(database.query("SELECT pg_sleep(60)"), (error) => sqlStateOf(error) === "57014");
      await assert.rejects(
        database.transaction((session) => session.query("SELECT pg_sleep(60)")),
        (error) => sqlStateOf(error) === "57014",
      );
      const session = await database.dedicated();
      await assert.rejects(session.query("SELECT pg_sleep(60)"), (error) => sqlStateOf(error) === "57014");
      await session.close();
      assert.deepEqual(await database.query("SHOW statement_timeout"), [{ statement_timeout: "100ms" }]);
    }, { statementTimeoutMs: 100 }));

  test("the pool holds at most its size", () =>
    withOpened(async (database) => {
      const counts = await Promise.all(Array.from({ length: 30 }, () =>
        database.query(
          "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = 'postern' AND datname = current_database()",
        )));
      const most = Math.max(...counts.map(([row]) => Number(row?.["n"])));
      assert.ok(most <= 3, `${most} connections`);
    }, { poolSize: 3 }));

  test("a connection gets one statement after the other, however many are made at once", () =>
    withOpened(async (database) => {
      const { prototype } = pg.Client;
      const { query } = prototype;
      const sent = new WeakMap<object, number>();
      let most = 0;
      // The types of pg have many overloads of it
      const counting = async function (this: pg.Client, ...given: unknown[]): Promise<unknown> {
        sent.set(this, (sent.get(this) ?? 0) + 1);
        most = Math.max(most, sent.get(this) ?? 0);
        try {
          return await Reflect.apply(query, this, given);
        } finally {
          sent.set(this, (sent.get(this) ?? 0) - 1);
        }
      };
      Object.assign(prototype, { query: counting });
      try {
        const ask = ({ query: run }: PostgresSession) =>
          Promise.allSettled([1, 2, 0, 4].map((n) => run("SELECT 4 / $1::int AS n", [n])));
        const session = await database.dedicated();
        const bound: PostgresSession = { query: (text, values) => session.query(text, values) };
        const answers = await ask(bound);
        assert.deepEqual(answers.map(({ status }) => status), ["fulfilled", "fulfilled", "rejected", "fulfilled"]);
        await session.close();
        await database.transaction(async (one) => {
          const rows = await Promise.all([1, 2, 4].map((n) => one.query("SELECT 4 / $1::int AS n", [n])));
          assert.deepEqual(rows.map(([row]) => row?.["n"]), [4, 2, 1]);
        });
        // A transaction that fails ends after the statements that nobody waits for any more
        await assert.rejects(database.transaction(async (one) => {
          await Promise.all([0, 1, 2].map((n) => one.query("SELECT 4 / $1::int AS n", [n])));
        }));
        assert.equal(most, 1);
      } finally {
        Object.assign(prototype, { query });
      }
    }));

  test("a dedicated session hears notifications and tells when it is lost", () =>
    withOpened(async (database) => {
      const session = await database.dedicated();
      const heard: string[] = [];
      await session.listen('a "channel"', (payload) => heard.push(payload));
      await database.query(`NOTIFY "a ""channel""", 'one'`);
      await until(() => heard.length === 1);
      let lost: Error | undefined;
      session.onLost((error) => lost = error);
      const [row] = await session.query("SELECT pg_backend_pid() AS pid");
      await database.query("SELECT pg_terminate_backend($1)", [Number(row?.["pid"])]);
      await until(() => lost !== undefined);
      assert.ok(lost instanceof DatabaseAwayError);
      await assert.rejects(session.query("SELECT 1"), DatabaseAwayError);
      await session.close();
      await assert.rejects(session.query("SELECT 1"), /closed/);
      const closed = await database.dedicated();
      closed.onLost(() => assert.fail("it was closed"));
      await closed.close();
    }));

  test("a server that is down is told from a connection lost on the way, without the password", async () => {
    const server = await startPostgres();
    const database = await open(server.url());
    try {
      const away = (wasSent: boolean) => (error: unknown) => {
        assert.ok(error instanceof DatabaseAwayError);
        assert.equal(error.wasSent, wasSent);
        assert.doesNotMatch(error.message, new RegExp(server.password));
        assert.match(error.message, new RegExp(`127.0.0.1:${server.port}/postgres`));
        return true;
      };
      const sleeping = assert.rejects(database.query("SELECT pg_sleep(60)"), away(true));
      await until(async () => (await server.run("SELECT 1 FROM pg_stat_activity WHERE query ~ 'pg_sleep'")).length > 1);
      await server.crash();
      await sleeping;
      await assert.rejects(database.query("SELECT 1"), away(false));
      await assert.rejects(database.dedicated(), away(false));
      await server.start();
      assert.deepEqual(await database.query("SELECT 1 AS n"), [{ n: 1 }]);
      const wrong = await open(server.url().replace(server.password, "wrong-password"));
      await assert.rejects(wrong.query("SELECT 1"), (error) => !String(error).includes("wrong-password"));
      await wrong.close();
    } finally {
      await database.close();
      await server.end();
    }
  });

  test("nothing is read from a server that only reads, such as a standby that is not promoted yet", async () => {
    const server = await startPostgres();
    await server.stop();
    const standby = await startPostgres({ standbyOf: server });
    const onlyReads = (error: unknown) => {
      assert.ok(error instanceof DatabaseAwayError);
      assert.equal(error.wasSent, false);
      assert.match(error.message, /only reads, such as a standby that is not promoted yet/);
      return true;
    };
    const database = await open(standby.url());
    try {
      await assert.rejects(database.query("SELECT 1 AS n"), onlyReads);
      await assert.rejects(database.transaction((session) => session.query("SELECT 1 AS n")), onlyReads);
      await assert.rejects(database.dedicated(), onlyReads);
      await standby.run("SELECT pg_promote()");
      assert.deepEqual(await database.query("SELECT 1 AS n"), [{ n: 1 }]);
      const session = await database.dedicated();
      assert.deepEqual(await session.query("SELECT 2 AS n"), [{ n: 2 }]);
      await session.close();
      await standby.run("ALTER DATABASE postgres SET default_transaction_read_only = on");
      await standby.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'postern'");
      await until(() =>
        database.query("SELECT 1").then(
          () => false,
          (error) => error instanceof DatabaseAwayError && !error.wasSent && onlyReads(error),
        )
      );
    } finally {
      await database.close();
      await standby.end();
      await server.end();
    }
  });

  test("a Unix socket is an address too", () =>
    withDatabase(async (_, server) => {
      const database = await open(server.socketUrl());
      assert.deepEqual(await database.query("SELECT inet_client_addr() AS address"), [{ address: null }]);
      await database.close();
    }));
});

test("the newer server of the package answers too", { skip: NO_EMBEDDED_POSTGRES }, async () => {
  const server = await startPostgres({ binaries: "embedded" });
  const database = await open(server.url());
  try {
    assert.deepEqual(await database.query("SELECT current_setting('server_version_num')::int / 10000 AS version"), [{
      version: 18,
    }]);
  } finally {
    await database.close();
    await server.end();
  }
});
