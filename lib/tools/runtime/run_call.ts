import { CancelError, cancelError } from "../../base/cancel.ts";
import type { Clock, Timer } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { firstBytes } from "../../base/text.ts";
import type { KnownSecrets } from "../../base/redact.ts";
import { joinTaints, UNTAINTED } from "../../base/taint.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Config } from "../../config/config.ts";
import { type Halts, type HaltSubject, RULE_HALTED } from "../../guard/halts.ts";
import { isUnreadable } from "../../storage/read_records.ts";
import { CallAsker } from "./call_asker.ts";
import { isPathRefusal, isPlainRead, RULE_SCREEN } from "./look_ahead.ts";
import type { SharedCalls } from "./shared_calls.ts";
import { INSUFFICIENT_SCOPE } from "./owned_things.ts";
import type { PreparedCall, ScreenContext, ServiceName, Tool, ToolContext, ToolServices } from "./tool.ts";
import type { CallBinding, ToolResult } from "./tool_call.ts";
import { TimeLimit } from "./time_limit.ts";
import { type WitnessedFiles, witnessFiles } from "./witness_files.ts";
import type { Ended, ToolCallRequest } from "./tool_executor.ts";

const DEFAULT_TIMEOUT_MS = 120_000;
/** Code of the ToolError of a call that was cut off: nobody knows whether it took effect. */
const OUTCOME_UNKNOWN = "outcome_unknown";

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
  /** Present where gateways share the database. Default: the gateway is alone */
  readonly shared?: SharedCalls | undefined;
  /** Work that a person has halted. Default: nobody halts any */
  readonly halts?: Pick<Halts, "refusalOf" | "watch" | "isUncertain" | "look"> | undefined;
}

/**
 * Runs a permitted call under its signal and its time limit.
 * @param binding state that was approved; undefined without an approval
 * @param seen is told of the files that instruct agents, as the call was given them
 */
export async function runCall(
  runner: CallRunner,
  { tool, prepared, binding, seen }: {
    readonly tool: Tool;
    readonly prepared: PreparedCall;
    readonly binding: CallBinding | undefined;
    readonly seen: WitnessedFiles;
  },
  request: ToolCallRequest,
): Promise<Ended> {
  const bound = binding === undefined ? runner.services : await boundServices(runner.services, binding);
  const { onWritten } = request;
  const written: typeof onWritten = onWritten && ((file) => onWritten({ ...file, path: runner.redact(file.path) }));
  const services = { ...bound, files: witnessFiles(bound.files, seen, written) };
  const config = runner.config();
  const timeoutMs = tool.timeoutMs?.(config) ?? runner.timeoutMs ?? DEFAULT_TIMEOUT_MS;
  let questions: CallAsker | undefined;
  let isOver = false;
  const work = (signal: AbortSignal, limit: TimeLimit) => {
    const { client, approver: { elicit }, model } = request;
    // Made with the first question, since most calls ask nothing. Nobody is asked for a call that has ended
    const asker = () => {
      questions ??= new CallAsker(runner, { tool, prepared, request, limit, signal });
      if (isOver) questions.end();
      return questions;
    };
    return prepared.run({
      ...surroundings(runner, tool, { services, config }),
      ...toCallContext(runner, request),
      ...client?.asks === undefined
        ? { elicit: elicit && ((...question) => asker().elicit(...question)), client: undefined, sample: model?.sample }
        : asker().parts(client.asks),
      signal,
      // Made for those that write to it
      get log() {
        return logOf(runner, tool, request);
      },
    });
  };
  const subject: HaltSubject = { tool: tool.name, access: prepared.access, runId: request.scope.runId };
  const halted = runner.halts?.refusalOf(subject);
  if (halted !== undefined) {
    return { outcome: "denied", rule: RULE_HALTED, result: failedResult(haltedCall(tool.name, halted)) };
  }
  const { clock, halts } = runner;
  const watch = (stop: (error: CancelError) => void) => halts?.watch(subject, stop);
  const ending = await runBounded(work, { clock, timeoutMs, signal: request.scope.signal, watch });
  isOver = true;
  questions?.end();
  const ended = toEnded(ending, { runner, tool, prepared, request, timeoutMs });
  if ("error" in ended || questions === undefined || questions.taint.length === 0) return ended;
  // A tool that failed may quote an answer
  return { ...ended, result: { ...ended.result, taint: joinTaints(ended.result.taint, questions.taint) } };
}

