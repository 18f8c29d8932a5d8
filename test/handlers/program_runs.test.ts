import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import {
  createGateway,
  defineTool,
  type Gateway,
  type GatewayOptions,
  HttpError,
  type ProgramProvider,
  type ProgramRun,
  type ProgramRunEvent,
} from "../../handlers/mod.ts";
import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import type { Run } from "../../lib/base/records/run.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { until } from "../support/until.ts";

const TOKEN = "a-token-from-the-environment";
const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };
const FINISH = { type: "finish", finish_reason: "stop", usage: { prompt_tokens: 7, completion_tokens: 3 } } as const;
const say = (delta: string) => ({ type: "text_delta", delta }) as const;

/** Turns that wait until the test lets them go on, by the last message. */
const held = new Map<string, () => void>();

/** Says what it heard. `hold <name>` waits in the middle of the reply, `count <n>` yields n pieces, `call` calls the tool. */
const talk: ProgramProvider = {
  models: ["small"],
  async *stream({ messages }, { signal }) {
    const last = messages.at(-1);
    const text = String(last?.content);
    const [verb, word = ""] = text.split(" ");
    if (verb === "hold") {
      yield say("holding");
      await new Promise<void>((resolve, reject) => {
        held.set(word, resolve);
        signal.addEventListener("abort", () => reject(signal.reason), { once: true });
      });
    }
    if (verb === "count") { for (let i = 0; i < Number(word); i++) yield say(`${i} `); }
    if (verb === "call" && last?.role === "user") {
      yield { type: "tool_call_delta", index: 0, call_id: "c1", name: "note", arguments_delta: '{"list":["a"]}' };
    } else yield say(`heard ${last?.role === "tool" ? "the tool" : text}`);
    yield FINISH;
  },
};

const note = defineTool({
  name: "note",
  description: "Takes a note",
  access: "read",
  outside: false,
  inputSchema: {
    type: "object",
    properties: { list: { type: "array", items: { type: "string" }, description: "Words" } },
    additionalProperties: false,
  },
  execute: () => "noted",
});

async function withGateway(options: Partial<GatewayOptions>, use: (gateway: Gateway, folder: string) => Promise<void>) {
  await withTemporaryFolder(async (folder) => {
    const gateway = await createGateway({
      dataDir: join(folder, "data"),
      workspace: folder,
      environment: { POSTERN_TOKEN: TOKEN },
      providers: { talk },
      tools: [note],
      ...options,
    });
    try {
      await use(gateway, folder);
    } finally {
      await gateway.close();
    }
  });
}

/** Reads all that comes. */
async function read(events: AsyncIterable<ProgramRunEvent>): Promise<ProgramRunEvent[]> {
  return await Array.fromAsync(events);
}

function refused(work: Promise<unknown>, code: string, status: number, message?: RegExp): Promise<void> {
  return assert.rejects(work, (error) => {
    assert.ok(error instanceof HttpError, String(error));
    assert.deepEqual([error.code, error.status], [code, status]);
    if (message !== undefined) assert.match(error.message, message);
    return true;
  });
}

