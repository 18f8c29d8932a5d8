import { CancelError, cancelError } from "../../base/cancel.ts";
import { ToolError } from "../../base/errors.ts";
import { canonicalDigest } from "../../base/json.ts";
import { withProgramName } from "../../base/program_name.ts";
import type { DeniedBy } from "../../base/records/approval.ts";
import { type KnownSecrets, redactJson } from "../../base/redact.ts";
import { type RunTaint, UNTAINTED } from "../../base/taint.ts";
import { cutText } from "../../base/text.ts";
import { type Counter, DURATION_BUCKETS_SECONDS, type Histogram, type Metrics } from "../../base/telemetry/metrics.ts";
import type { AuditAppend } from "../../guard/audit/audit_chain.ts";
import { hiddenByOthers } from "../../guard/approvals.ts";
import { RULE_HALTED } from "../../guard/halts.ts";
import { type Decision, RULE_ENABLED } from "../../guard/policy.ts";
import { auditCall, type CallAudit } from "./audit_call.ts";
import { CallTaint, type CallTaintOptions } from "./call_taint.ts";
import {
  changedSince,
  createPermit,
  maskBinding,
  type Permit,
  type PermitCall,
  type PermitOptions,
  type Refusal,
  type RememberedAnswers,
  RULE_BINDING,
} from "./create_permit.ts";
import { type CatalogueOptions, createCatalogue, matchesPatterns, type ToolCatalogue } from "./registry.ts";
import {
  boundResult,
  type CallRunner,
  failedResult,
  haltedCall,
  pickServices,
  reportBug,
  runCall,
  surroundings,
} from "./run_call.ts";
import { decidedLater, NotKnown, requireReached, RULE_SCREEN } from "./look_ahead.ts";
import type { PreparedCall, Tool, ToolServices } from "./tool.ts";
import type { CheckedPicture } from "./check_pictures.ts";
import type { CallBinding, ToolResult } from "./tool_call.ts";
import type { BoundCall, Ended, Outcome, ToolCallOutcome, ToolCallRequest, ToolExecutor } from "./tool_executor.ts";
import { judgeCall, resolveCall, type ResolvedCall } from "./resolve_call.ts";
import {
  createToolPolicy,
  type Judgement,
  prepareUnder,
  type ToolPolicy,
  type ToolPolicyOptions,
} from "./tool_policy.ts";
import type { WitnessedFiles } from "./witness_files.ts";

/** Options of createToolExecutor. */
export interface ToolExecutorOptions
  extends ToolPolicyOptions, RememberedAnswers, CatalogueOptions, CallTaintOptions, Omit<CallRunner, "services"> {
  /** Services of the tools, beside the catalogue, which the executor makes */
  readonly services: Omit<ToolServices, "catalogue">;
  readonly metrics: Metrics;
  /** Records each decision before the call runs, and the call's end */
  readonly audit: AuditAppend;
  /** Words that start the program where its reader is, for refusals. Default: `postern` */
  readonly programName?: string | undefined;
}

/** The parts of one executor that its steps work with. */
interface ExecutorParts {
  readonly options: Omit<ToolExecutorOptions, "services"> & CallRunner;
  readonly catalogue: ToolCatalogue;
  readonly policy: ToolPolicy;
  readonly permit: PermitCall;
  readonly screen: PermitOptions["screen"];
  readonly bind: Bind;
  readonly preview: PermitOptions["preview"];
  readonly taint: CallTaint;
  /** Calls by their tool and outcome */
  readonly calls: { with(tool: string, outcome: Outcome): Counter };
  readonly durations: Histogram;
}

type Bind = (tool: Tool, prepared: PreparedCall, signal: AbortSignal) => Promise<CallBinding>;

