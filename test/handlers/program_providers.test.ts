import assert from "node:assert/strict";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import {
  ConfigError,
  createGateway,
  type Gateway,
  type GatewayOptions,
  type ProgramProvider,
  ProviderError,
} from "../../handlers/mod.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const TOKEN = "a-token-from-the-environment";
const headers = { authorization: `Bearer ${TOKEN}`, "content-type": "application/json" };
const FINISH = { type: "finish", finish_reason: "stop" } as const;
const say = (delta: string) => ({ type: "text_delta", delta }) as const;

/** Opens a gateway with providers, and gives the function that closes it. */
async function open(folder: string, options: Partial<GatewayOptions>): Promise<Gateway> {
  return await createGateway({
    dataDir: join(folder, "data"),
    workspace: folder,
    environment: { POSTERN_TOKEN: TOKEN },
    ...options,
  });
}

function ask(gateway: Gateway, model: string, { content = "hi", ...init }: RequestInit & { content?: string } = {}) {
  const body = JSON.stringify({ model, messages: [{ role: "user", content }], stream: init.signal !== undefined });
  return gateway.request("/v1/chat/completions", { method: "POST", headers, body, ...init });
}

describe("providers of the program", () => {
  let gateway: Gateway;
  let seen: AbortSignal | undefined;
  let done: Promise<void>;
  let release = () => {};

  const talk: ProgramProvider = {
    models: ["small", { id: "wide", context_length: 4000 }],
    async *stream({ model, messages }) {
      yield say(`${model} heard `);
      yield [say(String(messages.at(-1)?.content)), say("!")];
      yield { ...FINISH, usage: { prompt_tokens: 7, completion_tokens: 3 } };
    },
  };
  const hang: ProgramProvider = {
    models: ["hang"],
    async *stream(_request, { signal }) {
      seen = signal;
      yield say("first");
      await new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    },
  };
  const fail: ProgramProvider = {
    models: ["busy", "long", "bug"],
    maxRetries: 0,
    stream({ model }) {
      const provider = "fail";
      if (model === "bug") throw new Error("password=secret-1");
      throw model === "busy"
        ? new ProviderError("provider_rate_limited", "Too many", { provider, status: 429, retryAfterSeconds: 17 })
        : new ProviderError("provider_rejected", "Too long", {
          provider,
          status: 400,
          upstreamCode: "context_length_exceeded",
          param: "messages",
        });
    },
  };
  /** Asks another model of the same gateway. */
  const relay: ProgramProvider = {
    models: ["relay"],
    async *stream({ messages }, { signal }) {
      const reply = await ask(gateway, "talk/small", { content: String(messages.at(-1)?.content), signal });
      yield say(`relayed ${(await reply.text()).match(/heard /)?.[0]}`);
      yield FINISH;
    },
  };

  let asked = 0;
  /** Asks itself, without end. */
  const self: ProgramProvider = {
    models: ["self"],
    maxRetries: 0,
    timeoutMs: 200,
    async *stream(_request, { signal }) {
      asked++;
      const reply = await ask(gateway, "self/self", { signal });
      yield say(await reply.text());
      yield FINISH;
    },
  };

  before(() =>
    new Promise<void>((resolve, reject) => {
      done = withTemporaryFolder(async (folder) => {
        gateway = await open(folder, {
          config: {
            model_routes: [{ hint: "fast", provider: "talk", model: "wide" }],
            agents: { helper: { model: "talk/wide" } },
            runs: { max_concurrent: 4, max_queued: 4 },
          },
          providers: { talk, hang, fail, relay, self },
        });
        const held = new Promise<void>((free) => release = free);
        resolve();
        await held;
        await gateway.close();
      });
      done.catch(reject);
    })
  );
  after(async () => {
    release();
    await done;
  });

  test("the first one is the default, each answers under its name and its hint, with its usage", async () => {
    for (
      const [wanted, said] of [["default", "small"], ["talk/wide", "wide"], ["small", "small"], [
        "hint:fast",
        "wide",
      ]] as const
    ) {
      const reply = await ask(gateway, wanted);
      const { choices, usage } = await reply.json() as {
        choices: { message: { content: string } }[];
        usage: Record<string, unknown>;
      };
      assert.equal(choices[0]?.message.content, `${said} heard hi!`);
      assert.deepEqual([usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]], [7, 3, 10]);
    }
  });

  test("lists and the status name them", async () => {
    const { data } = await (await gateway.request("/v1/models", { headers })).json() as {
      data: { id: string; owned_by: string; context_length?: number }[];
    };
    assert.deepEqual(data.map(({ id }) => id), [
      "small",
      "wide",
      "hang/hang",
      "fail/busy",
      "fail/long",
      "fail/bug",
      "relay/relay",
      "self/self",
    ]);
    assert.equal(data[1]?.context_length, 4000);
    const unknown = await ask(gateway, "talk/other");
    assert.equal(unknown.status, 404);
    const { error } = await unknown.json() as { error: { code: string; message: string } };
    assert.equal(error.code, "model_not_found");
    assert.match(error.message, /"small", "wide"/);
  });

  test("a stream comes as it is made, and a client that leaves aborts the provider's signal", async () => {
    const controller = new AbortController();
    const reply = await ask(gateway, "hang/hang", { signal: controller.signal });
    const reader = (reply.body as ReadableStream<Uint8Array>).getReader();
    let text = "";
    while (!text.includes("first")) text += new TextDecoder().decode((await reader.read()).value);
    assert.equal(seen?.aborted, false);
    const aborted = new Promise((resolve) => seen?.addEventListener("abort", resolve));
    await reader.cancel();
    controller.abort();
    await aborted;
  });

  test("errors keep their status: rate limit, context too long; a bug is not shown", async () => {
    const busy = await ask(gateway, "fail/busy");
    assert.deepEqual([busy.status, busy.headers.get("retry-after")], [429, "17"]);
    const long = await ask(gateway, "fail/long");
    const { error } = await long.json() as { error: { code: string; param: string } };
    assert.deepEqual([long.status, error.code, error.param], [400, "context_length_exceeded", "messages"]);
    const bug = await ask(gateway, "fail/bug");
    assert.equal(bug.status, 502);
    assert.doesNotMatch(await bug.text(), /secret-1/);
  });

  test("a provider may ask the gateway itself", async () => {
    const { choices } = await (await ask(gateway, "relay/relay")).json() as {
      choices: { message: { content: string } }[];
    };
    assert.equal(choices[0]?.message.content, "relayed heard ");
  });

  test("a configured agent has a model of the program", async () => {
    const run = await gateway.runs.start({ message: "hi", agent: "helper" });
    for await (const event of gateway.runs.follow(run.id)) assert.notEqual(event.type, "error");
    const { model, result } = await gateway.runs.get(run.id);
    assert.deepEqual([model, result], ["talk/wide", "wide heard hi!"]);
  });

  test("a provider that asks itself without end ends by its time and the bounds of runs", async () => {
    // The clock's timers do not keep a process alive, as a server does
    const alive = setInterval(() => {}, 1000);
    assert.match(await (await ask(gateway, "self/self")).text(), /provider_timeout|overloaded/);
    clearInterval(alive);
    assert.ok(asked <= 8, `${asked} times`);
    const before = asked;
    assert.match(await (await ask(gateway, "default")).text(), /small heard hi!/);
    assert.equal(asked, before);
  });

  test("a run of another gateway in the same process is not mixed up with it", () =>
    withTemporaryFolder(async (folder) => {
      const other = await open(folder, { providers: { talk: { ...talk, models: ["other"] } } });
      try {
        assert.match(await (await ask(other, "default")).text(), /other heard hi!/);
        assert.match(await (await ask(gateway, "default")).text(), /small heard hi!/);
      } finally {
        await other.close();
      }
    }));
});

