import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { canonicalDigest } from "../../../lib/base/json.ts";
import { pruneChains } from "../../../lib/guard/audit/prune_chains.ts";
import type { Write } from "../../../lib/storage/store.ts";
import { auditedCall } from "../../support/audited_call.ts";
import { type ClusteredAudit, createAuditedCluster } from "./clustered_audit.ts";

const DAY_MS = 86_400_000;
const MINUTE_MS = 60_000;

/** Returns a cluster with a chain that is over and whose records are old enough to be forgotten. */
async function withOldChain() {
  const cluster = createAuditedCluster();
  const [a, b, c] = await Promise.all(["gw_a", "gw_b", "gw_c"].map((id) => cluster.join(id, { retentionDays: 3 })));
  assert.ok(a && b && c);
  for (let count = 0; count < 20; count++) await c.audit.append(auditedCall(`old_${count}`));
  await c.close();
  cluster.jump(2 * DAY_MS);
  for (let count = 0; count < 600; count++) await a.audit.append(auditedCall(`new_${count}`));
  cluster.jump(1.5 * DAY_MS);
  await b.audit.append(auditedCall("last"));
  const forget = async () => {
    const before = new Date(cluster.now() - 3 * DAY_MS).toISOString();
    return await pruneChains({ store: cluster.store, append: a.audit.append, before, own: "gw_a.1" });
  };
  return { cluster, b, forget };
}

