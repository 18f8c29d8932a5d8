import type { Message } from "../base/records/message.ts";

/** What the model is sent, in order: system prompt, the client's instructions, the conversation so far, the client's messages. */
export function assembleMessages(parts: {
  /** null: nothing is injected */
  readonly prompt: string | null;
  readonly history: readonly Message[];
  readonly messages: readonly Message[];
}): readonly Message[] {
  const { prompt, history, messages } = parts;
  const first: readonly Message[] = prompt === null ? [] : [{ role: "system", content: prompt }];
  if (history.length > 0) {
    return [...first, ...messages.filter(isInstruction), ...history, ...withoutInstructions(messages)];
  }
  return first.length === 0 ? messages : [...first, ...messages];
}

/** The messages a conversation keeps: instructions hold for the request they came with. */
export function withoutInstructions(messages: readonly Message[]): readonly Message[] {
  return messages.filter((message) => !isInstruction(message));
}

function isInstruction(message: Message): boolean {
  return message.role === "system" || message.role === "developer";
}
