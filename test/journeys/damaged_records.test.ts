import assert from "node:assert/strict";
import { mkdirSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { test } from "node:test";
import { databaseCheck } from "../../cli/doctor/check_database.ts";
import { repair } from "../../cli/doctor/repair.ts";
import { COLLECTIONS } from "../../handlers/stored_records.ts";
import { ROUTES } from "../../handlers/routes.ts";
import { jsonOf, type RunningGateway, withWorld, type Workspace } from "../support/world.ts";

const CONFIG = {
  budget: { tokens_per_day: 1_000_000 },
  agents: { helper: {} },
  autonomy: { level: "full" },
  channels: { mail: {} },
  cron: { enabled: true },
};
const NEVER = "0 0 29 2 *";
/** Lists with the ids that must stay in them. */
const LISTS = [
  "runs",
  "conversations",
  "approvals",
  "approval-rules",
  "schedules",
  "schedules/second/history",
  "deliveries",
  "tokens",
  "audit",
];
/** Collections that a start and the calls of this test read, so that the gateway names their damaged records itself. The doctor alone finds the others. */
const READ = [
  "approval_rules",
  "approvals",
  "audit",
  "audit_head",
  "conversations",
  "deliveries",
  "done_schedules",
  "mailboxes",
  "memory",
  "open_approvals",
  "open_deliveries",
  "open_runs",
  "open_sops",
  "plugins",
  "processes",
  "providers",
  "runs",
  "schedule_firings",
  "schedules",
  "sop_executions",
  "sub_agents",
  "tainted_files",
  "tokens",
];

const REWRITTEN = ["audit_head", "documents", "open_runs", "processes"];

const TABLES = (dataDir: string, workspace: Workspace) => ({ config: CONFIG, dataDir, workspace });

test("one damaged record of every collection stops nothing: each is named, and the others work on", () =>
  withWorld(async (world) => {
    const workspace = await world.workspace();
    const dataDir = await world.folder();
    const kept = await fill(TABLES(dataDir, workspace));
    const damaged = damage(dataDir);
    assert.deepEqual(new Set(damaged.map(({ collection }) => collection)), new Set(Object.keys(COLLECTIONS)));
    await world.during(world.gateway({ ...TABLES(dataDir, workspace), script: ["Yes"] }), async (gateway) => {
      for (const list of LISTS) {
        const reply = await gateway.call(`/v1/${list}`);
        const text = await reply.text();
        assert.equal(reply.status, 200, `${list}: ${text}`);
        for (const id of kept[list] ?? []) assert.ok(text.includes(id), `${list} lost ${id}: ${text}`);
      }
      const statuses = await Promise.all((kept.secrets ?? []).map(async (secret) => {
        const reply = await fetch(`${gateway.url}/v1/models`, { headers: { authorization: `Bearer ${secret}` } });
        return reply.status;
      }));
      assert.deepEqual(statuses, [401, 200], "the damaged token alone is refused");
      assert.match(await tool(gateway, "memory_recall", {}), /second/);
      assert.match(await tool(gateway, "agents_ipc", { op: "list" }), /for bob/);
      for (const list of gateway.services.tools.list().map(({ name }) => name)) {
        if (!list.endsWith("_list")) continue;
        const text = await tool(gateway, list, {});
        for (const id of kept[list] ?? []) assert.ok(text.includes(id), `${list} lost ${id}: ${text}`);
      }
      for (const { path } of ROUTES.filter(({ method, path }) => method === "GET" && /^\/v1\/[\w/-]+$/.test(path))) {
        const reply = await gateway.call(path);
        assert.ok(reply.status < 500, `${path}: ${await reply.text()}`);
      }
      const { status, unreadable_records: named } = await jsonOf(await gateway.call("/v1/status"));
      assert.equal(status, "degraded");
      assert.equal((await jsonOf(await gateway.call("/health"))).status, "degraded");
      const logged = JSON.stringify(gateway.log);
      for (const collection of READ) {
        // A record that the gateway writes again is whole again
        if (!REWRITTEN.includes(collection)) {
          assert.ok(JSON.stringify(named).includes(`"collection":"${collection}"`), `${collection} is not named`);
        }
        assert.ok(logged.includes(`"collection":"${collection}"`), `${collection} is not in the log`);
      }
      assert.ok(!JSON.stringify(named).includes("SECRET"), "no content is shown");
    });
    const stopped = await examine(dataDir);
    const named = Object.keys(COLLECTIONS).filter((name) => !REWRITTEN.includes(name));
    assert.deepEqual(named.filter((name) => !stopped.includes(name)), []);
    const { backup, removed } = await repair(dataDir);
    const names = removed.map(({ collection }) => collection);
    assert.ok(
      names.includes("conversation/conv-second") && names.some((name) => name.startsWith("run/")),
      names.join(),
    );
    const expected = Object.keys(COLLECTIONS).filter((name) => !REWRITTEN.includes(name));
    assert.deepEqual(expected.filter((name) => !names.includes(name)), []);
    assert.ok(backup !== null && statSync(backup).size > 0);
    assert.equal(statSync(backup).mode & 0o777, 0o600);
    assert.deepEqual(await repair(dataDir), { backup: null, removed: [], finished: true });
    await world.during(world.gateway({ ...TABLES(dataDir, workspace), script: ["Yes"] }), async (gateway) => {
      assert.equal((await jsonOf(await gateway.call("/health"))).status, "ok");
      for (const list of LISTS) {
        const text = await (await gateway.call(`/v1/${list}`)).text();
        for (const id of kept[list] ?? []) assert.ok(text.includes(id), `${list} lost ${id}: ${text}`);
      }
    });
  }));

test("doctor names a damaged record of each collection while no gateway runs, and while one does that does not read it", () =>
  withWorld(async (world) => {
    const workspace = await world.workspace();
    const dataDir = await world.folder();
    await fill(TABLES(dataDir, workspace));
    damage(dataDir);
    const stopped = await examine(dataDir);
    assert.deepEqual(Object.keys(COLLECTIONS).filter((name) => !stopped.includes(name)), []);
    await repair(dataDir);
    await world.during(world.gateway(TABLES(dataDir, workspace)), async (gateway) => {
      const running = {
        record: { address: `${gateway.url}/`, token: gateway.token },
        health: "ok",
        status: await jsonOf(await gateway.call("/v1/status")),
      };
      assert.doesNotMatch(await examine(dataDir, running), /damaged/);
      damage(dataDir);
      const found = await examine(dataDir, running);
      assert.deepEqual(Object.keys(COLLECTIONS).filter((name) => !found.includes(name)), []);
      assert.doesNotMatch(found, /SECRET/);
    });
  }));

/** Returns the messages of doctor about the database. */
async function examine(dataDir: string, running?: unknown): Promise<string> {
  const found = await databaseCheck.run({
    loaded: { config: { storage: { driver: "sqlite", key_env: "", old_key_env: "" } }, dataDir },
    running,
    context: { io: { env: {} } },
  } as never);
  return [found].flat().map(({ message }) => message).join("\n");
}

/** Puts two records into what is easily filled. The first of each is damaged later. */
async function fill(
  options: { readonly dataDir: string; readonly workspace: Workspace },
): Promise<Record<string, string[]>> {
  const kept: Record<string, string[]> = {};
  mkdirSync(join(options.dataDir, "sops"), { recursive: true });
  writeFileSync(join(options.dataDir, "sops", "beans.toml"), '[[steps]]\nid = "hand"\nmanual = "Water the beans"\n');
  const script = ["Yes", "Yes", "Yes", "Yes"];
  await withWorld(async (world) => {
    const gateway = await world.gateway({ ...options, script });
    const { services } = gateway;
    for (const [index, name] of ["first", "second"].entries()) {
      const keep = (list: string, id: string) => (kept[list] ??= []).push(...(index === 0 ? [] : [id]));
      const issued = await services.tokens.issue({ scopes: ["chat"], label: name });
      keep("tokens", issued.record.id);
      (kept["secrets"] ??= []).push(issued.token);
      const run = await gateway.call("/api/chat", {
        body: { message: `${name} SECRET`, conversation_id: `conv-${name}` },
        headers: { "idempotency-key": name },
      });
      assert.equal(run.status, 200, await run.text());
      keep("conversations", `conv-${name}`);
      await tool(gateway, "memory_store", { key: name, value: `${name} SECRET` });
      const started = JSON.parse(await tool(gateway, "sop_execute", { sop: "beans" }));
      keep("sop_list", started.data.id);
      await tool(gateway, "cron_add", { id: name, schedule: NEVER, prompt: name });
      await tool(gateway, "agents_ipc", {
        op: "send",
        from: "ann",
        to: index === 0 ? "ann" : "bob",
        payload: `for ${index === 0 ? "ann" : "bob"}`,
      });
      keep("schedules", name);
      const approval = await services.approvals.ask({
        tool: "shell",
        workspace: options.workspace.root,
        inputDigest: name,
        access: "write",
        input: {},
        reason: name,
        rule: "level",
        files: [],
        digest: name,
        runId: "run_1",
        callId: name,
        requestedBy: { via: "http", tokenId: null },
        timeoutMs: 100_000,
      } as never);
      assert.ok(approval !== undefined);
      keep("approvals", approval.id);
    }
  });
  return kept;
}

/** Damages the oldest record of every collection in a way of its own, and makes one where there is none. */
function damage(dataDir: string) {
  const database = new DatabaseSync(join(dataDir, "postern.db"));
  try {
    const names = database.prepare("SELECT DISTINCT collection FROM records").all().map((row) =>
      String(row["collection"])
    );
    for (const stream of ["conversation/conv-second", "run/%"]) {
      database.prepare("UPDATE stream_records SET body = '{\"v\":9}' WHERE stream LIKE ? AND seq = 1").run(stream);
    }
    const known = [...new Set([...names, ...Object.keys(COLLECTIONS)])];
    return known.map((collection, index) => {
      const oldest = database.prepare("SELECT key FROM records WHERE collection = ? ORDER BY id LIMIT 1").get(
        collection,
      );
      const key = oldest === undefined ? keyOf(collection) : String(oldest["key"]);
      const body = index % 2 === 0 ? '{"v":1,"id":"SECRET' : '{"v":7,"record_version":7,"marker":7,"type":"SECRET"}';
      database.prepare(
        `INSERT INTO records (collection, key, version, body, created_at, updated_at) VALUES (?, ?, 1, ?, 0, 0)
         ON CONFLICT (collection, key) DO UPDATE SET body = excluded.body`,
      ).run(collection, key, body);
      return { collection, key };
    });
  } finally {
    database.close();
  }
}

const KEYS: Readonly<Record<string, string>> = {
  pairing_guard: "guard",
  providers: "memory",
  schedule_firings: "second/2020",
};

function keyOf(collection: string): string {
  return KEYS[collection] ?? "damaged";
}

async function tool(gateway: RunningGateway, name: string, input: unknown): Promise<string> {
  const reply = await gateway.call(`/v1/tools/${name}/call`, { body: { input } });
  const text = await reply.text();
  assert.deepEqual([reply.status, JSON.parse(text).is_error], [200, false], `${name}: ${text}`);
  return text;
}
