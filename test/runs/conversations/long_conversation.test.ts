import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { ScriptedTurn } from "../../../fixtures/scripted_provider.ts";
import { inputBytes, messageTokens, toTokens } from "../../../lib/agent/estimate_tokens.ts";
import { ProviderError } from "../../../lib/base/errors.ts";
import { type Message, textOf } from "../../../lib/base/records/message.ts";
import type { ProviderRequest } from "../../../lib/providers/provider.ts";
import { createMemoryStore } from "../../../lib/storage/create_memory_store.ts";
import { ask, only, readAll, supervised, type SupervisedOptions, typesOf } from "../../support/supervised.ts";
import { until } from "../../support/until.ts";

const WINDOW = 3000;
const TURNS = 500;

const isSummary = (request: ProviderRequest) => textOf(request.messages[0]?.content ?? "").startsWith("You condense");
const question = (turn: number) => `Question ${turn}: ${"what about this ".repeat(20)}`;
const answer = (turn: number) => `Answer ${turn}: ${"that is so ".repeat(25)}`;

/** A conversation of questions that are answered, and what the model was sent for each. */
async function converse(
  turns: number,
  options: { readonly summary?: (request: ProviderRequest) => ScriptedTurn | string } & SupervisedOptions = {},
) {
  const notices: string[] = [];
  let turn = 0;
  const summary = options.summary ??
    (({ messages }) => `They spoke of ${textOf(messages[1]?.content ?? "").length} things`);
  const { runs, provider, ...rest } = supervised(
    (request) => (isSummary(request) ? summary(request) : answer(turn)),
    { ...options, agent: { contextWindowTokens: WINDOW, ...options.agent } },
  );
  const sent: ProviderRequest[] = [];
  let totalTokens = 0;
  for (turn = 1; turn <= turns; turn++) {
    const events = await readAll(await runs.start(ask(question(turn), { conversationId: "talk" })));
    for (const event of events) if (event.type === "notice") notices.push(event.code);
    totalTokens += only(events, "done").usage.total_tokens;
    sent.push(provider.requests.at(-1) as ProviderRequest); // a turn asked at least once
  }
  return { runs, provider, sent, notices, totalTokens, summaries: provider.requests.filter(isSummary), ...rest };
}

/** Numbers of the questions and answers a request holds word for word, in order. */
const numbersIn = (messages: readonly Message[], word: string) =>
  messages.flatMap(({ content }) => {
    const found = new RegExp(`^${word} (\\d+):`).exec(textOf(content));
    return found === null ? [] : [Number(found[1])];
  });

