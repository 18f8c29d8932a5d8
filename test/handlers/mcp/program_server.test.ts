import assert from "node:assert/strict";
import { test } from "node:test";
import { auditOffer } from "../../../handlers/mcp/audit_offer.ts";
import type { McpRequest } from "../../../handlers/mcp/mcp_request.ts";
import type { ProgramPrompt, ProgramResource } from "../../../handlers/mod.ts";
import { ConfigError } from "../../../lib/base/errors.ts";
import type { OfferEvent } from "../../../lib/guard/audit/audit_event.ts";
import type { Services } from "../../../lib/services.ts";
import { toOffers } from "../../../lib/tools/program_offers.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
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

test("a token without the scope for runs gets prompts and resources of the program, and no conversations", async () => {
  await withMcpGateway({ prompts, resources }, async ({ connect, token, ask }) => {
    await ask("POST", "/api/chat", { message: "Hi", conversation_id: "c1" });
    for (const era of MCP_ERAS) {
      const client = await connect({ token: await token("tools"), era });
      assert.equal((await client.listPrompts()).prompts.length, 2);
      assert.deepEqual((await client.listResources()).resources.map(({ uri }) => uri), ["shop://about"]);
      const { resourceTemplates } = await client.listResourceTemplates();
      assert.deepEqual(resourceTemplates.map(({ name }) => name), ["price"]);
      assert.equal((await client.readResource({ uri: "shop://about" })).contents.length, 1);
      for (const uri of ["postern://conversations/c1", "POSTERN://conversations/c1", "postern:"]) {
        await assert.rejects(client.readResource({ uri }), /lacks the scope "runs"/);
      }
      const ref = { type: "ref/resource", uri: "shop://plants/{plant}/price" } as const;
      const found = await client.complete({ ref, argument: { name: "plant", value: "b" } });
      assert.deepEqual(found.completion.values, ["bean"]);
    }
  });
});

test("each prompt and resource that a client gets is in the audit, by digests and without what is in it", async () => {
  await withMcpGateway({ prompts, resources }, async ({ connect, token, ask }) => {
    const client = await connect({ token: await token("tools"), era: "2026-07-28" });
    await client.getPrompt({ name: "greet", arguments: { who: "Annabel" } });
    await client.readResource({ uri: "shop://plants/bean%2Fs/price" });
    await assert.rejects(client.readResource({ uri: "shop://plants/pea/price" }));
    await assert.rejects(client.getPrompt({ name: "fail" }));
    const { data } = await ask("GET", "/v1/audit?type=offer") as { data: readonly OfferEvent[] };
    assert.deepEqual(
      data.map(({ kind, name, outcome, output_digest }) => [kind, name, outcome, output_digest !== null]),
      [
        ["prompt", "fail", "error", false],
        ["resource", "shop://plants/{plant}/price", "not_found", false],
        ["resource", "shop://plants/{plant}/price", "ok", true],
        ["prompt", "greet", "ok", true],
      ],
    );
    for (const { by, input_digest, request_id } of data) {
      assert.equal(by.via, "mcp");
      assert.match(by.token_id ?? "", /^tok_/);
      assert.match(input_digest, /^[0-9a-f]{64}$/);
      assert.match(request_id ?? "", /^req_/);
    }
    assert.doesNotMatch(JSON.stringify(data), /Annabel|bean/);
    assert.equal((await ask("GET", "/v1/audit/verify") as { ok: boolean }).ok, true);
  });
});

test("what the audit cannot record is not given to a client", async () => {
  const clock = createFakeClock();
  const asked = { identity: { tokenId: null, scopes: [] }, requestId: "req_1" } as unknown as McpRequest; // as much as is read
  const audit = { append: () => Promise.reject(new Error("The disk is full")) } as unknown as Services["audit"];
  const what = { kind: "prompt", name: "greet", input: {}, asked } as const;
  await assert.rejects(auditOffer(what, { clock, audit }, () => Promise.resolve("secret")), {
    code: "internal_error",
    message: /the audit cannot be written/,
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