/** Call that has run, for its end. */
interface RanCall {
  readonly runner: CallRunner;
  readonly tool: Tool;
  readonly prepared: PreparedCall;
  readonly request: ToolCallRequest;
  readonly timeoutMs: number;
}

function toEnded(ending: Ending<ToolResult>, { runner, tool, prepared, request, timeoutMs }: RanCall): Ended {
  switch (ending.kind) {
    case "done":
      return { outcome: ending.value.isError ? "error" : "ok", result: ending.value };
    case "stopped":
      if (request.scope.signal.aborted) return { outcome: "cancelled", error: cancelError(request.scope.signal) };
      if (ending.error.reason === "halted") {
        return { outcome: "cancelled", result: failedResult(`Cannot finish "${tool.name}": ${ending.error.message}`) };
      }
      return {
        outcome: "timeout",
        result: failedResult(`Cannot finish "${tool.name}": it was stopped after ${timeoutMs / 1000} s`),
      };
    case "failed": {
      const away = runner.shared?.awayBehind(ending.error);
      if (away !== undefined) return { outcome: "error", result: failedResult(awayMeanwhile(tool.name)), away };
      if (ending.error instanceof ToolError && ending.error.code === INSUFFICIENT_SCOPE) {
        return { outcome: "denied", result: failedResult(ending.error.message) };
      }
      if (isPathRefusal(ending.error) && isPlainRead(prepared)) {
        return { outcome: "denied", rule: RULE_SCREEN, result: failedResult(ending.error.message) };
      }
      if (ending.error instanceof ToolError || isUnreadable(ending.error)) {
        const isUnknown = ending.error instanceof ToolError && ending.error.code === OUTCOME_UNKNOWN;
        return { outcome: "error", result: failedResult(ending.error.message), isUnknown };
      }
      return { outcome: "failed", result: failedResult(reportBug(runner, { tool, request, error: ending.error })) };
    }
  }
}

