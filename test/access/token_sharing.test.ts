import assert from "node:assert/strict";
import { test } from "node:test";
import { Pairing } from "../../lib/access/pairing.ts";
import { SharedTickets, WS_TICKETS } from "../../lib/access/shared_tickets.ts";
import type { Identity } from "../../lib/access/identity.ts";
import { TOKEN_CHANGES, TokenSharing } from "../../lib/access/token_sharing.ts";
import { TOKENS } from "../../lib/access/stored_token.ts";
import { Tokens } from "../../lib/access/tokens.ts";
import { HttpError } from "../../lib/base/errors.ts";
import type { Actor } from "../../lib/base/records/caller.ts";
import { createSharedDatabase } from "../support/clustered.ts";
import { createSeededRandom } from "../support/seeded_random.ts";
import { until } from "../support/until.ts";

/** Gateways without anything but tokens, pairing and tickets, over one database. */
function createGateways() {
  const database = createSharedDatabase();
  const { clock } = database;
  const listeners = new Set<() => void>();
  const reads = { count: 0 };
  const onResult = database.onResult;
  database.onResult = async (operation, first) => {
    if (first === TOKEN_CHANGES.name && operation === "scan") reads.count++;
    await onResult(operation, first);
  };
  let seed = 0;
  const start = async (more: { readonly envToken?: string } = {}) => {
    const link = database.link();
    const random = createSeededRandom(++seed);
    const gateway = `gw_${seed}`;
    const news = {
      tell: () => {
        if (!link.isCut && !database.isAway && !database.isMute) { for (const hear of [...listeners]) hear(); }
      },
      onChange(hear: () => void) {
        const hearLinked = () => void (link.isCut || hear());
        listeners.add(hearLinked);
        return () => void listeners.delete(hearLinked);
      },
    };
    const tokens = await Tokens.open({
      ...{ store: link.store, clock, random, ...more },
      openSharing: (parts) => Promise.resolve(new TokenSharing({ ...parts, news })),
    });
    const pairing = new Pairing({ store: link.store, clock, random, tokens, ttlSeconds: () => 3600 });
    const tickets = new SharedTickets({ store: link.store, clock, random, tokens, gateway });
    const gone: string[] = [];
    tokens.onRevoke((id) => void gone.push(id));
    return { link, clock, tokens, pairing, tickets, gone };
  };
  return { database, clock, reads, start };
}

type Gateway = Awaited<ReturnType<ReturnType<typeof createGateways>["start"]>>;

/** Lets time pass until some work is over. */
async function passing<T>({ clock }: Pick<Gateway, "clock">, work: Promise<T> | T): Promise<T> {
  let isOver = false;
  const over = Promise.resolve(work).finally(() => isOver = true);
  over.catch(() => {});
  await settle();
  while (!isOver) await clock.advance(10);
  return await over;
}

/** Asks as the router does: makes certain which tokens count, however long that takes, then looks the token up. */
async function verify(gateway: Gateway, token: string): Promise<Identity | undefined> {
  const { tokens } = gateway;
  await passing(gateway, tokens.confirm({ token }));
  return tokens.standing().isConfirmed ? tokens.verify(token) : undefined;
}

/** Lets promises settle that no timer holds up. */
const settle = () => new Promise((resolve) => setTimeout(resolve, 1));
const by = (tokenId: string): Actor => ({ via: "http", tokenId });
const ADMIN = { scopes: ["admin"], label: "" } as const;
const code = (expected: string) => (error: unknown) => error instanceof HttpError && error.code === expected;

test("a token of one gateway counts at another at once, and ends there at once when it is revoked", async () => {
  const { database, start } = createGateways();
  const [a, b] = [await start(), await start()];
  const { token, record } = await a.tokens.issue(ADMIN);
  assert.equal((await verify(b, token))?.tokenId, record.id);
  await a.tokens.revoke(record.id);
  // Nothing but the note brings it: the clock stands still
  await until(async () => b.tokens.verify(token) === undefined);
  assert.deepEqual([a.gone, b.gone], [[record.id], [record.id]]);
  assert.equal(await database.store.get(TOKENS.name, record.id), undefined);
});

