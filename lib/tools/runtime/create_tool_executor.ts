import { type CancelError, cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { redactJson } from "../../base/redact.ts";
import type { Config } from "../../config/config.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { DURATION_BUCKETS_SECONDS, type Metrics } from "../../base/telemetry/metrics.ts";
import type { AuditAppend } from "../../guard/audit/audit.ts";
import { RULE_ENABLED } from "../../guard/policy.ts";
import { isUnreadable } from "../../storage/read_records.ts";
import { auditCall } from "./audit_call.ts";
import type { CallBinding } from "./bind_call.ts";
import { boundResult, runBounded } from "./run_bounded.ts";
import { createPermit, type Refusal, type RememberedAnswers } from "./create_permit.ts";
import { createToolRegistry, matchesPatterns, type ToolRegistry } from "./registry.ts";
import type { PreparedCall, ScreenContext, ServiceName, Tool, ToolContext, ToolResult, ToolServices } from "./tool.ts";
import type { ToolCallOutcome, ToolCallRequest, ToolExecutor, ToolInfo } from "./tool_executor.ts";
import { createToolPolicy, type ToolPolicyOptions } from "./tool_policy.ts";

const DEFAULT_TIMEOUT_MS = 120_000;
/** Names of tools that are shown to a model after an unknown name */
const MAX_NAMES_SHOWN = 40;

/** Options of createToolExecutor. */
export interface ToolExecutorOptions extends ToolPolicyOptions, RememberedAnswers {
  readonly tools: readonly Tool[];
  /** Returns further tools, which come and go: the same array until they change. Default: none */
  readonly foreign?: (() => readonly Tool[]) | undefined;
  readonly services: ToolServices;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Metrics;
  readonly redact: (text: string) => string;
  /** Records each decision before the call runs, and the call's end */
  readonly audit: AuditAppend;
  /** Milliseconds that one call may take when its tool has no limit of its own. Default 120,000 */
  readonly timeoutMs?: number;
}

/** Outcome of a call, as the metric counts it. */
type Outcome = "ok" | "error" | "bad_input" | "unknown" | "disabled" | "denied" | "timeout" | "cancelled" | "failed";

/** Creates the tool executor of a gateway. @throws {TypeError} for two tools of one name */
export function createToolExecutor(options: ToolExecutorOptions): ToolExecutor {
  const registry = registryNow(options);
  const calls = options.metrics.counter("postern_tool_calls_total", "Tool calls by outcome", ["tool", "outcome"]);
  const durations = options.metrics.histogram("postern_tool_call_duration_seconds", "Time a tool ran", {
    buckets: DURATION_BUCKETS_SECONDS,
  });

  const policy = createToolPolicy(options);

  const toInfo = (tool: Tool): ToolInfo => {
    const whyOff = policy.whyOff(tool);
    return {
      name: tool.name,
      description: tool.description,
      access: tool.access,
      enabled: whyOff === undefined,
      reason: whyOff ?? null,
      source: tool.source,
      input_schema: tool.inputSchema,
    };
  };

  const logOf = (tool: Tool, request: ToolCallRequest) =>
    options.log.child({ run_id: request.runId, call_id: request.callId, tool: tool.name });
  const reportBug = (tool: Tool, request: ToolCallRequest, error: unknown) => {
    logOf(tool, request).error("A tool failed", { error });
    return `Cannot finish "${tool.name}": an internal error, which the log has under call id "${request.callId}"`;
  };

  const surroundings = (tool: Tool, services: ToolServices, config: Config): ScreenContext => ({
    workspaceRoot: options.workspaceRoot,
    allowSensitiveFileReads: config.autonomy.allow_sensitive_file_reads,
    allowSensitiveFileWrites: config.autonomy.allow_sensitive_file_writes,
    config,
    services: pickServices(services, tool.needs),
  });

  const bind = async (tool: Tool, prepared: PreparedCall, signal: AbortSignal): Promise<CallBinding> => {
    const { services, workspaceRoot } = options;
    const config = options.config();
    // Nobody is asked about a call that cannot run
    const context = surroundings(tool, services, config);
    const { bindCall } = await import("./bind_call.ts");
    await prepared.screen?.(context);
    return await bindCall(tool, prepared, { services, workspaceRoot, config, context, signal });
  };

  const permit = createPermit({ ...options, policy, bind, reportBug });

  const run = async (
    tool: Tool,
    { prepared, binding }: { readonly prepared: PreparedCall; readonly binding: CallBinding | undefined },
    request: ToolCallRequest,
  ): Promise<Ended> => {
    const services = binding === undefined ? options.services : await boundServices(options.services, binding);
    const config = options.config();
    const timeoutMs = tool.timeoutMs?.(config) ?? options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    const work = (signal: AbortSignal) =>
      prepared.run({
        ...surroundings(tool, services, config),
        runId: request.runId,
        callId: request.callId,
        requestId: request.requestId,
        conversationId: request.conversationId ?? null,
        caller: request.caller,
        allowed: request.allowed,
        depth: request.depth,
        inherited: request.inherited,
        direct: request.direct ?? false,
        signal,
        clock: options.clock,
        log: logOf(tool, request),
        progress: (message) => request.onProgress?.(options.redact(message)),
      });
    const ending = await runBounded(work, { clock: options.clock, timeoutMs, signal: request.signal });
    switch (ending.kind) {
      case "done":
        return { outcome: ending.value.isError ? "error" : "ok", result: ending.value };
      case "stopped":
        if (request.signal.aborted) return { outcome: "cancelled", error: cancelError(request.signal) };
        return {
          outcome: "timeout",
          result: failure(`Cannot finish "${tool.name}": it was stopped after ${timeoutMs / 1000} s`),
        };
      case "failed":
        if (ending.error instanceof ToolError || isUnreadable(ending.error)) {
          return { outcome: "error", result: failure(ending.error.message) };
        }
        return { outcome: "failed", result: failure(reportBug(tool, request, ending.error)) };
    }
  };

  const find = (request: ToolCallRequest): Tool | { readonly reason: string } => {
    const { name, allowed } = request;
    const tool = registry().get(name);
    if (tool !== undefined && (allowed === undefined || matchesPatterns(name, allowed))) return tool;
    const names = enabled(allowed ?? ["*"]).map((known) => known.name);
    const shown = names.slice(0, MAX_NAMES_SHOWN).join(", ") || "none";
    const reason = tool === undefined ? "there is no such tool" : "[agent] tools does not name it for this caller";
    return { reason: `Cannot call ${JSON.stringify(name.slice(0, 64))}: ${reason}; the tools are ${shown}` };
  };

  const enabled = (patterns: readonly string[]) =>
    registry().tools.filter((tool) => policy.isEnabled(tool) && matchesPatterns(tool.name, patterns));

  return {
    list: () => registry().tools.map(toInfo),
    get(name) {
      const tool = registry().get(name);
      return tool === undefined ? undefined : toInfo(tool);
    },
    enabled,
    accessOf(name, input) {
      try {
        return registry().get(name)?.prepare(input).access;
      } catch {
        return undefined;
      }
    },
    shown: (input) => redactJson(input, options.redact),
    explain(name, input) {
      const tool = registry().get(name);
      return tool === undefined ? undefined : policy.judge(tool, input);
    },
    async bind(name, input, signal) {
      const tool = registry().get(name);
      if (tool === undefined) {
        return { ok: false, reason: `Cannot call ${JSON.stringify(name)}: there is no such tool` };
      }
      const judged = policy.judge(tool, input);
      try {
        if (judged.kind === "bad_input") throw judged.error;
        const { prepared, decision } = judged;
        if (prepared === undefined || decision.kind === "deny") return { ok: false, reason: decision.reason };
        return { ok: true, binding: await bind(tool, prepared, signal), access: prepared.access };
      } catch (error) {
        if (error instanceof ToolError) return { ok: false, reason: error.message };
        throw error;
      }
    },
    async call(request) {
      if (request.signal.aborted) throw cancelError(request.signal);
      const tool = find(request);
      const label = registry().get(request.name)?.name ?? "unknown";
      const audit = auditCall({ audit: options.audit, log: options.log }, request);
      const refuse = async (
        outcome: Outcome,
        { reason, rule, approvalId }: Pick<Refusal, "reason" | "rule" | "approvalId">,
        prepared?: PreparedCall,
      ): Promise<ToolCallOutcome> => {
        calls.with(label, outcome).add();
        await audit.decided({ prepared, kind: "deny", rule, reason, approvalId });
        return {
          result: boundResult(failure(reason), options.redact),
          ran: false,
          access: outcome === "disabled" ? undefined : prepared?.access,
          ...(approvalId === undefined ? {} : { approvalId }),
        };
      };
      if ("reason" in tool) return await refuse("unknown", { rule: "unknown_tool", reason: tool.reason });
      const judged = policy.judge(tool, request.input);
      if (judged.kind === "bad_input") {
        const { error } = judged;
        return error instanceof ToolError
          ? await refuse("bad_input", { rule: "bad_input", reason: error.message })
          : await refuse("failed", { rule: "bad_input", reason: reportBug(tool, request, error) });
      }
      const { prepared, decision } = judged;
      if (prepared === undefined || decision.rule === RULE_ENABLED) return await refuse("disabled", decision, prepared);
      const permitted = await permit(tool, { prepared, decision }, { request, audit });
      if (!permitted.ok) return await refuse("denied", permitted, prepared);
      if (request.signal.aborted) throw cancelError(request.signal);
      const { rule, approvalId } = permitted;
      if (!await audit.decided({ prepared, kind: "allow", rule, reason: "", approvalId })) {
        return await refuse("failed", { rule: "audit", reason: unaudited(tool.name) }, prepared);
      }
      await request.onStart?.(prepared);
      const started = options.clock.monotonic();
      const ended = await run(tool, { prepared, binding: permitted.binding }, request);
      const durationMs = options.clock.monotonic() - started;
      durations.with().observe(durationMs / 1000);
      calls.with(label, ended.outcome).add();
      const result = "error" in ended ? undefined : boundResult(ended.result, options.redact);
      await audit.ended({ prepared, outcome: ended.outcome, durationMs, output: result?.output });
      if (result === undefined) throw cancelError(request.signal);
      const foreign = tool.source === "builtin" ? {} : { outside: true };
      return { result, ran: true, access: prepared.access, ...foreign };
    },
  };
}

/** Returns a function that gives the newest registry; the registry is made anew when the foreign tools change. */
function registryNow({ tools, foreign }: Pick<ToolExecutorOptions, "tools" | "foreign">): () => ToolRegistry {
  let registry = createToolRegistry(tools);
  if (foreign === undefined) return () => registry;
  let known: readonly Tool[] = [];
  return () => {
    const newest = foreign();
    if (newest === known) return registry;
    registry = createToolRegistry([...tools, ...newest]);
    known = newest;
    return registry;
  };
}

type Ended = { readonly outcome: Outcome; readonly result: ToolResult } | {
  readonly outcome: Outcome;
  readonly error: CancelError;
};

/** Services of an approved call: its files may be changed only from the versions that were approved. */
async function boundServices(services: ToolServices, { versions }: CallBinding): Promise<ToolServices> {
  const { bindFiles } = await import("./bind_call.ts");
  return { ...services, files: bindFiles(services.files, versions) };
}

function unaudited(tool: string): string {
  return `Cannot call "${tool}": the audit cannot be written, and nothing runs without it; see the gateway's log`;
}

function failure(output: string): ToolResult {
  return { output, isError: true };
}

function pickServices(services: ToolServices, needs: readonly ServiceName[]): ToolContext["services"] {
  const picked = Object.fromEntries(needs.map((name) => [name, services[name]]));
  // A tool sees only what it needs; defineTool gives it the matching type
  return picked as unknown as ToolServices;
}
