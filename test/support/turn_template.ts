/** Part of a message that a chat template looks at. */
export interface TemplateMessage {
  readonly role?: unknown;
  readonly tool_calls?: unknown;
}

/**
 * Looks at messages as the templates of Mistral's models do, which refuse a whole request.
 * @returns the place of the first message whose turn it is not
 */
export function wrongTurn(messages: readonly TemplateMessage[]): string | undefined {
  let isUsers = true;
  for (const [i, { role, tool_calls: calls }] of messages.entries()) {
    if (role === "system" && i === 0) continue;
    if (role === "tool" || (role === "assistant" && calls !== undefined)) continue;
    if (role !== (isUsers ? "user" : "assistant")) return `${String(role)} at ${i}`;
    isUsers = !isUsers;
  }
  return undefined;
}
