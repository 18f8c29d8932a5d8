import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { describe, test } from "node:test";
import { CancelError } from "../../lib/base/cancel.ts";
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
  parts: Partial<Pick<ConfiguredPostgresOptions, "clock" | "log" | "signal">> = {},
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

/** Calls `use` with the port of a server that treats each connection in one way. */
async function withServer(onConnect: (socket: Socket) => void, use: (port: number) => Promise<void>): Promise<void> {
  const server = createServer((socket) => {
    socket.on("error", () => {});
    onConnect(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    await use((server.address() as AddressInfo).port); // it listens
  } finally {
    server.close();
  }
}

for (
  const greeting of ["HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "SSH-2.0-OpenSSH_9.9\r\n", "-ERR\r\n"]
) {
  for (const sslmode of ["disable", "no-verify"]) {
    // A server of SSH begins as one does that takes TLS
    if (greeting.startsWith("S") && sslmode !== "disable") continue;
    test(`something that answers ${JSON.stringify(greeting.slice(0, 8))} with sslmode=${sslmode} is told at once`, () =>
      withServer((socket) => void socket.once("data", () => socket.end(greeting)), async (port) => {
        await assert.rejects(
          open(`postgres://me@127.0.0.1:${port}/x?sslmode=${sslmode}`),
          (error: Error & { code?: string; key?: string }) => {
            assert.deepEqual([error.code, error.key], ["storage_unavailable", "storage.url"]);
            assert.match(error.message, /: something else than PostgreSQL answers there; see that storage\.url names/);
            return true;
          },
        );
      }));
  }
}

test("a server that closes its connections is waited for, and may be another program", () =>
  withServer((socket) => void socket.once("data", () => socket.destroy()), async (port) => {
    const clock = createFakeClock();
    let error: Error | undefined;
    void open(`postgres://me@127.0.0.1:${port}/x`, {}, { clock }).catch((reason: Error) => error = reason);
    await until(async () => {
      await clock.advance(500);
      return error !== undefined;
    });
    assert.ok(clock.monotonic() >= 30_000);
    assert.match(error?.message ?? "", /closed before the first answer, .* not PostgreSQL; try again/);
  }));

for (
  const [what, onConnect] of [
    ["closes its connections", (socket: Socket) => void socket.once("data", () => socket.destroy())],
    ["says nothing", () => {}],
  ] as const
) {
  test(`the wait for a server that ${what} ends with the signal`, () => {
    const sockets: Socket[] = [];
    return withServer((socket) => {
      sockets.push(socket);
      onConnect(socket);
    }, async (port) => {
      const signal = new AbortController();
      const opening = open(`postgres://me@127.0.0.1:${port}/x`, {}, { signal: signal.signal });
      await until(() => sockets.length > 0);
      const began = performance.now();
      signal.abort(new CancelError("shutdown"));
      await assert.rejects(opening, { name: "CancelError", reason: "shutdown" });
      assert.ok(performance.now() - began < 15_000);
      for (const socket of sockets) socket.destroy();
    });
  });
}
