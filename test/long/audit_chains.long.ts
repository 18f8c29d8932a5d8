/** Verifies a million records of five chains, made while they are read: the walk keeps no more of them than it needs. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { chainKey } from "../../lib/guard/audit/chain_records.ts";
import { chainRecord, NO_HASH } from "../../lib/guard/audit/audit_chain.ts";
import { verifyChains } from "../../lib/guard/audit/verify_chains.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import type { Store, Stored } from "../../lib/storage/store.ts";
import { auditedCall } from "../support/audited_call.ts";

const START = Date.parse("2026-01-01T00:00:00.000Z");

/** A store whose audit is made while it is read, once and in order. */
function madeWhileRead(count: number, { chains }: { readonly chains: number }): Store {
  const heads = Array.from({ length: chains }, (_, index) => ({ gateway: `gw_${index}`, seq: 0, hash: NO_HASH }));
  let made = 0;
  const next = (): Stored => {
    const index = made++ % chains;
    const head = heads[index];
    const beside = heads[(index + 1) % chains];
    assert.ok(head && beside);
    const time = START + made;
    const chain = `${head.gateway}.1`;
    const isFirst = head.seq === 0;
    const record = chainRecord(head, {
      event: isFirst ? { type: "audit_chain", action: "opened", gateway: head.gateway, fence: 1 } : auditedCall("tool"),
      time: new Date(time).toISOString(),
      seq: head.seq + 1,
      more: {
        chain,
        ...(beside.seq === 0 ? {} : { heads: [{ chain: `${beside.gateway}.1`, seq: beside.seq, hash: beside.hash }] }),
      },
    });
    [head.seq, head.hash] = [record.seq, record.hash];
    return { key: chainKey({ time, chain, seq: record.seq }), version: 1, body: record };
  };
  return {
    ...createMemoryStore(),
    get: () => Promise.resolve(undefined),
    scan(collection, { limit, after }) {
      if (collection === "audit") return Promise.resolve(Array.from({ length: Math.min(limit, count - made) }, next));
      const last = after === undefined ? 0 : heads.findIndex(({ gateway }) => after === `open.${gateway}.1`) + 1;
      const page = heads.slice(last, last + limit).map(({ gateway, seq, hash }) => ({
        key: `open.${gateway}.1`,
        version: 1,
        body: { v: 1, gateway, fence: 1, seq, hash, time: new Date(START + made).toISOString(), told: seq },
      }));
      return Promise.resolve(page);
    },
  };
}

for (const { count, chains } of [{ count: 1_000_000, chains: 5 }, { count: 200_000, chains: 90_000 }]) {
  test(`${count} records of ${chains} chains are verified in bounded memory`, async () => {
    const before = process.memoryUsage().rss;
    const { ok, problems, records } = await verifyChains({ store: madeWhileRead(count, { chains }) });
    const grown = Math.round((process.memoryUsage().rss - before) / 1e6);
    console.log(`${grown} MB more`);
    assert.deepEqual([ok, problems, records], [true, [], count]);
    assert.ok(grown < 600, `${grown} MB more`);
  });
}

test("records of more chains than a walk keeps are named as not checked", async () => {
  const { ok, problems, records } = await verifyChains({ store: madeWhileRead(150_000, { chains: 150_000 }) });
  assert.deepEqual([ok, records], [false, 150_000]);
  assert.ok(problems.some(({ message }) => message.includes("were not checked")));
});
