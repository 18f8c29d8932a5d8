import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { COLLECTIONS } from "../../../handlers/stored_records.ts";
import { createReplyStore } from "../../../handlers/middleware/reply_store.ts";
import { SILENT } from "../../../lib/base/telemetry/log.ts";
import type { PluginRecord } from "../../../lib/extensions/plugins/plugin_record.ts";
import { PluginRecords } from "../../../lib/extensions/plugins/plugin_records.ts";
import { SkillRecords } from "../../../lib/extensions/skills/skill_record.ts";
import { loadProviderMemory } from "../../../lib/providers/discovery/provider_memory.ts";
import { RunStore } from "../../../lib/runs/journal/run_store.ts";
import { DayBudget } from "../../../lib/runs/supervisor/day_budget.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import type { Store } from "../../../lib/storage/store.ts";
import { createFakeAudit } from "../../support/fake_audit.ts";
import { createFakeClock, type FakeClock } from "../../support/fake_clock.ts";
import { APPROVAL_RULES, APPROVALS, toApprovalBody, toRuleBody } from "../../../lib/guard/approval_records.ts";
import { toStoredJson } from "../../../lib/base/records/stored_object.ts";
import { MAILBOXES, toMailboxBody } from "../../../lib/memory/mailbox.ts";

const TIME = "2026-01-01T00:00:00.000Z";
const DIGEST = "0123456789abcdef".repeat(4);
const SEALED = { key: "8702e58bdfd4fe12", nonce: "70tzlmvZ5ySgpaua", data: "GyZitZx2" };
const BY = { via: "http", token_id: null };
const LIMITS = { maxIterations: 1, maxToolCalls: 2, tokensPerRun: 3 };
const FIRING = {
  ...{ v: 1, schedule_id: "a", time: 1, at: 2, trigger: "schedule", status: "started", run_id: null, reason: null },
  ...{ missed_count: null, missed_until: null },
};
const SCHEDULE = {
  ...{ v: 1, id: "a", state: "active", schedule: "hourly", timing: { kind: "once", at: 1 }, timezone: "UTC" },
  ...{ prompt: null, call: { tool: "look", input: {} }, caller: { token_id: null, scopes: ["admin"] }, tools: null },
  ...{ limits: LIMITS, next_at: 1, created_at: 1, updated_at: 1, seen_at: 1, last: FIRING, last_run_id: null },
};
const APPROVAL = {
  ...{ v: 1, id: "apr_1", object: "approval", status: "pending", tool: "shell", access: "write", input: {} },
  ...{ input_digest: "i", reason: "asked", rule: "level", workspace: "/work", files: [], containment: null },
  ...{ digest: "d", run_id: "run_1", call_id: "call_1", request_id: null, requested_by: null, created_at: TIME },
  ...{ expires_at: TIME, always_rule: null, offers: [], answered_at: null, answered_by: null, note: null },
  ...{ remember: null, rule_id: null, used_at: null, wider: { op: null, access: "write" } },
};
const STEP = {
  ...{ id: "look", status: "pending", approval_id: null, granted: false, call_digest: null, run_id: null },
  ...{ deadline: null, started_at: null, ended_at: null },
};
const GRANT = {
  ...{ version: "1.0.0", digest: DIGEST, kind: "wasm", fuel: null },
  capabilities: { workspace: "none", hosts: [], host_functions: [] },
};

