import { CancelError, SHUTTING_DOWN } from "../../base/cancel.ts";
import { type Clock, withTimeout } from "../../base/clock.ts";
import { type HttpError, refuse } from "../../base/errors.ts";
import type { Halts } from "../../guard/halts.ts";
import type { ToolExecutor } from "./tool_executor.ts";

/** Tool executor that counts the calls which clients make directly, so that a shutdown can wait for them. */
export interface DrainableExecutor {
  readonly executor: ToolExecutor;
  /**
   * Refuses new direct calls with 503 `shutting_down` for this reason, and waits up to `graceMs` for those at work. Then stops them with the reason
   * `shutdown` and gives them 2 s to end. Calls that a run makes end with their run.
   */
  drain(graceMs: number, reason?: string): Promise<void>;
}

/** Milliseconds that calls get to end after a drain has stopped them. */
const SETTLE_MS = 2_000;

/** Wraps an executor and counts its direct calls. */
export function createDrainableExecutor(
  executor: ToolExecutor,
  { clock, halts }: {
    readonly clock: Clock;
    /** Work that a person has halted. Default: nobody halts any */
    readonly halts?: Pick<Halts, "refusalOfRun"> | undefined;
  },
): DrainableExecutor {
  const atWork = new Set<AbortController>();
  let draining: string | undefined;
  let idle: PromiseWithResolvers<void> | undefined;
  const wait = async (ms: number) => {
    if (atWork.size === 0) return;
    idle ??= Promise.withResolvers();
    await withTimeout(idle.promise, { ms, clock });
  };
  return {
    executor: {
      ...executor,
      async call(request) {
        const { scope } = request;
        if (scope.direct !== true) return await executor.call(request);
        if (draining !== undefined) throw shuttingDown(draining);
        const halted = halts?.refusalOfRun();
        if (halted !== undefined) throw refuse("halted", `Cannot call the tool: ${halted}`);
        const stop = new AbortController();
        atWork.add(stop);
        try {
          return await executor.call({
            ...request,
            scope: { ...scope, signal: AbortSignal.any([scope.signal, stop.signal]) },
          });
        } finally {
          atWork.delete(stop);
          if (atWork.size === 0) {
            idle?.resolve();
            idle = undefined;
          }
        }
      },
    },
    async drain(graceMs, reason = SHUTTING_DOWN) {
      draining = reason;
      await wait(graceMs);
      for (const stop of atWork) stop.abort(new CancelError("shutdown"));
      await wait(SETTLE_MS);
    },
  };
}

function shuttingDown(reason: string): HttpError {
  return refuse("shutting_down", `Cannot call the tool: ${reason}`);
}
