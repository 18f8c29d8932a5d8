import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { type FakeServer, startFakeServer } from "../../../fixtures/upstream/fake_server.ts";
import { startOpenAiUpstream, toDelta, toSse, USAGE_CHUNK } from "../../../fixtures/upstream/openai_upstream.ts";
import type { AgentEvent } from "../../../lib/base/records/agent_event.ts";
import { openChat } from "../../support/chat_client.ts";
import { freePort } from "../../support/free_port.ts";
import { type RunningGateway, withRunningGateway } from "../../support/running_gateway.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { until } from "../../support/until.ts";

const HELLO = [{ role: "user", content: "Hello" }];

interface Answer {
  readonly status: number;
  readonly fallback: string | null;
  readonly model: string | undefined;
  readonly text: string;
  readonly code: string | undefined;
  readonly message: string;
}

/** Asks for a completion; `model` undefined leaves the field out. */
async function ask(
  gateway: RunningGateway,
  model: string | null | undefined,
  stream = false,
  headers: Readonly<Record<string, string>> = { "x-postern-tools": "none" },
): Promise<Answer> {
  const body = { ...(model === undefined ? {} : { model }), messages: HELLO, stream };
  const reply = await gateway.call("/v1/chat/completions", { body, headers });
  const fallback = reply.headers.get("x-postern-fallback");
  const sent = await reply.text();
  const { status } = reply;
  if (!stream || status !== 200) {
    const json = JSON.parse(sent);
    return {
      status,
      fallback,
      model: json.model,
      text: json.choices?.[0].message.content ?? "",
      code: json.error?.code,
      message: json.error?.message ?? "",
    };
  }
  const chunks = sent.split("\n\n").filter((line) => line.startsWith("data: {")).map((line) =>
    JSON.parse(line.slice(6))
  );
  const models = new Set(chunks.map((chunk) => chunk.model));
  assert.equal(models.size, 1, "a stream names one model throughout");
  const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
  return { status, fallback, model: [...models][0], text, code: undefined, message: "" };
}

/** A local server that answers with its own words, whatever model a request names, as llama.cpp does. */
function startLocal(models: readonly string[], port = 0): Promise<FakeServer> {
  return startFakeServer((seen, response) => {
    if (seen.path === "/v1/models") {
      response.writeHead(200, { "content-type": "application/json" });
      const data = models.map((id) => ({ id, object: "model", created: 1, owned_by: "llamacpp" }));
      return void response.end(JSON.stringify({ object: "list", data }));
    }
    if (seen.path !== "/v1/chat/completions") return void response.writeHead(404).end("{}");
    if ((seen.json as { stream?: boolean }).stream) {
      response.writeHead(200, { "content-type": "text/event-stream" });
      const chunks = [toDelta({ role: "assistant", content: "local words" }), toDelta({}, "stop"), USAGE_CHUNK];
      return void response.end(`${chunks.map(toSse).join("")}data: [DONE]\n\n`);
    }
    response.writeHead(200, { "content-type": "application/json" });
    const message = { role: "assistant", content: "local words" };
    response.end(JSON.stringify({ choices: [{ index: 0, message, finish_reason: "stop" }], model: models[0] }));
  }, port);
}

/** Every door that takes a model's name: the code that it refuses one with, undefined where it is answered. */
const DOORS: readonly (readonly [door: string, open: (gateway: RunningGateway, model: string) => Promise<unknown>])[] =
  [
    ...["/api/chat", "/webhook"].map((path) => [path, byHttp(path, { message: "Hello" })] as const),
    ["/v1/chat/completions", byHttp("/v1/chat/completions", { messages: HELLO })],
    ["/v1/chat/completions, a stream", byHttp("/v1/chat/completions", { messages: HELLO, stream: true })],
    ["/v1/runs", byHttp("/v1/runs", { message: "Hello" })],
    ["/v1/runs of an agent", byHttp("/v1/runs", { message: "Hello", agent: "helper" })],
    ["/ws/chat", async ({ url, token }, model) => {
      const headers = { authorization: `Bearer ${token}` };
      const chat = await openChat(`${url.replace("http", "ws")}/ws/chat`, { headers });
      chat.send({ type: "message", text: "Hello", model });
      const last = (await chat.readReply()).at(-1);
      chat.socket.close();
      return last?.["code"];
    }],
  ];

function byHttp(path: string, body: Readonly<Record<string, unknown>>) {
  return async (gateway: RunningGateway, model: string) => {
    const reply = await gateway.call(path, { body: { ...body, model } });
    if (reply.ok) return void await reply.text();
    return (await reply.json() as { error: { code: string } }).error.code;
  };
}

