import type { AgentEvent } from "../base/records/agent_event.ts";

/** Progress messages that a reader has not taken yet; more are dropped, so that a slow reader cannot fill the memory. */
const MAX_PROGRESS = 1000;

/** Events of work that goes on beside the generator which hands them on. */
export interface EventQueue {
  push(events: readonly AgentEvent[]): void;
  /** Whether a progress message still has room */
  hasRoom(): boolean;
  close(): void;
  /** Waits for events; an empty array once the queue is closed and was emptied */
  take(): Promise<readonly AgentEvent[]>;
}

export function createEventQueue(): EventQueue {
  let pending: AgentEvent[] = [];
  let closed = false;
  let wake = () => {};
  return {
    push(events) {
      pending.push(...events);
      wake();
    },
    hasRoom: () => pending.length < MAX_PROGRESS,
    close() {
      closed = true;
      wake();
    },
    async take() {
      while (pending.length === 0 && !closed) await new Promise<void>((resolve) => (wake = resolve));
      const taken = pending;
      pending = [];
      return taken;
    },
  };
}
