import assert from "node:assert/strict";
import { test } from "node:test";
import type { ProgramPrompt, ProgramResource } from "../../../handlers/mod.ts";
import { ConfigError } from "../../../lib/base/errors.ts";
import { toOffers } from "../../../lib/tools/program_offers.ts";
import { MCP_ERAS, withMcpGateway } from "../../support/mcp_gateway.ts";

/** Token of the gateway's environment, which the gateway masks. */
const SECRET = "the-token-of-the-environment";

const prompts: Readonly<Record<string, ProgramPrompt>> = {
  greet: {
    description: "Greets somebody",
    arguments: {
      who: { required: true, complete: (typed) => Array.from({ length: 150 }, (_, index) => `${typed}${index}`) },
      how: { description: "Loud or not" },
    },
    get: ({ who, how = "softly" }) => `Greet ${who} ${how}`,
  },
  fail: {
    get() {
      throw new TypeError(`broken by ${SECRET}`);
    },
  },
};
const resources: Readonly<Record<string, ProgramResource>> = {
  "shop://about": { name: "about", mimeType: "text/plain", read: () => `the key is ${SECRET}` },
  "shop://plants/{plant}/price": {
    name: "price",
    complete: { plant: (typed) => ["bean", "pea"].filter((plant) => plant.startsWith(typed)) },
    read: ({ plant }) => (plant === "bean/s" ? "3" : undefined),
  },
};

test("clients of both eras get prompts, resources, templates and completions of the program", async () => {
  await withMcpGateway({ prompts, resources }, async ({ connect, token }) => {
    const rights = await token("tools", "runs");
    for (const era of MCP_ERAS) {
      const client = await connect({ token: rights, era });
      const listed = (await client.listPrompts()).prompts;
      assert.deepEqual(listed.map(({ name }) => name), ["greet", "fail"]);
      assert.deepEqual(listed[0]?.arguments, [
        { name: "who", required: true },
        { name: "how", required: false, description: "Loud or not" },
      ]);
      const { messages } = await client.getPrompt({ name: "greet", arguments: { who: "Ann" } });
      assert.deepEqual(messages, [{ role: "user", content: { type: "text", text: "Greet Ann softly" } }]);
      await assert.rejects(client.getPrompt({ name: "greet" }), { code: -32602 });
      await assert.rejects(client.getPrompt({ name: "greet", arguments: { who: "x", why: "x" } }), { code: -32602 });
      await assert.rejects(client.getPrompt({ name: "toString" }), { code: -32602 });
      await assert.rejects(client.getPrompt({ name: "fail" }), (error: Error) => !error.message.includes(SECRET));
      const ref = { type: "ref/prompt", name: "greet" } as const;
      const { completion } = await client.complete({ ref, argument: { name: "who", value: "A" } });
      assert.equal(completion.values.length, 100);
      assert.equal(completion.hasMore, true);
      await assert.rejects(client.complete({ ref, argument: { name: "why", value: "" } }), { code: -32602 });
      assert.ok((await client.listResources()).resources.some(({ uri }) => uri === "shop://about"));
      assert.equal((await client.listResourceTemplates()).resourceTemplates.length, 2);
      const about = await client.readResource({ uri: "shop://about" });
      assert.deepEqual(about.contents, [{
        uri: "shop://about",
        mimeType: "text/plain",
        text: "the key is [redacted]",
      }]);
      const price = await client.readResource({ uri: "shop://plants/bean%2Fs/price" });
      assert.deepEqual(price.contents, [{ uri: "shop://plants/bean%2Fs/price", text: "3" }]);
      for (
        const uri of ["shop://plants/pea/price", "shop://plants/a/b/price", "shop://plants/%/price", "shop://abou"]
      ) {
        await assert.rejects(client.readResource({ uri }), { code: -32602 });
      }
      const template = { type: "ref/resource", uri: "shop://plants/{plant}/price" } as const;
      const found = await client.complete({ ref: template, argument: { name: "plant", value: "b" } });
      assert.deepEqual(found.completion.values, ["bean"]);
    }
  });
});

test("a token without the scope for runs gets prompts and no resources", async () => {
  await withMcpGateway({ prompts, resources }, async ({ connect, token }) => {
    for (const era of MCP_ERAS) {
      const client = await connect({ token: await token("tools"), era });
      assert.equal((await client.listPrompts()).prompts.length, 2);
      assert.equal(client.getServerCapabilities()?.resources, undefined);
      await assert.rejects(client.readResource({ uri: "shop://about" }));
      const ref = { type: "ref/resource", uri: "shop://plants/{plant}/price" } as const;
      await assert.rejects(client.complete({ ref, argument: { name: "plant", value: "b" } }), /runs/);
    }
  });
});

test("prompts and resources of another form are refused at the start", () => {
  const read = () => "";
  const wrong: readonly unknown[] = [
    { prompts: [] },
    { prompts: { "a b": { get: read } } },
    { prompts: { a: {} } },
    { prompts: { a: null } },
    { resources: { "no address": { name: "a", read } } },
    { resources: { "postern://conversations/1": { name: "a", read } } },
    { resources: { "shop://{a b}": { name: "a", read } } },
    { resources: { "shop://a": { read } } },
  ];
  for (const given of wrong) {
    assert.throws(() => toOffers(given as Parameters<typeof toOffers>[0]), ConfigError, JSON.stringify(given));
  }
});
