import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as v from "valibot";
import type { Script } from "../../fixtures/scripted_provider.ts";
import type { Run } from "../../lib/base/records/run.ts";
import { HttpError } from "../../lib/base/errors.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { GatewayChain } from "../../lib/guard/audit/gateway_chain.ts";
import { type Audit, createAudit } from "../../lib/guard/audit/audit.ts";
import { SharedApprovalNews } from "../../lib/guard/approval_news.ts";
import { StoredApprovals } from "../../lib/guard/stored_approvals.ts";
import { createApprover } from "../../lib/runs/supervisor/create_approver.ts";
import { UnknownWriteError } from "../../lib/storage/read_records.ts";
import { defineTool } from "../../lib/tools/runtime/define_tool.ts";
import type { Tool } from "../../lib/tools/runtime/tool.ts";
import { awayError, createSharedDatabase, joinLink, LEASE_MS, type SharedDatabase } from "../support/clustered.ts";
import { createSeededRandom, triesOf } from "../support/seeded_random.ts";
import { ask, type AskOptions, supervised } from "../support/supervised.ts";
import { type ConfigChanges, createToolBench } from "../support/tool_bench.ts";
import type { CallChanges } from "../support/tool_call.ts";

const MAY_DO_ALL: ConfigChanges = { autonomy: { level: "full" } };

/** A gateway of a cluster with the real executor, audit and approvals. */
async function joinWithTools(
  database: SharedDatabase,
  script: Script,
  { tools, seed = 1, config = MAY_DO_ALL, budget = 0 }: {
    readonly tools?: readonly Tool[] | undefined;
    readonly seed?: number;
    readonly config?: ConfigChanges | undefined;
    /** Tokens of a day. Default: no limit */
    readonly budget?: number | undefined;
  } = {},
) {
  const { clock } = database;
  const { link, cluster, member, log, close } = await joinLink(database, { seed });
  const { store } = link;
  const random = createSeededRandom(500 + seed);
  const audit = await createAudit({
    ...{ store, clock, log: SILENT },
    openChain: (parts) => Promise.resolve(new GatewayChain({ ...parts, cluster })),
    redact: (text) => text,
    enabled: () => true,
    retentionDays: () => 30,
  });
  const bench = createToolBench({
    root: "/nonexistent",
    config,
    clock,
    shared: { store, audit: audit.append },
    ...(tools === undefined ? {} : { tools }),
  });
  const approvals = new StoredApprovals({
    ...{ store, clock, random, log: SILENT, metrics: createMetrics(), audit: audit.append },
    news: new SharedApprovalNews({ store, clock, log: SILENT, bus: cluster.bus }),
  });
  const gateway = supervised(script, {
    ...{ clock, store, seed, log, cluster: member },
    realTools: bench.executor,
    tokensPerDay: budget,
    approverOf: createApprover({ approvals, timeoutMs: () => ({ attached: 60_000, durable: 600_000 }) }),
  });
  await gateway.runs.recover();
  return { ...gateway, link, cluster, audit, bench, approvals, close };
}

/** A tool with an effect, which is noted with whether its gateway might act. */
function effectTool(onEffect: () => void = () => {}) {
  const effects: string[] = [];
  const tool = defineTool({
    name: "effect",
    description: "Does something that must not be done twice",
    access: "write",
    enabled: "always",
    needs: [],
    input: v.strictObject({}),
    run(_, { callId }) {
      effects.push(callId);
      onEffect();
      return Promise.resolve({ output: `effect ${effects.length}`, isError: false });
    },
  });
  return { tool, effects };
}

const CALL = { toolCalls: [{ name: "effect", arguments: "{}" }] };

/** Moves the time on in steps that are short beside a lease, until something holds. */
async function passUntil(database: SharedDatabase, holds: () => boolean | Promise<boolean>, atMostMs = 60_000) {
  for (let passed = 0; !await holds(); passed += 50) {
    assert.ok(passed < atMostMs, `it did not come to pass within ${atMostMs} ms`);
    await database.clock.advance(50);
  }
}

const AT_WORK: readonly (Run["status"] | undefined)[] = [undefined, "queued", "running", "waiting_for_approval"];

/** Returns a run once it is over. @param meanwhile called while it is at work; may fail while the database is down */
async function endOf(
  database: SharedDatabase,
  id: string,
  meanwhile: () => Promise<void> | undefined = () => undefined,
) {
  const { store } = database;
  let run: Run | undefined;
  await passUntil(database, async () => {
    await meanwhile()?.catch((error: unknown) => {
      if (!(error instanceof HttpError)) throw error;
    });
    const body = (await store.get("runs", id))?.body as { readonly run: Run } | undefined;
    run = body?.run;
    return !AT_WORK.includes(run?.status);
  });
  return run;
}

