import assert from "node:assert/strict";
import { test } from "node:test";
import type { LoginState } from "../../lib/base/records/browser_login.ts";
import { BROWSER_LOGINS } from "../../lib/memory/browser_records.ts";
import type { KeptCookie } from "../../lib/base/records/cookie_jar.ts";
import { createBrowserLogins, type LoginEvent } from "../../lib/memory/browser_logins.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createRecordCipher } from "../../lib/storage/record_cipher.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { createSeededRandom } from "../support/seeded_random.ts";

const BY = { via: "http", tokenId: "tok_1" } as const;
const USE = {
  runId: "run_1",
  callId: "call_1",
  conversationId: null,
  caller: { via: "agent", tokenId: null },
} as const;
const SECRET = "secret-of-the-session";

function createBench() {
  const store = createMemoryStore();
  const clock = createFakeClock();
  const events: LoginEvent[] = [];
  const open = (key: number) =>
    createBrowserLogins({
      ...{ store, clock, used: () => ["a.example"] },
      cipher: () => Promise.resolve(createRecordCipher(new Uint8Array(32).fill(key), createSeededRandom())),
      async record(event, writes = []) {
        await store.batch(writes);
        events.push(event);
      },
    });
  return { store, clock, events, logins: open(1), withOtherKey: open(2) };
}

function stateOf(site: string, more: Partial<KeptCookie> = {}): LoginState {
  const cookie = { name: "id", value: SECRET, domain: site, path: "/", expires: -1, httpOnly: true, secure: true };
  return { hosts: [site], cookies: [{ ...cookie, sameSite: "Lax", ...more }], storage: [] };
}

test("a login is kept encrypted, listed without values, given with them, and removed", async () => {
  const { store, logins, events } = createBench();
  await logins.save("a.example", stateOf("a.example"), BY);
  assert.ok(!JSON.stringify(await store.get(BROWSER_LOGINS.name, "a.example")).includes(SECRET));
  const listed = await logins.list();
  assert.ok(!JSON.stringify(listed).includes(SECRET));
  assert.deepEqual(listed.map(({ site, cookies, state, used_by_runs }) => [site, cookies, state, used_by_runs]), [
    ["a.example", 1, "kept", true],
  ]);
  assert.equal((await logins.open("a.example", USE)).cookies[0]?.value, SECRET);
  assert.equal(await logins.remove("a.example", BY), true);
  assert.equal(await logins.remove("a.example", BY), false);
  await assert.rejects(logins.open("a.example", USE), { code: "login_missing" });
  assert.deepEqual(events.map(({ action }) => action), ["stored", "used", "removed"]);
  assert.ok(!JSON.stringify(events).includes(SECRET));
});

test("a login that was altered, or moved to another site, or sealed with another key, opens for nobody and can be removed", async () => {
  const { store, logins, withOtherKey } = createBench();
  await logins.save("a.example", stateOf("a.example"), BY);
  await logins.save("b.example", stateOf("b.example"), BY);
  const body = (await store.get(BROWSER_LOGINS.name, "a.example"))?.body;
  await store.batch([
    BROWSER_LOGINS.put("b.example", body as never),
    { op: "put", collection: BROWSER_LOGINS.name, key: "c.example", body: { v: 1, sealed: "nonsense" } },
  ]);
  await assert.rejects(logins.open("b.example", USE), { code: "login_unreadable", message: /altered, or belongs/ });
  await assert.rejects(logins.open("c.example", USE), { code: "login_unreadable", message: /damaged/ });
  await assert.rejects(withOtherKey.open("a.example", USE), { message: /another key; put the right/ });
  const states = async () => (await logins.list()).map(({ site, state }) => `${site} ${state}`).sort();
  assert.deepEqual(await states(), ["a.example kept", "b.example unreadable", "c.example unreadable"]);
  assert.equal(await logins.remove("b.example", BY) && await logins.remove("c.example", BY), true);
  assert.deepEqual(await states(), ["a.example kept"]);
});

test("cookies that have ended are not given, and a login of nothing else is expired", async () => {
  const { clock, logins } = createBench();
  const inAnHour = clock.now() / 1000 + 3600;
  const lasting = stateOf("a.example", { expires: inAnHour }).cookies;
  const [short] = stateOf("a.example", { name: "short", expires: inAnHour - 3000 }).cookies;
  await logins.save(
    "a.example",
    { ...stateOf("a.example"), cookies: short === undefined ? [] : [...lasting, short] },
    BY,
  );
  await clock.advance(1_800_000);
  assert.deepEqual((await logins.open("a.example", USE)).cookies.map(({ name }) => name), ["id"]);
  await clock.advance(1_800_000);
  await assert.rejects(logins.open("a.example", USE), { code: "login_expired" });
  assert.equal((await logins.list())[0]?.state, "expired");
});

for (
  const [what, site, state] of [
    ["cookies of another host", "a.example", { ...stateOf("evil.test"), hosts: ["a.example"] }],
    ["a first host that is another", "a.example", stateOf("evil.test")],
    ["a host that is none", "a.example", { ...stateOf("a.example"), hosts: ["a.example", "*.example"] }],
    ["nothing in it", "a.example", { hosts: ["a.example"], cookies: [], storage: [] }],
    ["values of another origin", "a.example", {
      ...stateOf("a.example"),
      storage: [{ origin: "https://evil.test", items: [{ name: "a", value: "b" }] }],
    }],
  ] as const
) {
  test(`a login with ${what} is refused`, async () => {
    const { logins } = createBench();
    const given = {
      hosts: [...state.hosts],
      cookies: [...state.cookies],
      storage: state.storage.map((one) => ({ ...one })),
    };
    await assert.rejects(logins.save(site, given as LoginState, BY), { code: "invalid_request" });
    assert.deepEqual(await logins.list(), []);
  });
}

test("whoever sends a login, its cookies are for no pages of other sites", async () => {
  const { logins } = createBench();
  await logins.save("a.example", stateOf("a.example", { sameSite: "None" }), BY);
  assert.equal((await logins.open("a.example", USE)).cookies[0]?.sameSite, "Lax");
});
