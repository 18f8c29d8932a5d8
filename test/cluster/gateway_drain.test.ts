import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { createScriptedProvider, createScriptedProviders, type Script } from "../../fixtures/scripted_provider.ts";
import { createRouter } from "../../handlers/router.ts";
import { ROUTES } from "../../handlers/routes.ts";
import type { ClusterReply } from "../../lib/base/records/cluster_view.ts";
import type { StatusReply } from "../../lib/base/records/gateway_status.ts";
import { WORKSPACE_MEMBERS } from "../../lib/cluster/cluster_records.ts";
import { createServices } from "../../lib/gateway.ts";
import type { GatewayServices } from "../../lib/services.ts";
import { createSharedDatabase, type DatabaseLink, LEASE_MS, type SharedDatabase } from "../support/clustered.ts";
import { createTestRouter } from "../support/test_router.ts";
import { toConfig } from "../support/config_edits.ts";
import { ask } from "../support/supervised.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

interface Member {
  /** Returns the number that a metric of the cluster has. */
  metric(name: string): Promise<number>;
  readonly services: GatewayServices;
  readonly link: DatabaseLink;
  readonly id: string;
  send(
    method: string,
    path: string,
    body?: unknown,
  ): Promise<{ readonly status: number; readonly body: unknown; readonly headers: Headers }>;
}

const GRACE_MS = 60_000;

/** Starts a whole gateway of its own data directory, in a workspace that all share, over a shared database, without a socket. */
async function startMember(database: SharedDatabase, folder: string, script: Script): Promise<Member> {
  const link = database.link();
  const { clock } = database;
  const workspaceRoot = join(dirname(folder), "work");
  mkdirSync(workspaceRoot, { recursive: true });
  const services = await createServices({
    config: toConfig({
      storage: { driver: "memory" },
      cluster: { lease_secs: LEASE_MS / 1_000, workspace_id: "shared" },
      gateway: { shutdown_grace_secs: GRACE_MS / 1_000 },
      autonomy: { level: "supervised" },
      security: { write_file: { enabled: true } },
    }),
    folders: { dataDir: join(folder, "data"), workspaceRoot, home: folder },
    environment: {},
    about: { version: "0.0.0-test" },
    log: { sink: () => {} },
    kit: { clock },
    cluster: { database: link },
    models: { providers: createScriptedProviders(createScriptedProvider(script, { clock })) },
  });
  const { token } = await services.tokens.issue({ scopes: ["admin"], label: "test" });
  const router = createRouter({ services, routes: ROUTES });
  const member: Member = {
    services,
    link,
    id: services.cluster.id ?? "",
    async send(method, path, body) {
      const reply = await router.fetch(
        new Request(`http://127.0.0.1${path}`, {
          method,
          headers: {
            authorization: `Bearer ${token}`,
            ...body !== undefined && { "content-type": "application/json" },
          },
          ...body !== undefined && { body: JSON.stringify(body) },
        }),
        { remoteAddress: "127.0.0.1" },
      );
      return { status: reply.status, body: await reply.json(), headers: reply.headers };
    },
    async metric(name) {
      const reply = await router.fetch(new Request("http://127.0.0.1/metrics"), { remoteAddress: "127.0.0.1" });
      const line = (await reply.text()).split("\n").find((each) => each.startsWith(`postern_cluster_${name} `));
      return Number(line?.split(" ")[1] ?? assert.fail(`there is no metric ${name}`));
    },
  };
  // Somebody looks at what waits, so that runs may ask
  await member.send("GET", "/v1/approvals");
  return member;
}

async function passUntil(database: SharedDatabase, holds: () => Promise<boolean> | boolean): Promise<void> {
  for (let passed = 0; !await holds(); passed += 50) {
    assert.ok(passed < 30_000, "it did not come to pass");
    await database.clock.advance(50);
  }
}

async function close(database: SharedDatabase, ...members: readonly Member[]): Promise<void> {
  for (const { services } of members) {
    const drained = services.drain(0);
    await database.clock.advance(5_000);
    await drained;
    await services.close();
  }
  assert.equal(database.clock.pending(), 0, "no timer is left");
}

async function clusterOf(member: Member): Promise<NonNullable<ClusterReply["cluster"]>> {
  const { status, body } = await member.send("GET", "/v1/cluster");
  assert.equal(status, 200);
  const { cluster } = body as ClusterReply;
  assert.ok(cluster);
  return cluster;
}

const errorOf = (body: unknown) => (body as { error: { code: string; message: string } }).error;
const WRITE = { toolCalls: [{ name: "write_file", arguments: { path: "a.txt", content: "hello" } }] };

