import type { AgentEvent } from "../../../lib/base/records/agent_event.ts";
import type { AnswerHead } from "../answer_by_run.ts";
import { toResponse } from "./response_reply.ts";
import { inputItems, toShown } from "./stored_response.ts";
import type { ResponseForm } from "./to_response_input.ts";

/** Most bytes of JSON of the messages that stay beside the summary: about 8,000 tokens. */
const MAX_KEPT_BYTES = 32 * 1024;

/**
 * Returns the JSON reply of POST /v1/responses/compact: the newest messages of the user and instructions as they came, as many as
 * `MAX_KEPT_BYTES` holds, and the item that stands for all of the conversation.
 */
export function compactedJson(head: AnswerHead, said: readonly AgentEvent[], form: ResponseForm): string {
  const { id, created_at, usage, output } = toResponse(head, said, form);
  // The encoder makes the output
  const made = output as readonly unknown[];
  return JSON.stringify({
    id,
    object: "response.compaction",
    created_at,
    output: [...keptMessages(form, head.runId.slice("run_".length)), ...made],
    usage,
  });
}

function keptMessages({ body }: ResponseForm, tail: string): readonly unknown[] {
  const items = inputItems(body);
  let bytes = 0;
  const from = items.findLastIndex((item) =>
    isSpoken(item) && (bytes += Buffer.byteLength(JSON.stringify(item))) > MAX_KEPT_BYTES
  );
  return items.slice(from + 1).filter(isSpoken).map((item, at) => toShown(item, `${tail}_i${at}`));
}

function isSpoken({ type, role }: Readonly<Record<string, unknown>>): boolean {
  return type === "message" && role !== "assistant";
}
