import { createRequestStateCodec, inputRequired, ProtocolError, ProtocolErrorCode } from "@modelcontextprotocol/server";
import type { ServerContext } from "@modelcontextprotocol/server";
import assert from "node:assert/strict";
import { test } from "node:test";
import { defineTool, type ProgramQuestionAnswer, type ProgramToolCall } from "../../../handlers/mod.ts";
import type { CallState, HeldState } from "../../../handlers/mcp/call_state.ts";
import { HELD_LIMITS, HeldRequests } from "../../../handlers/mcp/held_requests.ts";
import type { ClientWay } from "../../../handlers/mcp/asking_work.ts";
import type { McpSdk } from "../../../handlers/mcp/mcp_errors.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { type McpGateway, type SentMessage, withMcpGateway } from "../../support/mcp_gateway.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";
import { until } from "../../support/until.ts";

const FORM = { type: "object", properties: { name: { type: "string", minLength: 2 } }, required: ["name"] };
const ANSWER = { who: { action: "accept", content: { name: "Ann" } } };

interface Reply {
  readonly status: number;
  readonly result?: {
    readonly resultType?: string;
    readonly requestState?: string;
    readonly inputRequests?: Record<string, unknown>;
    readonly content?: { readonly text: string }[];
  };
  readonly error?: { readonly code: number; readonly message: string; readonly data?: Record<string, unknown> };
}

/** A request of the new era of a client that answers everything. */
function asks(
  name: string,
  { args = {}, method = "tools/call", ...more }: {
    readonly args?: unknown;
    readonly method?: string;
    readonly requestState?: string | undefined;
    readonly inputResponses?: unknown;
  } = {},
): SentMessage {
  return {
    headers: { "mcp-protocol-version": "2026-07-28", "mcp-method": method, "mcp-name": name },
    body: {
      jsonrpc: "2.0",
      id: 1,
      method,
      params: {
        name,
        arguments: args,
        ...more,
        _meta: {
          "io.modelcontextprotocol/protocolVersion": "2026-07-28",
          "io.modelcontextprotocol/clientInfo": { name: "test", version: "1" },
          "io.modelcontextprotocol/clientCapabilities": { elicitation: { form: {} }, sampling: {}, roots: {} },
        },
      },
    },
  };
}

async function replyOf(sent: Promise<Response>): Promise<Reply> {
  const reply = await sent;
  const text = await reply.text();
  const json = reply.headers.get("content-type")?.startsWith("text/event-stream")
    ? text.split("\n").findLast((line) => line.startsWith("data: "))?.slice(6)
    : text;
  return { status: reply.status, ...JSON.parse(json ?? "null") as object };
}

/** The calls of a tool that asks, as the tool saw them. */
interface Seen {
  runs: number;
  readonly signals: AbortSignal[];
  readonly answers: ProgramQuestionAnswer[];
}

interface Held extends McpGateway {
  readonly seen: Seen;
  readonly call: (token: string, more?: Parameters<typeof asks>[1]) => Promise<Reply>;
  readonly count: () => Promise<number>;
}

function withHeld(
  use: (held: Held) => Promise<void>,
  work: (call: ProgramToolCall, seen: Seen) => Promise<unknown> = async ({ ask }) =>
    await ask({ key: "who", message: "Who?", schema: FORM }),
): Promise<void> {
  const seen: Seen = { runs: 0, signals: [], answers: [] };
  const tool = defineTool({
    name: "ask_it",
    description: "Asks",
    access: "read",
    inputSchema: { type: "object", properties: { n: { type: "integer" } }, additionalProperties: false },
    async execute(_input, call) {
      seen.runs++;
      seen.signals.push(call.signal);
      const answer = await work(call, seen);
      if (typeof answer === "object" && answer !== null && "action" in answer) {
        seen.answers.push(answer as ProgramQuestionAnswer);
      }
      return answer;
    },
  });
  const prompts = { ask_it: { get: () => "A prompt of the same name" } };
  const config = { gateway: { rate_limit_max: 0 } };
  return withMcpGateway({ tools: [tool], prompts, config }, (started) =>
    use({
      ...started,
      seen,
      call: (token, more) => replyOf(started.send({ ...asks("ask_it", more), token })),
      async count() {
        const text = await (await started.gateway.request("/metrics")).text();
        return Number(/^postern_mcp_held_requests (\d+)$/m.exec(text)?.[1]);
      },
    }));
}

