import assert from "node:assert/strict";
import { test } from "node:test";
import * as v from "valibot";
import { defineApproval, definePrompt, defineTool } from "../../handlers/mod.ts";
import { createTestGateway } from "../../handlers/testing/mod.ts";
import { MCP_ERAS, withMcpGateway } from "../support/mcp_gateway.ts";

const planting = v.object({
  plant: v.pipe(v.string(), v.minLength(2), v.description("Name of the plant")),
  count: v.optional(v.pipe(v.string(), v.toNumber(), v.integer())),
});

test("a prompt takes a schema: its arguments are listed, checked, completed, and have their types", async () => {
  const advise = definePrompt({
    description: "Asks for advice",
    input: planting,
    complete: { plant: (typed) => ["bean", "pea"].filter((plant) => plant.startsWith(typed)) },
    get: ({ plant, count = 1 }) => `How do I grow ${count + 1} of ${plant.toUpperCase()}?`,
  });
  const plain = definePrompt({
    input: { type: "object", properties: { size: { enum: ["small", "large"] } }, required: ["size"] },
    get: ({ size }) => String(size),
  });
  await withMcpGateway({ prompts: { advise, plain } }, async ({ connect, token }) => {
    for (const era of MCP_ERAS) {
      const client = await connect({ token: await token("tools"), era });
      const [listed] = (await client.listPrompts()).prompts;
      assert.deepEqual([listed?.description, listed?.arguments], ["Asks for advice", [
        { name: "plant", required: true, description: "Name of the plant" },
        { name: "count", required: false },
      ]]);
      const get = async (name: string, given: Record<string, string>) =>
        (await client.getPrompt({ name, arguments: given })).messages[0]?.content;
      assert.deepEqual(await get("advise", { plant: "bean", count: "2" }), {
        type: "text",
        text: "How do I grow 3 of BEAN?",
      });
      assert.deepEqual(await get("plain", { size: "large" }), { type: "text", text: "large" });
      for (
        const wrong of [{ plant: "b" }, { plant: "bean", count: "many" }, { count: "1" }, { plant: "bean", x: "" }]
      ) {
        await assert.rejects(get("advise", wrong as Record<string, string>), { code: -32602 }, JSON.stringify(wrong));
      }
      await assert.rejects(get("plain", { size: "huge" }), { code: -32602 });
      const ref = { type: "ref/prompt", name: "advise" } as const;
      const { completion } = await client.complete({ ref, argument: { name: "plant", value: "p" } });
      assert.deepEqual(completion.values, ["pea"]);
    }
  });
  const get = () => "";
  assert.throws(() => definePrompt({ input: v.object({ count: v.number() }), get }), /"count", so it must take text/);
  const complete = { b: () => [] } as object;
  assert.throws(() => definePrompt({ input: v.object({ a: v.string() }), complete, get }), /no argument "b"/);
  const input = { type: "object", properties: {}, if: {} };
  const unread = 'its input cannot be used: "if" is not a keyword that is known here';
  const unreadable = (what: string) => ({ name: "TypeError", message: `Cannot define ${what}: ${unread}` });
  assert.throws(() => definePrompt({ input, get }), unreadable("the prompt"));
  assert.throws(() => defineApproval({ tool: "x", input, answer: () => "deny" }), unreadable('the approval of "x"'));
  const define = () => defineTool({ name: "x", description: "x", access: "read", input, execute: get });
  assert.throws(define, unreadable('the tool "x"'));
});

test("an approval is answered by a schema of the tool's input, and left to people where it does not fit", async () => {
  const order = defineTool({
    ...{ name: "order", description: "Orders beans", access: "write" },
    input: v.object({ count: v.number(), to: v.optional(v.string()), bed: v.optional(v.looseObject({})) }),
    execute: ({ count }) => `${count} ordered`,
  });
  const answers = defineApproval({
    tool: "order",
    input: v.object({ count: v.pipe(v.number(), v.maxValue(10)), bed: v.optional(v.object({ size: v.number() })) }),
    answer: ({ count }) => count > 5 ? "deny" : "approve",
  });
  const write = defineTool({
    ...{ name: "write_it", description: "x", access: "write", input: v.object({ count: v.number() }) },
    execute: () => "written",
  });
  const given: unknown[] = [];
  const gateway = await createTestGateway({
    tools: [order, write],
    hooks: {
      async onApproval(...asked) {
        const answer = await answers(...asked);
        given.push(answer);
        return answer;
      },
    },
  });
  try {
    const outputOf = async (text: string) => {
      const run = gateway.run(text);
      const events = await Array.fromAsync(run);
      return events.flatMap((event) => event.type === "tool_end" ? [event.output] : [])[0] ?? "";
    };
    assert.equal(await outputOf('/order {"count": 3}'), "3 ordered");
    assert.match(await outputOf('/order {"count": 7}'), /the program denied it/);
    const wider = ['/order {"count": 3, "to": "x"}', '/order {"count": 3, "bed": {"size": 1, "by": "x"}}'];
    for (const left of ['/order {"count": 30}', ...wider, '/write_it {"count": 3}']) {
      const leaving = new AbortController();
      const run = gateway.run(left, { signal: leaving.signal });
      for await (const { type } of run) if (type === "approval_needed") break;
      leaving.abort();
      await assert.rejects(async () => await run);
    }
    assert.deepEqual(given, ["approve", "deny", undefined, undefined, undefined, undefined]);
  } finally {
    await gateway.close();
  }
});