test("a drained gateway hands its durable runs on, lets attached ones end, refuses new work by name, and stays drained", async () => {
  await withTemporaryFolder(async (folder) => {
    const database = createSharedDatabase();
    const held = Promise.withResolvers<void>();
    const a = await startMember(database, join(folder, "a"), [WRITE, { text: ["sl", "ow"], holdUntil: held.promise }]);
    const b = await startMember(database, join(folder, "b"), ["from B", "more from B"]);
    await database.clock.advance(2 * LEASE_MS);
    const run = await a.services.agent?.runs.start(ask("write", { durable: true }));
    assert.ok(run);
    await passUntil(
      database,
      async () => (await b.services.agent?.runs.get(run.id))?.status === "waiting_for_approval",
    );
    const before = await clusterOf(b);
    assert.deepEqual(
      before.gateways.map(({ id, state, runs, run_ids }) => [id, state, runs, run_ids]).sort(),
      [
        [a.id, "alive", 1, [run.id]],
        [b.id, "alive", 0, []],
      ].sort(),
    );
    assert.deepEqual(before.gateways.filter((gateway) => gateway.this).map(({ id }) => id), [b.id]);

    // A claim of A that A cannot take up: it has no run
    const stray = { v: 1, gateway: a.id, fence: 1, conversation_id: null, parent_id: null };
    await database.store.batch([{ op: "put", collection: "run_claims", key: "run_stray", body: stray }]);
    const attached = a.send("POST", "/v1/chat/completions", { messages: [{ role: "user", content: "Hi" }] });
    await passUntil(database, () => a.services.agent?.runs.active() === 2);
    const asked = await b.send("POST", `/v1/cluster/gateways/${a.id}/drain`);
    assert.equal(asked.status, 202);
    // The clock stands still: the note alone tells A, and the run is free as soon as it has stopped
    await passUntil(
      database,
      async () => (await clusterOf(b)).gateways.find(({ id }) => id === a.id)?.state === "draining",
    );
    await passUntil(database, async () => (await clusterOf(b)).gateways.find(({ id }) => id === b.id)?.runs === 1);
    assert.equal(
      (await clusterOf(b)).gateways.find(({ id }) => id === a.id)?.state,
      "draining",
      "an attached run is at work",
    );
    held.resolve();
    await passUntil(
      database,
      async () => (await clusterOf(b)).gateways.find(({ id }) => id === a.id)?.state === "drained",
    );
    assert.equal((await attached).status, 200, "an attached run ends within the grace");
    const given = (await database.store.get("run_claims", "run_stray"))?.body as typeof stray | undefined;
    assert.notEqual(given?.gateway, a.id, "whatever it had claimed is given back, or was ended");

    const { approvals: [approval] } = await b.services.approvals.list({ status: "pending", limit: 1 });
    assert.ok(approval);
    await b.services.approvals.answer(approval.id, { decision: "approve", by: { via: "http", tokenId: null } });
    await passUntil(database, async () => (await b.services.agent?.runs.get(run.id))?.status === "completed");
    assert.equal((await b.services.agent?.runs.get(run.id))?.result, "from B");

    const refused = await a.send("POST", "/v1/chat/completions", { messages: [{ role: "user", content: "Hi" }] });
    assert.deepEqual([refused.status, errorOf(refused.body).code], [503, "shutting_down"]);
    assert.match(errorOf(refused.body).message, /somebody has drained this gateway \(postern cluster drain\)/);
    assert.ok(Number(refused.headers.get("retry-after")) > 0);
    const health = await a.send("GET", "/health");
    assert.equal(health.status, 503);
    assert.match(JSON.stringify(health.body), /"status":"draining".*somebody has drained this gateway/);
    assert.equal((await b.send("GET", "/health")).status, 200);

    // It stays a member without work: it claims nothing, and asking again says so
    const waiting = await b.services.agent?.runs.start(ask("more", { durable: true }));
    assert.ok(waiting);
    await passUntil(database, async () => (await b.services.agent?.runs.get(waiting.id))?.status === "completed");
    await database.clock.advance(5 * LEASE_MS);
    assert.equal((await clusterOf(a)).gateways.find(({ id }) => id === a.id)?.state, "drained");
    const { records } = await b.services.audit.list({ type: "cluster", limit: 10 });
    const requested = (asked.body as { requested_at: string }).requested_at;
    // Both have one time, and then the order of their chains
    assert.deepEqual(
      records.map((record) =>
        record.type === "cluster" && record.action !== "folder_forgotten" && [
          record.action,
          record.chain?.split(".")[0],
          record.gateway,
          record.requested_at === requested,
          record.force,
          record.by.via,
          record.by.token_id !== null,
        ]
      ).sort(),
      [
        ["drain_asked", b.id, a.id, true, false, "http", true],
        ["drain_begun", a.id, a.id, true, undefined, "http", true],
      ],
    );
    const again = await a.send("POST", `/v1/cluster/gateways/${a.id}/drain`, {});
    assert.deepEqual([again.status, (again.body as { repeated: boolean }).repeated], [202, true]);
    await close(database, a, b);
  });
});