const stateOf = ({ result }: Reply) => result?.requestState ?? assert.fail("the client is asked");

test("a held call goes on with the answer, and its state counts once", () =>
  withHeld(async ({ call, token, seen, count }) => {
    const owner = await token("tools");
    const asked = await call(owner);
    assert.equal(asked.result?.resultType, "input_required");
    assert.deepEqual(Object.keys(asked.result?.inputRequests ?? {}), ["who"]);
    assert.equal(await count(), 1);
    assert.equal(seen.signals[0]?.aborted, false, "the end of the first reply ends no call");
    const requestState = stateOf(asked);
    const again = await call(owner, { requestState });
    assert.deepEqual(Object.keys(again.result?.inputRequests ?? {}), ["who"], "without an answer it asks again");
    const done = await call(owner, { requestState, inputResponses: { ...ANSWER, other: { action: "accept" } } });
    assert.match(done.result?.content?.[0]?.text ?? "", /"name":"Ann"/);
    const late = await call(owner, { requestState, inputResponses: ANSWER });
    assert.deepEqual([late.error?.code, late.error?.data], [-32602, { reason: "invalid_request_state" }]);
    assert.equal(seen.runs, 1);
    assert.equal(await count(), 0);
  }));

test("the state of another token, another call, another method or another hand is refused, and the call still waits", () =>
  withHeld(async ({ call, send, token, seen, count }) => {
    const [owner, thief] = [await token("tools"), await token("tools", "runs", "approve")];
    const requestState = stateOf(await call(owner));
    const given = { requestState, inputResponses: ANSWER };
    const attacks: Promise<Reply>[] = [
      call(thief, given),
      call(owner, { ...given, args: { n: 1 } }),
      call(owner, { ...given, requestState: `${requestState}x` }),
      call(owner, { ...given, requestState: `x${requestState.slice(1)}` }),
      call(owner, { ...given, requestState: "" }),
      call(owner, { ...given, requestState: requestState.replace(/\.[^.]*$/, ".AAAA") }),
      replyOf(send({ ...asks("ask_it", { ...given, method: "prompts/get" }), token: owner })),
      replyOf(send({ ...asks("other", given), token: owner })),
    ];
    for (const [at, { error }] of (await Promise.all(attacks)).entries()) {
      assert.equal(error?.code, -32602, `attack ${at}`);
    }
    assert.deepEqual([seen.runs, seen.answers.length, await count()], [1, 0, 1]);
    assert.match((await call(owner, given)).result?.content?.[0]?.text ?? "", /Ann/);
  }));

test("an answer of a wrong shape reaches no tool, and the client may answer again", () =>
  withHeld(async ({ call, token, seen }) => {
    const owner = await token("tools");
    const requestState = stateOf(await call(owner));
    const wrong: unknown[] = [
      7,
      "yes",
      null,
      [],
      {},
      { action: "approve" },
      { action: "accept" },
      { action: "accept", content: { name: "A" } },
      { action: "accept", content: { name: "Ann", admin: true } },
      { action: "accept", content: { name: ["Ann"] } },
      { action: "accept", content: { name: "x".repeat(30_000) } },
      { action: "accept", content: [] },
      { roots: [] },
      { role: "assistant", content: { type: "text", text: "Ann" }, model: "m" },
    ];
    for (const who of wrong) {
      const { error } = await call(owner, { requestState, inputResponses: { who } });
      assert.deepEqual([error?.code, error?.data?.["key"]], [-32602, "who"], JSON.stringify(who).slice(0, 80));
      assert.doesNotMatch(error?.message ?? "", /xxx|Ann/, "a refusal repeats no value");
    }
    for (const inputResponses of [null, 7, "x", []]) {
      const { result, error } = await call(owner, { requestState, inputResponses });
      assert.ok(result?.resultType === "input_required" || error?.code === -32602);
    }
    assert.deepEqual(seen.answers, []);
    assert.match((await call(owner, { requestState, inputResponses: ANSWER })).result?.content?.[0]?.text ?? "", /Ann/);
    assert.equal(seen.runs, 1);
  }));