/** Creates the tool executor of a gateway. @throws {TypeError} for two tools of one name */
export function createToolExecutor(given: ToolExecutorOptions): ToolExecutor {
  const policy = createToolPolicy(given);
  const catalogue = createCatalogue(given, policy);
  const options = { ...given, services: { ...given.services, catalogue } };
  const calls = options.metrics.counter("postern_tool_calls_total", "Tool calls by outcome", ["tool", "outcome"]);
  const durations = options.metrics.histogram("postern_tool_call_duration_seconds", "Time a tool ran", {
    buckets: DURATION_BUCKETS_SECONDS,
  });

  const about = (tool: Tool) => surroundings(options, tool, { services: options.services, config: options.config() });
  const screen: PermitOptions["screen"] = (tool, prepared, opens) => requireReached(tool, prepared, { about, opens });
  const bind: Bind = async (tool, prepared, signal) => {
    const { services, workspaceRoot } = options;
    const hidden = hiddenByOthers(services.redactor.masked(prepared.input));
    if (hidden !== undefined) {
      throw new ToolError("input_hidden", `Cannot call "${tool.name}" with an approval: ${hidden}`);
    }
    const context = about(tool);
    const { bindCall } = await import("./bind_call.ts");
    await prepared.screen?.(context);
    return await bindCall(tool, prepared, { services, workspaceRoot, config: context.config, context, signal });
  };
  const preview: PermitOptions["preview"] = async (tool, prepared, { binding, signal }) => {
    const { previewChanges } = await import("./preview_changes.ts");
    return await previewChanges(tool, prepared, { binding, signal, context: about(tool), redact: options.redact });
  };
  const parts: ExecutorParts = {
    options,
    catalogue,
    policy,
    screen,
    bind,
    preview,
    permit: createPermit({
      ...options,
      policy,
      screen,
      bind,
      preview,
      masked: options.services.redactor.masked,
      reportBug: (tool, request, error) => reportBug(options, { tool, request, error }),
    }),
    taint: new CallTaint(options),
    calls,
    durations: durations.with(),
  };
  return {
    list: catalogue.list,
    get: catalogue.get,
    enabled: catalogue.enabled,
    accessOf(name, input) {
      try {
        const found = resolveCall({ name, input }, catalogue);
        return "reason" in found ? undefined : prepareUnder(found.tool, found.input, options.config()).access;
      } catch {
        return undefined;
      }
    },
    shown: (input) => redactJson(input, options.redact),
    masked: options.services.redactor.masked,
    judge: (name, input) => catalogue.find(name) && judgeByName({ name, input }, parts).judged,
    async explain(name, input, { run, signal }) {
      if (catalogue.find(name) === undefined) return undefined;
      const { tool, judged } = judgeByName({ name, input }, parts, run);
      return tool === undefined || judged.kind !== "judged"
        ? judged
        : await lookAhead(tool, { judged, run, signal }, parts);
    },
    bind: (name, input, signal) => bindByName({ name, input }, parts, signal),
    call: (request) => call(request, parts),
  };
}

/** Returns the input as the call names it, for the events of its run. */
function namedInput({ tool, input }: NonNullable<ResolvedCall["by"]>): unknown {
  return tool.prepare(input).input;
}

/** @param run what the run has read. Default: no run makes the call */
function judgeByName(
  call: { readonly name: string; readonly input: string },
  { catalogue, policy }: Pick<ExecutorParts, "catalogue" | "policy">,
  run?: RunTaint,
): { readonly tool?: Tool; readonly judged: Judgement } {
  const found = resolveCall(call, catalogue);
  return "reason" in found
    ? { judged: { kind: "bad_input", error: new ToolError("unknown_tool", found.reason) } }
    : { tool: found.tool, judged: judgeCall(found, policy, run) };
}

/** Takes the steps of a call that come before its approval and its run, and have no effect. */
async function lookAhead(
  tool: Tool,
  { judged: first, run, signal }: {
    readonly judged: Extract<Judgement, { kind: "judged" }>;
    readonly run: RunTaint | undefined;
    readonly signal: AbortSignal;
  },
  { policy, screen, bind, options: { halts } }: ExecutorParts,
): Promise<Judgement> {
  const { prepared } = first;
  if (prepared === undefined || first.decision.kind === "deny") return first;
  // Nobody knows by which run the call would be made
  const halted = halts?.refusalOf({ tool: tool.name, access: prepared.access, runId: "" });
  if (halted !== undefined) {
    const error = new ToolError(RULE_HALTED, haltedCall(tool.name, halted));
    return { ...first, decision: refusedBy(RULE_HALTED, error, first.decision) };
  }
  const decision = await policy.decideAtPlaces(tool, { prepared, decision: first.decision }, run);
  const judged = { ...first, decision };
  if (decision.kind === "deny") return judged;
  let rule = RULE_SCREEN;
  try {
    await screen(tool, prepared, true);
    rule = RULE_BINDING;
    if (decision.kind === "ask") await bind(tool, prepared, signal);
  } catch (error) {
    if (error instanceof NotKnown) return { ...judged, unknown: error.message };
    if (error instanceof ToolError) return { ...judged, decision: refusedBy(rule, error, decision) };
    throw error;
  }
  const unknown = decision.kind === "allow" ? decidedLater(tool) : undefined;
  return unknown === undefined ? judged : { ...judged, unknown };
}

