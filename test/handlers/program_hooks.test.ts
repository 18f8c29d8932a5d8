import assert from "node:assert/strict";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import {
  ConfigError,
  createGateway,
  defineTool,
  type Gateway,
  type GatewayHooks,
  type GatewayLogLine,
  type GatewayOptions,
  type ProgramApproval,
  type ProgramProvider,
  type ProgramRunEvent,
} from "../../handlers/mod.ts";
import type { Approval } from "../../lib/base/records/approval.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { until } from "../support/until.ts";

const TOKEN = "a-token-from-the-environment";
const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };
const FINISH = { type: "finish", finish_reason: "stop", usage: { prompt_tokens: 7, completion_tokens: 3 } } as const;

/** Says what it heard; `write` calls the tool first, and then says what came of it. */
const talk: ProgramProvider = {
  models: ["small"],
  async *stream({ messages }) {
    const last = messages.at(-1);
    if (last?.role === "user" && last.content === "write") {
      yield { type: "tool_call_delta", index: 0, call_id: "c1", name: "write_it", arguments_delta: "{}" };
    } else yield { type: "text_delta", delta: `heard ${String(last?.content)}` };
    yield FINISH;
  },
};

interface World {
  readonly gateway: Gateway;
  readonly folder: string;
  readonly lines: GatewayLogLine[];
  /** Number of calls of the tool that writes */
  readonly written: () => number;
}

async function withHooks(
  hooks: (world: () => World) => GatewayHooks,
  use: (world: World) => Promise<void>,
  options: Partial<GatewayOptions> = {},
): Promise<void> {
  await withTemporaryFolder(async (folder) => {
    const lines: GatewayLogLine[] = [];
    let written = 0;
    const tool = defineTool({
      name: "write_it",
      description: "Writes",
      access: "write",
      outside: false,
      inputSchema: { type: "object", properties: {}, additionalProperties: false },
      execute: () => `written ${++written}`,
    });
    const world: { made?: World } = {};
    const gateway = await createGateway({
      dataDir: join(folder, "data"),
      workspace: folder,
      environment: { POSTERN_TOKEN: TOKEN },
      config: { autonomy: { level: "supervised" } },
      providers: { talk },
      tools: [tool],
      hooks: hooks(() => world.made ?? assert.fail("a hook was called before createGateway resolved")),
      onLog: (line) => void lines.push(line),
      ...options,
    });
    world.made = { gateway, folder, lines, written: () => written };
    try {
      await use(world.made);
    } finally {
      await gateway.close();
    }
  });
}

/** Runs a message to its end, and gives its events. */
async function run({ runs }: Gateway, message: string): Promise<ProgramRunEvent[]> {
  const { id } = await runs.start({ message });
  return await Array.fromAsync(runs.follow(id));
}

async function complete(gateway: Gateway, content: string): Promise<string> {
  const body = JSON.stringify({ model: "default", messages: [{ role: "user", content }] });
  const reply = await gateway.request("/v1/chat/completions", { method: "POST", headers, body });
  const { choices } = await reply.json() as { choices: { message: { content: string } }[] };
  return choices[0]?.message.content ?? "";
}

async function listed<T>(gateway: Gateway, path: string): Promise<T[]> {
  return (await (await gateway.request(path, { headers })).json() as { data: T[] }).data;
}

function outputOf(events: readonly ProgramRunEvent[]): string {
  const end = events.find((event) => event.type === "tool_end");
  return end?.type === "tool_end" ? end.output : "";
}

test("onRunEvent gets every event of every run once and in order, also of a completion that leaves no record", async () => {
  const told = new Map<string, ProgramRunEvent[]>();
  await withHooks(() => ({
    async onRunEvent(event, { runId }) {
      told.set(runId, [...told.get(runId) ?? [], event]);
      if (event.seq % 2 === 0) await Promise.resolve();
      (event as { time: string }).time = "changed";
    },
  }), async ({ gateway }) => {
    const first = await gateway.runs.start({ message: "hello" });
    const shown = await Array.fromAsync(gateway.runs.follow(first.id));
    await complete(gateway, "one");
    const plain = await gateway.request("/v1/chat/completions", {
      method: "POST",
      headers: { ...headers, "x-postern-tools": "none" },
      body: JSON.stringify({ model: "default", messages: [{ role: "user", content: "two" }] }),
    });
    await plain.text();
    await until(() => told.size === 3 && [...told.values()].every((events) => events.at(-1)?.type === "done"));
    const events = told.get(first.id) ?? [];
    assert.deepEqual(events, shown.map((event) => ({ ...event, time: "changed" })));
    assert.deepEqual(await Array.fromAsync(gateway.runs.follow(first.id)), shown, "the journal is unchanged");
    for (const all of told.values()) assert.deepEqual(all.map(({ seq }) => seq), all.map((_, i) => i + 1));
    const texts = [...told.values()].map((all) =>
      all.map((event) => event.type === "text_delta" ? event.delta : "").join("")
    );
    assert.deepEqual(texts, ["heard hello", "heard one", "heard two"]);
  });
});

