import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { AgentEvent, AgentEventBody } from "../../../lib/base/records/agent_event.ts";
import { applyEvent, createRunState, endStatus } from "../../../lib/runs/journal/apply_event.ts";

const created = {
  id: "run_1",
  kind: "chat",
  created_at: "2026-01-01T00:00:00.000Z",
  model: "m",
  conversation_id: null,
  parent_id: null,
} as const;
const usage = { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 };
const start: AgentEventBody = { type: "run_start", kind: "chat", model: "m", conversation_id: "talk", parent_id: null };

function fold(bodies: readonly AgentEventBody[]) {
  const events = bodies.map((body, i) => ({ seq: i + 1, time: `2026-01-01T00:00:0${i}.000Z`, ...body }) as AgentEvent);
  return events.reduce(applyEvent, createRunState(created)).run;
}

describe("applyEvent()", () => {
  test("starts from an accepted run that is queued", () => {
    const run = fold([]);
    assert.deepEqual([run.status, run.started_at, run.result], ["queued", null, null]);
  });

  test("run_start makes it run, and says since when and for which conversation", () => {
    const run = fold([start]);
    assert.deepEqual([run.status, run.started_at, run.conversation_id], [
      "running",
      "2026-01-01T00:00:00.000Z",
      "talk",
    ]);
  });

  test("done completes it with the text of all turns and the usage", () => {
    const run = fold([
      start,
      { type: "text_delta", delta: "a" },
      { type: "text_delta", delta: "b" },
      { type: "done", finish_reason: "stop", usage },
    ]);
    assert.deepEqual([run.status, run.result, run.usage, run.ended_at], [
      "completed",
      "ab",
      usage,
      "2026-01-01T00:00:03.000Z",
    ]);
  });

  test("error keeps the usage of the turns before and gives no result", () => {
    const run = fold([start, { type: "turn_end", turn: 1, usage }, {
      type: "error",
      code: "provider_error",
      message: "Broken",
    }]);
    assert.deepEqual([run.status, run.result, run.usage], ["failed", null, usage]);
    assert.deepEqual(run.error, { code: "provider_error", message: "Broken" });
  });

  test("an approval is waited for and answered", () => {
    const needed: AgentEventBody = {
      type: "approval_needed",
      approval_id: "a",
      call_id: "c",
      tool: "shell",
      input: {},
      reason: "r",
      rule: "x",
      expires_at: "",
    };
    assert.equal(fold([start, needed]).status, "waiting_for_approval");
    const answered: AgentEventBody = { type: "approval_answered", approval_id: "a", decision: "deny", by: null };
    assert.equal(fold([start, needed, answered]).status, "running");
  });

  test("the model is the one that answers the newest turn", () => {
    const notice: AgentEventBody = { type: "notice", code: "provider_fallback", message: "m", model: "spare/x" };
    const turn: AgentEventBody = { type: "turn_start", turn: 1 };
    const again: AgentEventBody = { type: "turn_restart", turn: 1, from_seq: 2 };
    assert.equal(fold([start, turn, notice]).model, "spare/x");
    assert.equal(fold([start, turn, notice, { ...turn, turn: 2 }]).model, "m");
    assert.equal(fold([start, turn, notice, again]).model, "m");
    assert.equal(fold([start, turn, notice, { ...turn, turn: 2 }, notice]).model, "spare/x");
  });

  test("nothing changes a run that has ended", () => {
    const over: AgentEventBody = { type: "error", code: "cancelled", message: "m" };
    assert.deepEqual(
      fold([start, over, { type: "text_delta", delta: "late" }, { type: "done", finish_reason: "stop", usage }]),
      fold([start, over]),
    );
  });

  test("the code of the error decides the status", () => {
    const status = (code: string) => endStatus({ type: "error", code });
    assert.deepEqual(["cancelled", "client_gone", "shutdown"].map(status), ["cancelled", "cancelled", "cancelled"]);
    assert.deepEqual(["timeout", "budget", "loop_detected", "interrupted"].map(status), [
      "failed",
      "failed",
      "failed",
      "failed",
    ]);
    assert.equal(status("needs_review"), "needs_review");
  });
});