function refusedBy(rule: string, { message }: ToolError, { path }: Decision): Decision {
  return { kind: "deny", reason: message, rule, path: [...path, { rule, says: "deny" }], change: [] };
}

async function bindByName(
  call: { readonly name: string; readonly input: string },
  parts: ExecutorParts,
  signal: AbortSignal,
): Promise<BoundCall> {
  const { tool, judged } = judgeByName(call, parts);
  try {
    if (judged.kind === "bad_input") throw judged.error;
    const { prepared, decision } = judged;
    if (tool === undefined || prepared === undefined || decision.kind === "deny") {
      return { ok: false, reason: decision.reason };
    }
    const binding = await parts.bind(tool, prepared, signal);
    const preview = () => parts.preview(tool, prepared, { binding, signal });
    const { access, digest: inputDigest } = prepared;
    return { ok: true, binding: maskBinding(binding, parts.options.redact), access, inputDigest, preview };
  } catch (error) {
    if (error instanceof ToolError) return { ok: false, reason: error.message };
    throw error;
  }
}

/** Call that is being made, with the name that the metric counts it under. */
interface CallUnderWay {
  readonly request: ToolCallRequest;
  readonly audit: CallAudit;
  readonly label: string;
}

/** @param edited approval whose answer brought the input. Default: the input is that of the request */
async function call(
  given: ToolCallRequest,
  parts: ExecutorParts,
  edited?: { readonly approvalId: string | undefined },
): Promise<ToolCallOutcome> {
  const { options, catalogue, policy } = parts;
  if (given.scope.signal.aborted) throw cancelError(given.scope.signal);
  const look = <T>(work: () => Promise<T>) => options.shared?.before(given.scope, work) ?? work();
  const named = resolveCall(given, catalogue);
  const found = "reason" in named || named.tool.fill === undefined
    ? named
    : await look(() => fillCall(named, given, options));
  const request = "reason" in found ? given : { ...given, name: found.name, input: found.input };
  // A tool that stands for another has decided about its own input, and takes no other
  const mayBeEdited = "by" in found && found.by === undefined;
  const audit = auditCall(options, request);
  const underWay: CallUnderWay = { request, audit, label: catalogue.find(request.name)?.name ?? "unknown" };
  const refuseWith = (outcome: Outcome, refusal: CallRefusal, prepared?: PreparedCall) =>
    refuse(underWay, { outcome, refusal, prepared }, parts);
  if ("reason" in found) return await refuseWith("unknown", { rule: "unknown_tool", reason: found.reason });
  const { tool } = found;
  const first = judgeCall(found, policy, request.scope.taint);
  // Files that a command runs or copies taint the run: that counts for the decision about the command itself
  const undecided = first.kind === "judged" && first.decision.kind !== "deny" ? first.prepared : undefined;
  const ahead = request.scope.taint === undefined || undecided === undefined
    ? UNTAINTED
    : await look(() => parts.taint.ahead({ tool, prepared: undecided }));
  const judged = ahead.length === 0 ? first : judgeCall(found, policy, request.scope.taint?.with(ahead));
  if (judged.kind === "bad_input") {
    const { error } = judged;
    return error instanceof ToolError
      ? await refuseWith("bad_input", { rule: "bad_input", reason: error.message })
      : await refuseWith("failed", { rule: "bad_input", reason: reportBug(options, { tool, request, error }) });
  }
  const { prepared } = judged;
  if (prepared === undefined || judged.decision.rule === RULE_ENABLED) {
    return await refuseWith("disabled", judged.decision, prepared);
  }
  // Nobody is asked about a call that is halted
  const { halts } = options;
  if (halts?.isUncertain === true) await look(() => halts.look());
  const halted = halts?.refusalOf({ tool: tool.name, access: prepared.access, runId: request.scope.runId });
  if (halted !== undefined) {
    return await refuseWith("denied", { rule: RULE_HALTED, reason: haltedCall(tool.name, halted) }, prepared);
  }
  const seen = ahead.length === 0 ? request.scope.taint : request.scope.taint?.with(ahead);
  const decision = await policy.decideAtPlaces(tool, { prepared, decision: judged.decision }, seen);
  const permitted = await parts.permit(tool, { prepared, decision }, { request, audit, mayBeEdited });
  if (permitted.ok === "edited") return await callEdited(found, { given, permitted }, parts);
  if (!permitted.ok) return await refuseWith("denied", permitted, prepared);
  if (request.scope.signal.aborted) throw cancelError(request.scope.signal);
  // The policy may allow by itself what a person put in the place of a call
  const { rule, approvalId = edited?.approvalId } = permitted;
  if (!await audit.decided({ prepared, kind: "allow", rule, reason: "", approvalId })) {
    return await refuseWith("failed", { rule: "audit", reason: unaudited(tool.name) }, prepared);
  }
  const read = await look(() => parts.taint.before({ tool, prepared, request }));
  // A file was marked, or exchanged for a marked one, since the decision. An approval is bound to the files themselves
  if (permitted.binding === undefined && read.some((origin) => !ahead.includes(origin))) {
    const tainted = request.scope.taint?.with(read);
    const decided = policy.decide(tool, prepared, tainted);
    const again = await policy.decideAtPlaces(tool, { prepared, decision: decided }, tainted);
    if (again.kind !== "allow") return await refuseWith("denied", again, prepared);
  }
  await request.onStart?.(found.by === undefined ? prepared : { ...prepared, input: namedInput(found.by) });
  return await runPermitted({ tool, prepared, permitted }, underWay, parts);
}

