import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { inspect } from "node:util";
import { ConfigError, HttpError } from "../../lib/base/errors.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { STORAGE_KEYS } from "../../lib/storage/record_keys.ts";
import type { Store } from "../../lib/storage/store.ts";
import {
  checkAll,
  COOKIE,
  CREDENTIAL,
  fill,
  gatewayOf,
  K1,
  K2,
  K3,
  keysOf,
  rekey,
  rekeyAll,
  sealedWith,
} from "../support/sealed_records.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const refused = (reason: RegExp) => (error: unknown) => {
  assert.ok(error instanceof ConfigError, inspect(error));
  assert.equal(error.code, "storage_key");
  assert.match(error.message, reason);
  for (const key of [K1, K2, K3, "c2hvcnQ="]) assert.ok(!inspect(error).includes(key), "no key in an error");
  return true;
};

test("a key of the environment that is missing, too short, too long or no base64 is refused, without the value", () => {
  const store = createMemoryStore();
  const wrong = [
    "",
    "c2hvcnQ=",
    Buffer.alloc(33, 1).toString("base64"),
    `${K1.slice(0, -1)}!`,
    "x".repeat(44),
    K1.slice(0, -1),
  ];
  for (const key of wrong) assert.throws(() => keysOf(store, { key }), refused(/openssl rand -base64 32/));
  assert.throws(() => keysOf(store, { key: K1, old: "c2hvcnQ=" }), refused(/storage\.old_key_env/));
  assert.throws(() => keysOf(store, { old: K1 }), refused(/goes with storage\.key_env/));
  assert.throws(
    () => keysOf(store, { key: "" }),
    refused(/storage\.key_env: the environment variable "KEY" is empty;/),
  );
});

test("an old key that is missing is told without a way to make a new one, and one that is the new key is refused", () => {
  const store = createMemoryStore();
  assert.throws(
    () => keysOf(store, { key: K1, old: "" }),
    refused(/^Cannot use storage\.old_key_env: the environment variable "OLD" is empty$/),
  );
  assert.throws(
    () => keysOf(store, { key: K1, old: K1 }),
    refused(
      /^Cannot use storage\.old_key_env: it has the same key as storage\.key_env.* name the new key by storage\.key_env/,
    ),
  );
});

test("the first key counts for all gateways of a database, which keeps its digest alone; another key is refused at the start", async () => {
  const store = createMemoryStore();
  await Promise.all([keysOf(store, { key: K1 }).check(), keysOf(store, { key: K1 }).check()]);
  await keysOf(store, { key: K1, isShared: true }).check();
  await assert.rejects(keysOf(store, { key: K2 }).check(), refused(/another key/));
  await assert.rejects(keysOf(store, { key: K2, old: K3 }).check(), refused(/neither/));
  await keysOf(store, { key: K2, old: K1 }).check();
  const stored = JSON.stringify(await store.scan(STORAGE_KEYS.name, { limit: 10 }));
  for (const key of [K1, K2]) {
    assert.ok(!stored.includes(key) && !stored.includes(Buffer.from(key, "base64").toString("hex")));
  }
});

test("gateways that share a database and have no key encrypt nothing, and say what to do", async () => {
  const store = createMemoryStore();
  const keys = keysOf(store, { isShared: true });
  await keys.check();
  const { jars, mailbox } = gatewayOf(store, keys);
  await assert.rejects(jars.set("conv_1", [COOKIE]), /storage\.key_env.*the same at all gateways/);
  await assert.rejects(mailbox.send({ from: "a", to: "b", payload: "x", sender: "cli" }), /storage\.key_env/);
  await assert.rejects(rekey(store, keys, [{ id: "gw_other", keys: [] }]), (error) => {
    assert.ok(error instanceof HttpError && error.code === "conflict");
    assert.match(error.message, /Cannot use storage\.key_env: there is no key to encrypt with; set it/);
    return true;
  });
  await keysOf(store, { key: K1, isShared: true }).check();
  // A new key would be the next refusal: that of the others is wanted
  const wanted = refused(
    /other gateways have; set it to the name of a variable with that key, the same at all gateways$/,
  );
  await assert.rejects(keysOf(store, { isShared: true }).check(), wanted);
  await assert.rejects(keys.cipher("agents_ipc.key"), wanted);
  await assert.rejects(keys.beginRekey(), wanted);
});

