import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ToolError } from "../../../lib/base/errors.ts";
import { grantTools, lineageOf } from "../../../lib/runs/sub_agents/sub_agent_request.ts";
import type { SubAgentRecord } from "../../../lib/runs/sub_agents/sub_agent_records.ts";
import type { CallContext } from "../../../lib/tools/runtime/tool_call.ts";
import { matchesPatterns } from "../../../lib/tools/runtime/registry.ts";
import { createFakeToolExecutor } from "../../support/fake_tool_executor.ts";
import { configOf } from "../../support/running_gateway.ts";

const NAMES = ["read_file", "read_more", "write_file", "shell", "delegate", "deliver"];
const executor = createFakeToolExecutor(NAMES.map((name) => ({ name })));
const pattern = fc.constantFrom(...NAMES, "*", "read*", "de*", "d*", "", "nothing", "delegate*");
const patterns = fc.array(pattern, { maxLength: 5 });

const caller = (more: Partial<CallContext> = {}): CallContext => ({
  runId: "run_top",
  callId: "call_1",
  conversationId: null,
  caller: { via: "http", tokenId: null, scopes: [] },
  depth: 0,
  taint: [],
  direct: false,
  sees: false,
  signal: new AbortController().signal,
  progress: () => {},
  ...more,
});
const agent = (more: Readonly<Record<string, unknown>> = {}) => configOf({ agents: { a: more } }).agents["a"];

test("whatever is asked for, a sub-agent has nothing its caller or its agent has not, and never delegate", () => {
  const options = fc.record({
    allowed: fc.option(patterns, { nil: undefined }),
    asked: fc.option(patterns, { nil: undefined }),
    listed: fc.option(patterns.map((list) => list.filter((name) => name !== "" && name !== "delegate")), {
      nil: undefined,
    }),
    agentic: fc.boolean(),
  });
  fc.assert(
    fc.property(options, ({ allowed, asked, listed, agentic }) => {
      const config = listed === undefined ? undefined : agent({ allowed_tools: listed, agentic });
      let granted: readonly string[];
      try {
        granted = grantTools(executor, { by: caller({ allowed }), asked, agent: config });
      } catch (error) {
        assert.ok(error instanceof ToolError && error.code === "tools_not_held", String(error));
        assert.ok(asked !== undefined, "nothing was asked for");
        return;
      }
      assert.ok(!granted.includes("delegate"));
      for (const name of granted) {
        assert.ok(matchesPatterns(name, allowed ?? ["*"]), `${name} is not the caller's`);
        if (asked !== undefined) assert.ok(matchesPatterns(name, asked), `${name} was not asked for`);
        if (listed !== undefined) assert.ok(agentic && matchesPatterns(name, listed), `${name} is not the agent's`);
      }
    }),
    { numRuns: 200 },
  );
});

test("what is asked for by name and not there is refused by name", () => {
  const ask = (asked: readonly string[], more: Parameters<typeof agent>[0] | undefined = undefined) => () =>
    grantTools(executor, {
      by: caller({ allowed: ["read_file", "shell", "delegate"] }),
      asked,
      agent: more === undefined ? undefined : agent(more),
    });
  assert.deepEqual(ask(["read_file", "re*"])(), ["read_file"]);
  assert.deepEqual(ask([])(), []);
  assert.throws(ask(["write_file"]), /"write_file": the caller does not have it/);
  assert.throws(ask(["delegate"]), /"delegate": a sub-agent may not delegate/);
  assert.throws(ask(["nothing"]), /"nothing": there is no such tool/);
  assert.throws(ask(["shell"], { agentic: true, allowed_tools: ["read_file"] }), /"shell": its agent does not have it/);
  assert.throws(ask(["shell"], { agentic: false, allowed_tools: ["shell"] }), /"shell": its agent does not have it/);
});

const record = (more: Partial<SubAgentRecord>): SubAgentRecord => ({
  v: 1,
  id: "sub_1",
  kind: "spawn",
  agent: null,
  task: "",
  run_id: "run_1",
  parent_id: "run_top",
  ancestors: [],
  chain: ["run_top", "sub_1"],
  depth: 1,
  max_depth: 2,
  tools: [],
  created_at: "",
  ended: null,
  ...more,
});

test("depth is counted along the chain, and the lowest max_depth in it counts", () => {
  const child = (config?: Parameters<typeof agent>[0]) => ({
    id: "sub_9",
    agent: config === undefined ? null : "a",
    config: config === undefined ? undefined : agent(config),
  });
  const first = lineageOf(child({ max_depth: 5 }), { by: caller(), parent: undefined });
  assert.deepEqual(first, { parent_id: "run_top", ancestors: [], chain: ["run_top", "a"], depth: 1, max_depth: 5 });
  const parent = record({ depth: 1, max_depth: 5, chain: first.chain });
  const by = caller({ runId: "run_1", depth: 1 });
  assert.deepEqual(lineageOf(child(), { by, parent }), {
    parent_id: "run_1",
    ancestors: ["sub_1"],
    chain: ["run_top", "a", "sub_9"],
    depth: 2,
    max_depth: 5,
  });
  assert.equal(lineageOf(child({ max_depth: 3 }), { by, parent }).max_depth, 3);
  assert.throws(
    () => lineageOf(child({ max_depth: 1 }), { by, parent }),
    /run_top > a > a is 2 deep, and max_depth is 1/,
  );
  assert.throws(
    () => lineageOf(child({ max_depth: 9 }), { by, parent: record({ depth: 2, max_depth: 2 }) }),
    /max_depth is 2/,
  );
  // A chain may begin below the top, as in a step of a procedure
  assert.throws(
    () => lineageOf(child(), { by: caller({ depth: 2 }), parent: undefined }),
    /3 deep, and max_depth is 2/,
  );
});