test("answers to several questions may come one by one, and are taken together or not at all", () =>
  withHeld(async ({ call, token, seen }) => {
    const owner = await token("tools");
    const first = await call(owner);
    const requestState = stateOf(first);
    assert.deepEqual(Object.keys(first.result?.inputRequests ?? {}), ["a", "b", "c"]);
    const accept = (name: string) => ({ action: "accept", content: { name } });
    const half = await call(owner, { requestState, inputResponses: { a: accept("Ann"), b: { action: "?" } } });
    assert.equal(half.error?.code, -32602);
    const some = await call(owner, { requestState, inputResponses: { a: accept("Ann"), b: accept("Bea") } });
    assert.deepEqual(Object.keys(some.result?.inputRequests ?? {}), ["c"]);
    const old = await call(owner, { requestState, inputResponses: { c: accept("Eve") } });
    assert.equal(old.error?.code, -32602, "the first state is over");
    const done = await call(owner, { requestState: stateOf(some), inputResponses: { c: accept("Cem") } });
    assert.match(done.result?.content?.[0]?.text ?? "", /Ann.*Bea.*Cem/);
    assert.equal(seen.runs, 1);
  }, async ({ askAll }) => {
    const question = { message: "Who?", schema: FORM };
    return { answers: await askAll({ a: question, b: question, c: question }) };
  }));

test("answers that come before the question are taken where they fit", () =>
  withHeld(async ({ call, token, seen }) => {
    const owner = await token("tools");
    const done = await call(owner, { inputResponses: ANSWER });
    assert.match(done.result?.content?.[0]?.text ?? "", /Ann/);
    for (const who of [7, { action: "accept", content: { name: 7 } }]) {
      const asked = await call(owner, { inputResponses: { who, constructor: ANSWER.who } });
      assert.deepEqual(Object.keys(asked.result?.inputRequests ?? {}), ["who"]);
    }
    assert.equal(seen.answers.length, 1);
  }));