test("what one gateway encrypts another one with the same key opens, each kind with a key of its own", async () => {
  const store = createMemoryStore();
  const a = gatewayOf(store, keysOf(store, { key: K1, isShared: true }));
  await fill(a);
  await checkAll(gatewayOf(store, keysOf(store, { key: K1, isShared: true })));
  assert.equal((await sealedWith(store)).size, 3);
  assert.ok(!JSON.stringify(await store.scan("mcp_credentials", { limit: 9 })).includes("secret"));
});

test("a change of the key: gateways with both write the old one until it begins, and the new one from then on", async () => {
  const store = createMemoryStore();
  const before = gatewayOf(store, keysOf(store, { key: K1, isShared: true }));
  await before.keys.check();
  await fill(before);
  const a = gatewayOf(store, keysOf(store, { key: K2, old: K1, isShared: true }));
  const b = gatewayOf(store, keysOf(store, { key: K2, old: K1, isShared: true }));
  await checkAll(a);
  await b.jars.set("conv_0", [COOKIE]);
  await checkAll(before, 3);
  // A gateway that lacks the new key holds the change up
  const places = [
    { id: "gw_a", keys: a.keys.ids },
    { id: "gw_b", keys: b.keys.ids },
    { id: "gw_old", keys: before.keys.ids },
    { id: "gw_without", keys: [] },
  ];
  const inConflict = (reason: RegExp) => (error: unknown) => {
    assert.ok(error instanceof HttpError && error.code === "conflict");
    assert.match(error.message, reason);
    return true;
  };
  const lacks = /gateways that do not have the new key yet: gw_old, gw_without;/;
  await assert.rejects(rekey(store, a.keys, places), inConflict(lacks));
  // A gateway that has the old key alone would do nothing, and say that all is done
  const isBehind = /newer key than this one: gw_a, gw_b; run it at one of them, or restart this gateway with that key/;
  await assert.rejects(rekey(store, before.keys, places), inConflict(isBehind));
  // Old and new mixed up at one of two
  const mixedUp = keysOf(store, { key: K1, old: K2, isShared: true });
  await assert.rejects(rekey(store, mixedUp, [{ id: "gw_a", keys: a.keys.ids }]), inConflict(/newer key than this/));
  assert.equal((await rekey(store, before.keys)).old_key, null);
  const progress = await rekeyAll(store, a.keys);
  assert.deepEqual([progress.left, progress.unreadable, progress.old_key], [0, [], "old_key_env"]);
  await b.jars.set("conv_1", [COOKIE]);
  // Nobody needs the old key, and whoever has nothing else writes nothing
  await checkAll(gatewayOf(store, keysOf(store, { key: K2, isShared: true })));
  await assert.rejects(before.jars.set("conv_0", [COOKIE]), /another key/);
  await assert.rejects(keysOf(store, { key: K1 }).check(), refused(/another key/));
  assert.equal((await rekey(store, b.keys)).rewritten, 0);
});

test("a change of the key that dies at any write goes on with the next call, and loses nothing", async () => {
  for (let dies = 0; dies < 9; dies++) {
    const store = createMemoryStore();
    await fill(gatewayOf(store, keysOf(store, { key: K1 })));
    await keysOf(store, { key: K1 }).check();
    let writes = 0;
    const dying: Store = {
      ...store,
      batch: (given) => writes++ >= dies ? Promise.reject(new Error("dead")) : store.batch(given),
    };
    await rekey(dying, keysOf(dying, { key: K2, old: K1 })).catch(() => {});
    await checkAll(gatewayOf(store, keysOf(store, { key: K2, old: K1 })));
    await rekeyAll(store, keysOf(store, { key: K2, old: K1 }));
    await checkAll(gatewayOf(store, keysOf(store, { key: K2 })));
  }
});