test("an onRunEvent that throws breaks no run", async () => {
  let calls = 0;
  await withHooks(() => ({
    onRunEvent() {
      calls++;
      throw new Error("no");
    },
  }), async ({ gateway, lines }) => {
    for (let i = 0; i < 5; i++) assert.equal((await run(gateway, "hello")).at(-1)?.type, "done");
    await until(() => calls > 20);
    assert.equal(lines.filter(({ message }) => message === "onRunEvent failed").length, 1);
  });
});

test("onRunEvent may start a run, and is told of that one too", async () => {
  const started: string[] = [];
  const done: string[] = [];
  await withHooks((world) => ({
    async onRunEvent(event, { runId }) {
      if (event.type !== "done") return;
      done.push(runId);
      if (started.length < 3) {
        started.push((await world().gateway.runs.start({ message: `again ${started.length}` })).id);
      }
    },
  }), async ({ gateway }) => {
    await run(gateway, "first");
    await until(() => done.length === 4);
    assert.deepEqual(done.slice(1), started);
  });
});

test("onApproval approves: the call runs, also in a completion that nobody follows, and every record says who decided", async () => {
  const asked: ProgramApproval[] = [];
  await withHooks(() => ({
    onApproval(approval) {
      asked.push(approval);
      return "approve";
    },
  }), async ({ gateway, written }) => {
    const events = await run(gateway, "write");
    assert.equal(outputOf(events), "written 1");
    const answered = events.find((event) => event.type === "approval_answered");
    assert.ok(answered?.type === "approval_answered");
    assert.deepEqual([answered.decision, answered.by], ["approve", "program"]);
    assert.match(await complete(gateway, "write"), /written 2/);
    const direct = await gateway.request("/v1/tools/write_it/call", { method: "POST", headers, body: '{"input":{}}' });
    const { output, is_error } = await direct.json() as { output: string; is_error: boolean };
    assert.deepEqual([output, is_error], ["written 3", false]);
    assert.equal(written(), 3);

    assert.deepEqual(asked.map(({ tool, status }) => [tool, status]), Array(3).fill(["write_it", "pending"]));
    for (const approval of await listed<Approval>(gateway, "/v1/approvals?limit=10")) {
      assert.deepEqual([approval.status, approval.answered_by, approval.remember, approval.rule_id], [
        "approved",
        "program",
        "once",
        null,
      ]);
    }
    const audit = await listed<{ type: string; action: string; by: unknown }>(gateway, "/v1/audit?limit=200");
    const decided = audit.filter(({ type, action }) => type === "approval" && action === "approved");
    assert.deepEqual(decided.map(({ by }) => by), Array(3).fill({ via: "program", token_id: null }));
    assert.doesNotMatch(JSON.stringify(audit), /a person/i);
    assert.deepEqual(await listed(gateway, "/v1/approval-rules"), [], "nothing is remembered");
  });
});

