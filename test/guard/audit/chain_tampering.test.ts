import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { canonicalDigest } from "../../../lib/base/json.ts";
import { chainKey } from "../../../lib/guard/audit/chain_records.ts";
import type { AuditReport } from "../../../lib/guard/audit/verify_audit.ts";
import type { Write } from "../../../lib/storage/store.ts";
import { auditedCall } from "../../support/audited_call.ts";
import { triesOf } from "../../support/seeded_random.ts";
import { type AuditedCluster, type ClusteredAudit, createAuditedCluster } from "./clustered_audit.ts";

type Body = Record<string, unknown>;
type Found = Awaited<ReturnType<AuditedCluster["records"]>>[number];

const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant("append" as const),
      gateway: fc.nat(2),
      count: fc.integer({ min: 1, max: 3 }),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("wait" as const), ms: fc.constantFrom(1, 1_000, 61_000) }) },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constantFrom(
        ...["stop", "die", "fence", "paused", "lose", "away"] as const,
      ),
      gateway: fc.nat(2),
    }),
  },
);
const history = fc.array(step, { minLength: 3, maxLength: 14 });

/** A history of a cluster, at whose end each gateway has seen what the others wrote. */
interface Past {
  readonly cluster: AuditedCluster;
  readonly reader: ClusteredAudit;
}

async function live(
  steps: readonly (typeof history extends fc.Arbitrary<infer T> ? T : never)[number][],
): Promise<Past> {
  const cluster = createAuditedCluster();
  let started = 0;
  const start = () => cluster.join(`gw_${++started}`);
  const gateways = [await start(), await start(), await start()];
  for (const each of steps) {
    if (each.do === "wait") {
      await cluster.clock.advance(each.ms);
      continue;
    }
    const gateway = gateways[each.gateway];
    assert.ok(gateway);
    if (each.do === "append") {
      for (let index = 0; index < each.count; index++) await gateway.audit.append(auditedCall(`tool_${index}`));
    } else if (each.do === "lose" || each.do === "away") {
      // The answer to its next write is lost, or the write is not made
      const fail = () => {
        [cluster.beforeBatch, cluster.afterBatch] = [() => {}, () => {}];
        throw new Error("The connection is lost");
      };
      if (each.do === "lose") cluster.afterBatch = fail;
      else cluster.beforeBatch = fail;
      await gateway.audit.append(auditedCall("lost")).catch(() => {});
    } else if (each.do === "paused") {
      // Fenced off with a write on its way, which goes to its next chain
      await gateway.fenceOff();
      const late = gateway.audit.append(auditedCall("late"));
      await cluster.clock.advance(500);
      await gateway.joinAgain();
      await cluster.clock.advance(500);
      await late;
    } else if (each.do === "fence") {
      await gateway.fenceOff();
      await gateway.joinAgain();
    } else {
      await (each.do === "stop" ? gateway.close() : gateway.fenceOff());
      gateways[each.gateway] = await start();
    }
  }
  await cluster.clock.advance(122_000);
  const reader = gateways[0];
  assert.ok(reader);
  return { cluster, reader };
}

async function write(cluster: AuditedCluster, writes: readonly Write[]): Promise<void> {
  assert.equal(await cluster.store.batch(writes), true);
}

const put = (key: string, body: unknown): Write => ({ op: "put", collection: "audit", key, body });
const remove = (key: string): Write => ({ op: "delete", collection: "audit", key });
const chainOf = ({ body }: Found) => String(body["chain"]);
const seqOf = ({ body }: Found) => Number(body["seq"]);
/** Tells whether a record says more than the heads of others. Those that do not need nobody who names them. */
const isTold = ({ body }: Found) => body["action"] !== "witnessed";
const names = ({ problems }: AuditReport, found: Found) =>
  problems.some(({ chain, seq }) => chain === chainOf(found) && seq === seqOf(found));

/** Ways to change the records. Each returns whether the report names what was done. */
const TAMPERINGS: Readonly<
  Record<
    string,
    (past: Past, records: readonly Found[], at: number) => Promise<((report: AuditReport) => boolean) | undefined>
  >
