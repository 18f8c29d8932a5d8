import fc from "fast-check";
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";
import { SCOPES } from "../../lib/base/records/caller.ts";
import { Tokens } from "../../lib/access/tokens.ts";
import type { RecordAccess } from "../../lib/access/identity.ts";
import { ConfigError, HttpError } from "../../lib/base/errors.ts";
import { createLogger } from "../../lib/base/telemetry/log.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import type { Store } from "../../lib/storage/store.ts";
import { createFakeClock, type FakeClock } from "../support/fake_clock.ts";
import { createSeededRandom } from "../support/seeded_random.ts";

function setUp(store: Store = createMemoryStore(), clock: FakeClock = createFakeClock()) {
  const random = createSeededRandom();
  return { store, clock, random, tokens: () => Tokens.open({ store, clock, random }) };
}

const isRefused = (code: string, status: number, param?: string) => (error: unknown) =>
  error instanceof HttpError && error.code === code && error.status === status && error.param === (param ?? null);

test("an issued token is pst_ and 32 bytes, and verify() knows who it is", async () => {
  const tokens = await setUp().tokens();
  const { token, record } = await tokens.issue({ scopes: ["chat", "runs", "chat"], label: "laptop" });
  assert.match(token, /^pst_[A-Za-z0-9_-]{43}$/);
  assert.deepEqual(tokens.verify(token), { tokenId: record.id, scopes: ["chat", "runs"] });
  assert.deepEqual(record, {
    id: record.id,
    label: "laptop",
    scopes: ["chat", "runs"],
    created_at: "2026-01-01T00:00:00.000Z",
    expires_at: null,
    idle_ttl_seconds: null,
    plain: false,
    tools: null,
    last_used_at: null,
  });
});

test("a token with an idle time ends when it was not used for so long, also across a restart", async () => {
  const { store, clock, tokens } = setUp();
  const all = await tokens();
  const { token, record } = await all.issue({ scopes: ["chat"], label: "", idleTtlSeconds: 1000 });
  assert.equal(record.idle_ttl_seconds, 1000);
  for (let day = 0; day < 3; day++) {
    await clock.advance(999_000);
    assert.ok(all.verify(token));
  }
  await clock.advance(999_000);
  assert.equal(all.use(record.id), true, "a frame of a socket is a use too");
  await clock.advance(999_000);
  const again = await tokens();
  assert.equal(again.isLive(record.id), true);
  assert.equal(await again.count(), 1);
  await clock.advance(1000);
  for (const known of [all, again]) {
    assert.equal(known.verify(token), undefined);
    assert.equal(known.isLive(record.id), false);
    assert.equal(known.use(record.id), false);
    assert.equal(await known.count(), 0);
  }
  await tokens();
  assert.equal(await store.count("tokens"), 0);
});

test("a token that was never used is idle from the moment it was made; a use is written four times within a short idle time", async () => {
  const { store, clock, tokens } = setUp();
  const all = await tokens();
  const { token: unused } = await all.issue({ scopes: ["chat"], label: "", idleTtlSeconds: 8 });
  const { token, record } = await all.issue({ scopes: ["chat"], label: "", idleTtlSeconds: 8 });
  await clock.advance(2000);
  assert.ok(all.verify(token));
  await clock.advance(1999);
  assert.ok(all.verify(token));
  const lastUse = async () => ((await store.get("tokens", record.id))?.body as { last_used_at: string }).last_used_at;
  assert.equal(await lastUse(), "2026-01-01T00:00:02.000Z");
  await clock.advance(1);
  assert.ok(all.verify(token));
  await clock.advance(0);
  assert.equal(await lastUse(), "2026-01-01T00:00:04.000Z");
  await clock.advance(4000);
  assert.equal(all.verify(unused), undefined);
  await assert.rejects(
    all.issue({ scopes: ["chat"], label: "", idleTtlSeconds: 0 }),
    isRefused("invalid_request", 400, "idle_ttl_seconds"),
  );
});

test("the scope of gateways among each other is given to no token", async () => {
  const tokens = await setUp().tokens();
  for (const scopes of [["cluster"], ["admin", "cluster"]] as const) {
    await assert.rejects(tokens.issue({ scopes, label: "" }), isRefused("invalid_request", 400, "scopes"));
  }
});