describe("runs of the program", () => {
  let gateway: Gateway;
  let done: Promise<void>;
  let release = () => {};

  before(() =>
    new Promise<void>((resolve, reject) => {
      done = withGateway({ config: { gateway: { max_request_bytes: 65_536 } } }, async (opened) => {
        gateway = opened;
        const kept = new Promise<void>((free) => release = free);
        resolve();
        await kept;
      });
      done.catch(reject);
    })
  );
  after(async () => {
    release();
    await done;
  });

  test("start(), follow() and get() give what the routes give", async () => {
    const run = await gateway.runs.start({ message: "call", conversation_id: "new" });
    assert.deepEqual([run.status, run.message, run.model], ["queued", "call", "talk/small"]);
    const events = await read(gateway.runs.follow(run.id));
    assert.deepEqual(events.map(({ seq }) => seq), events.map((_, i) => i + 1));
    assert.deepEqual(
      events.filter(({ type }) => !type.startsWith("turn")).map(({ type }) => type),
      ["run_start", "tool_start", "tool_end", "text_delta", "done"],
    );
    const ended = await gateway.runs.get(run.id);
    assert.deepEqual([ended.status, ended.result, ended.usage.total_tokens], ["completed", "heard the tool", 20]);
    const shown = await (await gateway.request(`/v1/runs/${run.id}`, { headers })).json();
    assert.deepEqual(ended, shown);
    const sent = await (await gateway.request(`/v1/runs/${run.id}/events`, { headers })).text();
    const lines = sent.split("\n").filter((line) => line.startsWith("data: ")).map((line) => JSON.parse(line.slice(6)));
    assert.deepEqual(lines, events);
    const half = events[Math.floor(events.length / 2)]?.seq ?? 0;
    assert.deepEqual(await read(gateway.runs.follow(run.id, { after: half })), events.slice(half));
    assert.deepEqual(await read(gateway.runs.follow(run.id, { after: events.length })), []);
  });

  test("the audit and the journal say that the program asked", async () => {
    const run = await gateway.runs.start({ message: "call" });
    await read(gateway.runs.follow(run.id));
    const { data } = await (await gateway.request("/v1/audit?limit=100", { headers })).json() as {
      data: { run_id?: string; by?: { via: string; token_id: string | null } }[];
    };
    const event = data.find(({ run_id, by }) => run_id === run.id && by !== undefined);
    assert.deepEqual(event?.by, { via: "program", token_id: null });
  });

  test("events come live, one at a time; what the program changes in them reaches nobody else", async () => {
    const run = await gateway.runs.start({ message: "hold live" });
    const types: string[] = [];
    for await (const event of gateway.runs.follow(run.id)) {
      types.push(event.type);
      if (event.type === "run_start") (event as { model: string }).model = "changed";
      if (event.type === "text_delta" && event.delta === "holding") held.get("live")?.();
    }
    assert.equal(types.at(-1), "done");
    const [first] = await read(gateway.runs.follow(run.id));
    assert.ok(first?.type === "run_start" && first.model === "talk/small");
  });

  test("a slow reader gets every event, and holds up neither the run nor another reader", async () => {
    const run = await gateway.runs.start({ message: "count 3000" });
    const slow = gateway.runs.follow(run.id)[Symbol.asyncIterator]();
    await slow.next();
    const all = await read(gateway.runs.follow(run.id));
    assert.equal((await gateway.runs.get(run.id)).status, "completed");
    const rest = await read({ [Symbol.asyncIterator]: () => slow });
    assert.deepEqual(rest, all.slice(1));
    assert.ok(all.length > 3000);
  });

  test("a break, a return() in the middle of a wait and an abort end the reading, and the run goes on", async () => {
    const run = await gateway.runs.start({ message: "hold ends" });
    for await (const event of gateway.runs.follow(run.id)) if (event.type === "text_delta") break;
    const reader = gateway.runs.follow(run.id, { after: 3 })[Symbol.asyncIterator]();
    const waiting = reader.next();
    await reader.return?.();
    assert.equal((await waiting).done, true);
    const controller = new AbortController();
    const reading = read(gateway.runs.follow(run.id, { signal: controller.signal }));
    await until(() => held.has("ends"));
    controller.abort();
    assert.ok((await reading).every(({ type }) => type !== "done"));
    assert.deepEqual(await read(gateway.runs.follow(run.id, { signal: controller.signal })), []);
    assert.equal((await gateway.runs.get(run.id)).status, "running");
    held.get("ends")?.();
    assert.equal((await read(gateway.runs.follow(run.id))).at(-1)?.type, "done");
  });

  test("cancel() and the signal of start() stop a run; both say so in the record", async () => {
    const first = await gateway.runs.start({ message: "hold cancel" });
    assert.equal((await gateway.runs.cancel(first.id)).status, "cancelled");
    await refused(gateway.runs.cancel(first.id), "conflict", 409, /cancelled already/);
    const controller = new AbortController();
    const second = await gateway.runs.start({ message: "hold signal" }, { signal: controller.signal });
    const reading = read(gateway.runs.follow(second.id));
    await until(() => held.has("signal"));
    controller.abort();
    const last = (await reading).at(-1);
    assert.ok(last?.type === "error" && last.code === "cancelled");
    await assert.rejects(gateway.runs.start({ message: "never" }, { signal: controller.signal }), {
      name: "AbortError",
    });
  });

  test("wrong input is refused as the route refuses it, unknown fields and options by their names", async () => {
    const { start, follow, get, cancel } = gateway.runs;
    const circle: Record<string, unknown> = {};
    circle["self"] = circle;
    for (
      const [input, message] of [
        [{}, /without a message/],
        [{ message: "" }, /"message"/],
        [{ message: "a", messages: [{ role: "user", content: "b" }] }, /both/],
        [{ message: "a", modle: "b" }, /"modle": there is no such field; the fields are message, messages, model/],
        [{ messages: [{ role: "user", content: [{ type: "text", text: 1 }] }] }, /messages\[0\]\.content/],
        [{ message: "a", agent: "nobody" }, /nobody/],
        [{ message: () => "a" }, /no plain JSON value/],
        [circle, /no plain JSON value|nested deeper/],
        [undefined, /empty/],
        [null, /expected/],
      ] as readonly (readonly [unknown, RegExp])[]
    ) await refused(start(input as never), "invalid_request", 400, message);
    await refused(start({ message: "x".repeat(70_000) }), "payload_too_large", 413);
    const unknown = await start({ message: "a", model: "talk/other" });
    const last = (await read(follow(unknown.id))).at(-1);
    assert.ok(last?.type === "error" && last.code === "model_not_found");
    for (const id of ["run_nobody", "../x", 7 as never, undefined as never]) {
      await refused(get(id), "not_found", 404);
      await refused(cancel(id), "not_found", 404);
      await refused(read(follow(id)), "not_found", 404);
    }
    const { id } = await start({ message: "done" });
    for (const place of [-1, 0.5, Number.NaN, "x" as never, 1_000_000]) {
      await refused(read(follow(id, { after: place })), "invalid_request", 400);
    }
    await assert.rejects(start({ message: "a" }, { singal: 1 } as never), /"singal": the options are signal/);
    assert.throws(() => follow(id, { from: 1 } as never), /"from": the options are after, signal/);
    assert.throws(() => follow(id, { signal: {} as never }), /"signal"/);
  });
});