test("draining the last gateway that takes work needs force, an unknown one is named, and a lost note delays a drain by a second", async () => {
  await withTemporaryFolder(async (folder) => {
    const database = createSharedDatabase();
    const a = await startMember(database, join(folder, "a"), []);
    const b = await startMember(database, join(folder, "b"), []);
    const stateOf = async (id: string) => (await clusterOf(b)).gateways.find((gateway) => gateway.id === id)?.state;
    const drain = (id: string, body?: unknown) => b.send("POST", `/v1/cluster/gateways/${id}/drain`, body);

    const unknown = await drain("gw_nobody");
    assert.deepEqual([unknown.status, errorOf(unknown.body).code], [404, "not_found"]);
    assert.ok(errorOf(unknown.body).message.includes(a.id) && errorOf(unknown.body).message.includes(b.id));
    assert.equal((await drain("g".repeat(300))).status, 404);
    assert.equal((await drain("__proto__")).status, 404);

    database.isMute = true;
    assert.equal((await drain(a.id)).status, 202);
    await database.clock.advance(500);
    assert.equal(await stateOf(a.id), "draining", "what somebody asked for shows at once");
    assert.equal(a.services.facts.health().status, "ok");
    await database.clock.advance(1_000);
    await passUntil(database, async () => await stateOf(a.id) === "drained");
    database.isMute = false;

    const last = await drain(b.id);
    assert.deepEqual([last.status, errorOf(last.body).code], [409, "conflict"]);
    assert.match(errorOf(last.body).message, /no other gateway of the cluster takes work.*--force/);
    assert.equal(b.services.facts.health().status, "ok");
    assert.equal((await drain(b.id, { force: true })).status, 202);
    await passUntil(database, async () => await stateOf(b.id) === "drained");
    await close(database, a, b);
  });
});

test("two people who drain the last two gateways at the same time do not succeed both", async () => {
  await withTemporaryFolder(async (folder) => {
    const database = createSharedDatabase();
    const a = await startMember(database, join(folder, "a"), []);
    const b = await startMember(database, join(folder, "b"), []);
    const drained = await Promise.all([
      a.send("POST", `/v1/cluster/gateways/${b.id}/drain`),
      b.send("POST", `/v1/cluster/gateways/${a.id}/drain`),
    ]);
    assert.deepEqual(drained.map(({ status }) => status).sort(), [202, 409]);
    await close(database, a, b);
  });
});

