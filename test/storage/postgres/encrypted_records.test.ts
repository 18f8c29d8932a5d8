import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { NO_POSTGRES } from "../../support/postgres_server.ts";
import { openTestDatabase, openTestStore, withSchema } from "../../support/postgres_stores.ts";
import { checkAll, COOKIE, fill, gatewayOf, K1, K2, keysOf, rekeyAll } from "../../support/sealed_records.ts";

describe("encrypted records in PostgreSQL", { skip: NO_POSTGRES }, () => {
  test("gateways with one key read each other's, and a change of the key goes on while another one writes", () =>
    withSchema(async (url, schema) => {
      const stores = [];
      for (let index = 0; index < 2; index++) stores.push(await openTestStore(await openTestDatabase(url), schema));
      const [a, b] = stores;
      assert.ok(a && b);
      try {
        await fill(gatewayOf(a, keysOf(a, { key: K1, isShared: true })));
        await checkAll(gatewayOf(b, keysOf(b, { key: K1, isShared: true })));
        await assert.rejects(keysOf(b, { key: K2, isShared: true }).check(), /another key/);
        const other = gatewayOf(b, keysOf(b, { key: K2, old: K1, isShared: true }));
        const writing = (async () => {
          for (let index = 0; index < 30; index++) await other.jars.set(`conv_${index % 3}`, [COOKIE]);
        })();
        await rekeyAll(a, keysOf(a, { key: K2, old: K1, isShared: true }));
        await writing;
        await rekeyAll(a, keysOf(a, { key: K2, old: K1, isShared: true }));
        await checkAll(gatewayOf(b, keysOf(b, { key: K2, isShared: true })));
      } finally {
        for (const store of stores) await store.close();
      }
    }));
});
