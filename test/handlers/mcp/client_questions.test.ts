import { CLIENT_ABILITIES } from "../../../lib/base/records/tool_info.ts";
import type { Client, ClientOptions } from "@modelcontextprotocol/client";
import assert from "node:assert/strict";
import { test } from "node:test";
import { defineTool, type ProgramQuestionAnswer, type ProgramToolCall, ToolError } from "../../../handlers/mod.ts";
import type { InputRequest } from "@modelcontextprotocol/server";
import { ClientQuestions, type QuestionWay, UnansweredError } from "../../../handlers/mcp/client_questions.ts";
import type { FakeAudit } from "../../support/fake_audit.ts";
import { createFakeServices } from "../../support/fake_services.ts";
import { MCP_ERAS, type McpEra, type McpGateway, withMcpGateway } from "../../support/mcp_gateway.ts";
import { until } from "../../support/until.ts";

/** Token of the gateway's environment, which the gateway masks. */
const SECRET = "the-token-of-the-environment";
const NAME = {
  type: "object",
  properties: { name: { type: "string", minLength: 2 }, size: { type: "string", enum: ["s", "m"] } },
  required: ["name"],
};
const EVERYTHING = { elicitation: { form: {}, url: {} }, sampling: {}, roots: {} } as const;

/** Answers of a client, and what it was asked. */
interface Asked {
  readonly seen: { readonly method: string; readonly params: Record<string, unknown> }[];
  elicit: (params: Record<string, unknown>) => unknown;
  sample: () => unknown;
  roots: () => unknown;
}

function newAsked(): Asked {
  return {
    seen: [],
    elicit: () => ({ action: "accept", content: { name: "Ann", size: "m" } }),
    sample: () => ({
      role: "assistant",
      content: { type: "text", text: "Paris" },
      model: "theirs",
      stopReason: "endTurn",
    }),
    roots: () => ({ roots: [{ uri: "file:///work", name: "Work" }] }),
  };
}

interface Connected {
  readonly client: Client;
  readonly asked: Asked;
}

async function connectAsked(
  started: McpGateway,
  era: McpEra,
  capabilities: NonNullable<ClientOptions["capabilities"]> = EVERYTHING,
): Promise<Connected> {
  const asked = newAsked();
  const token = await started.token("tools");
  const client = await started.connect({ token, era, capabilities }, (one) => {
    const { elicitation, sampling, roots } = capabilities;
    const note = (method: string, params: unknown) =>
      void asked.seen.push({ method, params: params as Record<string, unknown> });
    if (elicitation !== undefined) {
      one.setRequestHandler("elicitation/create", async ({ params }) => {
        note("elicitation/create", params);
        return await asked.elicit(params) as never;
      });
    }
    if (sampling !== undefined) {
      one.setRequestHandler("sampling/createMessage", async ({ params }) => {
        note("sampling/createMessage", params);
        return await asked.sample() as never;
      });
    }
    if (roots !== undefined) {
      one.setRequestHandler("roots/list", async ({ params }) => {
        note("roots/list", params);
        return await asked.roots() as never;
      });
    }
  });
  return { client, asked };
}

const textOf = ({ content }: { content?: unknown }) =>
  (content as { text: string }[]).map(({ text }) => text).join("\n");

/** Runs a gateway whose tool `ask_it` does `work` and returns the answers as JSON. */
function withAsking(
  work: (call: ProgramToolCall) => unknown,
  use: (started: McpGateway & { readonly runs: () => number }) => Promise<void>,
  more: { readonly clientNeeds?: readonly ("form" | "url" | "sample" | "roots")[] } = {},
): Promise<void> {
  let runs = 0;
  const tool = defineTool({
    name: "ask_it",
    description: "Asks whoever calls",
    access: "read",
    outside: false,
    inputSchema: { type: "object", properties: {}, additionalProperties: false },
    execute(_input, call) {
      runs++;
      return work(call);
    },
    ...more,
  });
  const prompts = {
    greet: {
      async get(_given: unknown, { ask }: Pick<ProgramToolCall, "ask">) {
        runs++;
        const answer = await ask({ message: "Who?", schema: NAME });
        return `Greet ${answer.action === "accept" ? answer.content["name"] : answer.action}`;
      },
    },
  };
  return withMcpGateway({ tools: [tool], prompts }, (started) => use({ ...started, runs: () => runs }));
}

