import assert from "node:assert/strict";
import { test } from "node:test";
import { createReplyStore, IDEMPOTENT_REPLIES, type ReplyStore } from "../../../handlers/middleware/reply_store.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

const DAY_MS = 24 * 60 * 60 * 1_000;

/** Reply stores of gateways that share a database, and one of a gateway that died. */
function createGateways() {
  const store = createMemoryStore();
  const clock = createFakeClock();
  const of = (id: string): ReplyStore =>
    createReplyStore({ store, clock, member: { id, own: () => ({ id, fence: 1 }) } });
  return { store, clock, dead: of("gw_dead"), a: of("gw_a"), b: of("gw_b") };
}

const REPLY = { status: 200, headers: {}, body: "{}", fingerprint: "f" };

test("a claim whose gateway died holds its key for a day, and then one gateway gets it, not two", async () => {
  const { clock, dead, a, b } = createGateways();
  assert.equal(await dead.claim("scope", "f"), true);
  await clock.advance(DAY_MS - 1);
  assert.equal((await a.find("scope"))?.kind, "claim");
  await clock.advance(1);
  // Both find that it has expired before either claims: the later one must not remove the claim of the other
  assert.deepEqual(await Promise.all([a.find("scope"), b.find("scope")]), [undefined, undefined]);
  assert.equal(await a.claim("scope", "f"), true);
  assert.equal(await b.claim("scope", "f"), false);
  assert.deepEqual(await b.find("scope").then((found) => found?.kind === "claim" && found.gateway?.id), "gw_a");
});

test("an expired claim is replaced together with the run that takes its place, once", async () => {
  const { store, clock, dead, a, b } = createGateways();
  await dead.claim("scope", "f");
  await clock.advance(DAY_MS);
  await a.find("scope");
  await b.find("scope");
  const claims = [a, b].map((gateway, index) =>
    gateway.claimWrite("scope", { fingerprint: "f", runId: `run_${index}`, told: [] })
  );
  const won = [];
  for (const claim of claims) won.push(await store.batch([claim]));
  assert.deepEqual(won, [true, false]);
});

test("a reply takes the place of an expired one, and sweeping removes nothing that is claimed again", async () => {
  const { store, clock, a, b } = createGateways();
  await a.keep("scope", REPLY, undefined);
  for (let index = 0; index < 60; index++) await a.keep(`old_${index}`, REPLY, undefined);
  await clock.advance(DAY_MS);
  await a.find("scope");
  await a.keep("scope", { ...REPLY, body: "new" }, undefined);
  assert.equal(await b.find("scope").then((found) => found?.kind === "reply" && found.body), "new");
  await clock.advance(60 * 60 * 1_000);
  await b.find("old_0");
  assert.equal(await b.claim("old_0", "f"), true);
  for (let index = 0; index < 100; index++) await a.keep(`new_${index}`, REPLY, undefined);
  assert.equal((await b.find("old_0"))?.kind, "claim");
  assert.equal(await store.get(IDEMPOTENT_REPLIES.name, "old_1"), undefined);
});

test("a request that made no claim, since the database was down, forgets none that another gateway has made", async () => {
  const { a, b } = createGateways();
  await b.claim("scope", "f");
  await a.forget("scope", undefined);
  assert.equal((await a.find("scope"))?.kind, "claim");
  await b.forget("scope", undefined);
  assert.equal(await a.find("scope"), undefined);
});

test("a gateway forgets the claim that it made while it had no lease", async () => {
  const { store, clock } = createGateways();
  const gateway = createReplyStore({ store, clock, member: { id: "gw_a", own: () => undefined } });
  await gateway.claim("scope", "f");
  await gateway.forget("scope", undefined);
  assert.equal(await gateway.find("scope"), undefined);
});

test("sweeping holds a few replies in memory, however many have expired", async () => {
  const store = createMemoryStore();
  const clock = createFakeClock();
  let most = 0;
  const scan: typeof store.scan = async (...given) => {
    const page = await store.scan(...given);
    most = Math.max(most, JSON.stringify(page).length);
    return page;
  };
  const replies = createReplyStore({ store: { ...store, scan }, clock });
  const large = { ...REPLY, body: "x".repeat(10_000) };
  for (let index = 0; index < 190; index++) await replies.keep(`old_${index}`, large, undefined);
  await clock.advance(DAY_MS);
  for (let index = 0; index < 50; index++) await replies.keep(`new_${index}`, REPLY, undefined);
  assert.deepEqual(
    [await store.count(IDEMPOTENT_REPLIES.name, "old_"), await store.count(IDEMPOTENT_REPLIES.name, "new_")],
    [0, 50],
  );
  assert.ok(most < 10 * large.body.length, `${most} characters at once`);
});