/** Returns the context of a call beside its signal and its surroundings. */
function toCallContext(
  runner: CallRunner,
  request: ToolCallRequest,
): Omit<ToolContext, keyof ScreenContext | "signal" | "log" | "elicit" | "client" | "sample"> {
  const { scope, model, client } = request;
  const onTold = client?.onTold;
  // A tool does not see what the doors and the executor alone need
  return {
    runId: scope.runId,
    callId: request.callId,
    requestId: scope.requestId,
    conversationId: scope.conversationId,
    caller: scope.caller,
    allowed: request.allowed,
    depth: scope.depth,
    taint: scope.taint?.origins ?? UNTAINTED,
    links: scope.taint?.links,
    inherited: request.inherited,
    direct: scope.direct ?? false,
    sees: model?.sees ?? false,
    clock: runner.clock,
    progress: (message) => request.onProgress?.(runner.redact(message)),
    tell: onTold === undefined ? undefined : (level, message) => onTold(level, runner.redact(message)),
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

/** Says to the model that nobody knows what a call has done. */
function awayMeanwhile(tool: string): string {
  return `Cannot finish "${tool}": the database of the gateways went down while the call was at work, so nobody knows ` +
    "whether it took effect (storage_unavailable); look before you make it again";
}

/** Says to the model that a call does not begin, since a person has halted it. @param reason the end of a sentence */
export function haltedCall(tool: string, reason: string): string {
  return `Cannot call "${tool}": ${reason}`;
}

/** Makes the result of a call that failed. */
export function failedResult(output: string): ToolResult {
  return { output, isError: true };
}

function logOf({ log }: Pick<CallRunner, "log">, tool: Tool, request: ToolCallRequest): Logger {
  return log.child({ run_id: request.scope.runId, call_id: request.callId, tool: tool.name });
}

/** Services of an approved call: its files may be changed only from the versions that were approved. */
async function boundServices(services: ToolServices, { versions }: CallBinding): Promise<ToolServices> {
  const { bindFiles } = await import("./bind_call.ts");
  return { ...services, files: bindFiles(services.files, versions) };
}

/** Returns the services that a tool needs. */
export function pickServices(services: ToolServices, needs: readonly ServiceName[]): ToolContext["services"] {
  const picked = Object.fromEntries(needs.map((name) => [name, services[name]]));
  // A tool sees only what it needs; defineTool gives it the matching type
  return picked as unknown as ToolServices;
}

/** Milliseconds that work gets to end after its signal has aborted; then nobody waits for it any more */
const STOP_GRACE_MS = 2000;

/** Ending of the work. `stopped`: its signal aborted first, by the caller or by the time limit. */
export type Ending<T> =
  | { readonly kind: "done"; readonly value: T }
  | { readonly kind: "failed"; readonly error: unknown }
  | { readonly kind: "stopped"; readonly error: CancelError };

/**
 * Runs work under the caller's signal and a time limit.
 *
 * Work that ignores its signal is given up 2 s after the signal aborted, so that nothing hangs. Its later result is dropped.
 */
export async function runBounded<T>(
  work: (signal: AbortSignal, limit: TimeLimit) => Promise<T>,
  options: {
    readonly clock: Clock;
    readonly timeoutMs: number;
    readonly signal: AbortSignal;
    /** Is given a function that stops the work. @returns a function that ends this. Default: nobody else stops it */
    readonly watch?: (stop: (error: CancelError) => void) => (() => void) | undefined;
  },
): Promise<Ending<T>> {
  const { clock, timeoutMs, signal } = options;
  if (signal.aborted) return { kind: "stopped", error: cancelError(signal) };
  const controller = new AbortController();
  const abort = () => controller.abort(cancelError(signal));
  signal.addEventListener("abort", abort, { once: true });
  const limit = new TimeLimit({ clock, ms: timeoutMs, onOver: () => controller.abort(new CancelError("timeout")) });
  const stopped = Promise.withResolvers<Ending<never>>();
  let grace: Timer | undefined;
  controller.signal.addEventListener("abort", () => {
    const ending = { kind: "stopped", error: cancelError(controller.signal) } as const;
    grace = clock.after(STOP_GRACE_MS, () => stopped.resolve(ending));
  }, { once: true });
  const unwatch = options.watch?.((error) => controller.abort(error));
  try {
    const working = work(controller.signal, limit).then(
      (value): Ending<T> => ({ kind: "done", value }),
      // An error after the signal aborted counts as the stop, except a ToolError, which has a message for the model
      (error: unknown): Ending<T> =>
        controller.signal.aborted && !(error instanceof ToolError)
          ? { kind: "stopped", error: cancelError(controller.signal) }
          : { kind: "failed", error },
    );
    return await Promise.race([working, stopped.promise]);
  } finally {
    signal.removeEventListener("abort", abort);
    unwatch?.();
    limit.clear();
    grace?.clear();
  }
}

/** Largest output of a tool, in bytes of UTF-8. */
export const MAX_OUTPUT_BYTES = 262_144;
/** Largest `data` of a tool as JSON, in UTF-16 units */
const MAX_DATA = 1_048_576;

/** Cuts output and data to their bounds, with a notice, and removes known secrets from both. */
export function boundResult(result: ToolResult, known: KnownSecrets): ToolResult {
  const size = Buffer.byteLength(result.output);
  const redacted = size > MAX_OUTPUT_BYTES ? beginning(result.output, known) : known.redact(result.output);
  const output = firstBytes(redacted, MAX_OUTPUT_BYTES);
  const notice = size > MAX_OUTPUT_BYTES || output !== redacted
    ? `\n[Output cut at ${MAX_OUTPUT_BYTES} of ${size} bytes: ask for less at a time]`
    : "";
  const data = boundData(result.data, known.redact);
  return { output: output + notice, isError: result.isError, ...(data === undefined ? {} : { data }) };
}

/** Returns the first bytes of a text without its secrets. A secret that the cut goes through is masked as a whole. */
function beginning(text: string, { part }: KnownSecrets): string {
  const to = Buffer.byteLength(firstBytes(text, MAX_OUTPUT_BYTES));
  const bytes = Buffer.from(firstBytes(text, to + part.reach()));
  return new TextDecoder().decode(part.redact(bytes, { from: 0, to }));
}

/** Returns JSON without its secrets; undefined for what is too long. */
export function boundData(data: unknown, redact: (text: string) => string): unknown {
  const json = JSON.stringify(data);
  if (json === undefined || json.length > MAX_DATA) return undefined;
  return JSON.parse(json, (_key, value: unknown) => (typeof value === "string" ? redact(value) : value));
}