test("without any note a revoked token ends elsewhere within a second, and its listeners are told", async () => {
  const { database, clock, start } = createGateways();
  const [a, b] = [await start(), await start()];
  const { token, record } = await a.tokens.issue(ADMIN);
  await verify(b, token);
  database.isMute = true;
  await a.tokens.revoke(record.id);
  await clock.advance(999);
  assert.equal(b.tokens.verify(token), undefined);
  assert.deepEqual(b.gone, [record.id]);
});

test("a gateway whose looks stood still reads once for all requests before it accepts a token", async () => {
  const { database, clock, reads, start } = createGateways();
  const [a, b] = [await start(), await start()];
  const { token, record } = await a.tokens.issue(ADMIN);
  await verify(b, token);
  // The looks by themselves do not come, as in a process that was stopped
  b.tokens.close();
  a.tokens.close();
  database.isMute = true;
  await a.tokens.revoke(record.id);
  await clock.advance(1_000);
  reads.count = 0;
  assert.ok(b.tokens.verify(token), "nothing has told it yet");
  const answers = await Promise.all(Array.from({ length: 500 }, () => verify(b, token)));
  assert.ok(answers.every((identity) => identity === undefined));
  assert.ok(reads.count <= 4, `${reads.count} reads`);
});

test("a busy gateway never waits: its looks by themselves keep it certain", async () => {
  const { clock, start } = createGateways();
  const a = await start();
  const { token } = await a.tokens.issue(ADMIN);
  for (let passed = 0; passed < 5_000; passed += 10) {
    await clock.advance(10);
    assert.equal(a.tokens.confirm({ token }), undefined, `at ${passed} ms`);
  }
  a.tokens.close();
});

test("with the database down nothing is read for a flood of tokens, and it is not certain which count", async () => {
  const { database, clock, reads, start } = createGateways();
  const a = await start();
  const { token } = await a.tokens.issue(ADMIN);
  database.isAway = true;
  await clock.advance(1_000);
  const standing = a.tokens.standing();
  assert.ok(!standing.isConfirmed && standing.forMs >= 1_000, JSON.stringify(standing));
  assert.ok(a.tokens.verify(token), "the tokens known stay known");
  reads.count = 0;
  const wrong = `pst_${"x".repeat(43)}`;
  for (let index = 0; index < 1_000; index++) {
    assert.equal(a.tokens.confirm({ token: wrong }), undefined);
    assert.equal(a.tokens.confirm({ token }), undefined);
  }
  assert.equal(reads.count, 0);
  assert.equal(a.tokens.isUncertain(wrong), true);
  assert.equal(a.tokens.isUncertain("sk-anything"), false);
  await assert.rejects(a.tokens.issue(ADMIN), code("storage_unavailable"));
  database.isAway = false;
  await clock.advance(1_000);
  assert.equal(a.tokens.standing().isConfirmed, true);
});

/** Makes each look take so long, from now on. */
function slowDown({ database, clock }: ReturnType<typeof createGateways>, ms: number): void {
  const { onResult } = database;
  database.onResult = async (operation, first) => {
    await onResult(operation, first);
    if (operation === "scan" && first === TOKEN_CHANGES.name) await clock.sleep(ms);
  };
}

test("a slow database is not away: requests wait for it, and a token that was revoked a second before is refused", async () => {
  const gateways = createGateways();
  const { database, clock, start } = gateways;
  const [a, b] = [await start(), await start()];
  const [kept, { token, record }] = [await a.tokens.issue(ADMIN), await a.tokens.issue(ADMIN)];
  await verify(b, token);
  slowDown(gateways, 2_500);
  await clock.advance(3_000);
  for (let count = 0; count < 20; count++) {
    const askedAt = clock.monotonic();
    assert.ok(await verify(b, token), `request ${count}`);
    assert.ok(clock.monotonic() - askedAt <= 4_000, `it waited ${clock.monotonic() - askedAt} ms`);
    await clock.advance(370);
  }
  database.isMute = true;
  await a.tokens.revoke(record.id);
  await clock.advance(1_000);
  assert.equal(await verify(b, token), undefined, "revoked a second before");
  assert.ok(await verify(b, kept.token));
  assert.ok(await a.tokens.issue({ ...ADMIN, by: by(kept.record.id) }), "a change waits too");
});

