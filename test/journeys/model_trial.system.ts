/** The trial of small models with a stand-in for the model: it can pass and fail a task, and says why. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { MODEL_TASKS, type ModelTask } from "../support/models/model_tasks.ts";
import { type TrialResult, trialTable, tryModel } from "../support/models/model_trial.ts";
import { readCalls } from "../support/models/read_calls.ts";
import { withWorld, type World } from "../support/world.ts";

interface ChatBody {
  readonly stream?: boolean;
  readonly messages: readonly { readonly role: string; readonly content: string }[];
}
/** Turn of the stand-in: a call, or words. */
type Turn = readonly [tool: string, input: Readonly<Record<string, unknown>>] | string;

const task = (say: string, isDone: ModelTask["isDone"]): ModelTask => ({
  kind: "edit",
  say,
  files: { "a.txt": "old\n" },
  memory: {},
  isDone,
});

/** Starts a server that takes the turns of a task in order, the last one again and again. */
async function standIn(world: World, turns: Readonly<Record<string, readonly Turn[]>>) {
  const server = await world.server(({ path, json }, response) => {
    response.setHeader("content-type", "application/json");
    if (!path.endsWith("/chat/completions")) return void response.end(JSON.stringify({ object: "list", data: [] }));
    const { messages, stream } = json as ChatBody;
    const said = turns[messages.find(({ role }) => role === "user")?.content ?? ""] ?? [];
    const turn = said[Math.min(messages.filter(({ role }) => role === "tool").length, said.length - 1)] ?? "";
    const message = typeof turn === "string" ? { role: "assistant", content: turn } : {
      role: "assistant",
      content: null,
      tool_calls: [{
        index: 0,
        id: `call_${messages.length}`,
        type: "function",
        function: { name: turn[0], arguments: JSON.stringify(turn[1]) },
      }],
    };
    const finish_reason = typeof turn === "string" ? "stop" : "tool_calls";
    const head = { id: "c", created: 1, model: "stand-in" };
    if (stream !== true) {
      const choices = [{ index: 0, message, finish_reason }];
      return void response.end(JSON.stringify({ ...head, object: "chat.completion", choices }));
    }
    response.setHeader("content-type", "text/event-stream");
    const choices = [{ index: 0, delta: message, finish_reason }];
    const chunk = JSON.stringify({ ...head, object: "chat.completion.chunk", choices });
    response.end(`data: ${chunk}\n\ndata: [DONE]\n\n`);
  });
  return { baseUrl: `${server.origin}/v1`, model: "stand-in" };
}

test("a trial tells what each client got done, and why the rest is not", () =>
  withWorld(async (world) => {
    const write = (content: string): Turn => ["write_file", { path: "b.txt", content }];
    const holds = (content: string): ModelTask["isDone"] => ({ file }) => file("b.txt") === content;
    const door = await standIn(world, {
      "write it": [write("new"), "Done"],
      "write it well": [write("bad"), "Done"],
      "write text": ['{"name": "write_file", "arguments": {"path": "b.txt", "content": "new"}}', "Done"],
      "only talk": ["It is done"],
      "write outside": [["write_file", { path: "../outside/b.txt", content: "new" }], "Done"],
      "go on and on": [["glob_search", { pattern: "*" }]],
      "say the word": ["The word is tin"],
      "remember it": [["memory_store", { key: "tea", value: "green" }], "Kept"],
    });
    const results = await tryModel(world, {
      door,
      tasks: [
        task("write it", holds("new")),
        task("write it well", holds("new")),
        task("write text", holds("new")),
        task("only talk", holds("new")),
        task("write outside", holds("new")),
        task("go on and on", () => false),
        task("say the word", ({ reply }) => reply.includes("tin")),
        task("remember it", ({ memory }) => memory.some((record) => record.includes("green"))),
      ],
    });
    const ofClient = (name: string) =>
      results.filter(({ client }) => client === name).map(({ task: { say }, fault }) => `${say}: ${fault ?? "done"}`);
    const expected = [
      "write it: done",
      "write it well: wrong result",
      "write text: call written as text",
      "only talk: no call",
      "write outside: call refused",
      "go on and on: ended early",
      "say the word: done",
      "remember it: done",
    ];
    // Postern takes a call that is written as text
    assert.deepEqual(ofClient("postern"), expected.map((line) => line.replace("call written as text", "done")));
    assert.deepEqual(ofClient("bare loop"), expected);
    assert.match(trialTable(results), /\| edit \| 4 of 8 \| 3 of 8 \|[^]*\| no call \| 1 \| 1 \|/);
  }));

test("a trial ends when something outside the workspace changes", () =>
  withWorld(async (world) => {
    const door = await standIn(world, {});
    const tasks = [task("one", () => true), task("two", () => true)];
    const onResult = ({ outside }: TrialResult) => writeFileSync(join(outside, "more.txt"), "");
    const trying = tryModel(world, { door, tasks, onResult });
    await assert.rejects(trying, /Something changed outside the workspace/);
  }));

test("no task is done before anybody has begun it", () => {
  for (const { say, files, memory, isDone } of MODEL_TASKS) {
    const outcome = { reply: "", file: (path: string) => files[path], memory: Object.values(memory), schedules: [] };
    assert.equal(isDone(outcome), false, say);
  }
  assert.equal(new Set(MODEL_TASKS.map(({ say }) => say)).size, 50);
});

test("calls are read in the tags of the template, and what is no call stays text", () => {
  const call = '<tool_call>\n{"name": "shell", "arguments": {"command": "ls"}}\n</tool_call>';
  assert.deepEqual(readCalls(`I look.\n${call}\n${call}`), {
    text: "I look.",
    calls: [{ name: "shell", input: { command: "ls" } }, { name: "shell", input: { command: "ls" } }],
  });
  for (const text of ['{"name": "shell", "arguments": {}}', "<tool_call>\n{'name': 1}\n</tool_call>", "<tool_call>"]) {
    assert.deepEqual(readCalls(text), { text, calls: [] });
  }
});