test("a client that goes away while its call goes on ends the call; a state that comes back later is refused", () =>
  withHeld(async ({ call, send, token, seen, count }) => {
    const owner = await token("tools");
    const requestState = stateOf(await call(owner));
    const reply = await send({ ...asks("ask_it", { requestState, inputResponses: ANSWER }), token: owner });
    await until(() => seen.answers.length === 1);
    assert.equal(seen.signals[0]?.aborted, false);
    await reply.body?.cancel();
    await until(() => seen.signals[0]?.aborted === true, "the call is cancelled");
    assert.equal((await call(owner, { requestState, inputResponses: ANSWER })).error?.code, -32602);
    assert.equal(seen.runs, 1);
    await until(async () => await count() === 0);
  }, async ({ ask, signal }, { answers }) => {
    answers.push(await ask({ key: "who", message: "Who?", schema: FORM }));
    await new Promise((_resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  }));

test("a token's held calls are bounded, take no other token's room, and end with the token", () =>
  withHeld(async ({ call, token, seen, count, ask }) => {
    const [owner, flooder] = [await token("tools"), await token("tools")];
    const kept = stateOf(await call(owner));
    const flood = await Promise.all(Array.from({ length: 100 }, (_, n) => call(flooder, { args: { n } })));
    const held = flood.filter(({ result }) => result?.resultType === "input_required");
    assert.equal(held.length, HELD_LIMITS.perToken);
    assert.equal(await count(), HELD_LIMITS.perToken + 1);
    const refused = seen.answers.filter((answer) => answer.action === "cancel");
    assert.ok(refused.length > 0 && refused.every(({ reason }) => /requests of this client wait/.test(reason)));
    const { data } = await ask("GET", "/v1/tokens") as { data: { id: string; created_at: string }[] };
    // The newest token is the flooder's
    await ask("DELETE", `/v1/tokens/${data.toSorted((a, b) => (a.created_at < b.created_at ? 1 : -1))[0]?.id}`);
    await until(async () => await count() === 1);
    assert.equal(seen.signals.filter(({ aborted }) => aborted).length, HELD_LIMITS.perToken);
    assert.match(
      (await call(owner, { requestState: kept, inputResponses: ANSWER })).result?.content?.[0]?.text ?? "",
      /Ann/,
    );
  }));

test("a gateway that closes ends the calls that wait for their clients at once", async () => {
  let signal: AbortSignal | undefined;
  await withHeld(async ({ call, token, seen, gateway }) => {
    await call(await token("tools"));
    signal = seen.signals[0];
    assert.equal(signal?.aborted, false);
    await gateway.close();
    assert.equal(signal?.aborted, true);
  });
});

test("a call that asks while the gateway closes is answered, and does not wait", () => {
  const go = Promise.withResolvers<void>();
  return withHeld(async ({ call, token, seen, gateway }) => {
    const asked = call(await token("tools"));
    await until(() => seen.runs === 1);
    const closed = gateway.close();
    go.resolve();
    assert.match((await asked).result?.content?.[0]?.text ?? "", /"cancel","reason":"the gateway is shutting down"/);
    await closed;
  }, async ({ ask }) => {
    await go.promise;
    return await ask({ key: "who", message: "Who?", schema: FORM });
  });
});

test("a call of a tool that is left waiting ends when its time is over, and its state with it", async () => {
  const clock = createFakeClock();
  const states = createRequestStateCodec<CallState>({ key: new Uint8Array(32), ttlSeconds: 1_000_000 });
  const config = () => ({ autonomy: { approval_timeout_secs: 60 } });
  const sdk = { inputRequired, ProtocolError, ProtocolErrorCode } as unknown as McpSdk; // the parts that are used
  const held = new HeldRequests(
    { sdk, clock, random: createSeededRandom(), config, states } as unknown as ConstructorParameters<
      typeof HeldRequests
    >[0],
  );
  const contextOf = (state?: HeldState) =>
    ({
      mcpReq: {
        envelope: {},
        signal: new AbortController().signal,
        requestState: () => state,
        inputResponses: ANSWER,
      },
      http: { authInfo: { extra: { asked: { identity: { tokenId: "tok_1", scopes: [] } } } } },
    }) as unknown as ServerContext;
  const question = {
    key: "whom",
    request: { method: "roots/list" },
    read: () => ({ ok: true, value: 1 }),
  } as unknown as Parameters<ClientWay["put"]>[0];
  let ended: unknown;
  const asked = await held.begin(contextOf(), {
    call: "c",
    work: async (way) => {
      try {
        await way.put(question, { signal: way.signal, audited: Promise.resolve() });
      } catch (error) {
        ended = error;
        throw error;
      }
      return "never";
    },
  });
  assert.ok(typeof asked === "object" && typeof asked.requestState === "string");
  const state = await states.verify(asked.requestState, contextOf()) as HeldState;
  await clock.advance(59_000);
  const again = await held.resume(state, { call: "c", context: contextOf(state) });
  assert.ok(typeof again === "object" && again !== null && "requestState" in again, "it asks again");
  assert.equal(held.count(), 1);
  await clock.advance(1_000);
  assert.equal(held.count(), 0);
  assert.equal((ended as Error).message, "The time limit was reached");
  await assert.rejects(held.resume(state, { call: "c", context: contextOf(state) }), { code: -32602 });
  assert.equal(clock.pending(), 0);
});
