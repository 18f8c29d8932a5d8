import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import type { RunHandle } from "../../lib/runs/run_request.ts";
import type { RunClaim } from "../route.ts";

/**
 * A run whose reader is told on disk, before the first text of a turn goes out, that it does: after a crash it is then known that the
 * text cannot be taken back (docs/design/http.md "Idempotency"). Costs one write a turn.
 */
export function withClaimMarks(handle: RunHandle, claim: RunClaim): RunHandle {
  async function* events() {
    let turn = 1;
    for await (const batch of handle.events()) {
      for (const event of batch) {
        if (event.type === "turn_start") turn = event.turn;
        if (isTold(event)) await claim.tell(turn);
      }
      yield batch;
    }
  }
  return {
    id: handle.id,
    model: handle.model,
    conversationId: handle.conversationId,
    events,
    cancel: (reason) => handle.cancel(reason),
    hadEffect: () => handle.hadEffect(),
    isAskedAgain: () => handle.isAskedAgain?.() === true,
  };
}

function isTold({ type }: AgentEvent): boolean {
  return type === "text_delta" || type === "reasoning_delta" || type === "refusal_delta" ||
    type === "client_tool_call_delta" || type === "reply_fields";
}
