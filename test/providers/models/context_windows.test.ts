import assert from "node:assert/strict";
import { test } from "node:test";
import { createScriptedProvider } from "../../../fixtures/scripted_provider.ts";
import { startFakeServer } from "../../../fixtures/upstream/fake_server.ts";
import { ProviderError } from "../../../lib/base/errors.ts";
import { createContextWindows } from "../../../lib/providers/models/context_windows.ts";
import type { Provider } from "../../../lib/providers/provider.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { NEVER, setUp } from "../support/provider_setup.ts";

const HOUR_MS = 3_600_000;

test("the windows are read from the provider's list, whatever it calls them, and shown as context_length", async (context) => {
  const models = [
    { id: "openrouter", context_length: 131_072 },
    { id: "vllm", max_model_len: 8192 },
    { id: "groq", context_window: 32_768 },
    { id: "mistral", max_context_length: 65_536 },
    { id: "lm-studio", max_context_length: 131_072, loaded_context_length: 4096 },
    { id: "llama.cpp", meta: { n_ctx_train: 40_960 } },
    { id: "anthropic", max_input_tokens: 200_000 },
    { id: "silent" },
    { id: "broken", context_length: "many" },
  ];
  const upstream = await startFakeServer((_seen, response) => void response.end(JSON.stringify({ data: models })));
  context.after(() => upstream.close());
  const { providers } = await setUp(context, { base_url: `${upstream.origin}/v1`, model: "vllm" });
  const { provider } = providers.resolve(undefined);
  const windows = createContextWindows(createFakeClock());
  const found = await Promise.all([...models.map(({ id }) => id), "unknown"].map((id) => windows.of(provider, id)));
  assert.deepEqual(found, [131_072, 8192, 32_768, 65_536, 4096, 40_960, 200_000, 0, 0, 0]);
  assert.equal(upstream.requests.length, 1);
  const shown = await providers.listModels(NEVER);
  assert.deepEqual(
    shown.map((model) => model.context_length ?? 0),
    [131_072, 8192, 32_768, 65_536, 4096, 40_960, 200_000, 0, 0],
  );
});

test("a list is kept for an hour, and one that cannot be read means that nothing is known", async () => {
  const clock = createFakeClock();
  let asked = 0;
  const provider: Provider = {
    name: "flaky",
    // deno-lint-ignore require-yield -- it is never asked for a turn
    async *stream() {
      throw new Error("unused");
    },
    listModels() {
      if (++asked === 1) return Promise.reject(new Error("It is down"));
      return Promise.resolve([{ id: "m", object: "model", created: 0, owned_by: "x", context_length: 5000 }]);
    },
    close: () => Promise.resolve(),
  };
  const windows = createContextWindows(clock);
  assert.deepEqual([await windows.of(provider, "m"), await windows.of(provider, "m"), asked], [0, 0, 1]);
  await clock.advance(HOUR_MS);
  assert.deepEqual([await windows.of(provider, "m"), asked], [5000, 2]);
  assert.equal(clock.pending(), 0, "no timer is left of a list that was read");
});

test("a window is learnt from a refusal, and no other error is taken for one", async () => {
  const provider = createScriptedProvider([], { models: ["a"] });
  const windows = createContextWindows(createFakeClock());
  const rejected = (message: string, upstreamCode?: string) =>
    new ProviderError("provider_rejected", message, { provider: "x", status: 400, upstreamCode });
  const learn = (error: ProviderError, tokens = 2_000_000) => windows.learn(provider, "a", { error, tokens });
  const refusals: readonly (readonly [window: number, message: string])[] = [
    [
      128_000,
      "This model's maximum context length is 128000 tokens. However, your messages resulted in 130001 tokens.",
    ],
    [200_000, "prompt is too long: 215001 tokens > 200000 maximum"],
    [32_768, "Prompt contains 40000 tokens, too large for model with 32768 maximum context length"],
    [4096, "the request exceeds the available context size (4096 tokens), try increasing it"],
    [1_048_576, "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."],
  ];
  for (const [window, message] of refusals) {
    assert.equal(learn(rejected(message)), window);
    assert.equal(await windows.of(provider, "a"), window);
  }
  // A refusal without a number, and one of what should have fitted by our measure
  assert.equal(
    learn(rejected("Your input exceeds the context window of this model", "context_length_exceeded"), 10_000),
    6000,
  );
  assert.equal(learn(rejected("This model's maximum context length is 8192 tokens"), 8000), 4800);
  // The vendor counted twice what we did: what it takes is less by our measure
  assert.equal(learn(rejected("Your request exceeded model token limit: 20000 (requested: 60000)"), 30_000), 10_000);
  assert.equal(learn(rejected("This model's maximum context length is 8192 tokens"), 8000), 4800);
  const others = [
    rejected("The tool's schema is broken"),
    new ProviderError("provider_error", "maximum context length is 5 tokens", { provider: "x", status: 500 }),
  ];
  for (const error of others) assert.equal(learn(error), 0);
  assert.equal(await windows.of(provider, "a"), 4800);
  for (let i = 0; i < 200; i++) {
    windows.learn(provider, `m${i}`, { error: rejected("maximum context length is 9000 tokens"), tokens: 10_000 });
  }
  assert.deepEqual([await windows.of(provider, "a"), await windows.of(provider, "m199")], [0, 9000]);
  // A model that is known already takes no other's place
  windows.learn(provider, "m199", { error: rejected("maximum context length is 8000 tokens"), tokens: 10_000 });
  assert.deepEqual([await windows.of(provider, "m100"), await windows.of(provider, "m199")], [9000, 8000]);
});

test("a request that no window explains makes nobody's window small, and a lesson ends after an hour", async () => {
  const clock = createFakeClock();
  const windows = createContextWindows(clock);
  const provider = createScriptedProvider([], { models: ["a"] });
  const listing: Provider = {
    ...provider,
    listModels: () =>
      Promise.resolve([{ id: "a", object: "model", created: 0, owned_by: "x", context_length: 40_000 }]),
  };
  const learn = (message: string, tokens: number, by: Provider = provider) => {
    const error = new ProviderError("provider_rejected", message, { provider: "x", status: 400 });
    return windows.learn(by, "a", { error, tokens });
  };
  // A format that is longer than the window beside a message of a few words, which the measure does not count
  assert.equal(learn("This model's maximum context length is 128000 tokens", 20), 12, "the request itself is fitted");
  assert.equal(learn("This model's maximum context length is 128000 tokens", 40_000), 24_000);
  // Words of a client that the vendor repeats
  assert.equal(learn('Invalid "stop": "maximum context length is 5"', 4_000), 5);
  assert.equal(await windows.of(provider, "a"), 0, "no lesson is kept");
  learn('Invalid "stop": "maximum context length is 2000"', 4_000, listing);
  assert.equal(await windows.of(listing, "a"), 10_000, "a quarter of what the list says");
  learn("maximum context length is 30000 tokens", 35_000, listing);
  assert.equal(await windows.of(listing, "a"), 30_000);
  await clock.advance(HOUR_MS);
  assert.equal(await windows.of(listing, "a"), 40_000, "forgotten");
});
