import type { AgentEvent } from "../../lib/base/records/agent_event.ts";

/** Events as frames; undefined where an event has no place in the mode. */
export type FrameEncoder = (event: AgentEvent, runId: string) => string | undefined;

/**
 * The plain mode: `delta`, `done` and `error` with exactly the documented fields. A refusal is told as text.
 * Source: docs/design/websocket.md "Frames out"
 */
export const encodePlain: FrameEncoder = (event) => {
  switch (event.type) {
    case "text_delta":
    case "refusal_delta":
      return `{"type":"delta","delta":${JSON.stringify(event.delta)}}`;
    case "done":
      return `{"type":"done"}`;
    case "error":
      return errorFrame(event.code, event.message);
    default:
      return undefined;
  }
};

/** After `hello {events: true}`: every event as it is, with its run. */
export const encodeEvent: FrameEncoder = (event, runId) => JSON.stringify({ ...event, run_id: runId });

/** A failure that is no event of a run: a bad frame, a full queue, a run that could not start. */
export function errorFrame(code: string, message: string): string {
  return JSON.stringify({ type: "error", message, code });
}

/** The answer to `ping`, in both modes: a client that never asks never sees it. */
export const PONG_FRAME = `{"type":"pong"}`;