/** Returns what the audit has of calls and their approvals, in order. */
async function recordsOf(audit: Audit): Promise<readonly string[]> {
  const { records } = await audit.list({ limit: 1_000 });
  return records.toReversed().flatMap((record) => {
    if (record.type === "decision") return [`${record.decision} ${record.rule}`];
    return record.type === "call" ? [record.outcome] : record.type === "approval" ? [record.action] : [];
  });
}

type Gateway = Awaited<ReturnType<typeof joinWithTools>>;

/** Ways in which one operation of the store fails, after which the database is down for three leases. */
const FAILURES = {
  /** The answer arrives, and nothing after it */
  "goes away": () => undefined,
  /** The operation is done, and its answer is lost */
  "loses an answer": (operation: string) =>
    operation === "batch" || operation === "takeOnce" ? new UnknownWriteError(awayError()) : awayError(),
};

interface Scenario {
  readonly script: Script;
  readonly request?: AskOptions;
  readonly config?: ConfigChanges;
  readonly budget?: number;
  /** Runs again and again while the run is at work */
  readonly meanwhile?: (gateway: Gateway) => Promise<void>;
  /** Records of the audit */
  readonly recorded: readonly string[];
  /** True: the built-in tools are called, which do nothing but change the database. Default: one with an effect */
  readonly isBuiltin?: boolean;
  /** Checks what the calls have written */
  readonly written?: (gateway: Gateway) => Promise<void>;
}

const ALLOWED = "allow level:full/write";

const SCENARIOS: Readonly<Record<string, Scenario>> = {
  "two effects": {
    script: [CALL, CALL, "all done"],
    request: { durable: true },
    recorded: [ALLOWED, "ok", ALLOWED, "ok"],
  },
  "an attached run": { script: [CALL, CALL, "all done"], recorded: [ALLOWED, "ok", ALLOWED, "ok"] },
  "a conversation with a budget of the day": {
    script: [CALL, "all done"],
    request: { durable: true, conversationId: "c1" },
    budget: 1_000_000,
    recorded: [ALLOWED, "ok"],
  },
  "an approval": {
    script: [CALL, "all done"],
    request: { durable: true },
    config: { autonomy: { level: "supervised" } },
    async meanwhile({ approvals }) {
      const { approvals: [pending] } = await approvals.list({ status: "pending", limit: 1 });
      if (pending === undefined) return;
      await approvals.answer(pending.id, { decision: "approve", by: { via: "http", tokenId: "tok_1" } });
    },
    recorded: ["ask level:supervised/write", "asked", "approved", "used", "allow approval", "ok"],
  },
};

/** Operations that are left out between two that fail: the others fail in the other scenarios, and all with TRIES above 2. */
const STRIDE = triesOf(1) > 2 ? 1 : 3;

const PLAN = [{ op: "create", tasks: ["first"] }, { op: "add", title: "second" }];
const LETTER = { op: "send", from: "a", to: "b", payload: "hello" };

/** Calls of built-in tools that must not be made twice. */
const BUILTIN: Readonly<Record<string, Scenario>> = {
  "tools whose work is in the database": {
    script: [
      ...PLAN.map((input) => ({ toolCalls: [{ name: "task_plan", arguments: input }] })),
      { toolCalls: [{ name: "agents_ipc", arguments: LETTER }] },
      "all done",
    ],
    request: { durable: true },
    isBuiltin: true,
    recorded: Array.from({ length: 3 }, () => ["allow level:full/state", "ok"]).flat(),
    async written({ bench }) {
      const plan = await bench.call("task_plan", { op: "list" });
      const titles = (plan.result.data as { tasks: { title: string }[] }).tasks.map(({ title }) => title);
      assert.deepEqual(titles, ["first", "second"]);
      const { result } = await bench.call("agents_ipc", { op: "recv", to: "b" });
      assert.equal((result.data as { messages: unknown[] }).messages.length, 1, result.output);
    },
  },
};

describe("a run whose database goes away at any moment makes each call once, with one decision in the audit", () => {
  for (const [index, [what, scenario]] of Object.entries({ ...SCENARIOS, ...BUILTIN }).entries()) {
    for (const [how, failure] of Object.entries(FAILURES)) {
      test(`${what}: the database ${how}`, async () => {
        let at = 1 + index % STRIDE;
        while (!await failAt(at, { ...scenario, failure })) at += STRIDE;
        assert.ok(at > 10, `only ${at} operations were tried`);
      });
    }
  }
});

