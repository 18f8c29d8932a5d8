/** The agent's own questions, through the doors that ask and answer. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { MCP_ERAS, withMcpGateway } from "../support/mcp_gateway.ts";
import { jsonOf, type RunningGateway, until, withWorld } from "../support/world.ts";

const ask = (input: Readonly<Record<string, unknown>>) => [
  { toolCalls: [{ name: "ask_user", arguments: { question: "Which bed?", ...input } }] },
  "Thanks",
];

/** Begins a durable run with one message, and gives its id. */
async function begin(gateway: RunningGateway): Promise<string> {
  // A channel's message asks where somebody looks at what waits
  await gateway.call("/v1/approvals");
  const { run_id: id } = await jsonOf(gateway.call("/v1/webhook/default", { body: { message: "Plant beans" } }));
  return String(id);
}

/** Returns the one question that waits, once it does. */
async function waiting(gateway: RunningGateway) {
  let question: Readonly<Record<string, unknown>> = {};
  await until(async () => {
    const { data } = await jsonOf(gateway.call("/v1/approvals?status=pending"));
    question = data[0] ?? {};
    return data.length === 1;
  }, "the agent asks");
  return question;
}

const answer = (gateway: RunningGateway, { id }: Readonly<Record<string, unknown>>, body: unknown) =>
  gateway.call(`/v1/approvals/${id}`, { body });

/** Returns what the model was told of its call. */
async function told(gateway: RunningGateway, run: string): Promise<unknown> {
  await until(async () => (await jsonOf(gateway.call(`/v1/runs/${run}`))).status === "completed", "the run ends");
  return gateway.provider.requests.at(-1)?.messages.findLast(({ role }) => role === "tool")?.content;
}

const CHOICES = { choices: ["north", "south"] };
const FORM = { fields: [{ name: "rows", type: "number" }, { name: "note", optional: true }] };
/** Input of each kind, its answer, what does not fit, and the words that the model gets */
const KINDS = [
  {
    name: "a text",
    input: {},
    content: { answer: "The one by the gate" },
    wrong: { answer: "" },
    words: "The one by the gate",
  },
  { name: "a choice", input: CHOICES, content: { answer: "south" }, wrong: { answer: "west" }, words: "south" },
  {
    name: "several choices",
    input: { ...CHOICES, type: "several" },
    content: { answer: ["north", "south"] },
    wrong: { answer: ["north", "north"] },
    words: "north\nsouth",
  },
  { name: "yes or no", input: { type: "yes_no" }, content: { answer: false }, wrong: { answer: "no" }, words: "no" },
  { name: "a form", input: FORM, content: { rows: 3 }, wrong: { note: "-" }, words: '{"rows":3}' },
] as const;

for (const { name, input, content, wrong, words } of KINDS) {
  test(`the agent asks for ${name}, and is told what a person answered`, () =>
    withWorld(async (world) => {
      const gateway = await world.gateway({ script: ask(input) });
      const run = await begin(gateway);
      const question = await waiting(gateway);
      assert.deepEqual([question["kind"], question["agent"], question["server"], question["message"]], [
        "elicitation",
        true,
        undefined,
        "Which bed?",
      ]);
      assert.equal((await jsonOf(gateway.call(`/v1/runs/${run}`))).status, "waiting_for_approval");
      const refused = await answer(gateway, question, { decision: "approve", content: wrong });
      assert.equal(refused.status, 400, await refused.text());
      assert.equal((await answer(gateway, question, { decision: "approve", content })).status, 200);
      assert.equal(await told(gateway, run), words);
    }));
}

test("a question that a person declines, and one that nobody can be asked, is told as such", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: [...ask({}), ...ask({})] });
    const reply = await gateway.call("/v1/chat/completions", {
      body: { messages: [{ role: "user", content: "Again" }] },
    });
    assert.equal(reply.status, 200);
    const said = gateway.provider.requests.at(-1)?.messages.findLast(({ role }) => role === "tool")?.content;
    assert.match(String(said), /^Nobody answered: Denied \(nobody_could_answer\): .*what the agent asks in "ask_user"/);
    const run = await begin(gateway);
    await answer(gateway, await waiting(gateway), { decision: "deny" });
    assert.match(String(await told(gateway, run)), /^The user declined to answer/);
  }));

test("an input whose parts do not go together, and a form that nobody could fill in, ask nobody", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ script: ["-"] });
    for (
      const [input, why] of [
        [{ type: "choice" }, /"choice" of "answer" needs "choices"/],
        [{ type: "text", ...CHOICES }, /"choices" of "answer" do not go with "text"/],
        [{ ...CHOICES, ...FORM }, /"fields" stands in place of "type" and "choices"/],
        [{ fields: [{ name: "bed" }, { name: "bed" }] }, /two of "fields" have the same "name"/],
        [{ choices: ["north", "north"] }, /has the field "answer", which no form can show/],
        [{ fields: [{ name: "\u202ebed" }] }, /has a field with a name that is not accepted/],
      ] as const
    ) {
      const body = { input: { question: "Which bed?", ...input } };
      const { is_error, output } = await jsonOf(gateway.call("/v1/tools/ask_user/call", { body }));
      assert.equal(is_error, true);
      assert.match(output, why);
    }
    assert.deepEqual((await jsonOf(gateway.call("/v1/approvals"))).data, []);
  }));

test("a question that waits when the gateway stops is asked once more by the next start, and its answer counts", () =>
  withWorld(async (world) => {
    const options = { dataDir: join(await world.folder(), "data"), workspace: await world.workspace({}) };
    let [run, earlier] = ["", ""];
    await withWorld(async (first) => {
      const gateway = await first.gateway({ ...options, script: ask({}) });
      run = await begin(gateway);
      earlier = String((await waiting(gateway))["id"]);
    });
    const gateway = await world.gateway({ ...options, script: ["Thanks"] });
    let question: Readonly<Record<string, unknown>> = {};
    await until(async () => (question = await waiting(gateway))["id"] !== earlier, "the call is made again");
    assert.equal((await answer(gateway, question, { decision: "approve", content: { answer: "South" } })).status, 200);
    assert.equal(await told(gateway, run), "South");
    assert.equal((await jsonOf(gateway.call(`/v1/approvals/${earlier}`))).status, "cancelled");
  }));

test("a client of MCP is told that the agent asks, and nothing in its words is hidden", () =>
  withMcpGateway({}, async (started) => {
    for (const era of MCP_ERAS) {
      const messages: unknown[] = [];
      const options = { token: await started.token("tools"), era, capabilities: { elicitation: { form: {} } } };
      const client = await started.connect(options, (client) => {
        client.setRequestHandler("elicitation/create", ({ params }) => {
          messages.push(params.message);
          return { action: "accept" as const, content: { answer: "south" } };
        });
      });
      const question = "Postern asks: which\u200b bed?";
      const { content } = await client.callTool({ name: "ask_user", arguments: { question, ...CHOICES } });
      assert.match(JSON.stringify(content), /south/, era);
      assert.deepEqual(messages, ["The agent asks: Postern asks: which\\u200b bed?"], era);
    }
  }));
