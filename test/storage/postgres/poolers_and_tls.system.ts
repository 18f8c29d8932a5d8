import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { createSystemRandom } from "../../../lib/base/random.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { openConfiguredPostgres } from "../../../lib/storage/open_configured_postgres.ts";
import type { Store } from "../../../lib/storage/store.ts";
import { NO_POSTGRES, startPostgres, withDatabase } from "../../support/postgres_server.ts";
import { NO_POOLER, withPooler } from "../../support/pgbouncer.ts";
import { openTestDatabase } from "../../support/postgres_stores.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

const NO_OPENSSL = NO_POSTGRES || (spawnSync("openssl", ["version"]).status === 0 ? false : "no openssl was found");

const STORAGE = {
  url: "",
  url_env: "",
  url_file: "",
  direct_url_env: "",
  schema: "postern",
  pool_size: 10,
  statement_timeout_secs: 30,
  engine_unchecked: false,
};

const open = async (
  storage: Partial<typeof STORAGE>,
  environment: Readonly<Record<string, string>> = {},
): Promise<Store> => {
  const { store } = await openConfiguredPostgres({
    storage: { ...STORAGE, ...storage },
    environment: (name) => environment[name],
    clock: systemClock,
    random: createSystemRandom(),
    log: SILENT,
  });
  return store;
};

test(
  "a store works behind PgBouncer in transaction mode, with two connections for all",
  { skip: NO_POOLER },
  () =>
    withDatabase((url) =>
      withPooler(url, async (port) => {
        const pooled = new URL(url);
        pooled.port = String(port);
        const store = await open({ url: pooled.href, direct_url_env: "DIRECT", pool_size: 20 }, { DIRECT: url });
        const written = await Promise.all(Array.from({ length: 200 }, (_, index) =>
          store.batch([
            { op: "insert", collection: `c${index % 7}`, key: `k${index}`, body: index, text: `text number ${index}` },
            { op: "append", stream: `s${index}`, expectedSeq: 0, records: [index, "\0"] },
          ])));
        assert.deepEqual(new Set(written), new Set([true]));
        const read = await Promise.all(
          Array.from({ length: 60 }, (_, index) => store.get(`c${index % 7}`, `k${index}`)),
        );
        assert.deepEqual(read.map((record) => record?.body), Array.from({ length: 60 }, (_, index) => index));
        assert.deepEqual((await store.search("c3", { query: "number 3", limit: 1 }))[0]?.key, "k3");
        assert.deepEqual(await store.batch([{ op: "putIf", collection: "c0", key: "k0", version: 9, body: 0 }]), false);
        assert.equal((await store.takeOnce("c0", "k0"))?.body, 0);
        // No setting of one transaction is left to the next client of the connection
        const other = await openTestDatabase(pooled.href, { statementTimeoutMs: 4_321 });
        await Promise.all(Array.from({ length: 10 }, () => other.query("SELECT 1")));
        const plain = new URL(pooled);
        const { default: pg } = await import("pg");
        const client = new pg.Client({ connectionString: plain.href });
        await client.connect();
        for (let index = 0; index < 5; index++) {
          const { rows } = await client.query("SELECT current_setting('statement_timeout') AS timeout");
          assert.deepEqual(rows, [{ timeout: "0" }]);
        }
        await client.end();
        const sum = await other.transaction(async (session) => {
          const [row] = await session.query("SELECT current_setting('statement_timeout') AS timeout");
          return row?.["timeout"];
        });
        assert.equal(sum, "4321ms");
        await other.close();
        await store.close();
      })
    ),
);

test(
  "a certificate that nobody vouches for is refused by default, and taken by sslrootcert",
  { skip: NO_OPENSSL },
  () =>
    withTemporaryFolder(async (folder) => {
      const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
      execFileSync("openssl", [
        ...["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"],
        ...["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
      ], { stdio: "ignore" });
      const server = await startPostgres({ tls: { cert: readFileSync(cert, "utf8"), key: readFileSync(key, "utf8") } });
      try {
        const named = server.url().replace("127.0.0.1", "localhost");
        const isEncrypted = async (url: string) => {
          const database = await openTestDatabase(url);
          try {
            return (await database.query("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"))[0]?.["ssl"];
          } finally {
            await database.close();
          }
        };
        const root = `sslrootcert=${encodeURIComponent(cert)}`;
        assert.equal(await isEncrypted(`${named}?sslmode=verify-full&${root}`), true);
        assert.equal(await isEncrypted(`${server.url()}?sslmode=verify-ca&${root}`), true);
        assert.equal(await isEncrypted(`${server.url()}?sslmode=no-verify`), true);
        assert.equal(await isEncrypted(server.url()), false);
        for (
          const [url, words] of [
            [`${named}?sslmode=verify-full`, /certificate/],
            [`${server.url()}?sslmode=verify-full&${root}`, /altnames|certificate|IP/],
          ] as const
        ) {
          await assert.rejects(open({ url }), (error: Error & { code?: string; key?: string }) => {
            assert.deepEqual([error.code, error.key], ["storage_unavailable", "storage.url"]);
            assert.match(error.message, words);
            assert.match(error.message, /sslrootcert=.*sslmode=disable/);
            assert.ok(!error.message.includes(server.password));
            return true;
          });
        }
      } finally {
        await server.end();
      }
    }),
);

test(
  "an address is read from a variable or a file, and a refusal names the key and no password",
  { skip: NO_POSTGRES },
  () =>
    withDatabase((url) =>
      withTemporaryFolder(async (folder) => {
        const file = join(folder, "address");
        writeFileSync(file, `${url}\n`);
        for (
          const [storage, environment] of [[{ url_file: file }, {}], [{ url_env: "RECORDS" }, {
            RECORDS: url,
          }]] as const
        ) {
          const store = await open(storage, environment);
          assert.equal(await store.count("c"), 0);
          await store.close();
        }
        const wrong = new URL(url);
        wrong.password = "of-somebody-else";
        writeFileSync(file, wrong.href);
        for (
          const [storage, key, words] of [
            [{ url_file: file }, "storage.url_file", /password authentication failed/],
            [{ url_file: join(folder, "none") }, "storage.url_file", /cannot be opened/],
            [{ url_env: "NOT_SET" }, "storage.url_env", /"NOT_SET" is not set/],
            [{ url, direct_url_env: "NOT_SET" }, "storage.direct_url_env", /"NOT_SET" is not set/],
            [{ url: url.replace(/\/test_\w+$/, "/no_such_database") }, "storage.url", /does not exist/],
          ] as const
        ) {
          await assert.rejects(open(storage), (error: Error & { code?: string; key?: string }) => {
            assert.deepEqual([error.code, error.key], ["storage_unavailable", key]);
            assert.match(error.message, words);
            assert.doesNotMatch(error.message, /of-somebody-else/);
            assert.ok(!error.message.includes(new URL(url).password));
            return true;
          });
        }
      })
    ),
);
