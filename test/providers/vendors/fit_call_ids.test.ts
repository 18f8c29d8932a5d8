import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { AssistantMessage, Message } from "../../../lib/base/records/message.ts";
import { fitCallIds } from "../../../lib/providers/vendors/fit_messages.ts";
import { VendorForms } from "../../../lib/providers/vendors/vendor_forms.ts";
import { REQUEST } from "../support/provider_setup.ts";

interface Vendor {
  readonly name: string;
  readonly kind: string;
  readonly origin: string;
  readonly model: string;
  /** Rule by which the vendor refuses an id, or cannot go on with it */
  readonly rule: RegExp;
  /** Ids that it gives by itself */
  readonly own: readonly [string, string];
}

const COMPATIBLE = { name: "a", kind: "openai_compatible" };
const MISTRAL = { ...COMPATIBLE, rule: /^[a-zA-Z0-9]{9}$/, own: ["D681PevKs", "VvvODy9mT"] as const };
const KIMI = {
  ...COMPATIBLE,
  rule: /^functions\.[a-z_]+:\d+$/,
  own: ["functions.look:0", "functions.weather:1"] as const,
};
const CLAUDE = { rule: /^[a-zA-Z0-9_-]{1,64}$/, own: ["toolu_01A09q90qw90lq", "toolu_01B"] as const };
const OPENAI = {
  name: "a",
  rule: /^[^]{1,40}$/,
  own: ["call_DdmO9pD3xa9XTPNJ32zg2hcA", "call_2"] as const,
};
const VENDORS: Readonly<Record<string, Vendor>> = {
  "Mistral": { ...MISTRAL, origin: "https://api.mistral.ai", model: "a-model" },
  "a model of Mistral elsewhere": { ...MISTRAL, origin: "http://127.0.0.1:8000", model: "mistralai/Devstral-Small" },
  "a model of Mistral with a tag": { ...MISTRAL, origin: "http://127.0.0.1:11434", model: "mistral-small3.1:24b" },
  "Kimi": { ...KIMI, origin: "https://api.moonshot.ai", model: "kimi-k2-0905-preview" },
  "Kimi elsewhere": { ...KIMI, origin: "http://127.0.0.1:8000", model: "moonshotai/Kimi-K2-Instruct" },
  "Anthropic": { ...CLAUDE, name: "a", kind: "anthropic", origin: "https://api.anthropic.com", model: "m" },
  "Claude elsewhere": { ...CLAUDE, ...COMPATIBLE, origin: "https://o.ai", model: "anthropic/claude-x" },
  "OpenAI": { ...OPENAI, kind: "openai", origin: "https://api.openai.com", model: "gpt" },
  "OpenAI at Azure": { ...OPENAI, kind: "openai_compatible", origin: "https://x.openai.azure.com", model: "d" },
  "OpenAI elsewhere": { ...OPENAI, kind: "openai_compatible", origin: "https://o.ai", model: "openai/gpt" },
};

function calling(...calls: readonly (readonly [string, string])[]): AssistantMessage {
  const tool_calls = calls.map(([id, name]) =>
    ({ id, type: "function", function: { name, arguments: "{}" } }) as const
  );
  return { role: "assistant", content: null, tool_calls };
}
const result = (id: string, content = id): Message => ({ role: "tool", tool_call_id: id, content });
const ASKED: Message = { role: "user", content: "Go" };

function fitted(messages: readonly Message[], vendor: Omit<Vendor, "rule" | "own">) {
  const { model, name } = vendor;
  const request = { ...REQUEST, model, messages };
  const got = fitCallIds(request, { provider: name, ids: new VendorForms(vendor).of(model).callIds });
  return { isSame: got === request, messages: got.messages, ids: idsOf(got.messages) };
}

/** Ids of the calls in their order, with the texts of the results that go to each. */
function idsOf(messages: readonly Message[]): readonly (readonly [string, readonly unknown[]])[] {
  const ids = new Map<string, unknown[]>();
  for (const message of messages) {
    if (message.role === "assistant") {
      for (const { id } of message.tool_calls ?? []) {
        assert.ok(!ids.has(id), `the id ${id} stands twice`);
        ids.set(id, []);
      }
    }
    if (message.role === "tool") {
      const results = ids.get(message.tool_call_id);
      assert.ok(results, `no call of ${message.tool_call_id}`);
      results.push(message.content);
    }
  }
  return [...ids];
}

