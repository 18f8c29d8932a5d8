import type { AgentLimits } from "../agent/agent_run.ts";
import type { NarrowerLimits } from "./run_request.ts";

type Bounds = Pick<AgentLimits, "maxIterations" | "maxToolCalls" | "tokensPerRun">;

/** The same with each bound the lower of two. 0 tokens are no bound. */
export function narrowLimits<T extends Bounds>(limits: T, by: NarrowerLimits): T {
  const { maxIterations = Infinity, maxToolCalls = Infinity, tokensPerRun = 0 } = by;
  const tokens = [limits.tokensPerRun, tokensPerRun].filter((bound) => bound > 0);
  return {
    ...limits,
    maxIterations: Math.min(limits.maxIterations, maxIterations),
    maxToolCalls: Math.min(limits.maxToolCalls, maxToolCalls),
    tokensPerRun: tokens.length === 0 ? 0 : Math.min(...tokens),
  };
}