describe("a conversation of 500 turns", () => {
  test("stays within the window at every turn: the prompt, a summary of what was, the newest turns in order, the question", async () => {
    const { sent, summaries, notices, provider, totalTokens } = await converse(TURNS);
    for (const [i, { messages, tools }] of sent.entries()) {
      const turn = i + 1;
      assert.ok(messageTokens(messages) + toTokens(inputBytes([], tools)) + WINDOW / 4 <= WINDOW, `turn ${turn}`);
      assert.equal(messages[0]?.role, "system", `turn ${turn}`);
      assert.equal(textOf(messages.at(-1)?.content ?? ""), question(turn));
      // Everything that is there word for word is the end of the conversation, without a gap and once
      const asked = numbersIn(messages, "Question");
      assert.deepEqual(asked, Array.from({ length: asked.length }, (_, at) => turn - asked.length + 1 + at));
      assert.deepEqual(numbersIn(messages, "Answer"), asked.slice(0, -1));
      assert.deepEqual(
        messages.slice(1).map(({ role }) => role),
        messages.slice(1).map((_, at) => (at % 2 === 0 ? "user" : "assistant")),
      );
      const condensed = textOf(messages[1]?.content ?? "");
      if (asked[0] === 1) assert.equal(messages.length, 2 * turn);
      else {assert.equal(
          condensed.startsWith(`[Postern] The first ${2 * (turn - asked.length)} messages`),
          true,
          condensed,
        );}
    }
    // Made once for many turns, each from the one before and what came since
    assert.ok(summaries.length > 20 && summaries.length < TURNS / 4, String(summaries.length));
    assert.ok(
      summaries.slice(1).every(({ messages }) =>
        textOf(messages[1]?.content ?? "").includes("<summary_so_far>\nThey spoke")
      ),
    );
    for (const { messages } of summaries) assert.ok(messageTokens(messages) + WINDOW / 4 <= WINDOW);
    assert.equal(notices.filter((code) => code === "context_summarized").length, summaries.length);
    assert.ok(!notices.includes("history_trimmed"));
    // What the summaries took is the runs' usage too
    assert.equal(totalTokens, 15 * provider.requests.length);
  });

  test("stays within the window beside a system prompt that takes a third of it", async () => {
    const { sent, summaries } = await converse(40, { agent: { systemPrompt: "Be brief. ".repeat(400) } });
    for (const [i, { messages }] of sent.entries()) {
      assert.ok(messageTokens(messages) + WINDOW / 4 <= WINDOW, `turn ${i + 1}: ${messageTokens(messages)} tokens`);
    }
    assert.ok(summaries.length > 0);
  });

  test("goes on with the summary that is stored after a restart, without making it again", async () => {
    const store = createMemoryStore();
    const first = await converse(40, { store });
    assert.ok(first.summaries.length > 0);
    const second = supervised(["Yes"], { store, seed: 2, agent: { contextWindowTokens: WINDOW } });
    await readAll(await second.runs.start(ask("Do you remember?", { conversationId: "talk" })));
    assert.equal(second.provider.requests.length, 1);
    const texts = second.provider.requests[0]?.messages.map(({ content }) => textOf(content)) ?? [];
    assert.match(texts[1] ?? "", /condensed:\n\nThey spoke of \d+ things$/);
    assert.equal(texts.at(-1), "Do you remember?");
  });

  test("is trimmed from the middle where no summary can be made, and the reader is told why", async () => {
    const { sent, notices } = await converse(60, { summary: () => ({ errorBefore: new Error("No such luck") }) });
    for (const [i, { messages }] of sent.entries()) {
      assert.ok(messageTokens(messages) + WINDOW / 4 <= WINDOW);
      assert.equal(messages[0]?.role, "system");
      assert.equal(textOf(messages.at(-1)?.content ?? ""), question(i + 1));
      assert.deepEqual(numbersIn(messages, "Question")[0], 1);
    }
    assert.match(textOf(sent.at(-1)?.messages[3]?.content ?? ""), /earlier messages were left out here/);
    assert.ok(notices.includes("context_summary_failed") && notices.includes("history_trimmed"));
  });

  test("takes an empty or endless summary for what it is", async () => {
    const empty = await converse(20, { summary: () => ({}) });
    assert.ok(empty.notices.includes("context_summary_failed"));
    const endless = await converse(20, { summary: () => "word ".repeat(10_000) });
    assert.ok(endless.summaries.length > 0);
    for (const { messages } of endless.sent) assert.ok(messageTokens(messages) + WINDOW / 4 <= WINDOW);
  });

  test("ends while it is being summarised when its run is stopped", async () => {
    const store = createMemoryStore();
    await converse(10, { store, agent: { contextWindowTokens: 0 } });
    const { runs, provider } = supervised([{ hang: "before" }], {
      store,
      seed: 2,
      agent: { contextWindowTokens: 1500 },
    });
    const handle = await runs.start(ask("And now?", { conversationId: "talk" }));
    const reading = readAll(handle);
    await until(() => provider.active > 0);
    handle.cancel("cancelled");
    assert.equal(only(await reading, "error").code, "cancelled");
  });

  test("is summarised again where a crash came between, and goes on as if nothing had been", async () => {
    const store = createMemoryStore();
    await converse(10, { store, agent: { contextWindowTokens: 0 } });
    const agent = { contextWindowTokens: 1500 };
    const crashed = supervised([{ hang: "before" }], { store, seed: 2, agent });
    const { id } = await crashed.runs.start(ask("And now?", { conversationId: "talk", durable: true }));
    await until(() => crashed.provider.active > 0);
    // What follows is another process on the same store
    const next = supervised((request) => (isSummary(request) ? "Ten questions" : "Good"), { store, seed: 3, agent });
    await next.runs.recover();
    const run = await next.runs.ended(id, new AbortController().signal);
    assert.deepEqual([run?.status, run?.result], ["completed", "Good"]);
    // In as many parts as the window demands
    assert.deepEqual(next.provider.requests.map(isSummary), [true, true, false]);
    const after = await readAll(await next.runs.start(ask("Sure?", { conversationId: "talk" })));
    assert.equal(only(after, "done").finish_reason, "stop");
    const sent = next.provider.requests.at(-1)?.messages.map(({ content }) => textOf(content)) ?? [];
    assert.match(sent[1] ?? "", /condensed:\n\nTen questions$/);
    assert.deepEqual(sent.slice(-3), ["And now?", "Good", "Sure?"]);
  });

  test("is summarised under the run's budget", async () => {
    const store = createMemoryStore();
    await converse(10, { store, agent: { contextWindowTokens: 0 } });
    const options = { store, seed: 2, agent: { contextWindowTokens: 1500, tokensPerRun: 30_000 } };
    const { runs, provider } = supervised((request) => (isSummary(request) ? "Ten questions" : "Good"), options);
    const events = await readAll(await runs.start(ask("And now?", { conversationId: "talk" })));
    assert.ok(typesOf(events).includes("notice"));
    assert.ok(provider.requests.every(({ parameters }) => (parameters.max_tokens ?? 0) > 0));
    assert.equal(only(events, "done").usage.total_tokens, 15 * provider.requests.length);
  });
});

