import assert from "node:assert/strict";
import { inspect } from "node:util";
import type { KeptCookie } from "../../lib/base/records/cookie_jar.ts";
import {
  createMcpCredentials,
  type McpCredential,
  SEALED_CREDENTIALS,
} from "../../lib/extensions/mcp/oauth/credentials.ts";
import { createBrowserLogins, SEALED_LOGINS } from "../../lib/memory/browser_logins.ts";
import { createCookieJars, SEALED_COOKIES } from "../../lib/memory/cookie_jars.ts";
import { Mailbox, SEALED_MAILBOXES } from "../../lib/memory/mailbox.ts";
import { createRecordKeys, type RecordKeys } from "../../lib/storage/record_keys.ts";
import { type KeyedGateway, type RekeyProgress, rekeyRecords } from "../../lib/storage/rekey_records.ts";
import type { Store } from "../../lib/storage/store.ts";
import { createFakeClock } from "./fake_clock.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { createSeededRandom } from "./seeded_random.ts";

/** Keys of 32 bytes, in base64. */
export const K1 = Buffer.alloc(32, 1).toString("base64");
/** Another key. */
export const K2 = Buffer.alloc(32, 2).toString("base64");
/** A third key. */
export const K3 = Buffer.alloc(32, 3).toString("base64");
/** Collections with encrypted records. */
const COLLECTIONS = [SEALED_MAILBOXES, SEALED_COOKIES, SEALED_LOGINS, SEALED_CREDENTIALS];

/** Keys that a gateway is given. */
export interface KeysGiven {
  readonly key?: string | undefined;
  readonly old?: string | undefined;
  readonly dataDir?: string;
  readonly isShared?: boolean;
}

/** Creates the keys of one gateway. */
export function keysOf(store: Store, { key, old, dataDir, isShared = false }: KeysGiven = {}): RecordKeys {
  const variables: Readonly<Record<string, string | undefined>> = { KEY: key, OLD: old };
  return createRecordKeys({
    ...{ store, isShared, isKept: dataDir !== undefined, dataDir: dataDir ?? "/nowhere" },
    random: createSystemRandom(),
    settings: { key_env: key === undefined ? "" : "KEY", old_key_env: old === undefined ? "" : "OLD" },
    environment: (name) => variables[name],
  });
}

/** A cookie that is secret. */
export const COOKIE: KeptCookie = {
  ...{ name: "sid", value: "secret-cookie", domain: "example.com", path: "/", expires: -1 },
  ...{ httpOnly: true, secure: true, sameSite: "Lax" },
} as KeptCookie;
const BY = { via: "http", tokenId: null } as const;
/** A sign-in to an MCP server. */
export const CREDENTIAL: McpCredential = {
  ...{ server: "acme", url: "https://acme.example/mcp", issuer: "https://acme.example", version: undefined },
  ...{ resource: "https://acme.example/mcp", obtained_at: 1, account: "a", token_endpoint_auth_methods: [] },
  ...{ token_endpoint: "https://acme.example/token", authorization_endpoint: "https://acme.example/authorize" },
  ...{ access_token: "secret-token-8kQ2vX7m", refresh_token: "secret-refresh-4Tz9wR1n" },
  client: { kind: "configured", client_id: "me" },
};

/** Everything that keeps encrypted records, with the keys of one gateway. */
export function gatewayOf(store: Store, keys: RecordKeys) {
  const clock = createFakeClock();
  return {
    keys,
    jars: createCookieJars({ store, cipher: () => keys.cipher("browser_cookies.key") }),
    logins: createBrowserLogins({
      ...{ store, clock, used: () => [], cipher: () => keys.cipher("browser_cookies.key") },
      record: (_event, writes = []) => store.batch(writes),
    }),
    mailbox: new Mailbox({
      store,
      clock,
      random: createSeededRandom(7),
      cipher: () => keys.cipher("agents_ipc.key"),
    }),
    credentials: createMcpCredentials(store, () => keys.cipher("mcp_credentials.key")),
  };
}

type Gateway = ReturnType<typeof gatewayOf>;

/** Writes encrypted records of each kind. */
export async function fill({ jars, logins, mailbox, credentials }: Gateway, jarCount = 3): Promise<void> {
  for (let index = 0; index < jarCount; index++) await jars.set(`conv_${index}`, [COOKIE]);
  await logins.save("example.com", { hosts: ["example.com"], cookies: [COOKIE], storage: [] }, BY);
  for (const payload of ["one", "two"]) await mailbox.send({ from: "a", to: "b", payload, sender: "cli" });
  await credentials.put(CREDENTIAL);
}

/** Checks that a gateway reads what `fill` wrote. */
export async function checkAll({ jars, logins, mailbox, credentials }: Gateway, jarCount = 3): Promise<void> {
  for (let index = 0; index < jarCount; index++) {
    assert.equal((await jars.get(`conv_${index}`))[0]?.value, COOKIE.value);
  }
  assert.deepEqual((await logins.list()).map(({ state }) => state), ["kept"]);
  assert.deepEqual((await mailbox.list({})).map(({ payload }) => payload), ["one", "two"]);
  const kept = await credentials.get("acme", "https://acme.example/mcp");
  assert.ok(typeof kept === "object" && kept.access_token === "secret-token-8kQ2vX7m", inspect(kept));
}

/** Makes one call of a change of the key. */
export const rekey = (store: Store, keys: RecordKeys, gateways: readonly KeyedGateway[] = []) =>
  rekeyRecords({ store, keys, collections: COLLECTIONS, gateways: () => Promise.resolve(gateways) });

/** Returns the ids of the keys that the records of a store are sealed with. */
export async function sealedWith(store: Store): Promise<ReadonlySet<string>> {
  const found = new Set<string>();
  for (const { collection } of COLLECTIONS) {
    for (const { body } of await store.scan(collection, { limit: 1_000 })) {
      for (const [, id = ""] of JSON.stringify(body).matchAll(/"key":"(\w{16})"/g)) found.add(id);
    }
  }
  return found;
}

/** Runs a change of the key to its end. */
export async function rekeyAll(store: Store, keys: RecordKeys): Promise<RekeyProgress> {
  for (;;) {
    const progress = await rekey(store, keys);
    if (progress.complete) return progress;
  }
}
