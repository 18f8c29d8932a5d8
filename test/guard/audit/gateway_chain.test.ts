import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Audit } from "../../../lib/guard/audit/audit.ts";
import { pruneChains } from "../../../lib/guard/audit/prune_chains.ts";
import type { AuditRecord } from "../../../lib/guard/audit/audit_chain.ts";
import { auditedCall } from "../../support/audited_call.ts";
import { createAuditedCluster } from "./clustered_audit.ts";

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;

/** Each record of a list as chain, position and event. */
function shown(records: readonly AuditRecord[]): readonly string[] {
  return records.map((record) => {
    const what = "tool" in record ? record.tool : record.type === "audit_chain" ? record.action : record.type;
    return `${record.chain ?? "-"}:${record.seq} ${what}`;
  });
}

async function listAll(audit: Audit, limit = 1000): Promise<readonly AuditRecord[]> {
  const records: AuditRecord[] = [];
  for (let before: string | undefined = undefined;;) {
    const part = await audit.list({ limit, before });
    records.push(...part.records);
    if (!part.hasMore) return records;
    before = part.last;
  }
}

describe("the chain of a gateway in a cluster", () => {
  test("each gateway writes a chain of its own, and the list shows all in the order of their times", async () => {
    const cluster = createAuditedCluster();
    const a = await cluster.join("gw_a");
    const b = await cluster.join("gw_b");
    for (const [index, { audit }] of [a, b, a, b].entries()) {
      await cluster.clock.advance(10);
      await audit.append(auditedCall(`tool_${index}`));
    }
    assert.deepEqual(shown(await listAll(b.audit)).toReversed(), [
      "gw_a.1:1 opened",
      "gw_b.1:1 opened",
      "gw_a.1:2 tool_0",
      "gw_b.1:2 tool_1",
      "gw_a.1:3 tool_2",
      "gw_b.1:3 tool_3",
    ]);
    assert.deepEqual(await a.audit.verify(), await b.audit.verify());
    assert.equal((await a.audit.verify()).ok, true);
    await a.close();
    await b.close();
  });

  test("a list in parts has each record once, whatever is written meanwhile", async () => {
    const cluster = createAuditedCluster();
    const gateways = [await cluster.join("gw_a"), await cluster.join("gw_b"), await cluster.join("gw_c")];
    // All in one millisecond
    for (let index = 0; index < 30; index++) await gateways[index % 3]?.audit.append(auditedCall(`tool_${index}`));
    const [reader] = gateways;
    assert.ok(reader);
    const before = shown(await listAll(reader.audit));
    const parts: string[] = [];
    for (let place: string | undefined = undefined, more = true; more;) {
      const part = await reader.audit.list({ limit: 4, before: place, type: "decision" });
      parts.push(...shown(part.records));
      [place, more] = [part.last, part.hasMore];
      await gateways[parts.length % 3]?.audit.append(auditedCall("later"));
    }
    assert.deepEqual(parts.filter((line) => !line.endsWith("later")), before.filter((line) => line.includes("tool_")));
  });

  test("a record names the heads of others that are new, found by the look and not by the append", async () => {
    const cluster = createAuditedCluster();
    const a = await cluster.join("gw_a");
    const b = await cluster.join("gw_b");
    await a.audit.append(auditedCall("one"));
    await cluster.clock.advance(1_000);
    [cluster.reads, cluster.batches] = [0, 0];
    await b.audit.append(auditedCall("two"));
    await b.audit.append(auditedCall("three"));
    assert.deepEqual([cluster.reads, cluster.batches], [0, 2], "an append is one round trip");
    const records = await listAll(b.audit);
    const headsOf = (tool: string) => records.find((record) => "tool" in record && record.tool === tool)?.heads;
    const named = records.find((record) => "tool" in record && record.tool === "one");
    assert.deepEqual(headsOf("two"), [{ chain: "gw_a.1", seq: 2, hash: named?.hash }]);
    assert.equal(headsOf("three"), undefined, "nothing is new");
  });

  test("a record names 16 heads at most, and the next ones the others", async () => {
    const cluster = createAuditedCluster();
    const gateways = await Promise.all(Array.from({ length: 40 }, (_, index) => cluster.join(`gw_${index}`)));
    const last = await cluster.join("gw_last");
    await cluster.clock.advance(1_000);
    for (const tool of ["one", "two", "three"]) await last.audit.append(auditedCall(tool));
    const own = (await listAll(last.audit)).filter(({ chain }) => chain === "gw_last.1");
    assert.ok(own.every(({ heads = [] }) => heads.length <= 16));
    const named = new Set(own.flatMap(({ heads = [] }) => heads.map(({ chain }) => chain)));
    assert.equal(named.size, gateways.length);
  });

  test("a chain ends with a record at an orderly stop, and the next start names where it ended", async () => {
    const cluster = createAuditedCluster();
    const first = await cluster.join("gw_a");
    await first.audit.append(auditedCall("one"));
    await first.close();
    const second = await cluster.join("gw_b");
    const records = await listAll(second.audit);
    assert.deepEqual(shown(records).toReversed(), [
      "gw_a.1:1 opened",
      "gw_a.1:2 one",
      "gw_a.1:3 closed",
      "gw_b.1:1 opened",
    ]);
    const closed = records.find(({ seq, chain }) => seq === 3 && chain === "gw_a.1");
    assert.deepEqual(records[0]?.heads, [{ chain: "gw_a.1", seq: 3, hash: closed?.hash }]);
    const { ok, chains } = await second.audit.verify();
    assert.deepEqual([ok, chains?.map(({ chain, state }) => `${chain} ${state}`)], [true, [
      "gw_a.1 closed",
      "gw_b.1 open",
    ]]);
  });

  test("a close waits for the upkeep of other chains that is at work, which complains of nothing", async () => {
    const cluster = createAuditedCluster();
    const gone = await cluster.join("gw_gone");
    const other = await cluster.join("gw_other");
    for (const { audit } of [gone, other]) await audit.append(auditedCall("one"));
    for (const gateway of [gone, other]) await gateway.fenceOff();
    const asked = Promise.withResolvers<void>();
    const answered = Promise.withResolvers<void>();
    cluster.onFences = async () => {
      asked.resolve();
      await answered.promise;
    };
    const a = await cluster.join("gw_a");
    await asked.promise;
    const closed = a.close();
    await new Promise((resolve) => setImmediate(resolve));
    answered.resolve();
    await closed;
    assert.deepEqual(cluster.complaints, []);
    // What it had left is done by the next gateway
    cluster.onFences = async () => {};
    const b = await cluster.join("gw_b");
    await cluster.clock.advance(1_000);
    const lines = shown(await listAll(b.audit));
    assert.deepEqual(lines.filter((line) => line.startsWith("gw_a.")), ["gw_a.1:2 closed", "gw_a.1:1 opened"]);
    assert.equal(lines.filter((line) => line.endsWith("left_off")).length, 2);
    await b.close();
    assert.deepEqual(cluster.complaints, []);
  });

  test("nothing is added to the chain of a gateway that was fenced off, and nothing is lost: it goes on in a new chain", async () => {
    const cluster = createAuditedCluster();
    const a = await cluster.join("gw_a");
    const b = await cluster.join("gw_b");
    await a.audit.append(auditedCall("before"));
    await a.fenceOff();
    const fact = { op: "insert", collection: "facts", key: "1", body: 1 } as const;
    const late = [a.audit.append(auditedCall("refused")), a.audit.append(auditedCall("fact"), [fact])];
    await cluster.clock.advance(MINUTE_MS / 10);
    await a.joinAgain();
    await cluster.clock.advance(MINUTE_MS);
    assert.deepEqual(await Promise.all(late), [true, true]);
    assert.deepEqual((await cluster.store.get("facts", "1"))?.body, 1);
    const lines = shown(await listAll(b.audit)).toReversed();
    assert.deepEqual(lines.filter((line) => line.startsWith("gw_a.1")), ["gw_a.1:1 opened", "gw_a.1:2 before"]);
    assert.deepEqual(lines.filter((line) => line.startsWith("gw_a.3")).slice(0, 3), [
      "gw_a.3:1 opened",
      "gw_a.3:2 refused",
      "gw_a.3:3 fact",
    ]);
    assert.equal(lines.filter((line) => line.endsWith("left_off")).length, 1, "one of the others ends it");
    const { ok, problems, chains } = await b.audit.verify();
    assert.deepEqual([ok, problems], [true, []]);
    assert.deepEqual(chains?.map(({ chain, state }) => `${chain} ${state}`).sort(), [
      "gw_a.1 left_off",
      "gw_a.3 open",
      "gw_b.1 open",
    ]);
  });

  test("an append without a lease fails within ten seconds, and says that it may be tried again", async () => {
    const cluster = createAuditedCluster();
    const a = await cluster.join("gw_a");
    await a.fenceOff();
    const refused = a.audit.append(auditedCall("one")).catch((error: unknown) => error);
    await cluster.clock.advance(11_000);
    assert.equal((await refused as { code?: string }).code, "storage_unavailable");
    assert.equal(a.audit.healthy(), false);
  });

  test("a start ends the chains of gateways that died, however many there are", async () => {
    const cluster = createAuditedCluster();
    for (const id of ["gw_a", "gw_b", "gw_c"]) {
      const gateway = await cluster.join(id);
      await gateway.audit.append(auditedCall(id));
      await gateway.fenceOff();
    }
    const d = await cluster.join("gw_d");
    await cluster.clock.advance(0);
    const { ok, chains } = await d.audit.verify();
    assert.equal(ok, true);
    assert.deepEqual(chains?.map(({ state }) => state), ["left_off", "left_off", "left_off", "open"]);
  });

  test("an answer that was lost neither forks a chain nor loses a record", async () => {
    const cluster = createAuditedCluster();
    const a = await cluster.join("gw_a");
    await a.audit.append(auditedCall("one"));
    cluster.afterBatch = () => {
      throw new Error("The connection is lost");
    };
    await assert.rejects(a.audit.append(auditedCall("two")));
    cluster.afterBatch = () => {};
    await a.audit.append(auditedCall("three"));
    assert.deepEqual(shown(await listAll(a.audit)).toReversed(), [
      "gw_a.1:1 opened",
      "gw_a.1:2 one",
      "gw_a.1:3 two",
      "gw_a.1:4 three",
    ]);
    assert.equal((await a.audit.verify()).ok, true);
  });

  test("a fact whose precondition does not hold is refused, and the audit has no record of it", async () => {
    const cluster = createAuditedCluster();
    const a = await cluster.join("gw_a");
    const fact = { op: "insert", collection: "facts", key: "1", body: 1 } as const;
    assert.equal(await a.audit.append(auditedCall("one"), [fact]), true);
    assert.equal(await a.audit.append(auditedCall("two"), [fact]), false);
    assert.equal(await a.audit.append(auditedCall("three")), true);
    assert.deepEqual(shown(await listAll(a.audit)).slice(0, 2), ["gw_a.1:3 three", "gw_a.1:2 one"]);
  });

  test("gateways at rest name each other's heads within a minute, and then rest", async () => {
    const cluster = createAuditedCluster();
    const a = await cluster.join("gw_a");
    const b = await cluster.join("gw_b");
    await cluster.clock.advance(2 * MINUTE_MS);
    await a.audit.append(auditedCall("one"));
    await cluster.clock.advance(MINUTE_MS + 1_000);
    const records = await listAll(b.audit);
    assert.ok(records.some(({ chain, heads }) => chain === "gw_b.1" && heads?.some(({ seq }) => seq >= 2)));
    const count = records.length;
    await cluster.clock.advance(30 * MINUTE_MS);
    assert.equal((await listAll(b.audit)).length, count, "a record for heads alone calls for no other");
    await a.close();
    await b.close();
    assert.equal(cluster.clock.pending(), 0);
  });

  test("the chain of a schema that one gateway alone wrote goes on to be verified, and is shown first", async () => {
    const cluster = createAuditedCluster();
    const { createAudit } = await import("../../../lib/guard/audit/audit.ts");
    const { SILENT } = await import("../../../lib/base/telemetry/log.ts");
    const alone = await createAudit({
      ...{ store: cluster.store, clock: cluster.clock, log: SILENT },
      redact: (text) => text,
      enabled: () => true,
      retentionDays: () => 30,
    });
    for (const tool of ["one", "two", "three"]) await alone.append(auditedCall(tool));
    await alone.close();
    const a = await cluster.join("gw_a");
    assert.deepEqual(shown(await listAll(a.audit, 2)).toReversed(), [
      "-:1 one",
      "-:2 two",
      "-:3 three",
      "gw_a.1:1 opened",
    ]);
    const { ok, chains, last_seq } = await a.audit.verify();
    assert.deepEqual([ok, last_seq, chains?.map(({ chain, records }) => `${chain} ${records}`)], [true, 3, [
      "alone 3",
      "gw_a.1 1",
    ]]);
    await cluster.store.takeOnce("audit", "000000000000003");
    await cluster.store.takeOnce("audit_head", "head");
    const cut = await a.audit.verify();
    assert.ok(
      cut.problems.some(({ code, message }) => code === "missing" && message.includes("record 1 of chain gw_a.1")),
    );
  });

  for (const [what, later] of [["behind it", 0], ["behind it, and the next one before it", 1]] as const) {
    test(`a record that is written while a verification is past its time is no gap: ${what}`, async () => {
      const cluster = createAuditedCluster();
      const a = await cluster.join("gw_a");
      const b = await cluster.join("gw_b");
      await cluster.clock.advance(100);
      // A full page
      for (let count = 0; count < 250; count++) await b.audit.append(auditedCall("one"));
      let scans = 0;
      cluster.onScan = async (collection) => {
        // The first page has been read up to the record of B
        if (collection !== "audit" || ++scans !== 2) return;
        cluster.jump(-50);
        await a.audit.append(auditedCall("late"));
        cluster.jump(100);
        for (let count = 0; count < later; count++) await a.audit.append(auditedCall("next"));
      };
      const { ok, problems, records } = await b.audit.verify();
      assert.deepEqual([ok, problems, records], [true, [], 253 + later]);
      assert.ok(scans > 2);
    });
  }

  test("old records of all chains are forgotten, by one gateway, and what is left is whole", async () => {
    const cluster = createAuditedCluster();
    const old = await cluster.join("gw_old", { retentionDays: 3 });
    for (let index = 0; index < 20; index++) await old.audit.append(auditedCall(`old_${index}`));
    await old.close();
    const a = await cluster.join("gw_a", { retentionDays: 3 });
    const b = await cluster.join("gw_b", { retentionDays: 3 });
    const prune = async (gateway: typeof a, own: string) =>
      await pruneChains({
        ...{ store: cluster.store, append: gateway.audit.append, own },
        before: new Date(cluster.now() - 3 * DAY_MS).toISOString(),
      });
    for (let day = 0; day < 12; day++) {
      await a.audit.append(auditedCall(`day_${day}`));
      if (day < 2) await b.audit.append(auditedCall(`early_${day}`));
      await cluster.clock.advance(MINUTE_MS);
      cluster.jump(DAY_MS);
      assert.equal(await prune(b, "gw_b.1"), 0, "the gateway with the oldest chain forgets for all");
      await prune(a, "gw_a.1");
      const { ok, problems } = await a.audit.verify();
      assert.deepEqual([ok, problems], [true, []], `day ${day}`);
    }
    const records = await listAll(a.audit);
    assert.ok(records.every(({ chain }) => chain !== "gw_old.1"), "the chain that ended is forgotten as a whole");
    assert.equal(await cluster.store.get("audit_chains", "ended.gw_old.1"), undefined);
    assert.ok(records.some(({ chain }) => chain === "gw_b.1"), "the newest record of an open chain stays");
    assert.ok(records.some((record) => record.type === "audit_chain" && record.action === "forgot"));
    assert.equal(records.some((record) => "tool" in record && record.tool === "day_1"), false);
  });
});