test("another gateway's write in the middle is neither lost nor left with the old key", async () => {
  const store = createMemoryStore();
  const b = gatewayOf(store, keysOf(store, { key: K2, old: K1, isShared: true }));
  await fill(gatewayOf(store, keysOf(store, { key: K1, isShared: true })));
  // B has sealed with the old key when A begins, and writes after A has looked at everything
  const a = keysOf(store, { key: K2, old: K1, isShared: true });
  const slow = gatewayOf(
    {
      ...store,
      batch: async (writes) => {
        if (JSON.stringify(writes).includes("conv_9")) await rekeyAll(store, a);
        return await store.batch(writes);
      },
    },
    keysOf(store, { key: K2, old: K1, isShared: true }),
  );
  await slow.jars.set("conv_9", [COOKIE]);
  const alone = gatewayOf(store, keysOf(store, { key: K2, isShared: true }));
  assert.equal((await alone.jars.get("conv_9"))[0]?.value, COOKIE.value);
  assert.equal((await sealedWith(store)).size, 3);
  // A record that another gateway changes between the look and the write is left for the next call
  await b.mailbox.send({ from: "a", to: "b", payload: "three", sender: "cli" });
  assert.deepEqual((await alone.mailbox.list({})).map(({ payload }) => payload), ["one", "two", "three"]);
});

test("a renewal of a sign-in that meets a change of the key keeps its new tokens", async () => {
  const store = createMemoryStore();
  await keysOf(store, { key: K1 }).check();
  const { credentials } = gatewayOf(store, keysOf(store, { key: K2, old: K1 }));
  await credentials.put(CREDENTIAL);
  const found = await credentials.get("acme", CREDENTIAL.url);
  assert.ok(typeof found === "object");
  await rekeyAll(store, keysOf(store, { key: K2, old: K1 }));
  assert.equal(await credentials.renew({ ...found, access_token: "renewed-3Jd8pLw5Yc2h" }), true);
  const now = await credentials.get("acme", CREDENTIAL.url);
  assert.ok(typeof now === "object" && now.access_token === "renewed-3Jd8pLw5Yc2h");
  assert.equal(
    await credentials.renew({ ...found, access_token: "late-7Bn4sKq6Vf1x" }),
    false,
    "a sign-in that was renewed meanwhile",
  );
});

test("records that no key opens are named, stay as they are, and keep the old files", async () => {
  await withTemporaryFolder(async (dataDir) => {
    const store = createMemoryStore();
    const files = gatewayOf(store, keysOf(store, { dataDir }));
    await fill(files);
    await gatewayOf(store, keysOf(store, { key: K3 })).jars.set("conv_foreign", [COOKIE]);
    await store.batch([{ op: "put", collection: "browser_cookies", key: "conv_damaged", body: { v: 9 } }]);
    const { complete, unreadable } = await rekeyAll(store, keysOf(store, { dataDir }));
    assert.equal(complete, true);
    assert.deepEqual(unreadable.map(({ key }) => key), ["conv_damaged", "conv_foreign"]);
    assert.ok(existsSync(join(dataDir, "browser_cookies.key.next")));
    await checkAll(gatewayOf(store, keysOf(store, { dataDir })));
  });
});

