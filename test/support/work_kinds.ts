import assert from "node:assert/strict";
import { startFakeServer } from "../../fixtures/upstream/fake_server.ts";
import { toDelta, toSse, USAGE_CHUNK } from "../../fixtures/upstream/openai_upstream.ts";
import { systemClock } from "../../lib/base/clock.ts";
import type { CallInit } from "./gateway_call.ts";

/** Gateway, or gateways, that are asked to work. */
export interface AskedGateway {
  /** @throws {TypeError} the gateway is gone, or died before it answered */
  call(path: string, init?: CallInit): Promise<Response>;
}

/** The model's words in one turn: texts, each a read of the network, and then calls. */
export interface SaidTurn {
  readonly texts?: readonly string[];
  readonly calls?: readonly { readonly name: string; readonly input: unknown }[];
}

/** A piece of work that was begun. */
export interface Begun {
  /** Where it is a run */
  readonly runId?: string;
  /** The gateway says that it may not have begun: it was killed before it answered */
  readonly isUnsure?: boolean;
}

/** A kind of work that is killed in the middle. */
export interface WorkKind {
  readonly name: string;
  /** Begins a piece of it; called again with the same key where the answer was cut off. undefined: too much waits, later */
  readonly begin: (gateway: AskedGateway, tag: string) => Promise<Begun | undefined>;
  /** Turns of the model for a user who says `tag` */
  readonly turns?: (tag: string) => readonly SaidTurn[];
  /** The names of its effects, each of which is a line of the file `effects` */
  readonly effects?: (tag: string) => readonly string[];
  /** An effect may be missing, as that of a process which the kill took along; never doubled. Default false */
  readonly mayLose?: boolean;
}

/** A command whose effect is one line more; it ends a moment later. */
const effect = (name: string) => `sh -c "echo ${name} >> effects; sleep 0.02"`;
const shell = (name: string) => ({ name: "shell", input: { command: effect(name) } });

const startRun = async (gateway: AskedGateway, tag: string, conversationId?: string): Promise<Begun | undefined> => {
  const body = { message: tag, ...(conversationId === undefined ? {} : { conversation_id: conversationId }) };
  const reply = await gateway.call("/v1/runs", { headers: { "idempotency-key": tag }, body });
  const text = await reply.text();
  if (reply.status === 503) return undefined;
  assert.equal(reply.status, 202, text);
  return { runId: String(JSON.parse(text).id) };
};
const callTool = async (
  gateway: AskedGateway,
  tag: string,
  tool: string,
  input: unknown,
): Promise<Begun | undefined> => {
  const reply = await gateway.call(`/v1/tools/${tool}/call`, { headers: { "idempotency-key": tag }, body: { input } });
  const text = await reply.text();
  if (reply.status === 503) return undefined;
  // A call that was cut off is not made again: its outcome is unknown to its caller
  assert.ok(reply.status === 200 || reply.status === 409, text);
  // An execution that was started is one, also where nobody could show it
  assert.ok(reply.status === 409 || JSON.parse(text).is_error === false || text.includes("it was started"), text);
  return { isUnsure: reply.status === 409 };
};

/** Asks for a completion, and then once more under the same key, of whichever gateway: both answers are one. */
const complete = async (gateway: AskedGateway, tag: string): Promise<Begun | undefined> => {
  const init = { headers: { "idempotency-key": tag }, body: { messages: [{ role: "user", content: tag }] } };
  const reply = await gateway.call("/v1/chat/completions", init);
  const text = await reply.text();
  if (reply.status >= 500) return undefined;
  assert.ok(reply.status === 200 || reply.status === 409, `${reply.status} ${text}`);
  if (reply.status === 409) return { isUnsure: true };
  const again = await gateway.call("/v1/chat/completions", init);
  const repeated = await again.text();
  if (again.status >= 500) return undefined;
  assert.deepEqual([again.status, repeated], [200, text], `${tag} was answered in two ways`);
  return {};
};

