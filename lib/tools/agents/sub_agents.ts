import type { RunStatus } from "../../base/records/run.ts";
import { joinTaints, type Taint } from "../../base/taint.ts";
import type { CallContext } from "../runtime/tool_call.ts";

/** Bounds of sub-agents. */
export const SUB_AGENT_LIMITS = {
  /** Bytes in UTF-8 of a task, a prompt or a message */
  textBytes: 64 * 1024,
  /** Sub-agents that work or wait in the background at once */
  active: 16,
  /** Records that are kept: over this, the oldest sub-agent that has ended makes room */
  kept: 1_000,
  /** Depth of sub-agents below sub-agents, when no configured agent has a `max_depth` of its own */
  depth: 2,
  /** Sub-agents that one list shows, newest first */
  listed: 100,
  /** Milliseconds `result` waits for an answer */
  waitMs: 60_000,
} as const;

/** Order for a sub-agent. */
export interface NewSubAgent {
  readonly task: string;
  /** A name of `[agents.<name>]`. Default: the gateway's own agent */
  readonly agent?: string | undefined;
  /** Patterns of the caller's tools: names, `prefix*` or `*`. Empty: no tools. Default: all the caller's tools, or those of `agent` */
  readonly tools?: readonly string[] | undefined;
}

/** A sub-agent or a delegation as it is now. Times are ISO 8601. */
export interface SubAgentView {
  readonly id: string;
  /** `delegate`: its caller waits for the answer; `spawn`: it works in the background */
  readonly kind: "spawn" | "delegate";
  /** Name of the configured agent. null: the gateway's own agent */
  readonly agent: string | null;
  /** Beginning of the task */
  readonly task: string;
  /** Status of the newest run */
  readonly status: RunStatus;
  /** Id of the newest run */
  readonly run_id: string;
  /** Run that started the sub-agent. null: a person did */
  readonly parent_id: string | null;
  /** Names from the run at the top down to this sub-agent: the run's id, then agents or ids */
  readonly chain: readonly string[];
  readonly depth: number;
  readonly max_depth: number;
  readonly tools: readonly string[];
  /** Origins of outside content that the task was made from. Absent: none */
  readonly taint?: readonly string[] | undefined;
  readonly created_at: string;
  readonly ended_at: string | null;
}

/** Sub-agents that a caller may reach, newest first. */
export interface SubAgentList {
  readonly views: readonly SubAgentView[];
  /** Number of those that other tokens began, in any state */
  readonly hidden: number;
}

/** State of a sub-agent with its answer. */
export interface SubAgentAnswer {
  readonly view: SubAgentView;
  /** Answer of the newest run. null until the run is completed */
  readonly result: string | null;
  /** Reason why the newest run failed. null while it works and when it is completed */
  readonly error: string | null;
  /** Milliseconds since the sub-agent was started */
  readonly ageMs: number;
  /** Outside content that the newest run has read */
  readonly taint: Taint;
}

/** Answer of a delegation. */
export interface DelegatedAnswer {
  readonly answer: string;
  /** Outside content that the agent's run has read */
  readonly taint: Taint;
}

/**
 * Agents that work for other agents (docs/design/runs.md "Sub-agents"), always with tools and limits of their caller's or fewer,
 * never with `delegate`. A call that is made again, by the same run under the same call id, starts nothing twice.
 *
 * A sub-agent sees and steers those below it alone. Every method throws ToolError: `not_found`, also for one that is not below the
 * sub-agent that calls; `insufficient_scope` for one of another token, where the caller lacks `runs`; `unknown_agent`;
 * `tools_not_held`; `max_depth`; `too_many_sub_agents`; `agent_unavailable`.
 */
export interface SubAgents {
  /** Starts a sub-agent in the background: a durable run in a conversation of its own */
  spawn(task: NewSubAgent, by: CallContext): Promise<SubAgentView>;
  /** Newest first, those in the background */
  list(filter: { readonly status?: RunStatus | undefined }, by: CallContext): Promise<SubAgentList>;
  status(id: string, by: CallContext): Promise<SubAgentView>;
  /** Waits for the answer of the newest run, up to `waitMs` of SUB_AGENT_LIMITS */
  result(id: string, by: CallContext): Promise<SubAgentAnswer>;
  /** Queues a further run in the sub-agent's conversation, with the tools that both the sub-agent and the caller have */
  message(id: string, text: string, by: CallContext): Promise<SubAgentView>;
  /** Cancels the runs that work and wait. @returns false when the sub-agent had ended already */
  cancel(id: string, by: CallContext): Promise<boolean>;
  /** Runs a configured agent to its answer. @throws {ToolError} `agent_failed`; {CancelError} when the caller's signal aborts */
  delegate(order: { readonly agent: string; readonly prompt: string }, by: CallContext): Promise<DelegatedAnswer>;
  /** Both kinds, newest first */
  delegations(by: CallContext): Promise<SubAgentList>;
}

/** Returns the outside content in the tasks of sub-agents. */
export function taintOfTasks(views: readonly SubAgentView[]): Taint {
  return joinTaints(...views.map(({ taint }) => taint));
}

/** Returns a sub-agent as one line of text for the model. */
export function describeSubAgent({ id, status, agent, depth, run_id, task }: SubAgentView): string {
  const who = agent === null ? "" : ` agent=${agent}`;
  return `id=${id} status=${status}${who} depth=${depth} run=${run_id} task=${JSON.stringify(task)}`;
}