test("a gateway that is cut off at any moment of a call has no effect once another has taken the run over", async () => {
  let isWhole = false;
  let at = 1;
  for (; !isWhole; at += STRIDE) {
    const database = createSharedDatabase();
    const { tool, effects } = effectTool();
    const script: Script = ({ messages }) => {
      const done = messages.filter(({ role }) => role === "tool").length;
      return done < 2 ? CALL : "all done";
    };
    const a = await joinWithTools(database, script, { tools: [tool], seed: 1 });
    const b = await joinWithTools(database, script, { tools: [tool], seed: 2 });
    await database.clock.advance(3 * LEASE_MS);
    let operations = 0;
    const { store } = a.link;
    const handle = await a.runs.start(ask("go", { durable: true }));
    database.onResult = (_operation, _first, link) => {
      if (link?.store === store && ++operations === at) {
        a.link.isCut = true;
        database.clock.after(10 * LEASE_MS, () => (a.link.isCut = false));
      }
      return Promise.resolve();
    };
    const run = await endOf(database, handle.id);
    isWhole = operations < at;
    await database.clock.advance(12 * LEASE_MS);
    const place = `operation ${at}: ${run?.status}, ${effects}`;
    assert.equal(new Set(effects).size, effects.length, place);
    // A call that had begun when its gateway was cut off waits for a person, and no other call is made meanwhile
    if (run?.status === "completed") assert.equal(effects.length, 2, place);
    else assert.equal(run?.status, "needs_review", place);
    for (const { audit, close } of [a, b]) {
      await audit.close();
      await close();
    }
  }
  assert.ok(at > 10, `only ${at} operations were tried`);
});

test("a run that waits for the database before its effect is cancelled at once, without the effect", async () => {
  const database = createSharedDatabase();
  const { tool, effects } = effectTool();
  const gateway = await joinWithTools(database, [CALL, "all done"], { tools: [tool] });
  await database.clock.advance(3 * LEASE_MS);
  const handle = await gateway.runs.start(ask("go"));
  database.onResult = (operation, writes) => {
    // The database goes away right after the decision is recorded
    if (operation === "batch" && JSON.stringify(writes).includes('"decision":"allow"')) database.isAway = true;
    return Promise.resolve();
  };
  const reading = Array.fromAsync(handle.events());
  await passUntil(database, () => database.isAway);
  await database.clock.advance(5 * LEASE_MS);
  handle.cancel("cancelled");
  await database.clock.advance(100);
  database.isAway = false;
  await database.clock.advance(2 * LEASE_MS);
  const events = (await reading).flat();
  assert.equal(events.at(-1)?.type, "error");
  assert.deepEqual(effects, []);
  await gateway.audit.close();
  await gateway.close();
});

test("a gateway that is shut down while the database is down hands its run on with the result of the effect", async () => {
  const database = createSharedDatabase();
  const { tool, effects } = effectTool(() => (database.isAway = true));
  const script: Script = ({ messages }) => messages.some(({ role }) => role === "tool") ? "all done" : CALL;
  const a = await joinWithTools(database, script, { tools: [tool], seed: 1 });
  const b = await joinWithTools(database, script, { tools: [tool], seed: 2 });
  await database.clock.advance(3 * LEASE_MS);
  const { id } = await a.runs.start(ask("go", { durable: true }));
  await passUntil(database, () => effects.length === 1);
  await database.clock.advance(2 * LEASE_MS);
  const drained = a.runs.drain(500);
  await database.clock.advance(1_000);
  database.isAway = false;
  await database.clock.advance(4 * LEASE_MS);
  await drained;
  await a.audit.close();
  await a.close();
  const run = await endOf(database, id);
  assert.deepEqual([run?.status, run?.result, effects.length], ["completed", "all done", 1]);
  assert.deepEqual(await recordsOf(b.audit), [ALLOWED, "ok"], "the end is in the audit too");
  await b.audit.close();
  await b.close();
});