test("a denial, an error and an answer of no form deny, with the reason in the record and never as a person's", async () => {
  const hook = { answer: (): unknown => "deny" };
  await withHooks(() => ({ onApproval: () => hook.answer() as "deny" }), async ({ gateway, written, lines }) => {
    for (
      const [answer, note, output] of [
        [() => "deny", null, /the program denied it$/],
        [() => Promise.resolve("deny"), null, /the program denied it$/],
        [
          () => {
            throw new Error(`no beans ${TOKEN}`);
          },
          /^onApproval failed: no beans \[/,
          /the program denied it: onApproval failed: no beans/,
        ],
        [() => Promise.reject(undefined), /no error/, /the program denied it/],
        [() => true, /gave neither "approve" nor "deny"/, /the program denied it/],
        [() => "Approve", /gave neither/, /the program denied it/],
        [() => null, /gave neither/, /the program denied it/],
      ] as readonly (readonly [() => unknown, RegExp | null, RegExp])[]
    ) {
      hook.answer = answer;
      const said = outputOf(await run(gateway, "write"));
      assert.match(said, output);
      assert.doesNotMatch(said, /a person|a-token-from/);
      const [approval] = await listed<Approval>(gateway, "/v1/approvals?limit=1");
      assert.deepEqual([approval?.status, approval?.answered_by], ["denied", "program"]);
      if (note === null) assert.equal(approval?.note, null);
      else assert.match(approval?.note ?? "", note);
      assert.match(await complete(gateway, "write"), /the program denied it/);
    }
    assert.equal(written(), 0);
    assert.ok(lines.some(({ message }) => /^onApproval failed/.test(message)));
    assert.doesNotMatch(JSON.stringify(lines), new RegExp(TOKEN));
  });
});

test("undefined leaves the approval to the people; where nobody follows, the call is denied at once", async () => {
  await withHooks(() => ({ onApproval: () => undefined }), async ({ gateway }) => {
    const said = await complete(gateway, "write");
    assert.match(said, /nobody_could_answer.*the program left the answer to people, and nobody who may approve/s);
    const { id } = await gateway.runs.start({ message: "write" });
    await until(async () => (await listed(gateway, "/v1/approvals?status=pending")).length === 1);
    const [pending] = await listed<Approval>(gateway, "/v1/approvals?status=pending");
    const reply = await gateway.request(`/v1/approvals/${pending?.id}`, {
      method: "POST",
      headers,
      body: '{"decision":"approve"}',
    });
    assert.equal(reply.status, 200);
    assert.match(outputOf(await Array.fromAsync(gateway.runs.follow(id))), /written 1/);
  });
});

test("a slow onApproval waits as people do: a person's answer counts first, and its signal aborts", async () => {
  let signal: AbortSignal | undefined;
  let late = (_: "approve") => {};
  await withHooks(() => ({
    onApproval(_approval, given) {
      signal = given.signal;
      return new Promise((resolve) => late = resolve);
    },
  }), async ({ gateway, written }) => {
    const { id } = await gateway.runs.start({ message: "write" });
    await until(() => signal !== undefined);
    const [pending] = await listed<Approval>(gateway, "/v1/approvals?status=pending");
    await until(async () => (await gateway.runs.get(id)).status === "waiting_for_approval");
    await gateway.request(`/v1/approvals/${pending?.id}`, { method: "POST", headers, body: '{"decision":"deny"}' });
    assert.match(outputOf(await Array.fromAsync(gateway.runs.follow(id))), /a person denied it/);
    assert.equal(signal?.aborted, true);
    late("approve");
    assert.equal((await listed<Approval>(gateway, "/v1/approvals?limit=1"))[0]?.status, "denied");
    assert.equal(written(), 0);
  });
});

test("onApproval may answer over HTTP itself, and start a run while it decides", async () => {
  await withHooks((world) => ({
    async onApproval({ id }) {
      const { gateway } = world();
      assert.equal((await run(gateway, "inside")).at(-1)?.type, "done");
      await gateway.request(`/v1/approvals/${id}`, { method: "POST", headers, body: '{"decision":"approve"}' });
      return "deny" as const;
    },
  }), async ({ gateway }) => assert.match(outputOf(await run(gateway, "write")), /written 1/));
});

test("a call that the client approves itself is not shown to the program, and what no policy allows stays denied", async () => {
  let asked = 0;
  const hooks = () => ({
    onApproval: () => {
      asked++;
      return "approve" as const;
    },
  });
  const body = '{"input":{},"approved":true}';
  await withHooks(hooks, async ({ gateway, written }) => {
    await gateway.request("/v1/tools/write_it/call", { method: "POST", headers, body });
    assert.deepEqual([asked, written()], [0, 1]);
  });
  await withHooks(hooks, async ({ gateway, written }) => {
    assert.match(outputOf(await run(gateway, "write")), /read_only/);
    assert.deepEqual([asked, written()], [0, 0]);
  }, { config: { autonomy: { level: "read_only" } } });
});

test("approvals that wait from before a restart are shown to the program of the next gateway", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "written");
    const tool = defineTool({
      name: "write_it",
      description: "Writes",
      access: "write",
      outside: false,
      inputSchema: { type: "object", properties: {}, additionalProperties: false },
      execute: async () => {
        await writeFile(path, "yes");
        return "written";
      },
    });
    const open = (hooks: GatewayHooks) =>
      createGateway({ dataDir: join(folder, "data"), workspace: folder, providers: { talk }, tools: [tool], hooks });
    let shown = false;
    const first = await open({
      onApproval: () => {
        shown = true;
        return new Promise(() => {});
      },
    });
    const { id } = await first.runs.start({ message: "write" });
    await until(() => shown);
    await first.close();
    const told: string[] = [];
    const second = await open({ onApproval: () => "approve", onRunEvent: ({ type }) => void told.push(type) });
    try {
      assert.equal((await Array.fromAsync(second.runs.follow(id))).at(-1)?.type, "done");
      assert.equal(await readFile(path, "utf8"), "yes");
      await until(() => told.includes("done"));
      assert.ok(!told.includes("run_start"), "events of an earlier process are not told again");
    } finally {
      await second.close();
    }
  }));

