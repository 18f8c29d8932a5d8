import type { AgentEvent } from "../../lib/base/records/agent_event.ts";

/** Returns the text on a reader's screen: its events joined, with what a turn_restart takes back left out. */
export function appliedText(events: readonly AgentEvent[]): string {
  let shown: { readonly seq: number; readonly delta: string }[] = [];
  for (const event of events) {
    if (event.type === "turn_restart") shown = shown.filter(({ seq }) => seq < event.from_seq);
    if (event.type === "text_delta") shown.push(event);
  }
  return shown.map(({ delta }) => delta).join("");
}
