import { CancelError } from "../../base/cancel.ts";
import { type Clock, withTimeout } from "../../base/clock.ts";
import { HttpError } from "../../base/errors.ts";
import type { ToolExecutor } from "./tool_executor.ts";

/** A tool executor that counts the calls which clients make directly, so that a shutdown can wait for them. */
export interface DrainableExecutor {
  readonly executor: ToolExecutor;
  /**
   * Refuses further ones with 503 `shutting_down`, waits for those at work up to `graceMs`, then stops them with `shutdown`, and lets
   * them say so. Calls of runs are their run's.
   */
  drain(graceMs: number): Promise<void>;
}

/** Calls that were stopped at the end of a drain get this long to end. */
const SETTLE_MS = 2_000;

/** Wraps an executor and counts its direct calls. */
export function createDrainableExecutor(
  executor: ToolExecutor,
  { clock }: { readonly clock: Clock },
): DrainableExecutor {
  const atWork = new Set<AbortController>();
  let draining = false;
  let onIdle = () => {};
  const wait = async (ms: number) => {
    if (atWork.size === 0) return;
    await withTimeout(new Promise<void>((resolve) => (onIdle = resolve)), { ms, clock });
  };
  return {
    executor: {
      ...executor,
      async call(request) {
        if (request.direct !== true) return await executor.call(request);
        if (draining) throw shuttingDown();
        const stop = new AbortController();
        atWork.add(stop);
        try {
          return await executor.call({ ...request, signal: AbortSignal.any([request.signal, stop.signal]) });
        } finally {
          atWork.delete(stop);
          if (atWork.size === 0) onIdle();
        }
      },
    },
    async drain(graceMs) {
      draining = true;
      await wait(graceMs);
      for (const stop of atWork) stop.abort(new CancelError("shutdown"));
      await wait(SETTLE_MS);
    },
  };
}

function shuttingDown(): HttpError {
  return new HttpError("shutting_down", "Cannot call the tool: the gateway is shutting down", {
    status: 503,
    type: "api_error",
  });
}
