import type { Config } from "../../config/config.ts";
import type { AlertEvent } from "../../config/schema/notify.ts";
import type { NewAlert } from "./alert_work.ts";

/** States of the gateway that rules may tell of, as they are now. */
export interface WatchedStates {
  /** Returns why the gateway is degraded, as a sentence. Undefined: it is not */
  degraded(): string | undefined;
  /** Returns the tokens that the day has used or set aside, with the day in UTC. */
  spent(): Promise<{ readonly day: string; readonly tokens: number }>;
  /** Returns the names of MCP servers that want a sign-in. */
  signIns(): Promise<readonly string[]>;
}

/** Part of the day's tokens whose use is told of. */
const NEAR = 0.8;

/**
 * Creates a look at the states that no record tells of, each of which is told of when it begins: at most once a day for the budget and for a
 * server, in the whole cluster, and each time for this gateway.
 */
export function createAlertWatch({ states, config, today, tell }: {
  readonly states: WatchedStates;
  readonly config: () => Pick<Config, "notify" | "budget">;
  /** Returns the day in UTC, as `2026-01-31` */
  readonly today: () => string;
  readonly tell: (alert: NewAlert) => Promise<void>;
}): () => Promise<void> {
  let wasDegraded = false;
  /** Keys of what was told before, so that most looks write nothing. */
  const told = new Set<string>();
  const tellOnce = async (alert: NewAlert & { readonly key: string }) => {
    if (told.has(alert.key)) return;
    await tell(alert);
    told.add(alert.key);
  };
  return async () => {
    const events = new Set<AlertEvent>(config().notify.flatMap((rule) => rule.events));
    if (events.has("gateway_degraded")) {
      const reason = states.degraded();
      if (reason !== undefined && !wasDegraded) {
        await tell({ event: "gateway_degraded", title: "The gateway is degraded", text: reason, page: "status" });
      }
      wasDegraded = reason !== undefined;
    }
    const { tokens_per_day: limit } = config().budget;
    if (events.has("budget_near") && limit > 0) {
      const { day, tokens } = await states.spent();
      const share = Math.floor(tokens / limit * 100);
      const text =
        `${tokens} of ${limit} tokens of this day are used or set aside (${share} %). Runs that need more are refused.`;
      const alert = { event: "budget_near", title: "The day's tokens are nearly used", text, page: "status" } as const;
      if (tokens >= limit * NEAR) await tellOnce({ ...alert, key: day });
    }
    if (events.has("sign_in_needed")) {
      for (const name of await states.signIns()) {
        const text = `The MCP server ${name} wants a sign-in: postern mcp login ${name}`;
        const alert = { event: "sign_in_needed", title: `Sign in to ${name}`, text, page: "mcp" } as const;
        await tellOnce({ ...alert, key: `${name} ${today()}` });
      }
    }
  };
}
