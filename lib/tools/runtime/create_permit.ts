import { CancelError, cancelError } from "../../base/cancel.ts";
import { ToolError } from "../../base/errors.ts";
import { canonicalDigest } from "../../base/json.ts";
import type { CommandLineParts, ShellPart } from "../../base/parse_command_line.ts";
import type { ApprovalRule } from "../../base/records/approval.ts";
import { redactJson, type Redactor } from "../../base/redact.ts";
import type { Approvals } from "../../guard/approvals.ts";
import { asksAlways, type Decision, type Effects } from "../../guard/policy.ts";
import type { RuleSubject } from "../../guard/rule_match.ts";
import { UNKNOWN_WORD } from "../../guard/rules.ts";
import { isFreeBeside } from "../../guard/understood_commands.ts";
import { isStorageAway } from "../../storage/read_records.ts";
import type { CallAudit } from "./audit_call.ts";
import { isPlainRead, RULE_SCREEN } from "./look_ahead.ts";
import type { SharedCalls } from "./shared_calls.ts";
import type { PreparedCall, Tool } from "./tool.ts";
import type { ApprovalAnswer, ApprovalRequest, ApprovedEdit, CallBinding, CallPreview } from "./tool_call.ts";
import type { ToolCallRequest } from "./tool_executor.ts";
import { opOf, type ToolPolicy } from "./tool_policy.ts";

/** The source of remembered answers. */
export interface RememberedAnswers {
  /** Finds an answer that was remembered for good or for a run. Default: finds none */
  readonly remembered?: (
    ...call: Parameters<Approvals["remembered"]>
  ) => Promise<Pick<ApprovalRule, "id" | "decision"> | undefined>;
}

/** Options of createPermit. */
export interface PermitOptions extends RememberedAnswers {
  readonly workspaceRoot: string;
  readonly redact: (text: string) => string;
  readonly masked: Redactor["masked"];
  readonly policy: Pick<ToolPolicy, "decide" | "decideAtPlaces" | "placesOf">;
  /** Refuses a call that nobody can allow. @param opens false: its files are left to the call @throws {ToolError} */
  readonly screen: (tool: Tool, prepared: PreparedCall, opens: boolean) => Promise<void>;
  /** Reads the state that an approval of the call would count for now. @throws {ToolError} for a call that cannot run */
  readonly bind: (tool: Tool, prepared: PreparedCall, signal: AbortSignal) => Promise<CallBinding>;
  /** Looks what a call would do to files, for the person who is asked */
  readonly preview: (
    tool: Tool,
    prepared: PreparedCall,
    about: { readonly binding: CallBinding; readonly signal: AbortSignal },
  ) => Promise<CallPreview>;
  /** Present where gateways share the database. Default: the gateway is alone */
  readonly shared?: SharedCalls | undefined;
  /** Logs an unexpected error. @returns the sentence for the model */
  readonly reportBug: (tool: Tool, request: ToolCallRequest, error: unknown) => string;
}

interface Word {
  /** Rule that decided, for the audit: the policy's, `approval`, a DenialRule, `remembered:<id>` or `binding` */
  readonly rule: string;
  readonly approvalId?: string;
}

/** Rule of a call whose state cannot be looked at, or is not the approved one. */
export const RULE_BINDING = "binding";

/** Result for a call that must not run; `reason` is for the model. */
export interface Refusal extends Word {
  readonly ok: false;
  readonly reason: string;
  /** With the rule `approval`: who denied. Default: a person */
  readonly by?: "person" | "program" | undefined;
}

/** Result for a call that may run, or its refusal. `binding` is undefined when no person approved it. */
export type Permit =
  | Word & { readonly ok: true; readonly binding: CallBinding | undefined }
  /** A person wants another call in its place */
  | Word & { readonly ok: "edited"; readonly edited: ApprovedEdit }
  | Refusal;

/**
 * Tells whether a call may run, and the state that its approval is bound to. The policy is asked again after the approval, and a deny
 * counts both times.
 * @throws {CancelError} when the request's signal aborts
 */
export type PermitCall = (
  tool: Tool,
  judged: { readonly prepared: PreparedCall; readonly decision: Decision },
  call: {
    readonly request: ToolCallRequest;
    readonly audit: CallAudit;
    /** False: an answer brings no other input */
    readonly mayBeEdited: boolean;
  },
) => Promise<Permit>;

/** Answer with the rule it comes from: the approver's, or `remembered:<id>`. */
type Answer = Pick<ApprovalAnswer, "decision" | "reason" | "approvalId"> & {
  readonly rule: string;
  readonly edited?: ApprovedEdit | undefined;
  readonly by?: "person" | "program";
};

/**
 * Creates the function that gets an approval where the policy says `ask`: from a remembered answer, else from the request's approver. A call
 * that was approved beforehand runs in the approved state alone.
 */
