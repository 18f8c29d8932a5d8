import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ProviderRequest } from "../../../lib/providers/provider.ts";
import { type Message, textOf } from "../../../lib/base/records/message.ts";
import { ask, only, readAll, supervised } from "../../support/supervised.ts";

const lastText = ({ messages }: ProviderRequest) => textOf((messages.at(-1) as Message).content); // there is always one

describe("a run's budget", () => {
  test("holds for what it starts as well: no work escapes by being handed down", async () => {
    const { runs, provider } = supervised((request) => {
      if (lastText(request) === "Part") {
        return { text: "Found", usage: { prompt_tokens: 500, completion_tokens: 500, total_tokens: 1000 } };
      }
      return request.messages.some(({ role }) => role === "tool") ? "Done" : { toolCalls: [{ name: "spawn" }] };
    }, {
      tools: [{
        name: "spawn",
        async run(_input, { runId }) {
          const child = await runs.start(ask("Part", { kind: "subagent", parentId: runId, tools: [] }));
          return only(await readAll(child), "done").finish_reason;
        },
      }],
      agent: { tokensPerRun: 6000 },
    });
    const events = await readAll(await runs.start(ask("Go")));
    assert.equal(only(events, "done").finish_reason, "stop");
    const [first, child, last] = provider.requests.map(({ parameters }) => parameters.max_tokens ?? 0);
    assert.equal(first, 4096);
    assert.equal(child, 4096);
    // 6000 less what the parent and its child used, and less what the last request may hold
    assert.ok((last ?? 0) < 6000 - 15 - 1000, String(last));
  });

  test("is asked for again for each turn, and a refusal says how much is left of which budget", async () => {
    const { runs, provider } = supervised(
      (_request, turn) => ({ toolCalls: [{ name: "look", arguments: { turn } }] }),
      {
        tools: [{ name: "look", run: ({ turn }) => `${turn}`.repeat(900) }],
        agent: { tokensPerRun: 5000, maxIterations: 50 },
      },
    );
    const error = only(await readAll(await runs.start(ask("Go"))), "error");
    assert.equal(error.code, "budget");
    assert.match(
      error.message,
      /^The run was ended: of its budget of 5000 tokens \d+ are left, .* raise tokens_per_run in \[budget\]$/,
    );
    assert.ok(provider.requests.length > 1);
    for (const { parameters } of provider.requests) assert.ok((parameters.max_tokens ?? 0) >= 1);
  });

  test("keeps the client's own limit where that is lower, under the name it came with", async () => {
    const { runs, provider } = supervised(["One", "Two"], { agent: { tokensPerRun: 50_000 } });
    await readAll(await runs.start(ask("Hi", { parameters: { max_completion_tokens: 7 } })));
    await readAll(await runs.start(ask("Hi", { parameters: { max_tokens: 9 } })));
    assert.deepEqual(provider.requests.map(({ parameters }) => parameters), [
      { max_completion_tokens: 7 },
      { max_tokens: 9 },
    ]);
  });

  test("adds nothing to a request where none is set", async () => {
    const { runs, provider } = supervised(["One"]);
    await readAll(await runs.start(ask("Hi")));
    assert.deepEqual(provider.requests[0]?.parameters, {});
  });

  test("ends a reply that passes its granted limit, and counts what was said", async () => {
    const words = Array.from({ length: 3000 }, (_, i) => `word${i} `);
    const { runs, provider } = supervised([{ text: words }], { agent: { tokensPerRun: 2000 } });
    const events = await readAll(await runs.start(ask("Hi", { agentTools: "none", parameters: { max_tokens: 5 } })));
    const done = only(events, "done");
    assert.equal(done.finish_reason, "length");
    assert.equal(only(events, "notice").code, "output_limit_passed");
    assert.ok(done.usage.completion_tokens > 5 && done.usage.completion_tokens < 200, JSON.stringify(done.usage));
    assert.equal(done.usage.estimated, true);
    assert.equal(provider.aborted, 1);
  });

  test("takes a reply whose usage is beyond its granted limit for cut", async () => {
    for (const [completion_tokens, reason] of [[3011, "length"], [100, "stop"]] as const) {
      const usage = { prompt_tokens: 10, completion_tokens, total_tokens: completion_tokens + 10 };
      const { runs } = supervised([{ text: "Yes", usage }], { agent: { tokensPerRun: 2000 } });
      const events = await readAll(await runs.start(ask("Hi", { agentTools: "none" })));
      const done = only(events, "done");
      assert.deepEqual([done.finish_reason, done.usage.completion_tokens], [reason, completion_tokens]);
      assert.equal(events.some((event) => event.type === "notice"), reason === "length");
    }
  });

  test("leaves a reply within its limit alone, however long its words are", async () => {
    const text = "Donaudampfschifffahrtsgesellschaft ".repeat(8);
    const { runs } = supervised([{ text }, { reasoning: "Hm. ".repeat(500), text: "Yes" }]);
    const long = await readAll(await runs.start(ask("Hi", { parameters: { max_tokens: 80 } })));
    assert.equal(only(long, "done").finish_reason, "stop");
    // Without a budget, thinking is the vendor's affair
    const thought = await readAll(await runs.start(ask("Hi", { parameters: { max_tokens: 80 } })));
    assert.equal(only(thought, "done").finish_reason, "stop");
  });

  test("keeps the usage and the calls of a reply that came in one piece", async () => {
    const usage = { prompt_tokens: 1, completion_tokens: 900, total_tokens: 901 };
    const input = JSON.stringify({ text: "x".repeat(5000) });
    const replies = [
      [{ type: "tool_call_delta", index: 0, name: "look", arguments_delta: input }, {
        type: "finish",
        finish_reason: "tool_calls",
        usage,
      }],
      [{ type: "text_delta", delta: "y".repeat(5000) }, { type: "finish", finish_reason: "stop", usage }],
    ] as const;
    let turn = 0;
    const { runs, executor } = supervised([], {
      tools: [{ name: "look", run: () => "Seen" }],
      wrap: (providers) => ({
        ...providers,
        resolve(model) {
          const resolved = providers.resolve(model);
          const stream = async function* () {
            yield replies[turn++] ?? [];
          };
          return { ...resolved, provider: { ...resolved.provider, stream } };
        },
      }),
    });
    const events = await readAll(await runs.start(ask("Hi", { parameters: { max_tokens: 5 } })));
    assert.equal(executor.calls.length, 1);
    const done = only(events, "done");
    assert.deepEqual([done.finish_reason, done.usage.completion_tokens], ["length", 1800]);
  });
});
