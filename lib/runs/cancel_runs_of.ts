import { unlessUnreadable } from "../storage/read_records.ts";
import type { Store } from "../storage/store.ts";
import type { RunSupervisor } from "./run_request.ts";
import { createRunStore } from "./run_store.ts";

export interface CancelRunsOptions {
  readonly store: Store;
  /** undefined where nothing is at work: the runs then do not go on at the next start */
  readonly supervisor: () => Pick<RunSupervisor, "cancel"> | undefined;
}

/**
 * Cancels every recorded run that works with the rights of a token, those it started through schedules, procedures and sub-agents
 * among them: whoever lost a token stops what another does with it.
 * @returns how many there were
 */
export async function cancelRunsOf(tokenId: string, { store, supervisor }: CancelRunsOptions): Promise<number> {
  const runs = createRunStore(store);
  let count = 0;
  for (const { id, cancelled } of await runs.open()) {
    if (cancelled) continue;
    const input = await unlessUnreadable(runs.input(id));
    // Whoever began a run without a readable input is unknown: it does not go on either
    if (input !== undefined && input.caller.token_id !== tokenId) continue;
    const there = supervisor();
    if (await (there === undefined ? runs.cancel(id) : there.cancel(id, "cancelled"))) count++;
  }
  return count;
}
