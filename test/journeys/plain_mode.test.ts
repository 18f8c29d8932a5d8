import assert from "node:assert/strict";
import { test } from "node:test";
import OpenAI from "openai";
import { validateConfig } from "../../lib/config/validate_config.ts";
import { type OpenAiUpstream, readRefusal, type RunningGateway, withWorld } from "../support/world.ts";

interface Sent {
  readonly model: string;
  readonly messages: readonly { readonly role: string }[];
  readonly tools?: readonly { readonly function: { readonly name: string } }[];
  readonly top_k?: number;
}

async function withUpstream(use: (gateway: RunningGateway, upstream: OpenAiUpstream) => Promise<void>): Promise<void> {
  await withWorld(async (world) => {
    const upstream = await world.upstream();
    const provider = { kind: "openai_compatible", base_url: upstream.baseUrl, model: "upstream-model", max_retries: 0 };
    const gateway = await world.gateway({ config: { provider, gateway: { rate_limit_max: 0 } } });
    await use(gateway, upstream);
  });
}

const TOOLS: OpenAI.ChatCompletionTool[] = [{ type: "function", function: { name: "edit_file", parameters: {} } }];

async function tokenOf(gateway: RunningGateway, body: Readonly<Record<string, unknown>>): Promise<string> {
  const made = await gateway.call("/v1/tokens", { body });
  assert.equal(made.status, 201);
  return (await made.json() as { token: string }).token;
}

/** Asks as a coding agent does that has an address, a key and a model, and no headers. */
async function ask(gateway: RunningGateway, { apiKey = gateway.token, model = "upstream-model" } = {}) {
  const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey, maxRetries: 0 });
  const body = { model, messages: [{ role: "user" as const, content: "Hi" }], tools: TOOLS, top_k: 4 };
  return await client.chat.completions.create(body);
}

function isPlain({ messages, tools, top_k }: Sent): boolean {
  const names = tools?.map(({ function: { name } }) => name) ?? [];
  return messages.length === 1 && names.join() === "edit_file" && top_k === 4;
}

const lastOf = (upstream: OpenAiUpstream) => upstream.requests.at(-1)?.json as Sent;

test("a plain token makes completions plain, and no other token does", async () => {
  await withUpstream(async (gateway, upstream) => {
    for (const [plain, terms] of [[true, { plain: true }], [false, { plain: false }], [false, {}]] as const) {
      await ask(gateway, { apiKey: await tokenOf(gateway, terms) });
      assert.equal(isPlain(lastOf(upstream)), plain, JSON.stringify(terms));
    }
    const { data } = await (await gateway.call("/v1/tokens")).json() as { data: { plain: boolean }[] };
    assert.deepEqual(data.map(({ plain }) => plain).sort(), [false, false, true]);
  });
});

test("a plain token stays plain over a restart", () =>
  withWorld(async (world) => {
    const upstream = await world.upstream();
    const provider = { kind: "openai_compatible", base_url: upstream.baseUrl, model: "upstream-model" };
    let apiKey = "";
    const first = await world.gateway({ config: { provider } });
    apiKey = await tokenOf(first, { plain: true });
    await first.drain(0);
    await first.services.close();
    const second = await world.gateway({ config: { provider }, dataDir: first.dataDir });
    await ask(second, { apiKey });
    assert.ok(isPlain(lastOf(upstream)));
  }));

test("what is no boolean is refused for plain, and so is the word in another form", async () => {
  await withUpstream(async (gateway) => {
    for (const body of [{ plain: "yes" }, { plain: 1 }, { is_plain: true }]) {
      assert.equal((await gateway.call("/v1/tokens", { body })).status, 400, JSON.stringify(body));
    }
  });
});

test("the model plain/<id> is <id> in plain mode, and the prefix is taken off once", async () => {
  const NAMES = {
    "plain/upstream-small": "upstream-small",
    "plain/openai_compatible/upstream-small": "upstream-small",
    "plain/default": "upstream-model",
    "plain/": "upstream-model",
    "plain/plain/x": "plain/x",
    "plain/vendor/x": "vendor/x",
  };
  await withUpstream(async (gateway, upstream) => {
    for (const [model, expected] of Object.entries(NAMES)) {
      const reply = await ask(gateway, { model });
      assert.ok(isPlain(lastOf(upstream)), model);
      assert.equal(lastOf(upstream).model, expected, model);
      assert.ok(!reply.model.startsWith("plain/") || model === "plain/plain/x", reply.model);
    }
    for (const model of ["plain", "upstream-small", "plainly/x"]) {
      await ask(gateway, { model });
      assert.ok(!isPlain(lastOf(upstream)), model);
    }
  });
});

