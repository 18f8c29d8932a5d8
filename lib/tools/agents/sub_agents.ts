import type { RunStatus } from "../../base/records/run.ts";
import type { ToolContext } from "../runtime/tool.ts";

/** Bounds of sub-agents. */
export const SUB_AGENT_LIMITS = {
  /** UTF-8, of a task, a prompt or a message */
  textBytes: 64 * 1024,
  /** At work or waiting in the background, all together */
  active: 16,
  /** Records; over this the oldest that is over makes room */
  kept: 1_000,
  /** Generations where no configured agent says another */
  depth: 2,
  /** Of one list, newest first */
  listed: 100,
  /** Milliseconds `result` waits for an answer */
  waitMs: 60_000,
} as const;

/** Who starts, asks or stops: what of a call says whose it is, and what it passes on. */
export type SubAgentCaller = Pick<
  ToolContext,
  | "runId"
  | "callId"
  | "requestId"
  | "conversationId"
  | "caller"
  | "allowed"
  | "depth"
  | "direct"
  | "inherited"
  | "signal"
  | "progress"
>;

/** What starts a sub-agent. */
export interface NewSubAgent {
  readonly task: string;
  /** A name of `[agents.<name>]`. Default: the gateway's own agent */
  readonly agent?: string | undefined;
  /** Names, `prefix*` or `*` of the caller's tools; empty: none. Default: all the caller has, or those of its agent */
  readonly tools?: readonly string[] | undefined;
}

/** A sub-agent or a delegation as it is now. Times are ISO 8601. */
export interface SubAgentView {
  readonly id: string;
  /** `delegate`: its caller waits for the answer; `spawn`: it works in the background */
  readonly kind: "spawn" | "delegate";
  /** null: the gateway's own */
  readonly agent: string | null;
  /** The start of what it was told */
  readonly task: string;
  /** Of its newest run */
  readonly status: RunStatus;
  /** Its newest run */
  readonly run_id: string;
  /** The run that started it; null: a person did */
  readonly parent_id: string | null;
  /** From the run at the top down to this one: run, agents, ids */
  readonly chain: readonly string[];
  readonly depth: number;
  readonly max_depth: number;
  readonly tools: readonly string[];
  readonly created_at: string;
  readonly ended_at: string | null;
}

/** How far a sub-agent is. */
export interface SubAgentAnswer {
  readonly view: SubAgentView;
  /** Of its newest run; null until it is completed */
  readonly result: string | null;
  /** Why it is not completed; null while it works, and when it is */
  readonly error: string | null;
  /** Milliseconds since it was started */
  readonly ageMs: number;
}

/**
 * Agents that work for other agents (docs/design/runs.md "Sub-agents"), always with tools and limits of their caller's or fewer,
 * never with `delegate`. A call that is made again, by the same run under the same call id, starts nothing twice.
 *
 * A sub-agent sees and steers those below it alone. Every method throws ToolError: `not_found`, also for one that is not the
 * caller's to see; `unknown_agent`; `tools_not_held`; `max_depth`; `too_many_sub_agents`; `agent_unavailable`.
 */
export interface SubAgents {
  /** Starts one in the background: a durable run, in a conversation of its own */
  spawn(task: NewSubAgent, by: SubAgentCaller): Promise<SubAgentView>;
  /** Newest first, those in the background */
  list(filter: { readonly status?: RunStatus | undefined }, by: SubAgentCaller): Promise<readonly SubAgentView[]>;
  status(id: string, by: SubAgentCaller): Promise<SubAgentView>;
  /** Waits for its end, up to `waitMs` of SUB_AGENT_LIMITS */
  result(id: string, by: SubAgentCaller): Promise<SubAgentAnswer>;
  /** Its next turn in its conversation: after the one at work and those that wait, with the tools that both it and the caller have */
  message(id: string, text: string, by: SubAgentCaller): Promise<SubAgentView>;
  /** Stops what it works on and what waits. @returns false when it was over */
  cancel(id: string, by: SubAgentCaller): Promise<boolean>;
  /** Runs a configured agent to its answer. @throws {ToolError} `agent_failed`; {CancelError} when the caller's signal aborts */
  delegate(order: { readonly agent: string; readonly prompt: string }, by: SubAgentCaller): Promise<string>;
  /** Both kinds, newest first */
  delegations(by: SubAgentCaller): Promise<readonly SubAgentView[]>;
}

/** A sub-agent in one line. */
export function describeSubAgent({ id, status, agent, depth, run_id, task }: SubAgentView): string {
  const who = agent === null ? "" : ` agent=${agent}`;
  return `id=${id} status=${status}${who} depth=${depth} run=${run_id} task=${JSON.stringify(task)}`;
}