test("a database that says nothing for five seconds is away, and whoever waits hears it then", async () => {
  const gateways = createGateways();
  const { clock, reads, start } = gateways;
  const a = await start();
  const { token } = await a.tokens.issue(ADMIN);
  slowDown(gateways, 1e9);
  await clock.advance(2_000);
  const waiting = a.tokens.confirm({ token }) ?? assert.fail("nobody looks");
  const steady = a.tokens.confirm({ token }, { maxMs: 1_000 }) ?? assert.fail("nobody looks");
  const ended: string[] = [];
  void steady.then(() => ended.push("steady"));
  void waiting.then(() => ended.push("any"));
  await clock.advance(1_000);
  assert.deepEqual(ended, ["steady"], "what goes on anyway waits for a second");
  await clock.advance(4_000);
  assert.deepEqual(ended, ["steady", "any"]);
  const standing = a.tokens.standing();
  assert.ok(!standing.isConfirmed && standing.forMs >= 5_000, JSON.stringify(standing));
  reads.count = 0;
  assert.equal(a.tokens.confirm({ token }), undefined, "nobody waits any more");
  assert.equal(reads.count, 0);
});

test("a machine that stood still for a minute does not take its database for away", async () => {
  const gateways = createGateways();
  const { clock, start } = gateways;
  const a = await start();
  const { token } = await a.tokens.issue(ADMIN);
  slowDown(gateways, 1_500);
  await clock.advance(3_000);
  const monotonic = clock.monotonic.bind(clock);
  Object.assign(clock, { monotonic: () => monotonic() + 60_000 });
  const waiting = a.tokens.confirm({ token }) ?? assert.fail("nobody looks");
  let isOver = false;
  void waiting.then(() => isOver = true);
  for (let passed = 0; !isOver; passed += 10) {
    assert.ok(passed < 5_000, "nobody answers");
    await clock.advance(10);
    assert.equal(a.tokens.standing().isConfirmed, true, `after ${passed} ms`);
  }
});

test("a thousand requests wait for a slow database at most: others are refused at once until it has answered", async () => {
  const gateways = createGateways();
  const { clock, reads, start } = gateways;
  const a = await start();
  const { token } = await a.tokens.issue(ADMIN);
  slowDown(gateways, 2_000);
  await clock.advance(3_000);
  await clock.advance(1_100);
  reads.count = 0;
  const unknown = `pst_${"x".repeat(43)}`;
  const asked = Array.from({ length: 5_000 }, (_, index) => a.tokens.confirm({ token: index % 2 ? token : unknown }));
  assert.equal(asked.filter((waits) => waits !== undefined).length, 1_000);
  assert.equal(a.tokens.standing().isConfirmed, false);
  let answered = 0;
  for (const waits of asked) void waits?.then(() => answered++);
  await clock.advance(4_000);
  assert.equal(answered, 1_000);
  assert.equal(a.tokens.standing().isConfirmed, true);
  assert.ok(reads.count <= 10, `${reads.count} looks`);
});