test("what is not exactly a token is nobody", async () => {
  const tokens = await setUp().tokens();
  const { token } = await tokens.issue({ scopes: ["admin"], label: "" });
  const wrong = ["", "pst_", token.slice(0, -1), `${token}A`, ` ${token}`, token.toUpperCase(), token.slice(4)];
  wrong.push(
    token.replace(/.$/, (last) => last === "A" ? "B" : "A"),
    "x".repeat(1_000_000),
    "\ud800",
    "\0",
    "__proto__",
    "env",
    "control",
  );
  for (const text of wrong) assert.equal(tokens.verify(text), undefined);
  fc.assert(fc.property(fc.string({ maxLength: 60 }), (text) => tokens.verify(text) === undefined), { numRuns: 200 });
});

test("neither store nor lists hold a token, only its SHA-256", async () => {
  const { store, tokens } = setUp();
  const all = await tokens();
  const { token } = await all.issue({ scopes: ["chat"], label: "x" });
  const kept = JSON.stringify([await store.scan("tokens", { limit: 10 }), await all.list()]);
  assert.ok(!kept.includes(token) && !kept.includes(token.slice(4)));
  assert.ok(kept.includes(createHash("sha256").update(token).digest("base64url")));
});

test("tokens survive a restart, in their order and with their last use", async () => {
  const { clock, tokens } = setUp();
  const first = await tokens();
  const issued = [];
  for (const label of ["a", "b", "c"]) issued.push(await first.issue({ scopes: ["chat"], label }));
  await clock.advance(5000);
  first.verify(issued[1]?.token ?? "");
  await clock.advance(1);
  const second = await tokens();
  assert.deepEqual(await second.list(), await first.list());
  assert.deepEqual((await second.list()).map(({ label, last_used_at }) => [label, last_used_at]), [
    ["c", null],
    ["b", "2026-01-01T00:00:05.000Z"],
    ["a", null],
  ]);
  assert.ok(second.verify(issued[0]?.token ?? ""));
});

test("more tokens than a page of the store are all loaded", async () => {
  const { store, tokens } = setUp();
  const first = await tokens();
  let last = "";
  for (let index = 0; index < 1000; index++) last = (await first.issue({ scopes: ["chat"], label: `${index}` })).token;
  const second = await tokens();
  assert.equal(await second.count(), 1000);
  assert.ok(second.verify(last));
  assert.equal(await store.count("tokens"), 1000);
});

test("an expired token is nobody, is not counted, and makes room", async () => {
  const { store, clock, tokens } = setUp();
  const all = await tokens();
  const { token, record } = await all.issue({ scopes: ["chat"], label: "short", ttlSeconds: 10 });
  assert.equal(record.expires_at, "2026-01-01T00:00:10.000Z");
  await clock.advance(9_999);
  assert.ok(all.verify(token));
  await clock.advance(1);
  assert.equal(all.verify(token), undefined);
  assert.deepEqual([await all.count(), (await all.list()).length], [0, 1]);
  const restarted = await tokens();
  assert.deepEqual([await restarted.list(), await store.count("tokens")], [[], 0]);
});

test("revoke() works at once and for good, and knows the unknown", async () => {
  const { store, tokens } = setUp();
  const all = await tokens();
  const { token, record } = await all.issue({ scopes: ["chat"], label: "x" });
  assert.ok(all.verify(token));
  const revoked = all.revoke(record.id);
  assert.equal(all.verify(token), undefined);
  assert.equal(await revoked, true);
  assert.equal(await all.revoke(record.id), false);
  assert.equal(await store.count("tokens"), 0);
  assert.equal((await tokens()).verify(token), undefined);
  for (const id of ["env", "control", "", "__proto__"]) assert.equal(await all.revoke(id), false);
});

test("a token used in the moment it is revoked does not come back", async () => {
  const { store, clock, tokens } = setUp();
  const all = await tokens();
  const { token, record } = await all.issue({ scopes: ["chat"], label: "x" });
  const revoked = all.revoke(record.id);
  all.verify(token);
  await revoked;
  await clock.advance(100);
  assert.equal(await store.count("tokens"), 0);
  const other = await all.issue({ scopes: ["chat"], label: "y" });
  all.verify(other.token);
  await all.revoke(other.record.id);
  await clock.advance(100);
  assert.equal(await store.count("tokens"), 0);
});

