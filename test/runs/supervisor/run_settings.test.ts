import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { RunStore } from "../../../lib/runs/journal/run_store.ts";
import { ask, only, readAll, supervised, typesOf } from "../../support/supervised.ts";

const call = (tool: string, input = "{}") =>
  ask("", { kind: "tool", durable: true, messages: [], call: { tool, input } });

describe("one call in place of a model", () => {
  test("its output is the run's result, recorded like any other call", async () => {
    const { runs, provider, store } = supervised([], {
      tools: [{ name: "change", access: "state", run: () => "changed" }],
    });
    const handle = await runs.start(call("change", '{"to":"blue"}'));
    const events = await readAll(handle);
    assert.deepEqual(
      typesOf(events),
      ["run_start", "turn_start", "turn_end", "tool_start", "tool_end", "turn_start", "text_delta", "turn_end", "done"],
    );
    const run = await runs.get(handle.id);
    assert.deepEqual([run?.status, run?.result, run?.model], ["completed", "changed", "postern/tool"]);
    assert.equal(run?.usage.total_tokens, 0);
    assert.equal(provider.requests.length, 0);
    assert.deepEqual((await new RunStore(store).input(handle.id))?.call, { tool: "change", input: '{"to":"blue"}' });
  });

  test("what it gives for programs is in its record; of a model's calls it is not kept", async () => {
    const { runs } = supervised([{ toolCalls: [{ name: "look" }] }, "Done"], {
      tools: [{ name: "look", run: () => "seen", data: { count: 2 } }],
    });
    const own = await readAll(await runs.start(call("look")));
    assert.deepEqual(only(own, "tool_end").data, { count: 2 });
    const asked = await readAll(await runs.start(ask("Look")));
    assert.equal("data" in only(asked, "tool_end"), false);
  });

  test("what came from outside goes on as it is", async () => {
    const { runs } = supervised([], { tools: [{ name: "fetch", access: "network", run: () => "<b>page</b>" }] });
    const handle = await runs.start(call("fetch"));
    await readAll(handle);
    assert.equal((await runs.get(handle.id))?.result, "<b>page</b>");
  });

  test("a tool's plain-text form reaches the executor as it is", async () => {
    const { runs, executor } = supervised([], { tools: [{ name: "look" }] });
    await readAll(await runs.start(call("look", "not JSON")));
    assert.deepEqual(executor.calls.map(({ input }) => input), ["not JSON"]);
  });

  test("the tool's error fails the run with its words", async () => {
    const { runs } = supervised([], {
      tools: [{
        name: "change",
        access: "state",
        run() {
          throw new Error("No room");
        },
      }],
    });
    const handle = await runs.start(call("change"));
    const events = await readAll(handle);
    assert.equal(only(events, "error").code, "tool_failed");
    const run = await runs.get(handle.id);
    assert.deepEqual([run?.status, run?.error], ["failed", { code: "tool_failed", message: "No room" }]);
  });

  for (const [what, agent] of [["a tool that is unknown", {}], ["no tools at all", { maxToolCalls: 0 }]] as const) {
    test(`${what} fails the run and says why`, async () => {
      const { runs } = supervised([], { agent });
      const handle = await runs.start(call("nothing"));
      assert.equal(only(await readAll(handle), "error").code, "tool_failed");
      assert.match((await runs.get(handle.id))?.error?.message ?? "", /Cannot call "nothing": there is no such tool/);
    });
  }

  test("a tool that [agent] does not give is not called", async () => {
    const { runs, executor } = supervised([], { tools: [{ name: "look" }], agent: { tools: ["read_*"] } });
    const handle = await runs.start(call("look"));
    await readAll(handle);
    assert.deepEqual(executor.calls, []);
    assert.match((await runs.get(handle.id))?.error?.message ?? "", /\[agent\] does not give it/);
  });
});

describe("narrower than configured", () => {
  const tools = [{ name: "look" }, { name: "look_far" }, { name: "change", access: "state" as const }];

  test("the model is told of the named tools only, and of none for an empty list", async () => {
    const { runs, provider } = supervised(["One", "Two"], { tools });
    await readAll(await runs.start(ask("Go", { tools: ["look*"] })));
    await readAll(await runs.start(ask("Go", { tools: [] })));
    const told = provider.requests.map((request) => request.tools.map((tool) => tool.name));
    assert.deepEqual(told, [["look", "look_far"], []]);
  });

  test("a name beyond [agent] tools adds nothing", async () => {
    const { runs, provider } = supervised(["One"], { tools, agent: { tools: ["look"] } });
    await readAll(await runs.start(ask("Go", { tools: ["*", "change"] })));
    assert.deepEqual(provider.requests[0]?.tools.map((tool) => tool.name), ["look"]);
  });

  test("limits go down, never up", async () => {
    const script = () => ({ toolCalls: [{ name: "look" }] });
    const turns = async (limits: object) => {
      const { runs, provider } = supervised([script(), script(), script(), "Done", "Done"], {
        tools,
        agent: { maxIterations: 2 },
      });
      await readAll(await runs.start(ask("Go", { limits })));
      return provider.requests.length;
    };
    assert.equal(await turns({ maxIterations: 1 }), 2);
    assert.equal(await turns({ maxIterations: 9 }), 3);
  });

  test("instructions follow the configured system prompt", async () => {
    const { runs, provider } = supervised(["One"], { agent: { systemPrompt: "Be brief." } });
    await readAll(await runs.start(ask("Go", { instructions: "You are a reviewer." })));
    const [first] = provider.requests[0]?.messages ?? [];
    assert.match(String(first?.content), /Be brief\.\n\nYou are a reviewer\.$/);
  });
});
