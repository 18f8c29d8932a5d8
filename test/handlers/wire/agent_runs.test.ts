import assert from "node:assert/strict";
import { test } from "node:test";
import type { RunClaim } from "../../../handlers/route.ts";
import { readRun } from "../../../handlers/wire/agent_runs.ts";
import type { AgentEvent, AgentEventBody } from "../../../lib/base/records/agent_event.ts";
import type { RunHandle } from "../../../lib/runs/run_request.ts";
import type { ToolExecutor } from "../../../lib/tools/runtime/tool_executor.ts";

test("the mark that text goes out names the turn, also when the journal has only its turn_restart", async () => {
  const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
  const bodies: readonly (readonly AgentEventBody[])[] = [
    [{ type: "turn_start", turn: 1 }, { type: "text_delta", delta: "one " }],
    [{ type: "turn_end", turn: 1, usage }],
    [{ type: "turn_restart", turn: 2, from_seq: 4 }, { type: "text_delta", delta: "two" }],
  ];
  async function* events(): AsyncGenerator<readonly AgentEvent[]> {
    for (const batch of bodies) yield batch.map((body) => ({ seq: 1, time: "", ...body }) as AgentEvent);
  }
  const handle: RunHandle = {
    ...{ id: "run_1", model: "m", conversationId: null, events },
    durable: true,
    cancel() {},
    leave() {},
    hadEffect: () => false,
  };
  const told: number[] = [];
  const claim = { tell: async (turn: number) => void told.push(turn) } as unknown as RunClaim; // nothing else is asked
  const tools = { get: () => undefined } as unknown as ToolExecutor; // nothing else is asked
  for await (const _ of readRun(handle, { claim, tools }, { streams: true }).events());
  assert.deepEqual(told, [1, 2]);
});
