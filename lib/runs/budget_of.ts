import type { AgentLimits } from "../agent/agent_run.ts";
import { createRunBudget, type TokenBudget } from "../agent/token_budget.ts";
import type { DayBudget } from "./day_budget.ts";

/**
 * What a run's model calls count in: its own limit, that of its parent, so that no work escapes a limit by being handed down,
 * and the day's. undefined where nothing is limited: such a run pays nothing for budgets.
 */
export function budgetOf(options: {
  readonly limits: Pick<AgentLimits, "tokensPerRun">;
  /** Tokens the run used before: it was resumed */
  readonly used: number;
  readonly parent: TokenBudget | undefined;
  readonly day: DayBudget;
}): TokenBudget | undefined {
  const { limits, used, parent, day } = options;
  const outer = parent ?? (day.isSet() ? day : undefined);
  if (limits.tokensPerRun === 0) return outer;
  return createRunBudget({ tokensPerRun: limits.tokensPerRun, used, within: outer });
}
