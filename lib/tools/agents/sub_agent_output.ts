import type { SubAgentView } from "./sub_agents.ts";

/** A sub-agent in one line. */
export function describeSubAgent({ id, status, agent, depth, run_id, task }: SubAgentView): string {
  const who = agent === null ? "" : ` agent=${agent}`;
  return `id=${id} status=${status}${who} depth=${depth} run=${run_id} task=${JSON.stringify(task)}`;
}