describe("a verification of the chains of a cluster", () => {
  test("takes records that another gateway forgets meanwhile for no gap", async () => {
    for (const page of [1, 2]) {
      const cluster = createAuditedCluster();
      const a = await cluster.join("gw_a", { retentionDays: 3 });
      const b = await cluster.join("gw_b", { retentionDays: 3 });
      for (let count = 0; count < 600; count++) {
        await (count % 3 === 0 ? b : a).audit.append(auditedCall(`old_${count}`));
      }
      cluster.jump(4 * DAY_MS);
      for (const { audit } of [a, b]) await audit.append(auditedCall("new"));
      let scans = 0;
      cluster.onScan = async (collection) => {
        if (collection !== "audit" || ++scans !== page) return;
        const before = new Date(cluster.now() - 3 * DAY_MS).toISOString();
        await pruneChains({ store: cluster.store, append: a.audit.append, before, own: "gw_a.1" });
      };
      const { ok, problems } = await b.audit.verify();
      assert.deepEqual([ok, problems], [true, []], `forgotten before page ${page}`);
    }
  });

  test("takes records that are forgotten in several steps while it reads for no gap", async () => {
    const cluster = createAuditedCluster();
    const a = await cluster.join("gw_a", { retentionDays: 3 });
    for (let count = 0; count < 1_200; count++) await a.audit.append(auditedCall(`old_${count}`));
    cluster.jump(4 * DAY_MS);
    await a.audit.append(auditedCall("new"));
    const before = new Date(cluster.now() - 3 * DAY_MS).toISOString();
    const forget = async (steps: number) => {
      const append: typeof a.audit.append = (...event) => {
        if (steps-- === 0) throw new Error("One step is enough");
        return a.audit.append(...event);
      };
      await pruneChains({ store: cluster.store, append, before, own: "gw_a.1" }).catch(() => {});
    };
    let scans = 0;
    cluster.onScan = async (collection) => {
      if (collection !== "audit") return;
      scans++;
      if (scans === 1 || scans === 3) await forget(1);
    };
    const { ok, problems } = await a.audit.verify();
    assert.deepEqual([ok, problems], [true, []]);
  });

  test("takes a chain that is over and is forgotten whole meanwhile for no damage", async () => {
    // Before the second page of records, and before the heads
    for (const [from, reads] of [["audit", 2], ["audit_chains", 1]] as const) {
      const { cluster, b, forget } = await withOldChain();
      let count = 0;
      cluster.onScan = async (collection) => {
        if (collection !== from || ++count !== reads) return;
        cluster.onScan = async () => {};
        assert.equal(await forget(), 24);
      };
      const { ok, problems, chains } = await b.audit.verify();
      assert.deepEqual([ok, problems], [true, []], from);
      assert.equal(chains?.some(({ chain }) => chain === "gw_c.1"), false);
    }
  });

  test("finds what was changed in a chain that is forgotten whole meanwhile, and a chain that came back", async () => {
    const { cluster, b, forget } = await withOldChain();
    const old = (await cluster.records()).filter(({ body }) => body["chain"] === "gw_c.1");
    const [changed] = old.filter(({ body }) => body["tool"] === "old_3");
    assert.ok(changed);
    await cluster.store.batch([
      { op: "put", collection: "audit", key: changed.key, body: { ...changed.body, added: 1 } },
    ]);
    cluster.onScan = async (collection) => {
      if (collection !== "audit_chains") return;
      cluster.onScan = async () => {};
      await forget();
    };
    const found = async () =>
      (await b.audit.verify()).problems.map(({ chain, seq, code }) => `${chain} ${seq} ${code}`);
    assert.deepEqual(await found(), [`gw_c.1 ${changed.body["seq"]} altered`]);
    assert.deepEqual(await found(), []);
    await cluster.store.batch(old.map(({ key, body }) => ({ op: "put", collection: "audit", key, body })));
    assert.deepEqual(await found(), ["gw_c.1 22 head"]);
  });

  test("takes a chain that is left off after the walk for whole, also when it began first", async () => {
    const cluster = createAuditedCluster();
    const c = await cluster.join("gw_c");
    await c.audit.append(auditedCall("c"));
    cluster.jump(10);
    await cluster.join("gw_a");
    const b = await cluster.join("gw_b");
    await cluster.clock.advance(2_000);
    await c.fenceOff();
    cluster.onScan = async (collection) => {
      if (collection !== "audit_chains") return;
      cluster.onScan = async () => {};
      await cluster.clock.advance(MINUTE_MS);
      assert.equal((await cluster.records()).some(({ body }) => body["action"] === "left_off"), true);
    };
    const { ok, problems } = await b.audit.verify();
    assert.deepEqual([ok, problems], [true, []]);
  });

  test("takes a chain that ends between two pages of heads for whole", async () => {
    const cluster = createAuditedCluster();
    const gateways = await Promise.all(Array.from({ length: 101 }, (_, index) => cluster.join(`gw_${1_000 + index}`)));
    // Each has looked at its start for what to forget
    await cluster.clock.advance(0);
    let scans = 0;
    cluster.onScan = async (collection) => {
      if (collection !== "audit_chains" || ++scans !== 2) return;
      await gateways.at(-1)?.close();
    };
    const { ok, problems } = await gateways[0]?.audit.verify() ?? assert.fail("none");
    assert.deepEqual([ok, problems], [true, []]);
  });

  test("still finds records that were taken away among those that were not forgotten", async () => {
    const cluster = createAuditedCluster();
    const a = await cluster.join("gw_a", { retentionDays: 3 });
    for (let count = 0; count < 20; count++) await a.audit.append(auditedCall(`old_${count}`));
    cluster.jump(4 * DAY_MS);
    for (let count = 0; count < 20; count++) await a.audit.append(auditedCall(`new_${count}`));
    const before = new Date(cluster.now() - 3 * DAY_MS).toISOString();
    await pruneChains({ store: cluster.store, append: a.audit.append, before, own: "gw_a.1" });
    const records = await cluster.records();
    const gone = records.find(({ body }) => body["tool"] === "new_3");
    await cluster.store.takeOnce("audit", gone?.key ?? "");
    const { problems } = await a.audit.verify();
    assert.deepEqual(problems.map(({ seq, chain, code }) => ({ seq, chain, code })), [
      { seq: gone?.body["seq"], chain: "gw_a.1", code: "missing" },
    ]);
  });

  test("finds a replaced record that another names, however many gateways write at the same time", async () => {
    const cluster = createAuditedCluster();
    const gateways = await Promise.all(Array.from({ length: 80 }, (_, index) => cluster.join(`gw_${index}`)));
    const last = await cluster.join("gw_last");
    for (const { audit } of gateways) {
      cluster.jump(1);
      await audit.append(auditedCall("one"));
    }
    await cluster.clock.advance(1_000);
    for (let count = 0; count < 6; count++) await last.audit.append(auditedCall("naming"));
    const found = (await cluster.records()).find(({ body }) => body["chain"] === "gw_0.1" && body["seq"] === 2);
    assert.ok(found);
    const { hash: _, ...content } = { ...found.body, tool: "forged" } as Record<string, unknown>;
    const hash = canonicalDigest(content);
    const head = await cluster.store.get("audit_chains", "open.gw_0.1");
    await cluster.store.batch([
      { op: "put", collection: "audit", key: found.key, body: { ...content, hash } },
      { op: "put", collection: "audit_chains", key: "open.gw_0.1", body: { ...head?.body as object, hash } },
    ]);
    const { problems } = await last.audit.verify();
    assert.deepEqual(problems.map(({ chain, seq, code }) => ({ chain, seq, code })), [
      { chain: "gw_0.1", seq: 2, code: "head" },
    ]);
  });

  test("finds by a head that was kept elsewhere that all chains were taken back to an earlier time", async () => {
    const cluster = createAuditedCluster();
    const a = await cluster.join("gw_a");
    const b = await cluster.join("gw_b");
    await a.audit.append(auditedCall("one"));
    const earlier = {
      records: await cluster.records(),
      heads: await cluster.store.scan("audit_chains", { limit: 100 }),
    };
    await b.audit.append(auditedCall("two"));
    const head = { chain: "gw_b.1", ...b.audit.head() };
    assert.equal((await b.audit.verify({ head })).ok, true);
    const later = await cluster.records();
    await cluster.store.batch([
      ...later.filter(({ key }) => !earlier.records.some((record) => record.key === key))
        .map(({ key }): Write => ({ op: "delete", collection: "audit", key })),
      ...earlier.heads.map(({ key, body }): Write => ({ op: "put", collection: "audit_chains", key, body })),
    ]);
    assert.equal((await a.audit.verify()).ok, true, "nothing in the database tells of it");
    const found = ({ problems }: Awaited<ReturnType<typeof a.audit.verify>>) =>
      problems.map(({ chain, seq, code }) => `${chain} ${seq} ${code}`);
    assert.deepEqual(found(await a.audit.verify({ head })), ["gw_b.1 2 missing"]);
    const forged = { ...head, seq: 1, hash: "0".repeat(64) };
    assert.deepEqual(found(await a.audit.verify({ head: forged })), ["gw_b.1 1 head"]);
    const gone = { ...head, chain: "gw_gone.7" };
    assert.deepEqual(found(await a.audit.verify({ head: gone })), ["gw_gone.7 1 missing"]);
  });

  test("ends although all gateways go on writing", async () => {
    const cluster = createAuditedCluster();
    const gateways = [await cluster.join("gw_a"), await cluster.join("gw_b")] as const;
    let scans = 0;
    cluster.onScan = async (collection) => {
      if (collection !== "audit") return;
      assert.ok(++scans < 50, "the walk follows the writers for ever");
      cluster.jump(1);
      for (const { audit } of gateways) await audit.append(auditedCall(`call_${scans}`));
    };
    const { ok, problems } = await gateways[0].audit.verify();
    assert.deepEqual([ok, problems], [true, []]);
  });

  test("a crash at any write leaves chains that are whole, and nothing that was answered is lost", async () => {
    const script = async (a: ClusteredAudit, b: ClusteredAudit, answered: string[]) => {
      for (const [index, { audit }] of [a, b, a, b].entries()) {
        const written = await audit.append(auditedCall(`call_${index}`)).catch(() => false);
        if (written) answered.push(`call_${index}`);
      }
      await a.close();
    };
    for (const when of ["before", "after"] as const) {
      for (let at = 1; at <= 9; at++) {
        const cluster = createAuditedCluster();
        const b = await cluster.join("gw_b");
        let batches = 0;
        let isDead = false;
        const die = (writes: readonly Write[], isDone: boolean) => {
          const isMine = writes.some((write) => write.op === "check" && write.key === "gw_a");
          if (isMine && !isDone && !isDead) batches++;
          const isNow = isMine && !isDead && batches === at && isDone === (when === "after");
          isDead ||= isNow;
          if (isMine && isDead) throw new Error("The gateway is dead");
        };
        let last: readonly Write[] = [];
        cluster.beforeBatch = (writes) => die(last = writes, false);
        cluster.afterBatch = () => die(last, true);
        const a = await cluster.join("gw_a").catch(() => undefined);
        const answered: string[] = [];
        if (a !== undefined) {
          await script(a, b, answered);
          await a.fenceOff();
        }
        await cluster.clock.advance(2 * MINUTE_MS);
        const { ok, problems } = await b.audit.verify();
        assert.deepEqual([ok, problems], [true, []], `${when} batch ${at}`);
        const tools = (await cluster.records()).map(({ body }) => body["tool"]);
        for (const tool of answered) assert.equal(tools.filter((each) => each === tool).length, 1, tool);
      }
    }
  });
});