const AUTO = { provider: { kind: "auto", max_retries: 0 } };
const DEFAULTS = [undefined, null, "", "default", "assistant"];

test("on a fresh data directory the offline assistant answers any name, and says that it did", async () => {
  await withRunningGateway({ config: AUTO }, async (gateway) => {
    for (const model of [...DEFAULTS, "gpt-4o", "nobody/has-this"]) {
      for (const stream of [false, true]) {
        const answer = await ask(gateway, model, stream);
        assert.deepEqual(
          [answer.status, answer.model, answer.fallback],
          [200, "assistant", null],
          `${model} ${stream}`,
        );
      }
    }
  });
});

for (
  const [what, options] of [
    ["a key in the environment", { environment: { OPENAI_API_KEY: "sk-test-of-the-memory-0123456789" } }],
    ["a configured provider", {
      config: { provider: { kind: "openai_compatible", base_url: "http://127.0.0.1:9/v1" } },
    }],
    ["a named provider", { config: { ...AUTO, providers: { work: { base_url: "http://127.0.0.1:9/v1" } } } }],
    ["an agent's provider", {
      config: { ...AUTO, agents: { helper: { provider: "http://127.0.0.1:9/v1", model: "m" } } },
    }],
  ] as const
) {
  test(`after ${what} the offline assistant no longer answers for another model`, async () => {
    await withTemporaryFolder(async (folder) => {
      const dataDir = join(folder, "data");
      await withRunningGateway({ config: AUTO, ...options, dataDir }, () => Promise.resolve());
      for (const localServers of [[], false] as const) {
        await withRunningGateway({ config: AUTO, dataDir, localServers }, async (gateway) => {
          for (const stream of [false, true]) {
            const refused = await ask(gateway, "gpt-4o", stream);
            assert.deepEqual([refused.status, refused.code], [404, "model_not_found"]);
            assert.match(refused.message, /"default"/, "the error names what would work");
            for (const model of DEFAULTS) {
              const answer = await ask(gateway, model, stream);
              const { status, model: said, fallback } = answer;
              assert.deepEqual([status, said, fallback], [200, "offline/assistant", "offline/assistant"]);
            }
          }
        });
      }
    });
  });
}

test("a dead local server's model is 502 and never the offline assistant; the default may be, and says so", async () => {
  const port = await freePort();
  const origin = `http://127.0.0.1:${port}`;
  const local = await startLocal(["local-model"], port);
  await withTemporaryFolder(async (folder) => {
    const config = { ...AUTO, agents: { helper: { system_prompt: "You help." } } };
    const options = { config, dataDir: join(folder, "data"), localServers: [origin] };
    await withRunningGateway(options, async (gateway) => {
      assert.equal((await ask(gateway, "local-model")).text, "local words");
      assert.equal((await ask(gateway, "default")).model, "openai_compatible/local-model");
      await local.close();
      assert.equal((await ask(gateway, "local-model")).status, 502);
      await until(() => gateway.services.agent?.providers.inUse.name === "offline", "the server is given up");
      for (const stream of [false, true]) {
        for (const name of ["local-model", "openai_compatible/local-model"]) {
          const lost = await ask(gateway, name, stream);
          assert.deepEqual([lost.status, lost.code], [502, "provider_error"], name);
          assert.match(lost.message, /stopped answering/);
        }
        assert.equal((await ask(gateway, "other-model", stream)).status, 404);
        assert.equal((await ask(gateway, "assistant", stream)).fallback, "offline/assistant");
      }
      const chat = await gateway.call("/api/chat", { body: { message: "Hello", model: null } });
      assert.equal(chat.headers.get("x-postern-fallback"), "offline/assistant");
      for (const [door, open] of DOORS) {
        assert.equal(await open(gateway, "local-model"), "provider_error", door);
        assert.equal(await open(gateway, "other-model"), "model_not_found", door);
        assert.equal(await open(gateway, "default"), undefined, door);
      }
    });
    await withRunningGateway(options, async (gateway) => {
      assert.equal((await ask(gateway, "local-model")).status, 502, "remembered over a restart");
      assert.equal((await ask(gateway, "gpt-4o")).status, 404);
    });
  });
});