/** Bodies of the records that a gateway changes after it has read them. Each object in them keeps fields that it does not know. */
const CHANGED: Readonly<Record<string, readonly object[]>> = {
  approvals: [APPROVAL],
  approval_rules: [{
    ...{ v: 1, id: "rule_1", object: "approval_rule", decision: "approve", scope: "always", run_id: null },
    ...{ tool: "shell", workspace: "/work", match: "call", input: {}, input_digest: "i", folder: null, command: null },
    ...{ op: null, access: null, text: "Allow it", created_at: TIME, created_by: null, approval_id: "apr_1" },
  }],
  audit_chains: [{ v: 1, gateway: "gw_1", fence: 1, seq: 1, hash: DIGEST, time: TIME, told: 1 }],
  browser_cookies: [{ v: 1, sealed: SEALED }],
  browser_logins: [{ v: 1, sealed: SEALED }],
  budget_days: [{ v: 1, tokens: 5, leased: 1 }],
  command_folders: [{ v: 1, folder: "src" }],
  cluster_drains: [{ v: 1, gateways: { gw_1: { requested_at: TIME, by: BY } } }],
  conversation_holds: [{ v: 1, run_id: "run_1", gateway: "gw_1", fence: 1 }],
  conversations: [{
    ...{ v: 1, created_at: TIME, updated_at: TIME, messages: 1, owner: { via: "token", token_id: null } },
    ...{ title: "Go", summary: { text: "x", covers: 1, made_at: TIME } },
  }],
  deliveries: [{
    ...{ v: 1, run_id: "run_1", channel: "mail", sender: null, message_id: null, status: "waiting", accepted_at: TIME },
    ...{ attempts: 0, next_attempt_at: null, last_error: null, ended_at: null },
  }],
  done_schedules: [SCHEDULE],
  halts: [{ v: 1, halts: [{ id: "all", kind: "all", name: null, halted_at: TIME, by: BY }] }],
  idempotent_replies: [
    { record_version: 2, fingerprint: "f", run_id: null, told: [], gateway: { id: "gw_1", fence: 1 }, expires_at: 1 },
  ],
  mailboxes: [{ v: 1, entries: [{ id: "msg_1", seq: 1, from: "a", bytes: 9, sealed: SEALED }] }],
  mcp_credentials: [{ v: 1, url: "https://acme.example/mcp", issuer: "https://acme.example", sealed: SEALED }],
  mcp_servers: [{ v: 1, identity: "i", verdict: { kind: "modern", at: 1 }, list: null, about: null }],
  memory: [{ v: 1, namespace: "default", key: "k", value: "x", tags: [], created_at: TIME, updated_at: TIME }],
  open_deliveries: [{ v: 1, gateway: "gw_1", fence: 1 }],
  open_runs: [{ v: 1 }],
  open_sops: [{ v: 1, gateway: "gw_1", fence: 1, workspace: "ws_1" }],
  pairing_guard: [{ v: 1, misses: 1, locked_until: 0 }],
  plans: [{ v: 1, tasks: [{ id: "1", title: "read", status: "pending", created_at: TIME, updated_at: TIME }] }],
  plugin_keys: [{ v: 1, id: "words", key: "k", serial: 1, pinned_at: TIME }],
  plugins: [{
    ...{ v: 1, id: "words", state: "enabled", folder: null, version: "1.0.0", digest: DIGEST, package_sha256: null },
    ...{ registry: null, grant: GRANT, off_because: null, created_at: TIME, changed_at: TIME },
  }],
  providers: [
    { v: 1, servers: [{ software: "vLLM", kind: "ollama", base_url: "http://127.0.0.1:1/v1", models: ["a"] }] },
    { v: 1, servers: [{ origin: "http://127.0.0.1:1", uid: null }] },
  ],
  run_claims: [{ v: 1, gateway: "gw_1", fence: 1, conversation_id: null, parent_id: null }],
  run_inputs: [{
    ...{ v: 2, messages: [], system_prompt: null, parameters: {}, tools: [{ name: "look", digest: DIGEST }] },
    ...{ client_tools: [], agent_tools: "none", durable: true, caller: { ...BY, scopes: ["chat"] }, depth: 0 },
    ...{ limits: { max_iterations: 1 }, call: { tool: "look", input: "{}" }, request_id: null },
  }],
  runs: [{
    v: 1,
    run: {
      ...{ id: "run_1", object: "run", kind: "chat", status: "queued", created_at: TIME, started_at: null },
      ...{ ended_at: null, model: "m", conversation_id: null, parent_id: null, result: null, error: null },
      usage: { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 },
    },
    seq: 0,
    records: 0,
  }],
  schedules: [SCHEDULE],
  skills: [{
    ...{
      v: 1,
      name: "new",
      digest: DIGEST,
      source: { kind: "git", from: "x", commit: null },
      installed_at: TIME,
      by: BY,
    },
  }],
  sop_executions: [{
    ...{ v: 1, id: "sop_1", sop: "p", status: "pending", created_at: TIME, started_at: null, ended_at: null },
    ...{ error: null, cancelling: false, gate: { approval_id: null, granted: false }, steps: [STEP] },
  }],
  storage_keys: [{ v: 1, check: "c" }],
  sub_agents: [{
    ...{ v: 1, id: "sub_0", kind: "spawn", agent: null, task: "x", run_id: "run_1", parent_id: null, ancestors: [] },
    ...{ chain: [], depth: 1, max_depth: 2, tools: [], created_at: TIME, limits: LIMITS, token_id: null },
    ...{ waiter: { id: "gw_1", fence: 1 }, ended: { status: "failed", at: TIME } },
  }],
  tainted_files: [{ v: 1, path: "/a", taint: [], identity: null, marked_at: TIME }],
  tokens: [{
    ...{ v: 1, id: "tok_1", hash: "h", label: "", scopes: ["chat"], created_at: TIME, expires_at: null },
    last_used_at: null,
  }],
  workspaces: [{ v: 1, folder_digest: DIGEST, last_gateway: { host: "web-1", folder: "/work", data_dir: "/data" } }],
};

