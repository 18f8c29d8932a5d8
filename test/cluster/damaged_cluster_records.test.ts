import assert from "node:assert/strict";
import { test } from "node:test";
import {
  CLUSTER_DRAINS,
  CONVERSATION_HOLDS,
  GATEWAY_LEASES,
  RUN_CLAIMS,
  toPlace,
  WORKSPACE_MEMBERS,
  WORKSPACES,
} from "../../lib/cluster/cluster_records.ts";
import { NODE_LINKS } from "../../lib/extensions/nodes/shared_nodes.ts";
import {
  type ClusteredGateway,
  createSharedDatabase,
  joinGateway,
  LEASE_MS,
  type SharedDatabase,
} from "../support/clustered.ts";
import { ask } from "../support/supervised.ts";

const DURABLE = { durable: true } as const;

async function passUntil(database: SharedDatabase, holds: () => Promise<boolean>, atMostMs = 20_000): Promise<void> {
  for (let passed = 0; !await holds(); passed += 50) {
    assert.ok(passed < atMostMs, `it did not come to pass within ${atMostMs} ms`);
    await database.clock.advance(50);
  }
}

const isDone = ({ runs }: ClusteredGateway, id: string) => async () => (await runs.get(id))?.status === "completed";

async function damage({ store }: SharedDatabase, collection: string, key: string): Promise<void> {
  await store.batch([{ op: "put", collection, key, body: { v: 1 } }]);
}

test("a damaged hold, claim or list of drains holds no other run up", async () => {
  const database = createSharedDatabase();
  const a = await joinGateway(database, () => "answer", { seed: 1 });
  await damage(database, CONVERSATION_HOLDS.name, "c1");
  await damage(database, RUN_CLAIMS.name, "run_0");
  await damage(database, CLUSTER_DRAINS.name, "gateways");
  const held = await a.runs.start(ask("go", { ...DURABLE, conversationId: "c1" }));
  const other = await a.runs.start(ask("go", { ...DURABLE, conversationId: "c2" }));
  await passUntil(database, isDone(a, other.id));
  // Nobody who holds it has a claim, so nobody holds it
  await passUntil(database, isDone(a, held.id));
  assert.equal(await database.store.get(CONVERSATION_HOLDS.name, "c1"), undefined);
  assert.deepEqual([...await a.cluster.drains.all()], []);
  await a.close();
});

test("a child whose parent has a damaged claim waits, and holds no other run up", async () => {
  const database = createSharedDatabase();
  const a = await joinGateway(database, () => "answer", { seed: 1, agent: { tokensPerRun: 10_000 } });
  await damage(database, RUN_CLAIMS.name, "run_parent");
  await a.runs.start(ask("go", { ...DURABLE, parentId: "run_parent", conversationId: "c1" }));
  const other = await a.runs.start(ask("go", { ...DURABLE, conversationId: "c2" }));
  await passUntil(database, isDone(a, other.id));
  await a.close();
});

test("a gateway that died with a damaged lease is fenced off all the same, and one that lives renews it", async () => {
  const database = createSharedDatabase();
  const a = await joinGateway(database, [{ hang: "before" }], { seed: 1 });
  const b = await joinGateway(database, () => "answer", { seed: 2 });
  await passUntil(database, () => Promise.resolve(b.cluster.lease.mayAct()));
  const { id } = await a.runs.start(ask("go", DURABLE));
  await damage(database, GATEWAY_LEASES.name, a.cluster.id);
  await database.clock.advance(4 * LEASE_MS);
  assert.equal((await a.runs.get(id))?.status, "running", "the gateway lives");
  assert.ok((await b.cluster.gateways()).some((gateway) => gateway.id === a.cluster.id));
  a.link.isCut = true;
  await damage(database, GATEWAY_LEASES.name, a.cluster.id);
  await passUntil(database, isDone(b, id), 6 * LEASE_MS);
  await Promise.all([a.close(), b.close()]);
});

test("records of a cluster are bounded when they are read", () => {
  const long = "x".repeat(100_000);
  const about = { host: "h", pid: 1, version: "1", started_at: "2026-01-01T00:00:00.000Z" };
  const lease = { v: 1, fence: 1, until: 1, about };
  assert.ok(GATEWAY_LEASES.parse(lease));
  for (const name of ["host", "version", "started_at", "advertise_url"]) {
    assert.throws(() => GATEWAY_LEASES.parse({ ...lease, about: { ...about, [name]: long } }), name);
  }
  assert.throws(() => GATEWAY_LEASES.parse({ ...lease, about: { ...about, storage_keys: [long] } }));
  assert.throws(() =>
    GATEWAY_LEASES.parse({ ...lease, about: { ...about, storage_keys: Array.from({ length: 1_000 }, () => "k") } })
  );
  for (const number of [-1, 1.5, 1e300]) {
    assert.throws(() => GATEWAY_LEASES.parse({ ...lease, fence: number }), String(number));
  }
  const claim = { v: 1, gateway: null, fence: 0, conversation_id: null, parent_id: null };
  assert.ok(RUN_CLAIMS.parse(claim));
  for (const name of ["gateway", "conversation_id", "parent_id", "workspace"]) {
    assert.throws(() => RUN_CLAIMS.parse({ ...claim, [name]: long }), name);
  }
  const drain = { requested_at: "2026-01-01T00:00:00.000Z", by: { via: "cli", token_id: null } };
  assert.ok(CLUSTER_DRAINS.parse({ v: 1, gateways: { gw_1: drain } }));
  const bad = [
    { gw_1: { ...drain, requested_at: long } },
    { gw_1: { ...drain, by: { via: long, token_id: null } } },
    { [long]: drain },
    Object.fromEntries(Array.from({ length: 10_001 }, (_, index) => [`gw_${index}`, drain])),
  ];
  for (const gateways of bad) assert.throws(() => CLUSTER_DRAINS.parse({ v: 1, gateways }));
  const member = { v: 1, fence: 1, digest: "d", is_member: true, seen: {}, host: "h", process: null };
  assert.ok(WORKSPACE_MEMBERS.parse(member));
  const seen = [
    { gw_1: long },
    { [long]: "d" },
    Object.fromEntries(Array.from({ length: 10_001 }, (_, n) => [`gw_${n}`, "d"])),
  ];
  for (const each of seen) assert.throws(() => WORKSPACE_MEMBERS.parse({ ...member, seen: each }));
  for (const name of ["digest", "host"]) {
    assert.throws(() => WORKSPACE_MEMBERS.parse({ ...member, [name]: long }), name);
  }
  assert.throws(() => WORKSPACE_MEMBERS.parse({ ...member, process: { machine: long, pid: 1 } }));
  const place = toPlace({ host: long, folder: long, data_dir: `${"x".repeat(999)}\u{1f600}` });
  assert.ok(WORKSPACES.parse({ v: 1, folder_digest: "d", last_gateway: place }));
  assert.throws(() => WORKSPACES.parse({ v: 1, folder_digest: long }));
  for (const name of ["host", "folder", "data_dir"]) {
    assert.throws(() => WORKSPACES.parse({ v: 1, last_gateway: { ...place, [name]: long } }), name);
  }
  const link = {
    v: 1,
    gateway: "gw_1",
    fence: 1,
    connected_at: 1,
    address: null,
    version: "1",
    platform: "linux",
    tools: [],
  };
  assert.ok(NODE_LINKS.parse(link));
  for (const name of ["gateway", "address"]) assert.throws(() => NODE_LINKS.parse({ ...link, [name]: long }), name);
});