/** Ids that are of no vendor, or of another one. */
const FOREIGN = [
  "call_0123456789abcdefghijklmn",
  "call:1",
  "functions.look:7",
  "x".repeat(100),
  "a b\nc",
  "toolu_01A09q90qw90lq",
  "D681PevKs",
];

for (const [what, vendor] of Object.entries(VENDORS)) {
  describe(what, () => {
    test("gets its own ids as they are, and the request untouched", () => {
      const [a, b] = vendor.own;
      const history = [ASKED, calling([a, "look"], [b, "weather"]), result(a), result(b), ASKED];
      assert.ok(fitted(history, vendor).isSame);
    });

    test("gets ids of others in its form, each once, the same for a call and its result and in each request", () => {
      const history: Message[] = [ASKED];
      const before: string[] = [];
      for (const id of FOREIGN) {
        history.push(calling([id, "look"]), result(id), ASKED);
        const { ids } = fitted(history, vendor);
        for (const [sent] of ids) assert.match(sent, vendor.rule);
        assert.deepEqual(ids.map(([, results]) => results), FOREIGN.slice(0, ids.length).map((text) => [text]));
        assert.deepEqual(ids.slice(0, -1).map(([sent]) => sent), before);
        before.push(ids.at(-1)?.[0] ?? "");
      }
    });

    test("gets an id that stands twice once, and each result with its own call", () => {
      const [a] = vendor.own;
      const { ids } = fitted([
        ASKED,
        calling([a, "look"], [a, "weather"]),
        result(a, "one"),
        result(a, "two"),
        calling([a, "look"]),
        result(a, "three"),
        calling(["call:x", "look"]),
        calling([a, "look"]),
        result(a, "four"),
        result("call:x", "late"),
      ], vendor);
      assert.deepEqual(ids.map(([, results]) => results), [["one"], ["two"], ["three"], ["late"], ["four"]]);
      assert.equal(ids[0]?.[0], a);
      for (const [sent] of ids) assert.match(sent, vendor.rule);
    });

    test("gets the ids back that it gave the agent, and no other provider gets them", () => {
      const [a, b] = vendor.own;
      const called = calling(["call_0123456789abcdefghijklmn", "look"], ["call_0123456789abcdefghijklmo", "weather"]);
      const history = (name: string) => [
        { ...called, vendor_ids: { [name]: [a, b] } },
        result("call_0123456789abcdefghijklmo"),
        result("call_0123456789abcdefghijklmn"),
      ];
      const { messages, ids } = fitted(history("a"), vendor);
      assert.deepEqual(ids.map(([id]) => id), [a, b]);
      assert.ok(!("vendor_ids" in (messages[0] ?? {})));
      assert.equal(messages[1]?.role === "tool" && messages[1].tool_call_id, b);
      const other = fitted(history("another"), vendor);
      assert.ok(!("vendor_ids" in (other.messages[0] ?? {})));
      for (const [sent] of other.ids) assert.match(sent, vendor.rule);
    });
  });
}

test("a server that nobody knows takes any id, each once", () => {
  const server = { ...COMPATIBLE, origin: "http://127.0.0.1:8080", model: "llama" };
  const history = FOREIGN.flatMap((id) => [calling([id, "look"]), result(id)]);
  assert.ok(fitted(history, server).isSame);
  const { ids } = fitted([...history, calling(["call:1", "look"], ["", "look"]), result("call:1", "b")], server);
  assert.equal(ids.length, FOREIGN.length + 2);
});

test("a result without its call keeps an id that the vendor takes", () => {
  const request = { ...REQUEST, messages: [result("D681PevKs"), result("call:1")] };
  const [kept, made] = fitCallIds(request, { provider: "a", ids: "mistral" }).messages;
  assert.deepEqual(kept, result("D681PevKs"));
  assert.match(made?.role === "tool" ? made.tool_call_id : "", /^[a-zA-Z0-9]{9}$/);
});

test("a long history of calls with one id takes no longer than another", () => {
  for (const vendor of [VENDORS["Mistral"], VENDORS["Kimi"]] as readonly Vendor[]) {
    const [a] = vendor.own;
    const calls = Array.from({ length: 20_000 }, () => [a, "look"] as const);
    const { ids } = fitted([calling(...calls), ...calls.map(([id]) => result(id))], vendor);
    assert.equal(ids.length, 20_000);
  }
});