/** Objects that are put together again, by collection and path. */
const WHOLE: Readonly<Record<string, string>> = {
  "schedules.timing": "the times of one expression: an expression that is changed has others",
  "done_schedules.timing": "as that of schedules",
  "schedules.call.input": "input of a tool",
  "done_schedules.call.input": "input of a tool",
  "approvals.input": "input of a tool",
  "approval_rules.input": "input of a tool",
  "cluster_drains.gateways": "names of gateways",
  "run_inputs.parameters": "parameters of a model",
  mailboxes: "a list: a new field stands at its entries",
  "mcp_servers.verdict": "an answer of the server",
  "runs.run.usage": "the sums of the journal's events",
};

/** Yields the path of each object in a body, with the object. */
function* objectsOf(value: unknown, path: string): Generator<readonly [string, Record<string, unknown>]> {
  if (typeof value !== "object" || value === null) return;
  if (Array.isArray(value)) {
    for (const item of value) yield* objectsOf(item, path);
    return;
  }
  yield [path, value as Record<string, unknown>]; // no list, and not null
  for (const [name, part] of Object.entries(value)) yield* objectsOf(part, `${path}.${name}`);
}

/** Returns what a gateway writes back of a body that it has read. */
function rewritten(collection: string, body: unknown): unknown {
  if (collection === "approvals") return toApprovalBody(APPROVALS.parse(body));
  if (collection === "mailboxes") return toMailboxBody(MAILBOXES.parse(body));
  if (collection === "approval_rules") return toRuleBody(APPROVAL_RULES.parse(body));
  return COLLECTIONS[collection]?.parse(body) ?? assert.fail(`no parser of ${collection}`);
}

describe("fields of a newer version", () => {
  test("are kept in the records of every collection that is not declared as replaced", () => {
    const kept = Object.values(COLLECTIONS).filter(({ options }) => options.replaced === undefined);
    assert.deepEqual(Object.keys(CHANGED).sort(), kept.map(({ name }) => name).sort());
  });

  for (const [collection, bodies] of Object.entries(CHANGED)) {
    test(`are kept in ${collection}, wherever they stand`, () => {
      for (const body of bodies) {
        for (const [path] of objectsOf(body, collection)) {
          if (path in WHOLE) continue;
          const newer = structuredClone(body);
          for (const [place, part] of objectsOf(newer, collection)) {
            if (place === path) part["from_the_future"] = { a: 1 };
          }
          const kept = toStoredJson(rewritten(collection, newer));
          const found = [...objectsOf(JSON.parse(String(kept)), collection)].find(([place]) => place === path);
          assert.deepEqual(found?.[1]["from_the_future"], { a: 1 }, `${path} loses it`);
        }
      }
    });
  }
});

