import type { Clock } from "../base/clock.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Approvals } from "./approvals.ts";

const DAY_MS = 24 * 60 * 60 * 1000;

/**
 * Tidies the approvals now and once a day; a failure is logged.
 * @returns what ends it
 */
export async function keepTidy(
  approvals: Approvals,
  options: { readonly clock: Clock; readonly log: Logger; readonly days: () => number },
): Promise<() => void> {
  const tidy = async () => {
    try {
      await approvals.tidy(options.days());
    } catch (error) {
      options.log.error("Old approvals could not be forgotten", { error });
    }
  };
  await tidy();
  const timer = options.clock.every(DAY_MS, () => void tidy());
  return () => timer.clear();
}