test("when the store cannot forget a token it is refused all the same, and can be revoked again", async () => {
  const { store, clock, random } = setUp();
  let broken = false;
  const flaky: Store = {
    ...store,
    batch: (writes) => broken ? Promise.reject(new Error("disk full")) : store.batch(writes),
  };
  const all = await Tokens.open({ store: flaky, clock, random });
  const { token, record } = await all.issue({ scopes: ["chat"], label: "x" });
  broken = true;
  await assert.rejects(all.revoke(record.id), /disk full/);
  assert.equal(all.verify(token), undefined);
  broken = false;
  assert.equal(await all.revoke(record.id), true);
  assert.equal(await store.count("tokens"), 0);
});

test("revokeAll() ends all stored tokens and says how many", async () => {
  const { tokens } = setUp();
  const all = await tokens();
  const issued = [
    await all.issue({ scopes: ["chat"], label: "a" }),
    await all.issue({ scopes: ["admin"], label: "b" }),
  ];
  assert.equal(await all.revokeAll(), 2);
  for (const { token } of issued) assert.equal(all.verify(token), undefined);
  assert.deepEqual([await all.revokeAll(), await all.count(), await all.list()], [0, 0, []]);
});

test("a token whose record is damaged is nobody, and goes with revokeAll()", async () => {
  const { tokens, store } = setUp();
  const earlier = await tokens();
  const [damaged, whole] = [
    await earlier.issue({ scopes: ["chat"], label: "a" }),
    await earlier.issue({ scopes: ["chat"], label: "b" }),
  ];
  await store.batch([{ op: "put", collection: "tokens", key: damaged.record.id, body: { v: 9 } }]);
  const all = await tokens();
  assert.equal(all.verify(damaged.token), undefined);
  assert.ok(all.verify(whole.token));
  assert.deepEqual((await all.list()).map(({ id }) => id), [whole.record.id]);
  assert.equal(await all.revokeAll(), 1);
  assert.deepEqual([await store.count("tokens"), store.unreadable.count()], [0, 0]);
});

test("revokeAll() also ends a token that is being made in that moment", async () => {
  const { store, clock } = setUp();
  const inserted = Promise.withResolvers<void>();
  const slow: Store = {
    ...store,
    batch: (writes) => inserted.promise.then(() => store.batch(writes)),
  };
  const tokens = await setUp(slow, clock).tokens();
  const issuing = tokens.issue({ scopes: ["admin"], label: "late" });
  assert.equal(await tokens.revokeAll(), 0);
  inserted.resolve();
  await assert.rejects(issuing, isRefused("conflict", 409));
  assert.deepEqual([await tokens.list(), await store.count("tokens")], [[], 0]);
});

test("an identity is live until its token is revoked or expires, and listeners are told", async () => {
  const { store, clock, random } = setUp();
  const all = await Tokens.open({ store, clock, random, envToken: "from-the-environment" });
  const told: string[] = [];
  all.onRevoke((id) => void told.push(id));
  const { record: kept } = await all.issue({ scopes: ["chat"], label: "kept" });
  const { record: short } = await all.issue({ scopes: ["chat"], label: "short", ttlSeconds: 60 });
  for (const id of [kept.id, short.id, "env", "control", null]) assert.equal(all.isLive(id), true);
  assert.equal(all.isLive("tok_other"), false);
  const scopes = [kept.id, short.id, "env", "control", null, "tok_other"].map((id) => all.scopesOf(id));
  assert.deepEqual(scopes, [["chat"], ["chat"], ["admin"], ["admin"], SCOPES, undefined]);
  await clock.advance(60_000);
  assert.equal(all.scopesOf(short.id), undefined);
  assert.equal(all.isLive(short.id), false);
  assert.deepEqual(told, []);
  await all.revoke(kept.id);
  assert.equal(all.isLive(kept.id), false);
  assert.equal(all.scopesOf(kept.id), undefined);
  await all.revokeAll();
  assert.deepEqual(told, [kept.id, short.id]);
});

test("the last use is written at most once a minute, and a failure to write it harms nobody", async () => {
  const { store, clock, random } = setUp();
  let writes = 0;
  let broken = false;
  const lines: string[] = [];
  const log = createLogger({
    level: "warn",
    now: clock.now,
    sink: ({ message }) => void lines.push(message),
    redact: (text) => text,
  });
  const counting: Store = {
    ...store,
    batch(given) {
      if (given.every(({ op }) => op !== "putIf")) return store.batch(given);
      writes++;
      return broken ? Promise.reject(new Error("disk full")) : store.batch(given);
    },
  };
  const all = await Tokens.open({ store: counting, clock, random, log });
  const { token } = await all.issue({ scopes: ["chat"], label: "x" });
  for (let second = 0; second < 180; second++) {
    assert.ok(all.verify(token));
    await clock.advance(1000);
  }
  assert.equal(writes, 3);
  assert.equal((await all.list())[0]?.last_used_at, "2026-01-01T00:02:59.000Z");
  broken = true;
  assert.ok(all.verify(token));
  await clock.advance(1);
  assert.deepEqual(lines, ["Cannot record the use of a token"]);
});

