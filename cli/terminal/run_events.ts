import type { AgentEvent } from "../../lib/base/records/agent_event.ts";
import type { ReachedGateway } from "../reach_gateway.ts";
import { runPath } from "./run_path.ts";

export interface RunEventsOptions {
  /** Only events after this seq */
  readonly after: number;
  /** Waits for those to come, to the run's end; false: those that are there */
  readonly follow: boolean;
  readonly signal?: AbortSignal;
}

/**
 * The events of a run, from the gateway's event stream.
 * @throws {CommandError} the gateway's own sentence when it refuses; {CancelError} on abort
 */
export async function* runEvents(
  gateway: ReachedGateway,
  id: string,
  { after, follow, signal }: RunEventsOptions,
): AsyncGenerator<AgentEvent, void, undefined> {
  const path = runPath(id, `/events?after=${after}${follow ? "" : "&follow=0"}`);
  const body = await gateway.stream({ method: "GET", path, signal });
  const decoder = new TextDecoder();
  let text = "";
  for await (const bytes of body) {
    text += decoder.decode(bytes, { stream: true });
    const blocks = text.split("\n\n");
    text = blocks.pop() ?? "";
    for (const block of blocks) {
      // The gateway writes an event's JSON on one line, and nothing but its own events
      const data = /^data: (.*)$/m.exec(block)?.[1];
      if (data !== undefined) yield JSON.parse(data) as AgentEvent;
    }
  }
}