describe("a call without a run, while the database is down", () => {
  const DIRECT: CallChanges = {
    direct: true,
    caller: { via: "http", tokenId: "tok_1", scopes: ["tools"] },
  };

  test("is refused before its effect, and may be repeated", async () => {
    const database = createSharedDatabase();
    const { tool, effects } = effectTool();
    const { bench, audit, close } = await joinWithTools(database, [], { tools: [tool] });
    await database.clock.advance(LEASE_MS);
    database.isAway = true;
    await assert.rejects(bench.call("effect", {}, DIRECT), { code: "storage_unavailable" });
    assert.deepEqual(effects, []);
    database.isAway = false;
    assert.equal((await bench.call("effect", {}, DIRECT)).result.output, "effect 1");
    await audit.close();
    await close();
  });

  test("gets its result after its effect, and the audit has its end once the database is back", async () => {
    const database = createSharedDatabase();
    const { tool, effects } = effectTool(() => (database.isAway = true));
    const { bench, audit, close } = await joinWithTools(database, [], { tools: [tool] });
    await database.clock.advance(LEASE_MS);
    const outcome = await bench.call("effect", {}, DIRECT);
    assert.equal(outcome.result.output, "effect 1");
    assert.deepEqual(outcome.taint, ["files whose marks could not be read"]);
    assert.equal(effects.length, 1);
    await database.clock.advance(3 * LEASE_MS);
    database.isAway = false;
    await database.clock.advance(2 * LEASE_MS);
    assert.deepEqual(await recordsOf(audit), [ALLOWED, "ok"]);
    await audit.close();
    await close();
  });

  test("is refused when its own work is in the database", async () => {
    const database = createSharedDatabase();
    const { bench, audit, close } = await joinWithTools(database, []);
    await database.clock.advance(LEASE_MS);
    const add = { op: "add", title: "one more" };
    await bench.call("task_plan", { op: "create", tasks: ["first"] }, DIRECT);
    database.onResult = (operation, writes) => {
      if (operation === "batch" && JSON.stringify(writes).includes('"decision":"allow"')) database.isAway = true;
      return Promise.resolve();
    };
    await assert.rejects(bench.call("task_plan", add, DIRECT), { code: "storage_unavailable" });
    database.onResult = () => Promise.resolve();
    database.isAway = false;
    const { result } = await bench.call("task_plan", add, DIRECT);
    assert.equal((result.data as { readonly tasks: readonly unknown[] }).tasks.length, 2);
    await database.clock.advance(2 * LEASE_MS);
    const recorded = await recordsOf(audit);
    assert.deepEqual(recorded.filter((line) => !line.startsWith("allow")).toSorted(), ["failed", "ok", "ok"]);
    await audit.close();
    await close();
  });

  test("says that nobody knows what it did when it had begun something else", async () => {
    const database = createSharedDatabase();
    const tool = defineTool({
      name: "effect",
      description: "Does something, and then needs the database",
      access: "write",
      enabled: "always",
      needs: ["cookieJars"],
      input: v.strictObject({}),
      async run(_, { services }) {
        database.isAway = true;
        await services.cookieJars.get("c1");
        return { output: "done", isError: false };
      },
    });
    const { bench, audit, close } = await joinWithTools(database, [], { tools: [tool] });
    await database.clock.advance(LEASE_MS);
    const { result } = await bench.call("effect", {}, DIRECT);
    assert.equal(result.isError, true);
    assert.match(result.output, /nobody knows whether it took effect \(storage_unavailable\)/);
    database.isAway = false;
    await database.clock.advance(2 * LEASE_MS);
    await audit.close();
    await close();
  });
});

/** Runs a scenario in which the database fails at one operation of the store. @returns true when there were fewer operations */
async function failAt(
  at: number,
  { script, request, config, budget, meanwhile, recorded, isBuiltin = false, written, failure }: Scenario & {
    readonly failure: (operation: string) => Error | undefined;
  },
): Promise<boolean> {
  const database = createSharedDatabase();
  const { tool, effects } = effectTool();
  const gateway = await joinWithTools(database, script, { tools: isBuiltin ? undefined : [tool], config, budget });
  await database.clock.advance(3 * LEASE_MS);
  let operations = 0;
  const handle = await gateway.runs.start(ask("go", request));
  database.onResult = async (operation) => {
    if (++operations !== at) return;
    database.isAway = true;
    database.clock.after(3 * LEASE_MS, () => (database.isAway = false));
    const error = failure(operation);
    if (error !== undefined) throw error;
  };
  const read = request?.durable ? undefined : Array.fromAsync(handle.events());
  const run = await endOf(database, handle.id, () => meanwhile?.(gateway));
  const isWhole = operations < at;
  await database.clock.advance(4 * LEASE_MS);
  const place = `operation ${at}`;
  assert.equal(run?.status, "completed", `${place}: ${JSON.stringify(run?.error)}`);
  assert.equal(run?.result, "all done", place);
  if (!isBuiltin) assert.equal(effects.length, recorded.filter((line) => line === "ok").length, `${place}: ${effects}`);
  // A tool whose write has no answer is not called again, and its model is told so
  const isUnsure = isBuiltin && failure("batch") !== undefined;
  const found = (await recordsOf(gateway.audit)).map((line) => isUnsure && line === "error" ? "ok" : line);
  assert.deepEqual(found, recorded, place);
  await written?.(gateway);
  assert.equal((await gateway.audit.verify()).ok, true, place);
  await read;
  await gateway.audit.close();
  await gateway.close();
  return isWhole;
}