test("the tokens of the environment and the control file are admins beside the stored ones", async () => {
  const { store, clock, random } = setUp();
  const all = await Tokens.open({ store, clock, random, envToken: "from-env", controlToken: "from-file" });
  assert.deepEqual(all.verify("from-env"), { tokenId: "env", scopes: ["admin"] });
  assert.deepEqual([await all.count(), await all.list()], [0, []]);
  assert.equal(await all.revokeAll(), 0);
  assert.ok(all.verify("from-env"));
  const empty = await Tokens.open({ store, clock, random, envToken: "" });
  assert.equal(empty.verify(""), undefined);
});

test("a token of the environment may have 512 characters; a longer one, which no request could present, is refused", async () => {
  const { store, clock, random } = setUp();
  const longest = "x".repeat(512);
  const tokens = await Tokens.open({ store, clock, random, envToken: longest });
  assert.equal(tokens.verify(longest)?.tokenId, "env");
  assert.equal(tokens.verify(`${longest}x`), undefined);
  await assert.rejects(
    Tokens.open({ store, clock, random, envToken: `${longest}x` }),
    (error) => error instanceof ConfigError && /Cannot use POSTERN_TOKEN/.test(error.message),
  );
});

test("the control token counts from a loopback peer only", async () => {
  const { store, clock, random } = setUp();
  const all = await Tokens.open({ store, clock, random, controlToken: "from-file" });
  assert.deepEqual(all.verify("from-file", "loopback"), { tokenId: "control", scopes: ["admin"] });
  assert.equal(all.verify("from-file", "other"), undefined);
  assert.equal(all.verify("from-file"), undefined);
});

test("issue() names the field that is out of bounds", async () => {
  const all = await setUp().tokens();
  const bad = isRefused("invalid_request", 400, "scopes");
  await assert.rejects(all.issue({ scopes: [], label: "x" }), bad);
  // As a caller without types would
  await assert.rejects(all.issue({ scopes: ["root" as "admin"], label: "x" }), bad);
  await assert.rejects(
    all.issue({ scopes: ["chat"], label: "x".repeat(129) }),
    isRefused("invalid_request", 400, "label"),
  );
  for (const ttlSeconds of [0, -1, 1.5, NaN, Infinity, 1e12]) {
    await assert.rejects(
      all.issue({ scopes: ["chat"], label: "", ttlSeconds }),
      isRefused("invalid_request", 400, "ttl_seconds"),
    );
  }
});

test("at 1,000 tokens issue() refuses, also in parallel, until one expires or is revoked", async () => {
  const { clock, tokens } = setUp();
  const all = await tokens();
  await all.issue({ scopes: ["chat"], label: "short", ttlSeconds: 1 });
  const results = await Promise.allSettled(
    Array.from({ length: 1010 }, () => all.issue({ scopes: ["chat"], label: "x" })),
  );
  assert.equal(results.filter(({ status }) => status === "fulfilled").length, 999);
  await assert.rejects(all.issue({ scopes: ["chat"], label: "x" }), isRefused("conflict", 409));
  await clock.advance(1000);
  await all.issue({ scopes: ["chat"], label: "in the place of the expired one" });
  await assert.rejects(all.issue({ scopes: ["chat"], label: "x" }), isRefused("conflict", 409));
});

test("a token whose record cannot be written is not issued, and one whose revocation cannot be is refused at once", async () => {
  const { store, clock, random } = setUp();
  let fails = true;
  const record: RecordAccess = (_change, writes) =>
    fails ? Promise.reject(new Error("The disk is full")) : store.batch(writes);
  const tokens = await Tokens.open({ store, clock, random, record });
  await assert.rejects(tokens.issue({ scopes: ["admin"], label: "" }), /disk is full/);
  assert.deepEqual([await store.count("tokens"), (await tokens.list()).length], [0, 0]);
  fails = false;
  const { token, record: { id } } = await tokens.issue({ scopes: ["admin"], label: "" });
  fails = true;
  await assert.rejects(tokens.revoke(id), /disk is full/);
  assert.deepEqual([tokens.verify(token), tokens.isLive(id)], [undefined, false]);
});