describe("chains with a damaged head", () => {
  test("keep nobody from forgetting old records", async () => {
    const cluster = createAuditedCluster();
    await cluster.store.batch([{ op: "insert", collection: "audit_chains", key: "open.gw_0.1", body: { v: 1 } }]);
    const a = await cluster.join("gw_a", { retentionDays: 3 });
    for (let count = 0; count < 5; count++) await a.audit.append(auditedCall(`old_${count}`));
    cluster.jump(4 * DAY_MS);
    await a.audit.append(auditedCall("new"));
    const before = new Date(cluster.now() - 3 * DAY_MS).toISOString();
    const count = await pruneChains({ store: cluster.store, append: a.audit.append, before, own: "gw_a.1" });
    assert.equal(count, 6);
  });

  test("are named by nobody when their names or hashes are none", async () => {
    const cluster = createAuditedCluster();
    const a = await cluster.join("gw_a");
    const head = (await cluster.store.get("audit_chains", "open.gw_a.1"))?.body as Record<string, unknown>;
    const bodies: Record<string, unknown> = {
      [`open.${"x".repeat(500)}.1`]: head,
      "open.no chain": head,
      "open.gw_b.1": { ...head, gateway: "gw_b", hash: "0".repeat(100_000) },
      "open.gw_c.1": { ...head, gateway: "g".repeat(100_000) },
      "open.gw_d.1": { ...head, gateway: "gw_d", time: "t".repeat(100_000) },
      "open.gw_e.1": { ...head, gateway: "gw_e", seq: 1e300 },
    };
    await cluster.store.batch(
      Object.entries(bodies).map(([key, body]) => ({ op: "insert", collection: "audit_chains", key, body })),
    );
    await cluster.clock.advance(2 * MINUTE_MS);
    await a.audit.append(auditedCall("one"));
    const records = await cluster.records();
    assert.ok(records.every(({ body }) => JSON.stringify(body).length < 2_000 && body["heads"] === undefined));
  });
});