test("a gateway whose lease is lost is degraded and says why, and the others see it late and then gone", async () => {
  await withTemporaryFolder(async (folder) => {
    const database = createSharedDatabase();
    const a = await startMember(database, join(folder, "a"), [WRITE]);
    assert.equal(await a.metric("heartbeat_duration_seconds_count"), 1, "the join counts");
    const b = await startMember(database, join(folder, "b"), []);
    await database.clock.advance(2 * LEASE_MS);
    const run = await a.services.agent?.runs.start(ask("write", { durable: true }));
    assert.ok(run);
    await passUntil(
      database,
      async () => (await b.services.agent?.runs.get(run.id))?.status === "waiting_for_approval",
    );
    const own = (await clusterOf(a)).own;
    assert.ok(own.lease_left_ms > 0 && own.notes.sent > 0 && own.notes.heard > 0);
    assert.deepEqual([own.id, own.failed_heartbeats, own.lost_leases], [a.id, 0, 0]);
    a.link.isCut = true;
    await database.clock.advance(LEASE_MS);
    const { status, body } = await a.send("GET", "/health");
    assert.equal(status, 200);
    assert.match(JSON.stringify(body), /"status":"degraded".*"reason":"the lease in the cluster could not be renewed/);
    const away = await a.send("GET", "/v1/cluster");
    assert.deepEqual([away.status, errorOf(away.body).code], [503, "storage_unavailable"]);
    await passUntil(database, async () => (await clusterOf(b)).gateways.find(({ id }) => id === b.id)?.runs === 1);
    assert.deepEqual((await clusterOf(b)).gateways.map(({ id }) => id), [b.id], "who was fenced off has no lease");
    a.link.isCut = false;
    await passUntil(database, async () => JSON.stringify((await a.send("GET", "/health")).body).includes('"ok"'));
    // The tokens are confirmed by a look of their own
    await passUntil(database, async () => (await a.send("GET", "/v1/cluster")).status === 200);
    const back = (await clusterOf(a)).own;
    assert.ok(back.failed_heartbeats > 0);
    assert.equal(back.lost_leases, 1);
    await close(database, a, b);
  });
});

test("a gateway that is not let into its workspace says why: health, status and the overview", async () => {
  await withTemporaryFolder(async (folder) => {
    const database = createSharedDatabase();
    const key = "shared/gw_damaged";
    await database.store.batch([{ op: "put", collection: WORKSPACE_MEMBERS.name, key, body: { v: 7 } }]);
    let isStarted = false;
    const starting = startMember(database, join(folder, "a"), []).finally(() => isStarted = true);
    while (!isStarted) await database.clock.advance(100);
    const a = await starting;
    const why = /it claims no run that needs its workspace: the record of another gateway .* cannot be read/;
    const health = (await a.send("GET", "/health")).body as { status: string; reason?: string };
    assert.match(health.reason ?? "", why);
    assert.match((await clusterOf(a)).own.reason ?? "", why);
    const { cluster, shared_workspace: shared } = (await a.send("GET", "/v1/status")).body as StatusReply;
    assert.match(cluster?.reason ?? "", why);
    assert.equal(shared?.is_proven, false);
    assert.match(shared?.problem ?? "", /^the record of another gateway/);
    await database.store.batch([{ op: "delete", collection: WORKSPACE_MEMBERS.name, key }]);
    await passUntil(database, async () => !JSON.stringify((await a.send("GET", "/health")).body).includes("reason"));
    assert.equal((await clusterOf(a)).own.reason, null);
    await close(database, a);
  });
});

test("the list of open runs is paged, and tells what waits", async () => {
  await withTemporaryFolder(async (folder) => {
    const database = createSharedDatabase();
    const a = await startMember(database, join(folder, "a"), [WRITE]);
    const run = await a.services.agent?.runs.start(ask("write", { durable: true }));
    assert.ok(run);
    await passUntil(
      database,
      async () => (await a.services.agent?.runs.get(run.id))?.status === "waiting_for_approval",
    );
    for (let i = 0; i < 5; i++) {
      const body = {
        v: 1,
        gateway: i === 0 ? "gw_gone" : null,
        fence: 7,
        conversation_id: i < 4 ? "talk" : null,
        parent_id: null,
      };
      await database.store.batch([{ op: "put", collection: "run_claims", key: `run_waiting${i}`, body }]);
    }
    const fence = { collection: "gateway_fences", key: "gw_gone", body: { v: 1, gone: true } };
    await database.store.batch([{ op: "put", ...fence }]);
    const { queue, gateways } = await clusterOf(a);
    assert.deepEqual([queue.open, queue.waiting], [6, 5]);
    assert.deepEqual(queue.by_conversation, [{ conversation_id: "talk", waiting: 3 }]);
    assert.deepEqual(gateways.map(({ id, state, runs }) => [id, state, runs]), [[a.id, "alive", 1], [
      "gw_gone",
      "gone",
      1,
    ]]);

    const seen: unknown[] = [];
    for (let after = "";;) {
      const { status, body } = await a.send("GET", `/v1/cluster/runs?limit=4${after}`);
      assert.equal(status, 200);
      const page = body as { data: { id: string; gateway: string | null }[]; has_more: boolean; last_id: string };
      seen.push(...page.data.map(({ id, gateway }) => [id, gateway]));
      if (!page.has_more) break;
      after = `&after=${page.last_id}`;
    }
    assert.deepEqual(seen, [[run.id, a.id], ...[0, 1, 2, 3, 4].map((i) => [`run_waiting${i}`, null])].sort());
    const waiting = (await a.send("GET", "/v1/cluster/runs?gateway=none&limit=2")).body as {
      data: { id: string }[];
      has_more: boolean;
    };
    assert.deepEqual([waiting.data.map(({ id }) => id), waiting.has_more], [["run_waiting0", "run_waiting1"], true]);
    const own = (await a.send("GET", `/v1/cluster/runs?gateway=${a.id}`)).body as { data: { id: string }[] };
    assert.deepEqual(own.data.map(({ id }) => id), [run.id]);
    await close(database, a);
  });
});

test("a gateway alone says that it is", async () => {
  const { send } = createTestRouter();
  const reply = await send("GET", "/v1/cluster", { token: "token_admin" });
  assert.deepEqual([reply.status, await reply.json()], [200, {
    cluster: null,
    reason: 'this gateway is alone, since storage.driver is "sqlite" and not "postgres"',
  }]);
  for (const [method, path] of [["GET", "/v1/cluster/runs"], ["POST", "/v1/cluster/gateways/gw_1/drain"]] as const) {
    const refused = await send(method, path, { token: "token_admin" });
    assert.equal(refused.status, 404);
    assert.match(JSON.stringify(await refused.json()), /Cannot find a cluster: this gateway is alone/);
  }
});

test("each gateway reports the queue of the cluster and its own part, and a drained one no queue", async () => {
  await withTemporaryFolder(async (folder) => {
    const database = createSharedDatabase();
    const a = await startMember(database, join(folder, "a"), [WRITE]);
    const b = await startMember(database, join(folder, "b"), []);
    const wait = { v: 1, gateway: null, fence: 0, conversation_id: null, parent_id: null, workspace: "of nobody" };
    // A gateway of that workspace that has no slot
    const fence = (await database.store.get("gateway_fences", b.id))?.version ?? 0;
    const member = { v: 1, fence, digest: "", is_member: true, seen: {}, host: "test", process: null };
    await database.store.batch([
      { op: "put", collection: "run_claims", key: "run_waiting", body: wait },
      { op: "put", collection: "workspace_members", key: `of nobody/${b.id}`, body: member },
    ]);
    await database.clock.advance(2 * LEASE_MS);
    const run = await a.services.agent?.runs.start(ask("write", { durable: true }));
    assert.ok(run);
    await passUntil(
      database,
      async () => (await b.services.agent?.runs.get(run.id))?.status === "waiting_for_approval",
    );
    for (const gateway of [a, b]) {
      assert.deepEqual([await gateway.metric("gateways"), await gateway.metric("queue_runs")], [2, 1]);
      assert.ok(await gateway.metric("lease_left_seconds") > 0);
      assert.ok(await gateway.metric("heartbeat_duration_seconds_count") > 0);
    }
    assert.deepEqual([await a.metric("runs_owned"), await b.metric("runs_owned")], [1, 0]);
    const before = await b.metric("queue_lag_seconds");
    await database.clock.advance(1_000);
    assert.equal(await b.metric("queue_lag_seconds"), before + 1);

    // A scrape asks the database for nothing
    let asked = 0;
    database.onResult = async () => void asked++;
    await a.metric("gateways");
    assert.equal(asked, 0);
    database.onResult = async () => {};

    a.link.isCut = true;
    await database.clock.advance(3 * LEASE_MS);
    assert.ok(await a.metric("heartbeat_failures_total") > 0);
    assert.equal(await a.metric("lease_left_seconds"), 0);
    await passUntil(database, async () => await b.metric("takeovers_total") === 1);
    await passUntil(database, async () => await b.metric("runs_owned") === 1);
    assert.equal(await b.metric("gateways"), 1);
    await database.clock.advance(6_000);
    assert.deepEqual([await a.metric("queue_runs"), await a.metric("gateways")], [Number.NaN, Number.NaN]);
    a.link.isCut = false;
    await passUntil(database, async () => await a.metric("lease_losses_total") === 1);
    await passUntil(database, async () => await a.metric("queue_runs") === 1);
    await b.send("POST", `/v1/cluster/gateways/${a.id}/drain`);
    await passUntil(database, () => a.services.facts.health().status === "draining");
    await database.clock.advance(6_000);
    assert.ok(Number.isNaN(await a.metric("queue_runs")));
    assert.equal(await b.metric("queue_runs"), 1);
    await close(database, a, b);
  });
});

test("a shutdown while the gateway is drained ends at once, and leaves nothing behind", async () => {
  await withTemporaryFolder(async (folder) => {
    const database = createSharedDatabase();
    const held = Promise.withResolvers<void>();
    const a = await startMember(database, join(folder, "a"), [{ text: ["sl", "ow"], holdUntil: held.promise }]);
    const b = await startMember(database, join(folder, "b"), []);
    const attached = a.send("POST", "/v1/chat/completions", { messages: [{ role: "user", content: "Hi" }] });
    await passUntil(database, () => a.services.agent?.runs.active() === 1);
    await b.send("POST", `/v1/cluster/gateways/${a.id}/drain`);
    await passUntil(database, () => a.services.facts.health().status === "draining");
    await database.clock.advance(1_000);
    await close(database, a, b);
    held.resolve();
    assert.equal((await attached).status, 503);
  });
});