test("whoever leaves or has waited long enough gives the place back, before the database answers", async () => {
  const gateways = createGateways();
  const { clock, start } = gateways;
  const a = await start();
  const { token } = await a.tokens.issue(ADMIN);
  slowDown(gateways, 4_000);
  await clock.advance(1_500);
  const leaving = new AbortController();
  const unknown = `pst_${"x".repeat(43)}`;
  const ended: string[] = [];
  for (let index = 0; index < 500; index++) {
    const presented = { token: index % 2 ? token : unknown };
    const stays = a.tokens.confirm(presented, { maxMs: 1_000 }) ?? assert.fail("nobody looks");
    void stays.then(() => ended.push("waited"));
    const leaves = a.tokens.confirm(presented, { signal: leaving.signal }) ?? assert.fail("nobody looks");
    // Whoever left must not go on as if it were certain
    leaves.then(() => ended.push("went on"), ({ name }: Error) => ended.push(name));
  }
  assert.equal(a.tokens.confirm({ token }), undefined, "all places are taken");
  leaving.abort();
  await settle();
  assert.deepEqual([...new Set(ended)], ["CancelError"]);
  assert.ok(a.tokens.confirm({ token }));
  await clock.advance(1_000);
  assert.equal(ended.length, 1_000);
  for (let index = 0; index < 999; index++) assert.ok(a.tokens.confirm({ token }));
  await clock.advance(5_000);
  assert.equal(a.tokens.standing().isConfirmed, true);
});

test("a version that a failover lost and that a revocation then makes again is another version, with or without an outage", async () => {
  for (const isAway of [true, false]) {
    const { database, clock, start } = createGateways();
    const { store } = database;
    const [a, b] = [await start(), await start()];
    const { token, record } = await a.tokens.issue(ADMIN);
    await clock.advance(1_000);
    const before = await store.get(TOKEN_CHANGES.name, "all") ?? assert.fail();
    const lost = await a.tokens.issue(ADMIN);
    await clock.advance(1_000);
    assert.ok(b.tokens.verify(lost.token));
    const known = await store.get(TOKEN_CHANGES.name, "all");
    database.isAway = isAway;
    await clock.advance(isAway ? 3_000 : 0);
    // The standby that goes on has not received the last commit
    await store.takeOnce(TOKENS.name, lost.record.id);
    await store.takeOnce(TOKEN_CHANGES.name, "all");
    for (let version = 0; version < before.version; version++) {
      await store.batch([{ op: "put", collection: TOKEN_CHANGES.name, key: "all", body: before.body }]);
    }
    database.isMute = true;
    database.isAway = false;
    await a.tokens.revoke(record.id);
    assert.equal((await store.get(TOKEN_CHANGES.name, "all"))?.version, known?.version);
    await clock.advance(1_000);
    for (const gateway of [a, b]) {
      for (const gone of [token, lost.token]) assert.equal(await verify(gateway, gone), undefined);
    }
  }
});

test("a read whose answer hangs holds up nothing, and its late answer changes nothing", async () => {
  const { database, clock, start } = createGateways();
  const [a, b] = [await start(), await start()];
  const { record } = await a.tokens.issue(ADMIN);
  await settle();
  const { onResult } = database;
  const gate = Promise.withResolvers<void>();
  let held = 0;
  database.onResult = async (operation, first) => {
    await onResult(operation, first);
    if (operation === "scan" && first === TOKENS.name && held++ === 0) await gate.promise;
  };
  // B reads all tokens, as they are before the revocation, and the answer hangs
  const other = await a.tokens.issue(ADMIN);
  await until(async () => held === 1);
  await clock.advance(1_100);
  await a.tokens.revoke(record.id);
  await a.tokens.revoke(other.record.id);
  await clock.advance(1_000);
  assert.equal(b.tokens.verify(other.token), undefined);
  gate.resolve();
  await clock.advance(10);
  assert.deepEqual([await b.tokens.count(), b.tokens.verify(other.token)], [0, undefined]);
});

test("a flood of unknown tokens costs ten looks a second", async () => {
  const { clock, reads, start } = createGateways();
  const a = await start();
  reads.count = 0;
  for (let passed = 0; passed < 1_000; passed += 10) {
    for (let index = 0; index < 20; index++) void a.tokens.confirm({ token: `pst_${"y".repeat(41)}${10 + index}` });
    await clock.advance(10);
  }
  assert.ok(reads.count <= 13, `${reads.count} looks`);
});