export function createPermit(options: PermitOptions): PermitCall {
  return async (tool, { prepared, decision }, { request, audit, mayBeEdited }) => {
    const { kind, reason, rule } = decision;
    if (kind === "deny") return { ok: false, rule, reason };
    let step = RULE_SCREEN;
    try {
      // Nobody is asked about a call that cannot run, and none is recorded as begun
      // A file is opened once where that refuses a read in the same words
      await options.screen(tool, prepared, kind !== "allow" || !isPlainRead(prepared));
      step = RULE_BINDING;
      const denial = kind === "allow" ? await denialBefore(tool, { prepared, request }, options) : undefined;
      if (denial !== undefined) return denial;
      if (kind === "allow" && request.approvedDigest === undefined) return { ok: true, rule, binding: undefined };
      if (kind === "ask") await audit.decided({ prepared, kind, rule, reason });
      return await permitAsked({ tool, prepared, decision, request, mayBeEdited }, options);
    } catch (error) {
      if (error instanceof CancelError || isDown(error, options)) throw error;
      const why = error instanceof ToolError ? error.message : options.reportBug(tool, request, error);
      return { ok: false, rule: step, reason: why };
    }
  };
}

/**
 * Returns the refusal of a call that the policy allows and a person denied for good. Only what the level asks about is ever remembered.
 * undefined: nobody did
 */
async function denialBefore(
  tool: Tool,
  { prepared, request }: { readonly prepared: PreparedCall; readonly request: ToolCallRequest },
  options: PermitOptions,
): Promise<Refusal | undefined> {
  const { access, effects } = prepared;
  if (options.remembered === undefined || access === "read" || access === "state") return undefined;
  const { workspaceRoot: workspace } = options;
  // Nothing is kept of a look, so that no secret among the words hides them
  const redact = (text: string) => text;
  const paths = access === "write" && effects.command === undefined ? await options.policy.placesOf(effects) : [];
  const subject = subjectOf(tool.name, prepared, { folder: undefined, paths, workspace, redact });
  const look = () =>
    Promise.all(partsOf({ subject, prepared }).map((part) => options.remembered?.(part, request.scope.runId)));
  const rule = (await (options.shared?.before(request.scope, look) ?? look())).find((each) =>
    each?.decision === "deny"
  );
  return rule === undefined ? undefined : { ok: false, ...deniedBefore(tool.name, rule.id) };
}

function deniedBefore(tool: string, ruleId: string): { readonly reason: string; readonly rule: string } {
  const reason = `Cannot call "${tool}": a person denied such a call before; ` +
    `"postern approval revoke ${ruleId}" lifts that`;
  return { reason, rule: `remembered:${ruleId}` };
}

/** A call that the policy asks about, or that was approved beforehand. */
interface AskedCall {
  readonly tool: Tool;
  readonly prepared: PreparedCall;
  readonly decision: Decision;
  readonly request: ToolCallRequest;
  readonly mayBeEdited: boolean;
}

/** Gets the approval of a call, and checks afterwards that policy and bound state still let it run. */
async function permitAsked(call: AskedCall, options: PermitOptions): Promise<Permit> {
  const { tool, prepared, request } = call;
  const { policy, bind } = options;
  const binding = await bind(tool, prepared, request.scope.signal);
  if (request.scope.signal.aborted) throw cancelError(request.scope.signal);
  const { approvedDigest = binding.digest } = request;
  if (binding.digest !== approvedDigest) return { ok: false, rule: RULE_BINDING, reason: changedSince(tool.name) };
  if (call.decision.kind === "allow") return { ok: true, rule: call.decision.rule, binding };
  const answer = await askFirst(tool, { request, asked: toApprovalRequest(call, binding, options) }, options);
  const { approvalId } = answer;
  const answered = { rule: answer.rule, ...(approvalId === undefined ? {} : { approvalId }) };
  if (answer.decision === "deny") return { ok: false, reason: answer.reason, by: answer.by, ...answered };
  if (answer.edited !== undefined) return { ok: "edited", edited: answer.edited, ...answered };
  const decided = policy.decide(tool, prepared, request.scope.taint);
  const again = await policy.decideAtPlaces(tool, { prepared, decision: decided }, request.scope.taint);
  if (again.kind === "deny") return { ok: false, rule: again.rule, reason: again.reason };
  const now = await bind(tool, prepared, request.scope.signal);
  return now.digest === binding.digest
    ? { ok: true, binding: now, ...answered }
    : { ok: false, rule: RULE_BINDING, reason: changedSince(tool.name) };
}

function toApprovalRequest(
  { tool, prepared, decision, request, mayBeEdited }: AskedCall,
  binding: CallBinding,
  { redact, masked, workspaceRoot, preview }: PermitOptions,
): ApprovalRequest {
  const { name } = tool;
  const secrets = masked(prepared.input);
  return {
    tool: name,
    prepared,
    input: redactJson(prepared.input, redact),
    masked: secrets,
    // A secret that nobody sees would be lost, and an answer that was given before counts for its call alone
    mayBeEdited: mayBeEdited && secrets.length === 0 && request.approvedDigest === undefined,
    binding: maskBinding(binding, redact),
    preview: () => preview(tool, prepared, { binding, signal: request.scope.signal }),
    subject: subjectOf(name, prepared, { folder: binding.folder, paths: [], workspace: workspaceRoot, redact }),
    reason: decision.reason,
    rule: decision.rule,
    callId: request.callId,
    scope: request.scope,
  };
}