test("a step of a procedure that the program approves says so, and not that a person did it", () =>
  withHooks(() => ({ onApproval: () => "approve" }), async ({ gateway, folder }) => {
    await mkdir(join(folder, "data", "sops"), { recursive: true });
    const text = '[[steps]]\nid = "call"\nmanual = "Call them"\nrequires_approval = true\n';
    await writeFile(join(folder, "data", "sops", "calls.toml"), text);
    const call = async (name: string, input: unknown) => {
      const body = JSON.stringify({ input, approved: true });
      const reply = await gateway.request(`/v1/tools/${name}/call`, { method: "POST", headers, body });
      return await reply.json() as { output: string };
    };
    const started = await call("sop_execute", { sop: "calls" });
    const [id = ""] = started.output.match(/sop_[0-9a-z]+/) ?? [started.output];
    let shown = "";
    await until(async () => /completed/.test(shown = JSON.stringify(await call("sop_status", id))), () => shown);
    assert.match(shown, /Approved by the program/);
  }));

test("a hook may close the gateway", async () => {
  let closed = 0;
  await withHooks((world) => ({
    async onApproval() {
      await world().gateway.close();
      closed++;
      return undefined;
    },
  }), async ({ gateway }) => {
    const { id } = await gateway.runs.start({ message: "write" });
    for await (const event of gateway.runs.follow(id)) assert.notEqual(event.type, "tool_end");
    await until(() => closed === 1);
  });
});

test("hooks of two gateways in one process do not mix", async () => {
  const told: string[] = [];
  const hooks = (name: string) => () => ({
    onRunEvent: ({ type }: ProgramRunEvent) => void told.push(`${name} ${type}`),
  });
  await withHooks(hooks("a"), (a) =>
    withHooks(hooks("b"), async (b) => {
      await run(b.gateway, "hello");
      await until(() => told.includes("b done"));
      assert.ok(told.every((line) => line.startsWith("b ")));
      await run(a.gateway, "hello");
      await until(() => told.includes("a done"));
    }));
});

test("unknown hooks are refused by name, and so is a hook that is no function", () =>
  withTemporaryFolder(async (folder) => {
    for (
      const [hooks, code, message] of [
        [{ onRunEvnt: () => {} }, "unknown_option", /hook "onRunEvnt" \(did you mean "onRunEvent"\?\)/],
        [{ onApproval: "approve" }, "hook_invalid", /"onApproval": it must be a function/],
        ["all", "hook_invalid", /object of functions/],
      ] as const
    ) {
      await assert.rejects(
        createGateway({ dataDir: join(folder, "data"), workspace: folder, hooks: hooks as never }),
        (error) => error instanceof ConfigError && error.code === code && message.test(error.message),
      );
    }
  }));

type DeepReadonly<T> = T extends (infer Item)[] ? readonly DeepReadonly<Item>[]
  : T extends object ? { readonly [Key in keyof T]: DeepReadonly<T[Key]> }
  : T;
type Same<A, B> = [A] extends [B] ? [B] extends [A] ? true : false : false;

test("types: an approval is as the schema has it, and a hook gives one of its answers", () => {
  const same: readonly [Same<DeepReadonly<Approval>, ProgramApproval>, Same<keyof Approval, keyof ProgramApproval>] = [
    true,
    true,
  ];
  // @ts-expect-error there is no such answer
  const wrong: GatewayHooks = { onApproval: () => "yes" };
  const right: GatewayHooks = {
    onApproval: async ({ tool }) => await Promise.resolve(tool === "a" ? "deny" : undefined),
  };
  assert.ok(same.length === 2 && wrong && right);
});