test("a server that answers whatever a request names is asked for the models it lists alone", async () => {
  const models = ["local-model"];
  const local = await startLocal(models);
  try {
    await withRunningGateway({ config: AUTO, localServers: [local.origin] }, async (gateway) => {
      for (const stream of [false, true]) {
        const refused = await ask(gateway, "gpt-4o", stream);
        assert.deepEqual([refused.status, refused.code], [404, "model_not_found"]);
        assert.match(refused.message, /"local-model"/);
        assert.equal(refused.message.split("the models are").length, 2, "the names are said once");
      }
      models.push("loaded-later");
      const answer = await ask(gateway, "loaded-later");
      assert.deepEqual([answer.status, answer.model], [200, "loaded-later"]);
    });
  } finally {
    await local.close();
  }
});

test("a configured fallback serves the default and its own name, and no other model", async () => {
  const main = await startOpenAiUpstream({ kind: "status", status: 500 });
  const spare = await startOpenAiUpstream();
  const provider = {
    kind: "openai_compatible",
    base_url: main.baseUrl,
    model: "main",
    max_retries: 0,
    fallback: ["spare"],
  };
  const config = { provider, providers: { spare: { base_url: spare.baseUrl, model: "spare-model" } } };
  try {
    await withRunningGateway({ config }, async (gateway) => {
      for (const stream of [false, true]) {
        for (const model of [...DEFAULTS, "main", "openai_compatible/main"]) {
          const answer = await ask(gateway, model, stream);
          const { status, model: said, fallback } = answer;
          assert.deepEqual(
            [status, said, fallback],
            [200, "spare/spare-model", "spare/spare-model"],
            `${model} ${stream}`,
          );
        }
        const other = await ask(gateway, "other", stream);
        assert.deepEqual([other.status, other.fallback], [502, null]);
      }
      const started = await gateway.call("/v1/runs", { body: { message: "Hello" } });
      const { id } = await started.json() as { id: string };
      const events = await (await gateway.call(`/v1/runs/${id}/events`)).text();
      const notice = events.split("\n").filter((line) => line.startsWith("data: {"))
        .map((line) => JSON.parse(line.slice(6)) as AgentEvent)
        .find((event) => event.type === "notice" && event.code === "provider_fallback");
      assert.equal(notice?.type === "notice" ? notice.model : undefined, "spare/spare-model");
      const run = await (await gateway.call(`/v1/runs/${id}`)).json() as { model: string };
      assert.equal(run.model, "spare/spare-model", "the record names what answered");
    });
  } finally {
    await Promise.all([main.close(), spare.close()]);
  }
});

test("a reply names the model of its last turn, where the provider is back after a turn of the fallback", async () => {
  const spare = await startOpenAiUpstream({ kind: "tool_call", name: "memory_recall", arguments: ['{"query":"x"}'] });
  const main = await startOpenAiUpstream();
  const provider = {
    kind: "openai_compatible",
    base_url: main.baseUrl,
    model: "main",
    max_retries: 0,
    fallback: ["spare"],
  };
  const config = { provider, providers: { spare: { base_url: spare.baseUrl, model: "spare-model" } } };
  try {
    await withRunningGateway({ config }, async (gateway) => {
      for (const stream of [false, true]) {
        main.script({ kind: "status", status: 500 }, { kind: "text", chunks: ["Hello", " again"] });
        const answer = await ask(gateway, "main", stream, {});
        const { status, model, fallback } = answer;
        assert.deepEqual([status, model, fallback], [200, "main", "spare/spare-model"], `stream: ${stream}`);
      }
      main.script({ kind: "status", status: 500 }, { kind: "text", chunks: ["Hello", " again"] });
      const body = { model: "main", message: "Hello" };
      const { id } = await (await gateway.call("/v1/runs", { body })).json() as { id: string };
      await (await gateway.call(`/v1/runs/${id}/events`)).text();
      const run = await (await gateway.call(`/v1/runs/${id}`)).json() as { status: string; model: string };
      assert.deepEqual([run.status, run.model], ["completed", "main"], "the record names what answered");
    });
  } finally {
    await Promise.all([main.close(), spare.close()]);
  }
});

test("an upstream's 404 for a model goes out with the names that would work", async () => {
  const error = { message: "The model `nope` does not exist", code: "model_not_found" };
  const upstream = await startOpenAiUpstream({ kind: "status", status: 404, body: { error } });
  const config = { provider: { kind: "openai_compatible", base_url: upstream.baseUrl, model: "upstream-model" } };
  try {
    await withRunningGateway({ config }, async (gateway) => {
      for (const stream of [false, true]) {
        const answer = await ask(gateway, "nope", stream);
        assert.deepEqual([answer.status, answer.code], [404, "model_not_found"]);
        assert.match(answer.message, /"default".*"upstream-model".*"upstream-small"/);
      }
    });
  } finally {
    await upstream.close();
  }
});
