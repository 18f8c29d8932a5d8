import assert from "node:assert/strict";
import { test } from "node:test";
import { jsonOf } from "../support/json_of.ts";
import { type RunningGateway, withRunningGateway } from "../support/running_gateway.ts";

const BODY = { messages: [{ role: "user", content: "What is in gate.png?" }] };
const SCRIPT = [
  { toolCalls: [{ name: "tool_search", arguments: { query: "data of an image", limit: 1 } }] },
  { toolCalls: [{ name: "image_info", arguments: { path: "gate.svg" } }] },
  "A gate",
];
const FILES = { "gate.svg": '<svg xmlns="http://www.w3.org/2000/svg" width="30" height="20"/>' };

/** Numbers of tools that the model was told of, request by request, and the name of the last one. */
function told({ provider }: RunningGateway): readonly (readonly [number, string | undefined])[] {
  return provider.requests.map(({ tools }) => [tools.length, tools.at(-1)?.name]);
}

test("a completion finds a tool and calls it; the model is told of nine tools instead of all", () =>
  withRunningGateway({ script: SCRIPT, files: FILES }, async (gateway) => {
    const reply = await jsonOf(gateway.call("/v1/chat/completions", { body: BODY }));
    assert.equal(reply.choices[0].message.content, "A gate");
    assert.deepEqual(told(gateway), [[8, "tool_search"], [9, "image_info"], [9, "image_info"]]);
    const results = gateway.provider.requests[2]?.messages.filter(({ role }) => role === "tool") ?? [];
    assert.match(JSON.stringify(results), /image_info: Tells format.*30/s);
  }));

test('with tool_search = "off" the model is told of all tools, and there is no tool_search to call', () =>
  withRunningGateway({ script: SCRIPT, files: FILES, config: { agent: { tool_search: "off" } } }, async (gateway) => {
    await gateway.call("/v1/chat/completions", { body: BODY });
    const [first] = gateway.provider.requests;
    assert.ok(first !== undefined && first.tools.length > 24);
    assert.ok(!first.tools.some(({ name }) => name === "tool_search"));
    const results = gateway.provider.requests[1]?.messages.filter(({ role }) => role === "tool") ?? [];
    assert.match(JSON.stringify(results), /Cannot call .*tool_search/);
  }));

test("a client's own tool_search stays the client's, and the agent searches under another name", () => {
  const search = { name: "agent_tool_search", arguments: { query: "data of an image", limit: 1 } };
  const script = [{ toolCalls: [search] }, ...SCRIPT.slice(1, 2), {
    toolCalls: [{ name: "tool_search", arguments: {} }],
  }];
  const tools = [{ type: "function", function: { name: "tool_search", parameters: { type: "object" } } }];
  return withRunningGateway({ script, files: FILES }, async (gateway) => {
    const reply = await jsonOf(gateway.call("/v1/chat/completions", { body: { ...BODY, tools } }));
    assert.equal(reply.choices[0].message.tool_calls[0].function.name, "tool_search");
    assert.deepEqual(told(gateway), [[9, "tool_search"], [10, "image_info"], [10, "image_info"]]);
    const results = gateway.provider.requests[2]?.messages.filter(({ role }) => role === "tool") ?? [];
    assert.match(JSON.stringify(results), /image_info: Tells format.*30/s);
  });
});
