import type { Logger } from "../base/telemetry/log.ts";
import { createEventPacker } from "./pack_events.ts";
import type { RunStore } from "./run_store.ts";

/**
 * Ends what a crash left open: `failed` with `interrupted`, or `needs_review` where an effect had begun and not ended.
 *
 * Every open run gets its terminal event; one that cannot be read is logged and left for a person to see.
 */
export async function recoverRuns(options: {
  readonly runs: RunStore;
  readonly log: Logger;
  readonly time: () => string;
}): Promise<void> {
  const { runs, log } = options;
  for (let after: string | undefined;;) {
    const page = await runs.open(after);
    for (const runId of page) {
      after = runId;
      try {
        await endRun(runId, options);
      } catch (error) {
        log.error("Interrupted run could not be ended", { run_id: runId, error });
      }
    }
    if (page.length === 0) return;
  }
}

async function endRun(runId: string, { runs, log, time }: Parameters<typeof recoverRuns>[0]): Promise<void> {
  const folded = await runs.fold(runId);
  if (folded === undefined) throw new TypeError(`Run "${runId}" is listed as open and has no record`);
  const code = folded.openEffects.length === 0 ? "interrupted" : "needs_review";
  const message = code === "interrupted"
    ? "The gateway stopped while the run was at work"
    : `The gateway stopped while a call with an effect was at work (${
      folded.openEffects.join(", ")
    }): whether it happened is unknown`;
  const packer = createEventPacker();
  packer.add([{ seq: folded.seq + 1, time: time(), type: "error", code, message }]);
  await runs.append(runId, folded.seq, packer.take());
  log.warn("Interrupted run was ended", { run_id: runId, status: code === "interrupted" ? "failed" : code });
}