test("whoever makes tokens at one gateway with a token that is revoked at another gets none", async () => {
  const { database, start } = createGateways();
  const [a, b] = [await start(), await start()];
  const stolen = await a.tokens.issue(ADMIN);
  await verify(b, stolen.token);
  database.isMute = true;
  await a.tokens.revoke(stolen.record.id);
  // B has not heard of it, and accepts the token still
  assert.ok(b.tokens.verify(stolen.token));
  await assert.rejects(b.tokens.issue({ ...ADMIN, by: by(stolen.record.id) }), code("conflict"));
  await assert.rejects(b.pairing.createCode(by(stolen.record.id)), code("conflict"));
  assert.equal(await database.store.count(TOKENS.name), 0);
});

test("a revocation whose write fails revokes nothing at any gateway, and one whose answer is lost revokes everywhere", async () => {
  const { database, clock, start } = createGateways();
  const [a, b] = [await start(), await start()];
  const { token, record } = await a.tokens.issue(ADMIN);
  const away = () => Promise.reject(new Error("away"));
  const revokeOne = () => a.tokens.revoke(record.id);
  const revokeAll = () => a.tokens.revokeAll();
  for (const revoke of [revokeOne, revokeAll]) {
    a.link.onBatch = away;
    await assert.rejects(revoke(), /away/);
    for (const gateway of [a, b]) {
      assert.equal((await verify(gateway, token))?.tokenId, record.id);
      assert.equal(gateway.tokens.isLive(record.id), true);
    }
    await clock.advance(2_000);
    assert.deepEqual([a.gone, b.gone], [[], []], "nobody's work is ended");
  }
  database.isMute = true;
  a.link.onBatch = async (_, make) => {
    await make();
    throw new Error("no answer");
  };
  await assert.rejects(revokeOne(), /no answer/);
  await clock.advance(999);
  for (const gateway of [a, b]) assert.equal(await verify(gateway, token), undefined);
  assert.deepEqual([a.gone, b.gone], [[record.id], [record.id]]);
});

test("a revocation of all tokens ends those that another gateway makes in the same moment, however fast it makes them", async () => {
  const { database, clock, start } = createGateways();
  const [a, b] = [await start(), await start()];
  const stolen = await a.tokens.issue(ADMIN);
  await verify(b, stolen.token);
  let last = stolen.record.id;
  let isOver = false;
  const mint = async () => {
    while (!isOver) {
      const made = await b.tokens.issue({ ...ADMIN, by: by(last) }).catch(() => undefined);
      if (made !== undefined) last = made.record.id;
      await settle();
    }
  };
  const minting = [mint(), mint()];
  await settle();
  await a.tokens.revokeAll();
  assert.equal(await database.store.count(TOKENS.name), 0, "after the purge");
  for (let index = 0; index < 10; index++) await settle();
  isOver = true;
  await Promise.all(minting);
  assert.equal(await database.store.count(TOKENS.name), 0);
  assert.equal(await b.tokens.count(), 0);
  // A gateway that dies over a purge holds nobody up for more than ten seconds
  const crash = database.onResult;
  database.onResult = async (operation, first) => {
    await crash(operation, first);
    if (operation === "scan" && first === TOKENS.name) throw new Error("dead");
  };
  await assert.rejects(a.tokens.revokeAll(), /dead/);
  database.onResult = crash;
  await assert.rejects(b.tokens.issue(ADMIN), code("conflict"));
  await clock.advance(10_001);
  assert.ok(await b.tokens.issue(ADMIN));
});

test("a use at one gateway keeps a token alive at all, which ends unused everywhere", async () => {
  const { clock, start } = createGateways();
  const [a, b] = [await start(), await start()];
  const { token } = await a.tokens.issue({ ...ADMIN, idleTtlSeconds: 60 });
  for (let passed = 0; passed < 300; passed += 10) {
    await clock.advance(10_000);
    assert.ok(await verify(a, token));
  }
  assert.ok(await verify(b, token), "used at A all the time");
  await clock.advance(60_000);
  assert.equal(await verify(b, token), undefined);
  assert.equal(await verify(a, token), undefined);
});