test("close() ends the readers, and the runs that go on are read from the next gateway", () =>
  withTemporaryFolder(async (folder) => {
    const open = () =>
      createGateway({ dataDir: join(folder, "data"), workspace: folder, providers: { talk }, tools: [note] });
    const gateway = await open();
    const run = await gateway.runs.start({ message: "hold close" });
    const reading = read(gateway.runs.follow(run.id));
    const buffered = gateway.runs.follow(run.id)[Symbol.asyncIterator]();
    await buffered.next();
    await until(() => held.has("close"));
    await gateway.close();
    assert.ok((await reading).length > 0);
    assert.equal((await buffered.next()).done, true);
    await refused(gateway.runs.start({ message: "late" }), "shutting_down", 503);
    await refused(gateway.runs.get(run.id), "shutting_down", 503);
    await refused(read(gateway.runs.follow(run.id)), "shutting_down", 503);
    held.delete("close");
    const next = await open();
    try {
      const last = (await reading).at(-1)?.seq ?? 0;
      const going = read(next.runs.follow(run.id, { after: last }));
      await until(() => held.has("close"));
      held.get("close")?.();
      assert.equal((await going).at(-1)?.type, "done");
    } finally {
      await next.close();
    }
  }));

test("a gateway without an agent reads, and starts nothing", () =>
  withGateway({ agent: false }, async ({ runs }) => {
    await refused(runs.start({ message: "a" }), "agent_unavailable", 503);
    await refused(runs.get("run_a"), "not_found", 404);
  }));

type DeepReadonly<T> = T extends (infer Item)[] ? readonly DeepReadonly<Item>[]
  : T extends object ? { readonly [Key in keyof T]: DeepReadonly<T[Key]> }
  : T;
type KeysOf<E> = E extends { readonly type: infer Type } ? readonly [Type, keyof E] : never;
type Same<A, B> = [A] extends [B] ? [B] extends [A] ? true : false : false;

test("types: the hand-written types are those of the schemas", () => {
  const same: readonly [
    Same<DeepReadonly<AgentEvent>, ProgramRunEvent>,
    Same<KeysOf<AgentEvent>, KeysOf<ProgramRunEvent>>,
    Same<DeepReadonly<Run>, ProgramRun>,
    Same<keyof Run, keyof ProgramRun>,
  ] = [true, true, true, true];
  assert.equal(same.length, 4);
});