/** Masks names of what a call is bound to: each may hold a secret as any other part of the input. The digest is of what is there. */
export function maskBinding(binding: CallBinding, redact: (text: string) => string): CallBinding {
  return {
    ...binding,
    files: binding.files.map((file) => ({ ...file, path: redact(file.path) })),
    bound: binding.bound.map((state) => ({ ...state, name: redact(state.name) })),
  };
}

/** Returns the remembered answer, else the approver's. An approver that fails has approved nothing. */
async function askFirst(
  tool: Tool,
  { request, asked }: { readonly request: ToolCallRequest; readonly asked: ApprovalRequest },
  options: PermitOptions,
): Promise<Answer> {
  try {
    const { shared } = options;
    const look = () => rememberedAnswer(asked, options);
    const remembered = await (shared?.before(request.scope, look) ?? look());
    if (remembered !== undefined) return remembered;
    const answer = await request.approver(asked, request.scope.signal);
    return answer.decision === "deny" ? answer : { ...answer, rule: "approval" };
  } catch (error) {
    if (error instanceof CancelError || isDown(error, options)) throw error;
    return { decision: "deny", rule: "approval_failed", reason: options.reportBug(tool, request, error) };
  }
}

/** Tells whether a call of a cluster found the database down. */
function isDown(error: unknown, { shared }: Pick<PermitOptions, "shared">): boolean {
  return shared !== undefined && isStorageAway(error);
}

async function rememberedAnswer(asked: ApprovalRequest, options: RememberedAnswers): Promise<Answer | undefined> {
  const { tool, scope: { runId } } = asked;
  const parts = partsOf(asked);
  const commands = parts.map(({ wider }) => wider?.command ?? []);
  const found = await Promise.all(parts.map((subject) => options.remembered?.(subject, runId)));
  // Each part of a line that runs something needs an answer of its own, and a `cd` where it decides what that is
  const lacks = commands.some((command, index) => found[index] === undefined && !isFreeBeside(command, commands));
  // A single denial is enough, and wins over a question that comes each time
  const rule = found.find((each) => each?.decision === "deny") ??
    (lacks || asksAlways(asked.rule) ? undefined : found.find((each) => each));
  if (rule === undefined) return undefined;
  return { decision: rule.decision, ...deniedBefore(tool, rule.id) };
}

/**
 * Returns what remembered answers are looked up by: the call, or each part of its line. An answer for the very line counts for every part.
 */
function partsOf(
  { subject, prepared: { effects: { line } } }: Pick<ApprovalRequest, "subject" | "prepared">,
): readonly RuleSubject[] {
  const { wider } = subject;
  if (line === undefined || line.parts.length === 0 || wider === undefined) return [subject];
  return line.parts.map((part) => {
    const words = part.words.map((word) => word ?? UNKNOWN_WORD);
    return { ...subject, wider: { ...wider, command: wordsOf(part, line), words } };
  });
}

/** Returns the words of a part that a rule for a command speaks of: all are known, and none is redirected. undefined: no rule does */
function wordsOf({ words, files }: ShellPart, { asks }: CommandLineParts): readonly string[] | undefined {
  const isRedirected = files.some(({ path }) => path !== "/dev/null");
  const known = words.filter((word) => word !== undefined);
  return asks !== undefined || isRedirected || known.length < words.length || known.length === 0 ? undefined : known;
}

/** Returns the words of a command that answers are remembered for: those of a line alone where it has one part. */
function commandOf({ command, line }: Effects): readonly string[] | undefined {
  const [part, ...more] = line?.parts ?? [];
  if (line === undefined) return command;
  return part === undefined || more.length > 0 ? undefined : wordsOf(part, line);
}

/**
 * Returns the properties of a call that approval rules match.
 *
 * A call whose words hold a secret gets no wider match than the call itself: a rule would keep the secret.
 */
function subjectOf(
  tool: string,
  { input, digest, access, effects }: PreparedCall,
  { folder, paths, workspace, redact }: {
    readonly folder: string | undefined;
    /** Where the call's paths lie, where the folder is not known */
    readonly paths: readonly string[];
    readonly workspace: string;
    readonly redact: (text: string) => string;
  },
): RuleSubject {
  const command = commandOf(effects);
  const wider = { op: opOf(input), access, folder, command };
  const isCommand = effects.command !== undefined;
  const words = JSON.stringify([wider, effects.line]);
  const isWider = (folder !== undefined || isCommand || paths.length > 0) && redact(words) === words;
  const reachesNetwork = isCommand && access === "network";
  // An answer about a browser that nobody knows does not count for one that is signed in
  const { logins = [] } = effects;
  const inputDigest = logins.length === 0 ? digest : canonicalDigest({ input: digest, logins });
  return { tool, workspace, inputDigest, wider: isWider ? wider : undefined, reachesNetwork, paths };
}

/** Returns why a call does not run whose state is not the approved one. */
export function changedSince(tool: string): string {
  return `Cannot call "${tool}": what it would change, or the tool itself, is not what it was when the call was approved; ` +
    "look again and ask again";
}
