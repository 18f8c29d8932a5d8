import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import type { ApprovalRequest } from "../../../lib/tools/runtime/tool_call.ts";
import { type FixtureBehaviour, type McpBench, NEVER, withMcp } from "../../support/mcp_bench.ts";
import { createToolBench, type ToolBench } from "../../support/tool_bench.ts";

/** Runs `use` with the built-in tools and those of the fixture; every call is approved and shown. */
function withTools(
  behaviour: FixtureBehaviour,
  use: (
    given: { call: ToolBench["call"]; bench: McpBench; asked: ApprovalRequest[]; audit: ToolBench["audit"] },
  ) => Promise<void>,
): Promise<void> {
  return withMcp(behaviour, async (bench) => {
    await bench.server().freshTools(NEVER);
    const { call, audit, configure } = createToolBench({
      root: join(bench.folder, "workspace"),
      foreign: () => bench.servers.tools(),
      mcp: () => bench.servers,
    });
    configure({ mcp: { enabled: true } });
    const asked: ApprovalRequest[] = [];
    const approver = (request: ApprovalRequest) => {
      asked.push(request);
      return Promise.resolve({ decision: "approve", reason: "" } as const);
    };
    await use({ call: (name, input, more) => call(name, input, { approver, ...more }), bench, asked, audit });
  });
}

test("mcp calls a server's tool: decided, approved and recorded under the tool's own name", () =>
  withTools({}, async ({ call, asked, audit }) => {
    const { result, ran } = await call("mcp", { server: "one", tool: "echo", arguments: { text: "hi" } });
    assert.deepEqual([ran, result.output], [true, "hi"]);
    assert.deepEqual(asked.map(({ tool, input }) => [tool, input]), [["mcp__one__echo", { text: "hi" }]]);
    assert.deepEqual(asked[0]?.binding.bound.map(({ kind, name }) => [kind, name]), [["tool", "one/echo"]]);
    const tools = audit.events.flatMap((
      event,
    ) => (event.type === "decision" || event.type === "call" ? [event.tool] : []));
    assert.deepEqual([...new Set(tools)], ["mcp__one__echo"]);
    const none = await call("mcp", { server: "one", tool: "nothing" });
    assert.deepEqual([none.ran, none.result.isError], [false, true]);
    const other = await call("mcp", { server: "two", tool: "echo" });
    assert.equal(other.ran, false);
  }));

for (const era of ["legacy", "modern"] as const) {
  test(`prompts and resources of a server are listed and read, in the ${era} era`, () =>
    withTools({ era, ttlMs: 60_000 }, async ({ call, asked }) => {
      const output = async (tool: string, input: unknown) => (await call(tool, input)).result.output;
      assert.equal(await output("mcp_prompt", {}), "one: 1\n- greet [who]");
      assert.equal(
        await output("mcp_prompt", { server: "one", name: "greet", arguments: { who: "Ada" } }),
        "user: Greet Ada",
      );
      assert.equal(
        await output("mcp_resource", { server: "one" }),
        'one: 2\n- memo://one "one"\n- memo://{name} "memo" (a template)',
      );
      assert.equal(
        await output("mcp_resource", { server: "one", uri: "memo://one" }),
        "[resource memo://one]\nread memo://one",
      );
      assert.deepEqual(asked.map(({ tool, prepared: { access } }) => [tool, access])[0], ["mcp_prompt", "network"]);
    }));
}

test("a block of a prompt that is none of the protocol becomes a line beside the others", () =>
  withTools({ blocks: [{ type: "video", url: "x" }, { type: "text", text: "and so on" }] }, async ({ call }) => {
    const { result } = await call("mcp_prompt", { server: "one", name: "greet" });
    const line = '[a block of the type "video": it is none of the protocol]';
    assert.equal(result.output, `user: Greet all\nuser: ${line}\nuser: and so on`);
  }));

test("what is missing or unknown is refused with the way on", () =>
  withTools({}, async ({ call }) => {
    const said = async (tool: string, input: unknown) => (await call(tool, input)).result;
    assert.match((await said("mcp_prompt", { name: "greet" })).output, /"server" is missing/);
    assert.match((await said("mcp_prompt", { arguments: {} })).output, /"name" is missing/);
    assert.match((await said("mcp_resource", { uri: "memo://one" })).output, /"server" is missing/);
    const unknown = await said("mcp_resource", { server: "two" });
    assert.deepEqual(unknown.isError, true);
    assert.match(unknown.output, /Cannot find the MCP server "two": those that may be used are one$/);
  }));
