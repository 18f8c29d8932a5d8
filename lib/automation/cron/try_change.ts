import { Backoff, type Clock } from "../../base/clock.ts";
import type { Random } from "../../base/random.ts";

/** Tries of a change of schedules that other gateways change or fire at the same moment: the first ones at once, the others after a pause. */
const TRIES = { atOnce: 5, all: 20 } as const;
const PAUSES = { firstMs: 50, mostMs: 100 } as const;

/**
 * Tries a change of schedules until no other gateway makes one in the same moment.
 * @param attempt makes the change. Undefined: another gateway was faster, so it is made again
 * @returns undefined after 20 tries
 */
export async function tryChange<T>(
  attempt: () => Promise<T | undefined>,
  { clock, random }: { readonly clock: Pick<Clock, "sleep">; readonly random: Random },
): Promise<T | undefined> {
  const backoff = new Backoff(PAUSES, random);
  for (let tries = 1;; tries++) {
    const made = await attempt();
    if (made !== undefined || tries >= TRIES.all) return made;
    if (tries >= TRIES.atOnce) await clock.sleep(backoff.next());
  }
}
