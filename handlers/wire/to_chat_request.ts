import * as v from "valibot";
import type { ContentPart, Message } from "../../lib/base/records/message.ts";
import { CONVERSATION_ID } from "../../lib/runs/conversations/conversation_records.ts";
import type { RunRequest } from "../../lib/runs/run_request.ts";

/** Schema of the field `conversation_id`; `new` begins a conversation. */
export const conversationIdSchema = v.pipe(
  v.string(),
  v.regex(CONVERSATION_ID, 'Expected 1 to 128 letters, digits, ".", "_", ":" or "-"'),
);

/** A message of a person or a channel to the agent. */
export interface ChatInput {
  readonly message: string;
  /** Goes before the message as a part of its own */
  readonly context?: string | undefined;
  readonly conversationId: string;
  readonly model?: string | undefined;
}

type Circumstances =
  & Pick<RunRequest, "kind" | "caller" | "durable" | "requestId" | "claim" | "controller">
  & Partial<Pick<RunRequest, "canApprove">>;

/** Returns the request for a run that answers one message with the agent's own tools, recorded under a conversation. */
export function toChatRequest(input: ChatInput, circumstances: Circumstances): RunRequest {
  return {
    canApprove: false,
    ...circumstances,
    messages: [toMessage(input)],
    model: input.model,
    conversationId: input.conversationId,
    agentTools: "configured",
    clientTools: [],
    parameters: {},
  };
}

function toMessage({ message, context }: ChatInput): Message {
  if (context === undefined || context === "") return { role: "user", content: message };
  const parts: readonly ContentPart[] = [{ type: "text", text: context }, { type: "text", text: message }];
  return { role: "user", content: [...parts] };
}