test("a start removes tokens that have ended, but none that is used elsewhere, by the clock of the database", async () => {
  const { database, clock, start } = createGateways();
  const a = await start();
  const kept = await a.tokens.issue({ ...ADMIN, idleTtlSeconds: 60 });
  const over = await a.tokens.issue({ ...ADMIN, ttlSeconds: 50 });
  await clock.advance(55_000);
  assert.ok(await verify(a, kept.token));
  const b = await start();
  assert.equal(await database.store.get(TOKENS.name, over.record.id), undefined);
  await clock.advance(1_000);
  assert.ok(await verify(b, kept.token));
});

test("pairing counts wrong codes of all gateways together, and no gateway gives more guesses", async () => {
  const { database, start } = createGateways();
  const gateways = [await start(), await start(), await start()] as const;
  const [a] = gateways;
  const { code: right } = await a.pairing.createCode();
  const guesses = await Promise.allSettled(
    Array.from(
      { length: 30 },
      (_, index) => gateways[index % 3 as 0 | 1 | 2].pairing.redeem(`WRNG-CDE${"ABCDEFGH"[index % 8]}`),
    ),
  );
  const told = guesses.filter((guess) => guess.status === "rejected" && guess.reason.code === "pairing_code_invalid");
  assert.equal(told.length, 5, "answered guesses");
  for (const { pairing } of gateways) await assert.rejects(pairing.redeem(right), code("pairing_locked"));
  // The owner is not locked out: a new code clears the lock, at any gateway
  const { code: fresh } = await gateways[2].pairing.createCode();
  await assert.rejects(a.pairing.redeem(right), code("pairing_code_invalid"));
  const both = await Promise.allSettled([a.pairing.redeem(fresh), gateways[1].pairing.redeem(fresh)]);
  assert.deepEqual(both.map(({ status }) => status).sort(), ["fulfilled", "rejected"]);
  assert.equal(await database.store.count(TOKENS.name), 1);
});

test("codes that two gateways make at once: one counts", async () => {
  const { database, start } = createGateways();
  const [a, b] = [await start(), await start()];
  assert.equal(await a.pairing.isPending(), false);
  await Promise.all([a.pairing.createCode(), b.pairing.createCode()]);
  assert.equal(await b.pairing.isPending(), true);
  assert.equal(await database.store.count("pairing_codes"), 1);
});

test("the right code does not count while another gateway counts the guess that locks pairing", async () => {
  const { database, start } = createGateways();
  const [a, b] = [await start(), await start()];
  const { code: right } = await a.pairing.createCode();
  for (let guess = 0; guess < 4; guess++) {
    await assert.rejects(b.pairing.redeem(`WRNG-CDE${guess + 2}`), code("pairing_code_invalid"));
  }
  // The fifth wrong guess is counted at B after A has read the count and the code
  const onResult = database.onResult;
  database.onResult = async (operation, first) => {
    await onResult(operation, first);
    if (operation !== "get" || first !== "pairing_codes") return;
    database.onResult = onResult;
    await assert.rejects(b.pairing.redeem("WRNG-CDE9"), code("pairing_code_invalid"));
  };
  await assert.rejects(a.pairing.redeem(right), code("pairing_locked"));
});

test("a ticket of one gateway counts once in the whole cluster, for 30 seconds, with the scopes of its token", async () => {
  const { database, clock, start } = createGateways();
  const [a, b] = [await start(), await start()];
  const { record } = await a.tokens.issue({ scopes: ["chat"], label: "" });
  const identity: Identity = { tokenId: record.id, scopes: ["chat"] };
  const issue = async () => (await a.tickets.issue(identity)).ticket;
  const first = await issue();
  assert.match(first, /^tkt_[\w-]{43}$/);
  await clock.advance(10);
  const taken = await Promise.all([b.tickets.takeAnywhere(first), a.tickets.takeAnywhere(first)]);
  assert.deepEqual(taken.filter((found) => found !== undefined), [identity]);
  const [old, left] = [await issue(), await issue()];
  await clock.advance(30_000);
  assert.equal(await b.tickets.takeAnywhere(old), undefined);
  const young = await issue();
  assert.equal(await database.store.count(WS_TICKETS.name), 1, "what is over is swept");
  assert.equal(await b.tickets.takeAnywhere(left), undefined);
  await a.tokens.revoke(record.id);
  await clock.advance(1_000);
  assert.equal(await passing(b, b.tickets.takeAnywhere(young)), undefined);
  for (const wrong of ["", "tkt_", "__proto__", "x".repeat(100_000)]) {
    assert.equal(await b.tickets.takeAnywhere(wrong), undefined);
  }
});