/**
 * Makes the call that a person put in the place of one: all steps are taken again, and it runs in the approved state alone. The model is told
 * what was made of its call.
 */
async function callEdited(
  { tool }: ResolvedCall,
  { given, permitted }: { readonly given: ToolCallRequest; readonly permitted: Extract<Permit, { ok: "edited" }> },
  parts: ExecutorParts,
): Promise<ToolCallOutcome> {
  const { edited: { input, digest }, approvalId } = permitted;
  const answer = { decision: "approve", reason: "Approved with another input", ...pickId(approvalId) } as const;
  const approver = Object.assign(() => Promise.resolve(answer), { elicit: given.approver.elicit });
  const text = JSON.stringify(input);
  const edited = { ...given, name: tool.name, input: text, approvedDigest: digest, approver };
  const outcome = await call(edited, parts, { approvalId });
  const { redactor } = parts.options.services;
  const shown = cutText(text, { limit: MAX_EDIT_TOLD, digest: canonicalDigest(input) });
  const told = `[A person changed this call before approving it. Its input in place of yours: ${shown}]`;
  const { result, whole } = outcome;
  return {
    ...outcome,
    result: { ...result, ...boundResult({ ...result, output: `${told}\n${result.output}` }, redactor) },
    ...(whole === undefined ? {} : { whole: { ...whole, content: [{ type: "text", text: told }, ...whole.content] } }),
  };
}

/** Characters of the input of a person that the model is told. */
const MAX_EDIT_TOLD = 20_000;

function pickId(approvalId: string | undefined): { readonly approvalId?: string } {
  return approvalId === undefined ? {} : { approvalId };
}

/** Returns a call with the input that its tool fills in. */
async function fillCall(
  found: ResolvedCall,
  { scope: { conversationId } }: ToolCallRequest,
  { config, services }: CallRunner,
): Promise<ResolvedCall> {
  const { tool: { fill, needs }, input } = found;
  const context = { conversationId, config: config(), services: pickServices(services, needs) };
  return { ...found, input: await fill?.(input, context) ?? input };
}

type CallRefusal = Pick<Refusal, "reason" | "rule" | "approvalId" | "by">;

/** Returns who denied a call, by the rule of its refusal. Undefined where it failed before anybody could. */
function deniedBy({ rule, by = "person" }: CallRefusal): DeniedBy | undefined {
  if (rule === "approval") return by;
  if (rule === RULE_HALTED) return "halt";
  if (rule.startsWith("remembered:")) return "rule";
  if (["nobody_could_answer", "approval_expired", "approval_waits"].includes(rule)) return "nobody";
  return ["approval_failed", "audit", RULE_BINDING, RULE_SCREEN].includes(rule) ? undefined : "policy";
}

/** Counts and records a call that does not run. */
async function refuse(
  { request, audit, label }: CallUnderWay,
  { outcome, refusal, prepared }: {
    readonly outcome: Outcome;
    readonly refusal: CallRefusal;
    readonly prepared: PreparedCall | undefined;
  },
  { options, catalogue, calls }: ExecutorParts,
): Promise<ToolCallOutcome> {
  const { reason, rule, approvalId } = refusal;
  const { name, scope: { taint } } = request;
  // Outside content may have told the model to call the tool, for a person to turn it on
  const isOffered = taint?.isTainted !== true && matchesPatterns(name, options.config().agent.tools);
  const turnOn = isOffered ? catalogue.get(name)?.turn_on ?? undefined : undefined;
  calls.with(label, outcome).add();
  await audit.decided({ prepared, kind: "deny", rule, reason, approvalId });
  return {
    result: boundResult(
      failedResult(withProgramName(reason, options.programName ?? "postern")),
      options.services.redactor,
    ),
    ran: false,
    access: outcome === "disabled" ? undefined : prepared?.access,
    ...(outcome === "denied" ? { deniedBy: deniedBy(refusal) } : {}),
    ...(approvalId === undefined ? {} : { approvalId }),
    ...(turnOn === undefined ? {} : { turnOn }),
  };
}