const CALL = { name: "ask_it", arguments: {} };

interface Question {
  readonly action: string;
  readonly kind: string;
  readonly tool: string;
  readonly message?: string;
  readonly fields?: readonly string[];
}

async function questionsOf({ ask }: McpGateway): Promise<readonly Question[]> {
  const { data } = await ask("GET", "/v1/audit?type=question") as { data: Question[] };
  return data.toReversed();
}

for (const era of MCP_ERAS) {
  test(`${era}: a tool asks by form: the client gets the program's own form, and the tool what was filled in, once`, () =>
    withAsking(({ ask }) => ask({ key: "who", message: `Who? ${SECRET}`, schema: NAME }), async (started) => {
      const { client, asked } = await connectAsked(started, era);
      const result = await client.callTool(CALL);
      assert.match(textOf(result), /"action":"accept","content":\{"name":"Ann","size":"m"\}/);
      assert.match(textOf(result), /^<untrusted/, "what a client answers is content from outside");
      assert.equal(asked.seen.length, 1);
      const { message, requestedSchema } = asked.seen[0]?.params ?? {};
      assert.equal(message, "Who? [redacted]");
      assert.deepEqual(requestedSchema, NAME, "the form of the program, with its enum");
      assert.equal(started.runs(), 1);
      const events = await questionsOf(started);
      assert.deepEqual(
        events.map(({ action, kind, tool, fields }) => ({ action, kind, tool, fields })),
        [
          { action: "asked", kind: "form", tool: "ask_it", fields: undefined },
          { action: "accepted", kind: "form", tool: "ask_it", fields: ["name", "size"] },
        ],
      );
      assert.doesNotMatch(JSON.stringify(events), new RegExp(`Ann|${SECRET}`));
    }));

  test(`${era}: an address, a refusal and a closed question reach the tool`, () =>
    withAsking(
      async ({ ask }) => [
        await ask({ message: "Open it", url: "https://example.com/sign" }),
        await ask({ message: "Who?", schema: NAME }),
        await ask({ message: "Who?", schema: NAME }),
      ],
      async (started) => {
        const { client, asked } = await connectAsked(started, era);
        const actions = ["accept", "decline", "cancel"];
        asked.elicit = () => ({ action: actions.shift() });
        const answers = textOf(await client.callTool(CALL));
        assert.match(
          answers,
          /\[\{"action":"accept","content":\{\}\},\{"action":"decline"\},\{"action":"cancel","reason":/,
        );
        assert.equal(asked.seen[0]?.params["mode"], "url");
        assert.equal(asked.seen[0]?.params["url"], "https://example.com/sign");
        assert.equal(typeof asked.seen[0]?.params["elicitationId"], era === "2025-11-25" ? "string" : "undefined");
        assert.deepEqual((await questionsOf(started)).map(({ action }) => action), [
          ...["asked", "accepted", "asked", "declined", "asked", "cancelled"],
        ]);
      },
    ));

  test(`${era}: several questions, the client's model and its folders are asked at once`, () =>
    withAsking(
      async ({ askAll, sample, roots, can }) => [
        [...can].sort(),
        await Promise.all([
          askAll({ first: { message: "First?", schema: NAME }, second: { message: "Second?", schema: NAME } }),
          sample({ system: `Be brief ${SECRET}`, messages: [{ role: "user", content: "Capital?" }], maxTokens: 9 }),
          roots(),
        ]),
      ],
      async (started) => {
        const { client, asked } = await connectAsked(started, era);
        // Each waits for the other: asked one after the other, none would be answered
        let waiting = 0;
        const all = Promise.withResolvers<void>();
        const together = async <T>(answer: T): Promise<T> => {
          if (++waiting === 4) all.resolve();
          await all.promise;
          return answer;
        };
        const { elicit, sample, roots } = asked;
        asked.elicit = (params) => together(elicit(params));
        asked.sample = () => together(sample());
        asked.roots = () => together(roots());
        const text = textOf(await client.callTool(CALL));
        assert.match(text, /\[\["form","roots","sample","url"\],/);
        assert.match(text, /\{"first":\{"action":"accept".*"second":\{"action":"accept"/);
        assert.match(text, /\{"text":"Paris","model":"theirs"\},\[\{"uri":"file:\/\/\/work","name":"Work"\}\]/);
        const sampling = asked.seen.find(({ method }) => method === "sampling/createMessage")?.params;
        assert.equal(sampling?.["systemPrompt"], "Be brief [redacted]");
        assert.equal(started.runs(), 1);
      },
    ));

  test(`${era}: a client that answers nothing leads to the dashboard, and its model and folders are not asked`, () =>
    withAsking(async ({ ask, sample, roots, can }) => {
      const why = async (work: () => Promise<unknown>) =>
        await work().then(
          () => "no error",
          (error: unknown) => error instanceof ToolError ? error.code : String(error),
        );
      return [
        can.size,
        await ask({ message: "Who?", schema: NAME }),
        await why(() => sample({ messages: [{ role: "user", content: "Hi" }], maxTokens: 9 })),
        await why(roots),
      ];
    }, async (started) => {
      const { client } = await connectAsked(started, era, {});
      const result = client.callTool(CALL);
      let waiting: { id: string; reason: string; server?: string } | undefined;
      await until(async () => {
        const { data } = await started.ask("GET", "/v1/approvals?status=pending") as { data: typeof waiting[] };
        waiting = data[0];
        return waiting !== undefined;
      });
      assert.match(waiting?.reason ?? "", /^The program around the gateway asks while "ask_it" runs/);
      assert.equal(waiting?.server, undefined);
      await started.ask("POST", `/v1/approvals/${waiting?.id}`, { decision: "approve", content: { name: "Bea" } });
      assert.equal(
        textOf(await result),
        '[0,{"action":"accept","content":{"name":"Bea"}},"client_needed","client_needed"]',
        "a person's answer in the dashboard is no content from outside",
      );
    }));

  test(`${era}: a tool that needs the client's model is refused to a client without, before it runs`, () =>
    withAsking(() => "ran", async (started) => {
      const { client } = await connectAsked(started, era, { elicitation: {} });
      if (era === "2025-11-25") {
        const refused = await client.callTool(CALL);
        assert.equal(refused.isError, true);
        assert.match(textOf(refused), /does not declare \{"sampling":\{\}\}/);
      } else {
        await assert.rejects(client.callTool(CALL), { code: -32021, data: { requiredCapabilities: { sampling: {} } } });
      }
      assert.equal(started.runs(), 0);
      const able = await connectAsked(started, era);
      assert.equal(textOf(await able.client.callTool(CALL)), "ran");
    }, { clientNeeds: ["sample"] }));

  test(`${era}: an answer that does not fit the form never reaches the tool`, () =>
    withAsking(({ ask }) => ask({ message: "Who?", schema: NAME }), async (started) => {
      const { client, asked } = await connectAsked(started, era);
      asked.elicit = () => ({ action: "accept", content: { name: "A", size: "m" } });
      if (era === "2025-11-25") {
        assert.match(
          textOf(await client.callTool(CALL)),
          /"action":"cancel","reason":"its answer does not fit: the field/,
        );
      } else {
        await assert.rejects(client.callTool(CALL), { code: -32602 });
      }
      assert.equal(started.runs(), 1);
    }));

  test(`${era}: what a client's model and folders are is bounded and checked`, () =>
    withAsking(async ({ sample, roots }) => {
      const codes: string[] = [];
      for (const work of [() => sample({ messages: [{ role: "user", content: "?" }], maxTokens: 9 }), () => roots()]) {
        await work().catch((error: ToolError) => codes.push(error.code));
      }
      return codes;
    }, async (started) => {
      const { client, asked } = await connectAsked(started, era);
      asked.sample = () => ({
        role: "assistant",
        content: { type: "text", text: "x".repeat(200_001) },
        model: "theirs",
      });
      asked.roots = () => ({ roots: [{ uri: "https://example.com/" }] });
      // A client of the new era is told, and may answer again
      if (era === "2025-11-25") {
        assert.match(textOf(await client.callTool(CALL)), /\["client_refused","client_refused"\]/);
      } else await assert.rejects(client.callTool(CALL), { code: -32602 });
    }));

  test(`${era}: a prompt asks too`, () =>
    withAsking(() => "", async (started) => {
      const { client } = await connectAsked(started, era);
      const { messages } = await client.getPrompt({ name: "greet" });
      assert.deepEqual(messages, [{ role: "user", content: { type: "text", text: "Greet Ann" } }]);
      assert.equal(started.runs(), 1);
      assert.deepEqual((await questionsOf(started)).map(({ tool }) => tool), ["prompt greet", "prompt greet"]);
      const silent = await connectAsked(started, era, {});
      const { messages: [message] } = await silent.client.getPrompt({ name: "greet" });
      assert.deepEqual(message?.content, { type: "text", text: "Greet cancel" });
    }));

  test(`${era}: one call asks 16 questions, and a question that nobody waits for ends with its call`, () =>
    withAsking(async ({ ask, sample }) => {
      const answers: ProgramQuestionAnswer[] = [];
      for (let count = 0; count < 16; count++) answers.push(await ask({ message: `${count}?`, schema: NAME }));
      answers.push(await ask({ message: "Too much?", schema: NAME }));
      void sample({ messages: [{ role: "user", content: "?" }], maxTokens: 9 });
      void ask({ message: "Too much?", schema: NAME });
      return answers.map(({ action }) => action);
    }, async (started) => {
      const options = era === "2026-07-28" ? { inputRequired: { maxRounds: 100 } } : {};
      const { client, asked } = await connectAsked({
        ...started,
        connect: (given, prepare) => started.connect({ ...given, ...options }, prepare),
      }, era);
      const actions = JSON.parse(/\[.*\]/.exec(textOf(await client.callTool(CALL)))?.[0] ?? "") as string[];
      assert.deepEqual(actions, [...Array.from({ length: 16 }, () => "accept"), "cancel"]);
      assert.equal(asked.seen.length, 16);
    }));
}

test("a question of a session is answered for its client when the gateway closes, since no answer can arrive", () =>
  withAsking(({ ask }) => ask({ message: "Who?", schema: NAME }), async (started) => {
    const { client, asked } = await connectAsked(started, "2025-11-25");
    asked.elicit = () => new Promise(() => {});
    const answers = [client.callTool(CALL), client.getPrompt({ name: "greet" })];
    await until(() => asked.seen.length === 2);
    const closed = started.gateway.close();
    const [called, got] = await Promise.all(answers);
    assert.match(JSON.stringify(called), /cancel.*the gateway is shutting down/);
    assert.match(JSON.stringify(got), /Greet cancel/);
    await closed;
  }));

test("a client's level decides which messages of a tool it gets", () =>
  withAsking(({ log }) => {
    for (const level of ["debug", "info", "warning", "error"] as const) log(level, `${level} ${SECRET}`);
  }, async (started) => {
    const { client } = await connectAsked(started, "2025-11-25");
    const told: unknown[] = [];
    client.setNotificationHandler("notifications/message", ({ params }) => void told.push([params.level, params.data]));
    await client.setLoggingLevel("warning");
    await client.callTool(CALL);
    assert.deepEqual(told, [["warning", "warning [redacted]"], ["error", "error [redacted]"]]);
  }));

test("a tool called over HTTP asks in the dashboard, and the client's model is refused with a reason", () =>
  withAsking(async ({ ask, sample, can }) => {
    const answer = await ask({ message: "Who?", schema: NAME });
    const text = await sample({ messages: [{ role: "user", content: "?" }], maxTokens: 9 })
      .catch((error: Error) => error.message);
    return [[...can], answer.action, text];
  }, async (started) => {
    const called = started.ask("POST", "/v1/tools/ask_it/call", { input: {} }) as Promise<{ output: string }>;
    await until(async () => {
      const { data } = await started.ask("GET", "/v1/approvals?status=pending") as { data: { id: string }[] };
      if (data[0] === undefined) return false;
      await started.ask("POST", `/v1/approvals/${data[0].id}`, { decision: "deny" });
      return true;
    });
    const { output } = await called;
    assert.match(output, /^\[\["form","url"\],"decline","Cannot ask the caller for its model: only a client of MCP/);
  }));

test("questions that no form can show are errors of the program", () =>
  withAsking(async ({ ask, sample, log }) => {
    const wrong = [
      () => ask({ message: "x".repeat(4_001), schema: NAME }),
      () => ask({ message: "Who?", schema: { type: "object", properties: { deep: { type: "object" } } } }),
      () => ask({ message: "Who?", schema: { ...NAME, description: "x".repeat(70_000) } }),
      () => ask({ message: "Open", url: "javascript:alert(1)" }),
      () => ask({ message: "Open", url: `https://example.com/${SECRET}` }),
      () => ask({ key: "a b", message: "Who?", schema: NAME }),
      () => sample({ messages: [], maxTokens: 9 }),
      () => sample({ messages: [{ role: "user", content: "?" }], maxTokens: 0 }),
      async () => await Promise.resolve(log("loud" as "info", "?")),
    ];
    return await Promise.all(wrong.map((work) => work().then(() => "no error", (error: Error) => error.name)));
  }, async (started) => {
    const { client, asked } = await connectAsked(started, "2025-11-25");
    assert.deepEqual(JSON.parse(textOf(await client.callTool(CALL))), Array.from({ length: 9 }, () => "TypeError"));
    assert.deepEqual(asked.seen, []);
  }));

/** Questions of one request whose client accepts all, without a gateway. */
function questionsWithout(audit: FakeAudit["append"]) {
  const sent: InputRequest[] = [];
  const services = createFakeServices();
  const way: QuestionWay = {
    isLive: false,
    async put({ request, read }, { audited }) {
      await audited;
      sent.push(request);
      const answer = read({ action: "accept", content: {} });
      if (!answer.ok) throw new UnansweredError(answer.reason);
      return answer.value;
    },
  };
  const place = { tool: "t", requestId: "req_1", caller: { via: "mcp", tokenId: "tok_1", scopes: [] } } as const;
  const questions = new ClientQuestions({
    can: new Set(CLIENT_ABILITIES),
    way,
    place,
    services: { ...services, audit: { ...services.audit, append: audit } },
  });
  return { sent, questions, services };
}

test("words of a server have its name before them, and what cannot be seen in them is spelled out", async () => {
  const { sent, questions } = questionsWithout(() => Promise.resolve(true));
  const properties = { a: { type: "string", title: "T\u200b", description: "D\u202e", default: "x\u200b" } } as const;
  const schema = { type: "object", properties, required: [] as string[] } as const;
  const { signal } = new AbortController();
  await questions.elicit({ server: "one", message: "Sure?\u202e", schema, url: null }, { signal });
  const params = sent[0]?.params as { message: string; requestedSchema: unknown };
  assert.equal(params.message, 'The MCP server "one" asks: Sure?\\u202e');
  assert.deepEqual(params.requestedSchema, {
    ...schema,
    properties: { a: { ...properties.a, title: "T\\u200b", description: "D\\u202e" } },
  });
});

test("without the audit no client is asked", async () => {
  const { signal } = new AbortController();
  const form = { message: "Sure?", schema: { type: "object", properties: {}, required: [] }, url: null } as const;
  for (const append of [() => Promise.resolve(false), () => Promise.reject(new Error("the disk is full"))]) {
    const { sent, questions, services } = questionsWithout(append);
    const answer = await questions.elicit({ ...form, schema: { ...form.schema, required: [] } }, { signal });
    assert.deepEqual(answer, {
      action: "cancel",
      reason: "the audit cannot be written, and nobody is asked without it",
    });
    await assert.rejects(questions.roots({ signal }), { code: "client_refused" });
    assert.deepEqual(sent, []);
    assert.ok(services.logged.every(({ message }) => message === "Cannot write the audit"));
  }
});
