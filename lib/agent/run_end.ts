import { CancelError } from "../base/cancel.ts";
import { ProviderError } from "../base/errors.ts";
import type { AgentEvent, AgentEventBody } from "../base/records/agent_event.ts";
import type { Message } from "../base/records/message.ts";
import type { AgentOutcome, AgentRun } from "./agent_run.ts";
import { CallFailed } from "./call_provider.ts";

/** The event a run ends with, before its stamp. */
export type TerminalBody = Extract<AgentEventBody, { type: "done" | "error" }>;

/** Ends a run, once. */
export interface RunEnd {
  ended(): boolean;
  /** Records the terminal event, and waits for that where it takes time. @returns what the reader is shown; never throws or rejects */
  end(
    body: TerminalBody,
    more: { readonly added: readonly Message[]; readonly refused?: ProviderError },
  ): readonly AgentEvent[] | Promise<readonly AgentEvent[]>;
}

const INTERNAL = {
  type: "error",
  code: "internal_error",
  message: "The gateway failed inside; its log names the cause under the run's id",
} as const;

/** @param note stamps and records events */
export function createRunEnd(run: AgentRun, note: (bodies: readonly AgentEventBody[]) => AgentEvent[]): RunEnd {
  let ended = false;
  return {
    ended() {
      return ended;
    },
    end(body, { added, refused }) {
      ended = true;
      const events = note([body]);
      const [terminal] = events as [AgentOutcome["terminal"]]; // one body gives one event of its type
      const fail = (error: unknown) => {
        // What was not recorded must not be called done
        run.log.error("Run could not be recorded", { run_id: run.id, request_id: run.requestId, error });
        return [{ seq: terminal.seq, time: terminal.time, ...INTERNAL }];
      };
      try {
        const written = run.journal.end({ terminal, added, refused });
        return written instanceof Promise ? written.then(() => events, fail) : events;
      } catch (error) {
        return fail(error);
      }
    },
  };
}

/** The error event of whatever ended the loop. A bug is logged whole and shown as one fixed sentence. */
export function toTerminal(error: unknown, run: AgentRun): TerminalBody {
  if (error instanceof CancelError) return { type: "error", code: error.reason, message: error.message };
  if (error instanceof ProviderError) return { type: "error", code: error.code, message: error.message };
  if (error instanceof CallFailed) return { type: "error", code: "tool_failed", message: error.message };
  run.log.error("Run failed inside", { run_id: run.id, request_id: run.requestId, error });
  return INTERNAL;
}