/** Runs a permitted call, and counts and records its end. */
async function runPermitted(
  { tool, prepared, permitted }: {
    readonly tool: Tool;
    readonly prepared: PreparedCall;
    readonly permitted: Extract<Permit, { ok: true }>;
  },
  { request, audit, label }: CallUnderWay,
  parts: ExecutorParts,
): Promise<ToolCallOutcome> {
  const { options, calls, durations } = parts;
  const started = options.clock.monotonic();
  const { binding } = permitted;
  const seen: WitnessedFiles = new Map();
  const work = async () =>
    (binding && await changeOf({ tool, prepared, binding }, request, parts)) ??
      await runCall(options, { tool, prepared, binding, seen }, request);
  const ended = await (options.shared?.effect(request.scope, { tool, prepared }, work) ?? work());
  const durationMs = options.clock.monotonic() - started;
  durations.observe(durationMs / 1000);
  calls.with(label, ended.outcome).add();
  if ("error" in ended) {
    await audit.ended({ prepared, outcome: ended.outcome, durationMs, output: undefined, pictures: [] });
    throw request.scope.signal.aborted ? cancelError(request.scope.signal) : ended.error;
  }
  const given = ended.result;
  const { redactor } = options.services;
  const bounded = boundResult(given, redactor);
  const { pictures: shown = [] } = given;
  const { result, pictures } = shown.length === 0
    ? { result: bounded, pictures: [] }
    : await withPictures(bounded, shown, redactor);
  if (ended.outcome === "denied") {
    const { approvalId } = permitted;
    await audit.decided({ prepared, kind: "deny", rule: ended.rule ?? "owner", reason: result.output, approvalId });
  }
  await audit.ended({ prepared, outcome: ended.outcome, durationMs, output: result.output, pictures });
  const called = { tool, prepared, request, seen };
  const look = () => parts.taint.after(called, given);
  const taint = await (options.shared?.after(request, look, () => parts.taint.unknown(called, given)) ?? look());
  const whole = request.client !== undefined && given.whole !== undefined
    ? await (await import("./check_whole.ts")).checkWhole(given.whole, redactor)
    : undefined;
  const skill = tool.source === "builtin" ? given.skill : undefined;
  return {
    result,
    ran: true,
    access: prepared.access,
    ...(ended.isUnknown === true ? { isUnknown: true } : {}),
    ...taint.length === 0 ? {} : { taint },
    ...skill === undefined ? {} : { skill },
    ...pictures.length === 0 ? {} : { pictures },
    ...whole === undefined ? {} : { whole },
  };
}

/**
 * Looks at the approved state right before the call runs: audit and journal were written meanwhile, and whoever watches them may have
 * exchanged a file.
 * @returns the end of a call that must not run. Undefined: it runs
 */
async function changeOf(
  { tool, prepared, binding }: {
    readonly tool: Tool;
    readonly prepared: PreparedCall;
    readonly binding: CallBinding;
  },
  { scope: { signal } }: ToolCallRequest,
  { bind }: ExecutorParts,
): Promise<Ended | undefined> {
  try {
    if ((await bind(tool, prepared, signal)).digest === binding.digest) return undefined;
  } catch (error) {
    if (error instanceof CancelError) return { outcome: "cancelled", error };
    if (!(error instanceof ToolError)) throw error;
  }
  return { outcome: "denied", rule: RULE_BINDING, result: failedResult(changedSince(tool.name)) };
}

/** Adds the pictures of a result that are within the bounds, and a line for each that is not. */
async function withPictures(
  bounded: ToolResult,
  given: NonNullable<ToolResult["pictures"]>,
  known: KnownSecrets,
): Promise<{ readonly result: ToolResult; readonly pictures: readonly CheckedPicture[] }> {
  const { checkPictures } = await import("./check_pictures.ts");
  const { pictures, notes } = await checkPictures(given, known);
  return { result: { ...bounded, output: [bounded.output, ...notes].join("\n") }, pictures };
}

function unaudited(tool: string): string {
  return `Cannot call "${tool}": the audit cannot be written, and nothing runs without it; see the gateway's log`;
}