test("plain/<id> means the same at every door that takes a model", async () => {
  await withUpstream(async (gateway, upstream) => {
    const chat = await gateway.call("/api/chat", { body: { message: "Hi", model: "plain/upstream-small" } });
    assert.equal(chat.status, 200);
    assert.equal(lastOf(upstream).model, "upstream-small");
    assert.equal(lastOf(upstream).tools, undefined);
    const started = await gateway.call("/v1/runs", { body: { message: "Hi", model: "plain/upstream-small" } });
    const { id } = await started.json() as { id: string };
    await (await gateway.call(`/v1/runs/${id}/events`)).text();
    assert.equal(lastOf(upstream).model, "upstream-small");
    assert.equal(lastOf(upstream).tools, undefined);
    // Durable: what it was asked for is pinned
    const headers = { "idempotency-key": "k" };
    const body = { model: "plain/upstream-small", messages: [{ role: "user", content: "Hi" }] };
    await gateway.call("/v1/chat/completions", { headers, body });
    assert.equal(lastOf(upstream).tools, undefined);
  });
});

test("a model is found under plain/<id> as it is under <id>, and no plain one is listed", async () => {
  await withUpstream(async (gateway) => {
    const client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: gateway.token, maxRetries: 0 });
    const { data } = await (await gateway.call("/v1/models")).json() as { data: { id: string }[] };
    assert.ok(data.length > 0 && data.every(({ id }) => !id.startsWith("plain/")));
    const [listed] = data;
    assert.deepEqual(await client.models.retrieve(`plain/${listed?.id}`), { ...listed, id: `plain/${listed?.id}` });
    for (const unknown of ["plain/no-such-model", "plain/plain/upstream-model"]) {
      const refused = await readRefusal(await gateway.call(`/v1/models/${unknown}`));
      assert.equal(refused.code, "model_not_found", unknown);
    }
  });
});

test("no provider may have the name of plain mode", () => {
  const result = validateConfig([{
    providers: { plain: { kind: "openai_compatible", base_url: "http://127.0.0.1:1" } },
  }]);
  assert.ok("findings" in result && JSON.stringify(result.findings).includes("reserved"));
});

/** Content parts that vendors and local servers have, and the gateway does not know. */
const PARTS = [
  { type: "video_url", video_url: { url: "https://x.test/film.mp4" } },
  { type: "input_image", image_url: "data:image/png;base64,AA" },
  { type: "thinking", thinking: "file: a thought", signature: "s" },
  { type: "image_url", image_url: { url: "https://x.test/a.png", detail: "original" } },
];

test("plain mode passes content parts on that the gateway does not know, and agent mode says how", async () => {
  await withUpstream(async (gateway, upstream) => {
    for (const part of PARTS) {
      const content = [{ type: "text", text: "See" }, part];
      const body = {
        messages: [{ role: "user", content }, { role: "user", content: [{ type: "text", text: "Now?" }] }],
      };
      for (const model of ["plain/upstream-model", "upstream-model"]) {
        const before = upstream.requests.length;
        const reply = await gateway.call("/v1/chat/completions", { body: { ...body, model } });
        if (model === "upstream-model" && part.type !== "image_url") {
          const { code, param, message } = await readRefusal(reply);
          assert.deepEqual([code, param], ["invalid_request", "messages[0].content[1].type"]);
          assert.match(message, /"x-postern-tools: none" or the model "plain\/<id>"/);
          assert.equal(upstream.requests.length, before);
        } else {
          assert.equal(reply.status, 200, await reply.text());
          const sent = lastOf(upstream).messages.filter(({ role }) => role === "user");
          assert.deepEqual(sent, body.messages, `${model} ${part.type}`);
        }
      }
    }
    // Durable: the part is kept, and read again
    const headers = { "idempotency-key": "parts" };
    const body = { model: "plain/upstream-model", messages: [{ role: "user", content: PARTS }] };
    assert.equal((await gateway.call("/v1/chat/completions", { headers, body })).status, 200);
    assert.deepEqual(lastOf(upstream).messages, body.messages);
  });
});

test("no part that the gateway does not know leads a model server to its own disk", async () => {
  await withUpstream(async (gateway, upstream) => {
    const PARTS_OF_FILES: readonly [part: object, param: string][] = [
      [{ type: "video_url", video_url: { url: "file:///etc/passwd" } }, "messages[0].content[0].video_url.url"],
      [{ type: "input_image", image_url: "/etc/passwd" }, "messages[0].content[0].image_url"],
      [{ type: "x", list: [{ fileUrl: " file:///etc/passwd" }] }, "messages[0].content[0].list[0].fileUrl"],
    ];
    for (const [part, expected] of PARTS_OF_FILES) {
      const body = { model: "plain/upstream-model", messages: [{ role: "user", content: [part] }] };
      const { code, param } = await readRefusal(await gateway.call("/v1/chat/completions", { body }));
      assert.deepEqual([code, param], ["invalid_request", expected]);
    }
    assert.equal(upstream.requests.length, 0);
  });
});