test("a token that another gateway made a moment ago is known by its id too, and its ticket is not used up for nothing", async () => {
  const { database, clock, start } = createGateways();
  const [a, b] = [await start(), await start()];
  await clock.advance(200);
  database.isMute = true;
  const { record: { id } } = await a.tokens.issue({ scopes: ["chat"], label: "" });
  const { ticket } = await a.tickets.issue({ tokenId: id, scopes: ["chat"] });
  assert.equal((await passing(b, b.tickets.takeAnywhere(ticket)))?.tokenId, id);
  const { record: other } = await a.tokens.issue({ scopes: ["runs"], label: "" });
  await passing(b, b.tokens.confirm({ tokenId: other.id }));
  assert.deepEqual(b.tokens.scopesOf(other.id), ["runs"]);
  for (const tokenId of [null, "control", "env", "cluster"]) {
    assert.equal(b.tokens.confirm({ tokenId }), undefined, "no look finds a token that no database keeps");
  }
  // The database goes away between the ticket and the look for its token
  const late = await a.tokens.issue(ADMIN);
  const { ticket: lost } = await a.tickets.issue({ tokenId: late.record.id, scopes: ["admin"] });
  const { onResult } = database;
  database.onResult = async (operation, first) => {
    await onResult(operation, first);
    if (operation !== "takeOnce" || first !== WS_TICKETS.name) return;
    database.isAway = true;
    await clock.sleep(1_000);
  };
  await assert.rejects(passing(b, b.tickets.takeAnywhere(lost)), code("storage_unavailable"));
});

test("a ticket without a token, and one of the command line, counts where it was given alone", async () => {
  const { start } = createGateways();
  const [a, b] = [await start({ envToken: "secret-of-a" }), await start()];
  for (const tokenId of [null, "control", "env"]) {
    const { ticket } = await a.tickets.issue({ tokenId, scopes: ["admin"] });
    assert.equal(await b.tickets.takeAnywhere(ticket), undefined, String(tokenId));
  }
  const { ticket } = await a.tickets.issue({ tokenId: null, scopes: ["admin"] });
  assert.equal((await a.tickets.takeAnywhere(ticket))?.tokenId, null);
});

test("a gateway has given 1,000 tickets at most, and the oldest goes first", async () => {
  const { database, start } = createGateways();
  const a = await start();
  const tickets = [];
  for (let index = 0; index < 1_001; index++) {
    tickets.push((await a.tickets.issue({ tokenId: null, scopes: [] })).ticket);
  }
  assert.equal(await database.store.count(WS_TICKETS.name), 1_000);
  assert.equal(await a.tickets.takeAnywhere(tickets[0] ?? ""), undefined);
  assert.ok(await a.tickets.takeAnywhere(tickets[1] ?? ""));
});

test("with the database down no ticket is looked for", async () => {
  const { database, clock, start } = createGateways();
  const a = await start();
  const { ticket } = await a.tickets.issue({ tokenId: null, scopes: [] });
  database.isAway = true;
  await clock.advance(1_000);
  await assert.rejects(a.tickets.takeAnywhere(ticket), code("storage_unavailable"));
});

test("a start waits 30 seconds for the database of its cluster", async () => {
  const { database, clock, start } = createGateways();
  database.isAway = true;
  const refused = assert.rejects(start(), code("storage_unavailable"));
  await clock.advance(31_000);
  await refused;
  const started = start();
  await clock.advance(20_000);
  database.isAway = false;
  await clock.advance(1_000);
  assert.equal(await (await started).tokens.count(), 0);
});