/** All kinds of work. A new kind of durable work is one entry more. */
export const MIXED_WORK: readonly WorkKind[] = [
  {
    name: "text",
    begin: startRun,
    turns: (tag) => [{ texts: [`${tag} `, "in ", "some ", "parts"] }],
  },
  {
    name: "reads",
    begin: startRun,
    turns: (tag) => [
      { texts: ["I look.\n"], calls: [{ name: "glob_search", input: { pattern: "*" } }] },
      { calls: [{ name: "glob_search", input: { pattern: "*.md" } }, { name: "task_plan", input: { op: "list" } }] },
      { texts: ["Seen ", tag] },
    ],
  },
  {
    name: "effects",
    begin: startRun,
    turns: (tag) => [
      { texts: ["One."], calls: [shell(`${tag}-1`)] },
      { texts: ["Two."], calls: [shell(`${tag}-2`), shell(`${tag}-3`)] },
      { texts: ["Done ", tag] },
    ],
    effects: (tag) => [`${tag}-1`, `${tag}-2`, `${tag}-3`],
  },
  {
    name: "approvals",
    begin: startRun,
    turns: (tag) => [
      { texts: ["May I?"], calls: [{ name: "process_tool", input: { op: "start", command: effect(`${tag}-1`) } }] },
      { texts: ["Thank you"] },
    ],
    effects: (tag) => [`${tag}-1`],
    mayLose: true,
  },
  {
    name: "talk",
    begin: (gateway, tag) => startRun(gateway, tag, "talk"),
    turns: (tag) => [{ calls: [shell(`${tag}-1`)] }, { texts: ["Said ", tag] }],
    effects: (tag) => [`${tag}-1`],
  },
  {
    name: "answers",
    begin: complete,
    turns: (tag) => [{ calls: [shell(`${tag}-1`)] }, { texts: ["Answered ", tag] }],
    effects: (tag) => [`${tag}-1`],
  },
  {
    name: "schedules",
    begin: (gateway, tag) =>
      callTool(gateway, tag, "schedule", { id: tag, in: "1s", tool: "shell", input: { command: effect(`${tag}-1`) } }),
    effects: (tag) => [`${tag}-1`],
  },
  {
    name: "procedures",
    begin: (gateway, tag) => callTool(gateway, tag, "sop_execute", { sop: "steps", inputs: { tag } }),
    effects: (tag) => [`${tag}-1`, `${tag}-2`],
  },
];

/** Procedure of the kind `procedures`, as the workspace has it. */
export const PROCEDURE = `
[inputs.tag]
pattern = "[a-z0-9-]+"

[[steps]]
id = "first"
tool = "shell"
input = { command = 'sh -c "echo {{inputs.tag}}-1 >> effects; sleep 0.02"' }

[[steps]]
id = "second"
tool = "shell"
input = { command = 'sh -c "echo {{inputs.tag}}-2 >> effects; sleep 0.02"' }
`;

/** Returns the text of these turns as a run's result has it. */
export function textOf(turns: readonly SaidTurn[]): string {
  const texts = turns.map(({ texts = [] }) => texts.join("")).filter((text) => text !== "");
  return texts.reduce((all, text) => (all === "" ? text : `${all}${all.endsWith("\n") ? "" : "\n\n"}${text}`), "");
}

/** Starts a model that says what the kind of work has for what the user said, at the turn it has come to. */
export function startModel(kinds: readonly WorkKind[]) {
  return startFakeServer((seen, response) => {
    const { messages = [] } = (seen.json ?? {}) as { messages?: readonly { role: string; content: unknown }[] };
    const from = messages.findLastIndex(({ role }) => role === "user");
    const tag = String(messages[from]?.content ?? "");
    const kind = kinds.find(({ name }) => tag.startsWith(`${name}-`));
    const turn = kind?.turns?.(tag)[messages.slice(from).filter(({ role }) => role === "assistant").length];
    if (turn === undefined) {
      response.writeHead(400).end("{}");
      return;
    }
    const { texts = [], calls = [] } = turn;
    response.writeHead(200, { "content-type": "text/event-stream" });
    const chunks = [
      ...texts.map((content) => toDelta({ content })),
      ...calls.map(({ name, input }, index) =>
        toDelta({
          tool_calls: [{
            index,
            id: `call_${index}`,
            type: "function",
            function: { name, arguments: JSON.stringify(input) },
          }],
        })
      ),
      toDelta({}, calls.length > 0 ? "tool_calls" : "stop"),
      USAGE_CHUNK,
    ];
    void (async () => {
      for (const chunk of chunks) {
        response.write(toSse(chunk));
        await systemClock.sleep(1);
      }
      response.end("data: [DONE]\n\n");
    })();
  });
}