> = {
  async "a field is altered"({ cluster }, records, at) {
    const found = records[at] as Found;
    await write(cluster, [put(found.key, { ...found.body, added: 1 })]);
    return (report) => names(report, found) && report.problems.some(({ code }) => code === "altered");
  },
  async "a record is removed"({ cluster }, records, at) {
    const found = records[at] as Found;
    await write(cluster, [remove(found.key)]);
    return (report) => names(report, found) && report.problems.some(({ code }) => code === "missing");
  },
  async "two records are swapped"({ cluster }, records, at) {
    const [a, b] = [records[at] as Found, records[(at + 1) % records.length] as Found];
    await write(cluster, [put(a.key, b.body), put(b.key, a.body)]);
    return (report) => names(report, a) && names(report, b);
  },
  async "a record is put in with a hash of its own"({ cluster }, records, at) {
    const found = records[at] as Found;
    const { hash: _, ...content } = { ...found.body, tool: "forged" } as Body;
    const body = { ...content, hash: canonicalDigest(content) };
    const key = chainKey({ time: Date.parse(String(content["time"])) + 1, chain: chainOf(found), seq: seqOf(found) });
    if (records.some((record) => record.key === key)) return undefined;
    await write(cluster, [put(key, body)]);
    return ({ problems }) => problems.some(({ chain }) => chain === chainOf(found));
  },
  async "an entry is put in that is of no chain"({ cluster }) {
    await write(cluster, [put("t1", { v: 1 })]);
    return ({ problems }) => problems.some(({ code, chain }) => code === "inserted" && chain === undefined);
  },
  async "the end of a chain is cut off together with its head"({ cluster }, records, at) {
    const found = records[at] as Found;
    const chain = chainOf(found);
    const rest = records.filter((record) => chainOf(record) === chain && seqOf(record) < seqOf(found));
    const cut = records.filter((record) => chainOf(record) === chain && seqOf(record) >= seqOf(found));
    const last = rest.at(-1);
    if (last === undefined || !cut.some(isTold)) return undefined;
    for (const state of ["open", "ended"]) {
      const head = await cluster.store.get("audit_chains", `${state}.${chain}`);
      if (head === undefined) continue;
      const body = { ...head.body as Body, seq: seqOf(last), hash: last.body["hash"], time: last.body["time"] };
      await write(cluster, [{ op: "put", collection: "audit_chains", key: head.key, body }]);
    }
    await write(cluster, cut.map(({ key }) => remove(key)));
    return (report) => names(report, found) || report.problems.some((problem) => problem.chain === chain);
  },
  async "a whole chain is removed with its head"({ cluster }, records, at) {
    const chain = chainOf(records[at] as Found);
    await write(cluster, [
      ...records.filter((record) => chainOf(record) === chain).map(({ key }) => remove(key)),
      { op: "delete", collection: "audit_chains", key: `open.${chain}` },
      { op: "delete", collection: "audit_chains", key: `ended.${chain}` },
    ]);
    return ({ problems }) => problems.some((problem) => problem.chain === chain && problem.code === "missing");
  },
  async "a whole chain is rewritten with hashes of its own"({ cluster }, records, at) {
    const found = records[at] as Found;
    const chain = chainOf(found);
    if (!records.some((each) => chainOf(each) === chain && seqOf(each) >= seqOf(found) && isTold(each))) {
      return undefined;
    }
    const writes: Write[] = [];
    let prev: unknown;
    for (const record of records.filter((each) => chainOf(each) === chain)) {
      const { hash: _, ...content } = record.body;
      if (seqOf(record) === seqOf(found)) content["forged"] = true;
      if (seqOf(record) > seqOf(found)) content["prev"] = prev;
      const body = { ...content, hash: canonicalDigest(content) };
      prev = body.hash;
      writes.push(put(record.key, body));
    }
    for (const state of ["open", "ended"]) {
      const head = await cluster.store.get("audit_chains", `${state}.${chain}`);
      if (head === undefined) continue;
      writes.push({ op: "put", collection: "audit_chains", key: head.key, body: { ...head.body as Body, hash: prev } });
    }
    await write(cluster, writes);
    return ({ problems }) => problems.some((problem) => problem.chain === chain && problem.code === "head");
  },
  async "two chains have one id"({ cluster }, records, at) {
    const found = records[at] as Found;
    const chain = chainOf(found);
    const other = records.find((record) => chainOf(record) !== chain && seqOf(record) === seqOf(found));
    if (other === undefined) return undefined;
    const { hash: _, ...content } = { ...other.body, chain } as Body;
    const body = { ...content, hash: canonicalDigest(content) };
    const key = chainKey({ time: Date.parse(String(content["time"])), chain, seq: seqOf(found) });
    if (key === found.key) return undefined;
    await write(cluster, [put(key, body)]);
    return ({ problems }) => problems.some((problem) => problem.chain === chain);
  },
  async "the heads of two chains are swapped"({ cluster }, records, at) {
    const chain = chainOf(records[at] as Found);
    const heads = await cluster.store.scan("audit_chains", { order: "key", limit: 100 });
    const own = heads.find(({ key }) => key.endsWith(`.${chain}`));
    const other = heads.find(({ key, body }) =>
      key !== own?.key && (body as Body)["hash"] !== (own?.body as Body)["hash"]
    );
    if (own === undefined || other === undefined) return undefined;
    await write(cluster, [
      { op: "put", collection: "audit_chains", key: own.key, body: other.body },
      { op: "put", collection: "audit_chains", key: other.key, body: own.body },
    ]);
    return ({ problems }) => problems.some((problem) => problem.chain === chain);
  },
  async "positions and hashes of two heads are swapped"({ cluster }, records, at) {
    const chain = chainOf(records[at] as Found);
    const heads = await cluster.store.scan("audit_chains", { order: "key", limit: 100 });
    const own = heads.find(({ key }) => key.endsWith(`.${chain}`));
    const other = heads.find(({ key }) => key !== own?.key);
    if (own === undefined || other === undefined) return undefined;
    const [a, b] = [own.body as Body, other.body as Body];
    const take = (body: Body, { seq, hash }: Body) => ({ ...body, seq, hash });
    await write(cluster, [
      { op: "put", collection: "audit_chains", key: own.key, body: take(a, b) },
      { op: "put", collection: "audit_chains", key: other.key, body: take(b, a) },
    ]);
    return ({ problems }) => problems.some((problem) => problem.chain === chain);
  },
  async "the last record no longer says of which chain it is"({ cluster }, records, at) {
    const chain = chainOf(records[at] as Found);
    const last = records.findLast((record) => chainOf(record) === chain);
    if (last === undefined || !isTold(last)) return undefined;
    const { hash: _, chain: __, ...content } = last.body;
    const hash = canonicalDigest(content);
    for (const state of ["open", "ended"]) {
      const head = await cluster.store.get("audit_chains", `${state}.${chain}`);
      if (head === undefined) continue;
      await write(cluster, [{
        op: "put",
        collection: "audit_chains",
        key: head.key,
        body: { ...head.body as Body, hash },
      }]);
    }
    await write(cluster, [put(last.key, { ...content, hash })]);
    return (report) => names(report, last);
  },
  async "the head of a chain is removed"({ cluster }, records, at) {
    const chain = chainOf(records[at] as Found);
    await write(cluster, [
      { op: "delete", collection: "audit_chains", key: `open.${chain}` },
      { op: "delete", collection: "audit_chains", key: `ended.${chain}` },
    ]);
    return ({ problems }) => problems.some((problem) => problem.chain === chain && problem.code === "head");
  },
};

test("a history that nobody changed is whole, whoever stopped, died or was fenced off", async () => {
  await fc.assert(
    fc.asyncProperty(history, async (steps) => {
      const { reader } = await live(steps);
      const { ok, problems } = await reader.audit.verify();
      assert.deepEqual([ok, problems], [true, []]);
    }),
    { numRuns: triesOf(5) },
  );
});

for (const [what, tamper] of Object.entries(TAMPERINGS)) {
  test(`verify() finds it where ${what}`, async () => {
    await fc.assert(
      fc.asyncProperty(history, fc.nat(), async (steps, place) => {
        const past = await live(steps);
        const records = await past.cluster.records();
        const isNamed = await tamper(past, records, place % records.length);
        if (isNamed === undefined) return;
        const report = await past.reader.audit.verify();
        assert.equal(report.ok, false, "it is not found");
        assert.ok(isNamed(report), JSON.stringify(report.problems));
      }),
      { numRuns: triesOf(4) },
    );
  });
}