describe("a history with long tool results", () => {
  test("has them shortened before anything is condensed", async () => {
    const look = { name: "look", run: () => "x".repeat(8000) };
    const script = (request: ProviderRequest): ScriptedTurn | string =>
      request.messages.at(-1)?.role === "tool" ? "Seen" : { toolCalls: [{ name: "look" }] };
    const { runs, provider } = supervised(script, { tools: [look], agent: { contextWindowTokens: 6000 } });
    for (let turn = 0; turn < 6; turn++) await readAll(await runs.start(ask("Look", { conversationId: "talk" })));
    assert.ok(provider.requests.every((request) => !isSummary(request)));
    const last = provider.requests.at(-1)?.messages ?? [];
    assert.equal(last.filter(({ role }) => role === "tool").length, 6);
    assert.ok(messageTokens(last) + 1500 <= 6000);
  });
});

test("a window that only the provider knows is kept too, in conversations and in runs with tools", async () => {
  const windows: Record<string, number> = { small: 3000 };
  const looks = { name: "look", run: () => "y".repeat(20_000) };
  const { runs, provider } = supervised(
    (request) =>
      isSummary(request)
        ? "Short"
        : request.messages.at(-1)?.role === "tool" || request.tools.length === 0
        ? "Done"
        : { toolCalls: [{ name: "look" }] },
    { tools: [looks] },
  );
  Object.assign(provider, {
    listModels: () =>
      Promise.resolve(
        Object.entries(windows).map(([id, context_length]) => ({
          id,
          object: "model",
          created: 0,
          owned_by: "x",
          context_length,
        })),
      ),
  });
  const events = await readAll(await runs.start(ask("Look", { model: "small" })));
  assert.ok(events.some((event) => event.type === "notice" && event.code === "history_trimmed"));
  assert.ok(messageTokens(provider.requests[1]?.messages ?? []) < 3000);
  for (let turn = 0; turn < 40; turn++) {
    await readAll(await runs.start(ask(question(turn), { model: "small", conversationId: "talk", tools: [] })));
  }
  assert.ok(provider.requests.some(isSummary));
  const whole = await readAll(
    await runs.start(ask(question(0), { model: "unknown", conversationId: "talk", tools: [] })),
  );
  assert.equal(only(whole, "done").finish_reason, "stop");
});

describe("a window that nobody names", () => {
  const refusal = new ProviderError("provider_rejected", "This model's maximum context length is 3000 tokens.", {
    provider: "scripted",
    status: 400,
  });

  test("is learnt from the provider's refusal: the turn is asked again trimmed, and the next run condenses", async () => {
    let limited = false;
    const { runs, provider } = supervised((request) => {
      if (isSummary(request)) return "All of it, in short";
      return limited && messageTokens(request.messages) > 2500 ? { errorBefore: refusal } : answer(1);
    });
    for (let i = 0; i < 30; i++) await readAll(await runs.start(ask(question(i), { conversationId: "talk" })));
    limited = true;
    const before = provider.requests.length;
    const events = await readAll(await runs.start(ask("And now?", { conversationId: "talk" })));
    assert.equal(only(events, "done").finish_reason, "stop");
    assert.equal(only(events, "notice").code, "history_trimmed");
    const [refused, asked] = provider.requests.slice(before);
    assert.ok(messageTokens(refused?.messages ?? []) > 3000 && messageTokens(asked?.messages ?? []) <= 2250);
    assert.equal(textOf(asked?.messages.at(-1)?.content ?? ""), "And now?");
    const next = await readAll(await runs.start(ask("And then?", { conversationId: "talk" })));
    assert.equal(only(next, "notice").code, "context_summarized");
    assert.equal(only(next, "done").finish_reason, "stop");
  });

  test("is kept in the middle of a run too, as long as there is something to leave out", async () => {
    const { runs, provider } = supervised((request, turn) => {
      if (messageTokens(request.messages) > 2500) return { errorBefore: refusal };
      return turn < 8 ? { toolCalls: [{ name: "look", arguments: { turn } }] } : "Done";
    }, { tools: [{ name: "look", run: ({ turn }) => `${turn}`.repeat(4000) }] });
    const events = await readAll(await runs.start(ask("Look at all of it")));
    assert.equal(only(events, "done").finish_reason, "stop");
    assert.ok(events.some((event) => event.type === "notice" && event.code === "history_trimmed"));
    assert.equal(provider.requests.filter(({ messages }) => messageTokens(messages) > 2500).length, 1);
    const long = await runs.start(ask("x".repeat(20_000)));
    await assert.rejects(readAll(long), refusal);
  });
});