/** A record with a field of a newer version, and a change that a gateway makes to the record. */
interface RecordChange {
  readonly collection: string;
  readonly key: string;
  readonly body: object;
  readonly change: (parts: { readonly store: Store; readonly clock: FakeClock }) => Promise<unknown>;
}

const PLUGIN = CHANGED["plugins"]?.[0] as PluginRecord; // as the doctor's parser takes it
const DAY = "2026-01-01";
const NEED = { input: 1, output: 1, signal: new AbortController().signal };

const CHANGES: readonly RecordChange[] = [
  {
    ...{ collection: "plugins", key: "installed words", body: PLUGIN },
    change: ({ store, clock }) =>
      new PluginRecords({ store, clock, audit: createFakeAudit(store).append })
        .keep({ ...PLUGIN, state: "disabled" }, [{ action: "disabled", by: null }]),
  },
  {
    ...{ collection: "skills", key: "new", body: CHANGED["skills"]?.[0] ?? {} },
    change: ({ store, clock }) =>
      new SkillRecords({ store, clock, audit: createFakeAudit(store).append }).keep(
        { name: "new", digest: DIGEST, source: { kind: "folder", from: "/y", commit: null } },
        { by: { via: "http", tokenId: null }, isUpdate: true },
      ),
  },
  {
    ...{ collection: "providers", key: "memory", body: CHANGED["providers"]?.[0] ?? {} },
    async change({ store }) {
      const memory = await loadProviderMemory({ store, log: SILENT });
      await memory.remember({ software: "x", kind: "ollama", baseUrl: "http://127.0.0.1:2/v1", models: ["b"] });
    },
  },
  {
    ...{ collection: "providers", key: "trusted", body: CHANGED["providers"]?.[1] ?? {} },
    async change({ store }) {
      const memory = await loadProviderMemory({ store, log: SILENT });
      await memory.trust({ origin: "http://127.0.0.1:2", uid: 7 });
    },
  },
  {
    ...{ collection: "budget_days", key: DAY, body: { v: 1, tokens: 5 } },
    change: ({ store, clock }) => new DayBudget({ store, clock, tokensPerDay: () => 1_000 }).reserve(NEED),
  },
  {
    ...{ collection: "budget_days", key: DAY, body: { v: 1, tokens: 5, leased: 5 } },
    change: ({ store, clock }) =>
      new DayBudget({ store, clock, tokensPerDay: () => 1_000 }, {
        keepsSlice: true,
        bus: { tell: () => {}, onNote: () => () => {} },
        history: () => undefined,
      }).reserve(NEED),
  },
  {
    ...{ collection: "idempotent_replies", key: "scope", body: CHANGED["idempotent_replies"]?.[0] ?? {} },
    change: ({ store, clock }) =>
      createReplyStore({ store, clock, member: { id: "gw_2", own: () => ({ id: "gw_2", fence: 1 }) } })
        .reclaim("scope", { fingerprint: "f", runId: "run_1", told: [1], gateway: undefined }),
  },
  {
    ...{ collection: "open_runs", key: "run_1", body: { v: 1 } },
    change: ({ store }) => new RunStore(store).cancel("run_1"),
  },
];

describe("a change of a record", () => {
  for (const { collection, key, body, change } of CHANGES) {
    test(`keeps fields of a newer version in ${collection} ${key}`, async () => {
      const [store, clock] = [createMemoryStore(), createFakeClock(Date.parse(TIME))];
      await store.insertOnce(collection, key, { ...body, from_the_future: true });
      await change({ store, clock });
      const stored = await store.get(collection, key);
      assert.equal(stored?.version, 2, "it was not changed");
      assert.equal((stored.body as { readonly from_the_future?: boolean }).from_the_future, true);
    });
  }
});
