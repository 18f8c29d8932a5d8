import { type CancelError, cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Config } from "../../config/config.ts";
import { isUnreadable } from "../../storage/read_records.ts";
import type { CallBinding } from "./bind_call.ts";
import { INSUFFICIENT_SCOPE } from "./owned_things.ts";
import { runBounded } from "./run_bounded.ts";
import type { PreparedCall, ScreenContext, ServiceName, Tool, ToolContext, ToolResult, ToolServices } from "./tool.ts";
import type { ToolCallRequest } from "./tool_executor.ts";

const DEFAULT_TIMEOUT_MS = 120_000;

/** Outcome of a call, as the metric counts it. */
export type Outcome =
  | "ok"
  | "error"
  | "bad_input"
  | "unknown"
  | "disabled"
  | "denied"
  | "timeout"
  | "cancelled"
  | "failed";

/** End of a call that ran: its result, or the cancellation. */
export type Ended = { readonly outcome: Outcome; readonly result: ToolResult } | {
  readonly outcome: Outcome;
  readonly error: CancelError;
};

/** The parts of a tool executor that run a call. */
export interface CallRunner {
  readonly services: ToolServices;
  /** Returns the newest configuration */
  readonly config: () => Config;
  /** Absolute path of the workspace */
  readonly workspaceRoot: string;
  readonly clock: Clock;
  readonly log: Logger;
  readonly redact: (text: string) => string;
  /** Milliseconds that one call may take when its tool has no limit of its own. Default 120,000 */
  readonly timeoutMs?: number;
}

/** Runs a permitted call under its signal and its time limit. @param binding state that was approved; undefined without an approval */
export async function runCall(
  runner: CallRunner,
  { tool, prepared, binding }: {
    readonly tool: Tool;
    readonly prepared: PreparedCall;
    readonly binding: CallBinding | undefined;
  },
  request: ToolCallRequest,
): Promise<Ended> {
  const services = binding === undefined ? runner.services : await boundServices(runner.services, binding);
  const config = runner.config();
  const timeoutMs = tool.timeoutMs?.(config) ?? runner.timeoutMs ?? DEFAULT_TIMEOUT_MS;
  const work = (signal: AbortSignal) =>
    prepared.run({
      ...surroundings(runner, tool, { services, config }),
      ...toCallContext(runner, tool, request),
      signal,
    });
  const ending = await runBounded(work, { clock: runner.clock, timeoutMs, signal: request.signal });
  switch (ending.kind) {
    case "done":
      return { outcome: ending.value.isError ? "error" : "ok", result: ending.value };
    case "stopped":
      if (request.signal.aborted) return { outcome: "cancelled", error: cancelError(request.signal) };
      return {
        outcome: "timeout",
        result: failedResult(`Cannot finish "${tool.name}": it was stopped after ${timeoutMs / 1000} s`),
      };
    case "failed":
      if (ending.error instanceof ToolError && ending.error.code === INSUFFICIENT_SCOPE) {
        return { outcome: "denied", result: failedResult(ending.error.message) };
      }
      if (ending.error instanceof ToolError || isUnreadable(ending.error)) {
        return { outcome: "error", result: failedResult(ending.error.message) };
      }
      return { outcome: "failed", result: failedResult(reportBug(runner, { tool, request, error: ending.error })) };
  }
}

/** Returns the context of a call beside its signal and its surroundings. */
function toCallContext(
  runner: CallRunner,
  tool: Tool,
  request: ToolCallRequest,
): Omit<ToolContext, keyof ScreenContext | "signal"> {
  return {
    runId: request.runId,
    callId: request.callId,
    requestId: request.requestId,
    conversationId: request.conversationId ?? null,
    caller: request.caller,
    allowed: request.allowed,
    depth: request.depth,
    inherited: request.inherited,
    direct: request.direct ?? false,
    clock: runner.clock,
    log: logOf(runner, tool, request),
    progress: (message) => request.onProgress?.(runner.redact(message)),
  };
}

/** Returns the part of a call's context that `screen` and `bind` get too. */
export function surroundings(
  { workspaceRoot }: Pick<CallRunner, "workspaceRoot">,
  tool: Tool,
  { services, config }: { readonly services: ToolServices; readonly config: Config },
): ScreenContext {
  return {
    workspaceRoot,
    allowSensitiveFileReads: config.autonomy.allow_sensitive_file_reads,
    allowSensitiveFileWrites: config.autonomy.allow_sensitive_file_writes,
    config,
    services: pickServices(services, tool.needs),
  };
}

/** Logs an unexpected error of a tool. @returns the sentence for the model */
export function reportBug(
  runner: Pick<CallRunner, "log">,
  { tool, request, error }: { readonly tool: Tool; readonly request: ToolCallRequest; readonly error: unknown },
): string {
  logOf(runner, tool, request).error("A tool failed", { error });
  return `Cannot finish "${tool.name}": an internal error, which the log has under call id "${request.callId}"`;
}

/** Makes the result of a call that failed. */
export function failedResult(output: string): ToolResult {
  return { output, isError: true };
}

function logOf({ log }: Pick<CallRunner, "log">, tool: Tool, request: ToolCallRequest): Logger {
  return log.child({ run_id: request.runId, call_id: request.callId, tool: tool.name });
}

/** Services of an approved call: its files may be changed only from the versions that were approved. */
async function boundServices(services: ToolServices, { versions }: CallBinding): Promise<ToolServices> {
  const { bindFiles } = await import("./bind_call.ts");
  return { ...services, files: bindFiles(services.files, versions) };
}

function pickServices(services: ToolServices, needs: readonly ServiceName[]): ToolContext["services"] {
  const picked = Object.fromEntries(needs.map((name) => [name, services[name]]));
  // A tool sees only what it needs; defineTool gives it the matching type
  return picked as unknown as ToolServices;
}