test("wrong providers are refused before anything is made, and a kind that is given stays the default", () =>
  withTemporaryFolder(async (folder) => {
    const stream = async function* () {
      yield FINISH;
    };
    const config = { providers: { work: { kind: "offline" as const } } };
    for (
      const [providers, code] of [
        [{ openai: { models: ["m"], stream } }, "provider_name_taken"],
        [{ work: { models: ["m"], stream } }, "provider_name_taken"],
        [{ own: { modles: ["m"], stream } }, "provider_invalid"],
        [["own"], "provider_invalid"],
      ] as const
    ) {
      await assert.rejects(
        open(folder, { config, providers: providers as never }),
        (error) => error instanceof ConfigError && error.code === code,
      );
    }
    const gateway = await open(folder, {
      config: { provider: { kind: "offline", fallback: ["own"] } },
      providers: { own: { models: ["m"], stream } },
    });
    try {
      const { data } = await (await gateway.request("/v1/models", { headers })).json() as { data: { id: string }[] };
      assert.deepEqual(data.map(({ id }) => id).sort(), ["assistant", "own/m"]);
    } finally {
      await gateway.close();
    }
  }));

test("a provider of the program embeds texts at POST /v1/embeddings, and says what it cannot do", () =>
  withTemporaryFolder(async (folder) => {
    const own: ProgramProvider = {
      models: ["m"],
      async *stream() {
        yield FINISH;
      },
      embed: ({ texts }) => texts.map((text) => [text.length, 1]),
    };
    const gateway = await open(folder, { providers: { own } });
    const embed = async (body: object) => {
      const sent = JSON.stringify({ model: "own/m", ...body });
      const reply = await gateway.request("/v1/embeddings", { method: "POST", headers, body: sent });
      return { reply, body: await reply.json() as { data?: unknown; error?: { param: string } } };
    };
    try {
      const { reply, body } = await embed({ input: ["abc"], user: "someone" });
      assert.deepEqual(body.data, [{ object: "embedding", index: 0, embedding: [3, 1] }]);
      assert.equal(reply.headers.get("x-postern-ignored"), "user");
      for (
        const [param, asked] of [["input", { input: [1] }], ["dimensions", { input: "x", dimensions: 1 }]] as const
      ) {
        const refused = await embed(asked);
        assert.deepEqual([refused.reply.status, refused.body.error?.param], [400, param]);
      }
    } finally {
      await gateway.close();
    }
  }));
