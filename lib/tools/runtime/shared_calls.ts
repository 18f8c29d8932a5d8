import { CancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { type HttpError, ToolError } from "../../base/errors.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { createPatience, isStorageAway, UnknownWriteError } from "../../storage/read_records.ts";
import type { PreparedCall, ServiceName, Tool } from "./tool.ts";
import type { CallScope } from "./tool_call.ts";
import type { Ended, ToolCallRequest } from "./tool_executor.ts";

/** Records of calls that wait for the database at the same time. Further ones are lost, and logged. */
const MAX_LATE = 1_000;

/** Options of `SharedCalls`. */
export interface SharedCallsOptions {
  readonly clock: Clock;
  readonly log: Logger;
  /** Aborts when the gateway closes: records that wait for the database are lost then. */
  readonly closing: AbortSignal;
}

/**
 * Services whose calls change the database in one batch, or take their locks there before they change anything. When the database is down,
 * nothing was changed.
 */
const IN_ONE_BATCH: ReadonlySet<ServiceName> = new Set<ServiceName>([
  "catalogue",
  "files",
  "mailbox",
  "memory",
  "plans",
  "redactor",
  "schedules",
  "skills",
  "sops",
  "subAgents",
  "workers",
]);

/**
 * Calls of tools over a database that gateways share, and that may go away in the middle of a call. A run waits for the database; a call
 * without a run is refused when nothing has happened yet, and gets its result when something has.
 * Source: docs/design/cluster.md "Tool calls"
 */
export class SharedCalls {
  readonly #options: SharedCallsOptions;
  #late = 0;

  constructor(options: SharedCallsOptions) {
    this.#options = options;
  }

  /**
   * Does work in the store that must be done before the effect of a call.
   * @throws {HttpError} `storage_unavailable` for a call without a run; {CancelError} when its run was stopped, or is another gateway's now
   */
  before<T>({ patience }: CallScope, work: () => Promise<T>): Promise<T> {
    return patience?.(work) ?? work();
  }

  /**
   * Does work in the store after the effect of a call. Where nobody waits for the database, the work is done once it is back.
   * @param otherwise returns what the call goes on with then
   */
  async after<T>(
    { scope: { patience, runId }, callId }: Pick<ToolCallRequest, "scope" | "callId">,
    work: () => Promise<T>,
    otherwise: () => T,
  ): Promise<T> {
    try {
      return await (patience?.(work) ?? work());
    } catch (error) {
      if (!(error instanceof CancelError) && !isStorageAway(error)) throw error;
      void this.#later(work, { run_id: runId, call_id: callId });
      return otherwise();
    }
  }

  /**
   * Runs a call. One of a run that found the database down, and has changed nothing, is made again once the database is back. One without a
   * run then ends with the refusal.
   */
  async effect(
    scope: CallScope,
    { tool, prepared }: { readonly tool: Tool; readonly prepared: PreparedCall },
    work: () => Promise<Ended>,
  ): Promise<Ended> {
    try {
      return await this.before(scope, async () => {
        const ended = await work();
        if ("error" in ended || ended.away === undefined) return ended;
        if (mayBeMadeAgain(tool, prepared, ended.away)) throw ended.away;
        return ended;
      });
    } catch (error) {
      if (error instanceof CancelError) return { outcome: "cancelled", error };
      if (isStorageAway(error)) return { outcome: "failed", error };
      throw error;
    }
  }

  /** Returns the error that says that the database was down, as a tool threw it or behind its own. Undefined for any other error. */
  awayBehind(error: unknown): HttpError | undefined {
    const found = error instanceof ToolError ? error.cause : error;
    return isStorageAway(found) ? found : undefined;
  }

  async #later(work: () => Promise<unknown>, about: Readonly<Record<string, string>>): Promise<void> {
    const { clock, log, closing } = this.#options;
    if (this.#late >= MAX_LATE) return log.error("Records of a call are lost: the database was down", about);
    this.#late++;
    try {
      await createPatience({ clock, signal: closing })(work);
    } catch (error) {
      if (closing.aborted) return log.error("Records of a call are lost: the gateway ended first", about);
      log.error("Records of a call are lost: they could not be written once the database was back", {
        ...about,
        error,
      });
    } finally {
      this.#late--;
    }
  }
}

/** Tells whether a call that found the database down may be made again: nothing was changed, or changing it twice does no harm. */
function mayBeMadeAgain(
  { source, needs }: Pick<Tool, "source" | "needs">,
  { access, repeatable }: PreparedCall,
  error: HttpError,
): boolean {
  if (access === "read" || repeatable === true) return true;
  return source === "builtin" && !(error instanceof UnknownWriteError) &&
    needs.every((service) => IN_ONE_BATCH.has(service));
}