test("without a key of the environment new files take the place of the old, at whatever write the change dies", async () => {
  for (const dies of [0, 1, 4, 99]) {
    await withTemporaryFolder(async (dataDir) => {
      const store = createMemoryStore();
      await fill(gatewayOf(store, keysOf(store, { dataDir })));
      const before = await sealedWith(store);
      let writes = 0;
      const dying: Store = {
        ...store,
        batch: (given) => writes++ >= dies ? Promise.reject(new Error("dead")) : store.batch(given),
      };
      await rekey(dying, keysOf(dying, { dataDir })).catch(() => {});
      await checkAll(gatewayOf(store, keysOf(store, { dataDir })));
      const running = gatewayOf(store, keysOf(store, { dataDir }));
      await running.jars.get("conv_0");
      if (existsSync(join(dataDir, "browser_cookies.key.next"))) await rekeyAll(store, running.keys);
      await checkAll(running);
      await checkAll(gatewayOf(store, keysOf(store, { dataDir })));
      for (const id of await sealedWith(store)) assert.ok(!before.has(id));
      assert.ok(!existsSync(join(dataDir, "browser_cookies.key.next")));
    });
  }
});

/** Writes of each kind, with what reads the record back. */
const WRITES: Readonly<Record<string, (gateway: ReturnType<typeof gatewayOf>) => Promise<unknown>>> = {
  browser_cookies: ({ jars }) => jars.set("conv_0", [{ ...COOKIE, value: "late" }]),
  browser_logins: ({ logins }) =>
    logins.save("example.com", { hosts: ["example.com"], cookies: [COOKIE], storage: [] }, {
      via: "cli",
      tokenId: null,
    }),
  mailboxes: ({ mailbox }) => mailbox.send({ from: "a", to: "b", payload: "late", sender: "cli" }),
  mcp_credentials: ({ credentials }) => credentials.put({ ...CREDENTIAL, access_token: "late-7Bn4sKq6Vf1x" }),
};
for (const [collection, write] of Object.entries(WRITES)) {
  test(`a write to ${collection} that waits while new key files take the place of the old is made with the new key`, async () => {
    await withTemporaryFolder(async (dataDir) => {
      const store = createMemoryStore();
      const keys = keysOf(store, { dataDir });
      let writes = 0;
      const slow = gatewayOf({
        ...store,
        batch: async (given) => {
          if (writes++ === 0) await rekeyAll(store, keys);
          return await store.batch(given);
        },
      }, keys);
      await fill(gatewayOf(store, keys));
      const before = await sealedWith(store);
      await write(slow);
      assert.ok(writes > 1, "the first try was not refused");
      for (const id of await sealedWith(store)) assert.ok(!before.has(id), "sealed with a key that is gone");
      const { complete, unreadable } = await rekeyAll(store, keysOf(store, { dataDir }));
      assert.deepEqual([complete, unreadable], [true, []]);
    });
  });
}

test("two changes of the key files at once are one", async () => {
  await withTemporaryFolder(async (dataDir) => {
    const store = createMemoryStore();
    const gateway = gatewayOf(store, keysOf(store, { dataDir }));
    await fill(gateway);
    await Promise.all([gateway.keys.beginRekey(), gateway.keys.beginRekey()]);
    await checkAll(gateway);
    await rekeyAll(store, gateway.keys);
    await checkAll(gatewayOf(store, keysOf(store, { dataDir })));
  });
});

test("records of the files of a data directory go over to a key of the environment", async () => {
  await withTemporaryFolder(async (dataDir) => {
    const store = createMemoryStore();
    await fill(gatewayOf(store, keysOf(store, { dataDir })));
    const keys = keysOf(store, { dataDir, key: K1 });
    await checkAll(gatewayOf(store, keys));
    await rekeyAll(store, keys);
    await checkAll(gatewayOf(store, keysOf(store, { key: K1, isShared: true })));
  });
});

test("a call encrypts 200 records again, and says how many are left", async () => {
  const store = createMemoryStore();
  const { jars } = gatewayOf(store, keysOf(store, { key: K1 }));
  for (let index = 0; index < 250; index++) await jars.set(`conv_${index}`, [COOKIE]);
  const keys = keysOf(store, { key: K2, old: K1 });
  const seen = [await rekey(store, keys), await rekey(store, keys)];
  assert.deepEqual(seen.map(({ rewritten, left, complete }) => [rewritten, left, complete]), [[200, 50, false], [
    50,
    0,
    true,
  ]]);
});
