import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import {
  createGateway,
  defineTool,
  type ProgramApproval,
  type ProgramProvider,
  type ProgramRunEvent,
} from "../../handlers/mod.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const FINISH = { type: "finish", finish_reason: "stop", usage: { prompt_tokens: 7, completion_tokens: 3 } } as const;
const SCHEMA = { type: "object", properties: { name: { type: "string", enum: ["Ann", "Bea"] } }, required: ["name"] };
const EMPTY = { type: "object", properties: {}, additionalProperties: false } as const;

/** Calls the tool that the user names, and then says what came of it. */
const talk: ProgramProvider = {
  models: ["small"],
  async *stream({ messages }) {
    const last = messages.at(-1);
    if (last?.role === "user") {
      const name = String(last.content);
      yield { type: "tool_call_delta", index: 0, call_id: "c1", name, arguments_delta: "{}" };
    } else yield { type: "text_delta", delta: `heard ${String(last?.content)}` };
    yield FINISH;
  },
};

const BASE = { description: "Asks", access: "read", outside: false, inputSchema: EMPTY } as const;
const TOOLS = [
  defineTool({
    ...BASE,
    name: "ask_it",
    async execute(_input, { ask, sample, roots, log, can }) {
      for (const level of ["debug", "info", "error"] as const) log(level, `a line of ${level}`);
      const answer = await ask({ message: "Who is it?", schema: SCHEMA });
      const refusals = [
        () => sample({ messages: [{ role: "user", content: "Hi" }], maxTokens: 5 }),
        () => roots(),
      ].map((work) => work().then(() => "answered", (error: Error) => error.message));
      return { can: [...can], answer, refusals: await Promise.all(refusals) };
    },
  }),
  defineTool({ ...BASE, name: "need_model", clientNeeds: ["sample"], execute: () => "ran" }),
];

test("in a run of the agent a tool's question is an approval of the program, and a client's model is refused", () =>
  withTemporaryFolder(async (folder) => {
    const asked: ProgramApproval[] = [];
    const gateway = await createGateway({
      dataDir: join(folder, "data"),
      workspace: folder,
      providers: { talk },
      tools: TOOLS,
      hooks: {
        onApproval(approval) {
          asked.push(approval);
          return { decision: "approve", content: { name: "Bea" } };
        },
      },
    });
    const eventsOf = async (message: string) => {
      const { id } = await gateway.runs.start({ message });
      const events: ProgramRunEvent[] = [];
      for await (const event of gateway.runs.follow(id)) events.push(event);
      return events;
    };
    try {
      const events = await eventsOf("ask_it");
      const end = events.find((event) => event.type === "tool_end");
      assert.ok(end?.type === "tool_end");
      const { can, answer, refusals } = JSON.parse(end.output) as Record<string, unknown>;
      assert.deepEqual([can, answer], [["form", "url"], { action: "accept", content: { name: "Bea" } }]);
      assert.equal(end.taint, undefined, "no client has answered");
      for (const reason of refusals as string[]) {
        assert.match(reason, /^Cannot ask the caller for its .*: only a client of MCP/);
      }
      const [approval] = asked;
      assert.deepEqual([asked.length, approval?.kind, approval?.server, approval?.message], [
        ...[1, "elicitation", undefined, "Who is it?"],
      ]);
      assert.match(approval?.reason ?? "", /^The program around the gateway asks while "ask_it" runs/);
      assert.deepEqual(
        events.flatMap((event) => (event.type === "tool_progress" ? [event.message] : [])),
        ["a line of info", "error: a line of error"],
      );
      const shown = events.find((event) => event.type === "approval_needed");
      assert.ok(shown?.type === "approval_needed" && shown.server === undefined);

      const refused = (await eventsOf("need_model")).find((event) => event.type === "tool_end");
      assert.ok(refused?.type === "tool_end" && refused.is_error);
      assert.match(refused.output, /^Cannot call "need_model": it asks whoever calls it \(sample\)/);
    } finally {
      await gateway.close();
    }
  }));
