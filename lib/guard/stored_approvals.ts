import { cancelError } from "../base/cancel.ts";
import { hasRoom, shareOf } from "../base/fair_share.ts";
import { createKeyedMutex } from "../base/keyed_queues.ts";
import type { Random } from "../base/random.ts";
import { type Approval, APPROVAL_ID, type ApprovalRule, type ApprovalStatus } from "../base/records/approval.ts";
import type { Actor } from "../base/records/caller.ts";
import type { FormContent } from "../base/records/elicitation.ts";
import { type Patience, patiently } from "../storage/read_records.ts";
import type { Write } from "../storage/store.ts";
import {
  ApprovalRecords,
  type ApprovalRecordsOptions,
  type FoundApproval,
  isOver,
  type KeptApproval,
} from "./approval_records.ts";
import {
  approvalClaimed,
  askedElsewhere,
  contentNotTaken,
  contentRefused,
  editNotTaken,
  matchNotOffered,
  matchWithoutRemember,
  movedSince,
  notEditable,
  notRemembered,
  settledBefore,
  tooManyRules,
  unknownApproval,
} from "./approval_refusals.ts";
import { ApprovalRules, offersOf, ruleEvent, ruleOf } from "./approval_rules.ts";
import {
  ANSWERED_BY_PROGRAM,
  APPROVAL_LIMITS,
  type ApprovalPage,
  type ApprovalReply,
  type Approvals,
  type ApprovalUse,
  type ElicitationEnd,
  type NewApproval,
  type PatientApprovals,
  type TellOfApproval,
  withMasks,
} from "./approvals.ts";
import { Askers } from "./askers.ts";
import { asksAlways } from "./policy.ts";
import type { RuleSubject } from "./rule_match.ts";
import { isUnderstood } from "./understood_commands.ts";

/** Store, clock and audit that the approvals work with. */
export interface StoredApprovalsOptions extends ApprovalRecordsOptions {
  readonly random: Random;
  /** Default: nobody is told */
  readonly tell?: TellOfApproval | undefined;
}

/** Makes a call of the store once. */
const once: Patience = (work) => work();

const DAY_MS = 24 * 60 * 60 * 1000;
/** A timer holds less than 25 days. An approval may wait longer, so it is looked at once a day */
const MAX_TIMER_MS = DAY_MS;

/**
 * The approvals over a store: `pending`, then `approved`, `denied`, `expired` or `cancelled`; an approved one is used once.
 *
 * Whoever needs an answer calls `ask`, waits with `settled`, and calls `use` right before the call runs: the approver of a run, a
 * call over HTTP, a step of a procedure. A person's client calls `answer`. No timer settles an approval whose time is over: whoever
 * reads it next does, as `expired`.
 *
 * `ApprovalRecords` reads and changes the records, each change in one transaction with its audit event and only when the record is
 * still as it was read. `ApprovalRules` has the answers that are remembered, so that a later call asks nobody.
 */
export class StoredApprovals implements Approvals {
  readonly askers: Askers;
  readonly #options: StoredApprovalsOptions;
  readonly #records: ApprovalRecords;
  readonly #rules: ApprovalRules;
  /** Contents of answers, by approval id, until `elicited` gives them. */
  readonly #contents = new Map<string, FormContent>();
  /** Answers to one elicitation come one after the other, so that the content is that of the answer that counts. */
  readonly #answering = createKeyedMutex();

  constructor(options: StoredApprovalsOptions) {
    this.#options = options;
    this.askers = new Askers(options.clock);
    options.news?.shareLooks?.(this.askers);
    this.#rules = new ApprovalRules(options);
    this.#records = new ApprovalRecords(options);
  }

  patient(patience: Patience): PatientApprovals {
    const settled = patiently(patience, (id: string, signal: AbortSignal) => this.settled(id, signal));
    return {
      // The same approval is filed, and the same use noted, however often it is tried
      ask: (request, claim) => this.#ask(request, claim, patience),
      use: (id, digest) => this.#use(id, digest, patience),
      settled,
      elicited: (id, signal) => this.#elicited(id, () => settled(id, signal)),
      answer: patiently(patience, (id, reply) => this.answer(id, reply)),
      cancel: patiently(patience, (id) => this.cancel(id)),
      get: patiently(patience, (id) => this.get(id)),
      list: patiently(patience, (page) => this.list(page)),
      ofRuns: patiently(patience, (runIds, status) => this.ofRuns(runIds, status)),
    };
  }

  ask(
    request: NewApproval,
    claim?: (approvalId: string) => Write | readonly Write[],
  ): Promise<Approval | undefined> {
    return this.#ask(request, claim, once);
  }

  async #ask(
    request: NewApproval,
    claim: ((approvalId: string) => Write | readonly Write[]) | undefined,
    patience: Patience,
  ): Promise<Approval | undefined> {
    if (!await patience(() => this.#hasRoom(request.requestedBy.tokenId))) return undefined;
    const approval = this.#toApproval(request);
    const { wider, reachesNetwork = false } = request;
    const kept: KeptApproval = { approval, wider: toWiderBody(wider), reachesNetwork };
    const isElicitation = request.elicitation !== undefined;
    if (isElicitation) this.#records.await(approval.id);
    try {
      const told = request.isAnswered === true ? undefined : await this.#options.tell?.(approval, isMasked(request));
      const claims = [...[claim?.(approval.id) ?? []].flat(), ...told?.writes ?? []];
      if (!await this.#records.insert(kept, { by: request.requestedBy, claim: claims, patience })) {
        throw approvalClaimed();
      }
      told?.written();
    } catch (error) {
      if (isElicitation) this.#records.release(approval.id);
      throw error;
    }
    return approval;
  }

  elicited(id: string, signal: AbortSignal): Promise<ElicitationEnd> {
    return this.#elicited(id, () => this.settled(id, signal));
  }

  async #elicited(id: string, settled: () => Promise<Approval>): Promise<ElicitationEnd> {
    try {
      const approval = await settled();
      return { approval, content: approval.status === "approved" ? this.#contents.get(id) : undefined };
    } catch (error) {
      await this.cancel(id);
      throw error;
    } finally {
      this.#contents.delete(id);
      this.#records.release(id);
    }
  }

  async settled(id: string, signal: AbortSignal): Promise<Approval> {
    const { clock } = this.#options;
    for (;;) {
      if (signal.aborted) throw cancelError(signal);
      // Listening begins before the reading, so that no answer falls between
      const news = this.#records.listen(id, signal);
      try {
        const found = await this.#records.findCurrent(id);
        if (found === undefined) throw unknownApproval();
        if (found.approval.status !== "pending") return found.approval;
        const remaining = Date.parse(found.approval.expires_at) - clock.now();
        // The next reading settles an approval whose time is over
        const timer = clock.after(Math.min(remaining, MAX_TIMER_MS), news.wake);
        await news.heard.finally(() => timer.clear());
      } finally {
        news.stop();
      }
    }
  }

  answer(id: string, reply: ApprovalReply): ReturnType<Approvals["answer"]> {
    return this.#answering(id, () => this.#answer(id, reply));
  }

  async #answer(id: string, reply: ApprovalReply): ReturnType<Approvals["answer"]> {
    const found = await this.#records.findCurrent(id);
    if (found === undefined) throw unknownApproval();
    const isContent = found.approval.kind === "elicitation" && reply.decision === "approve";
    if (isContent && this.#records.mayWaitElsewhere(id)) throw askedElsewhere();
    const rule = ruleFor(found, reply, this.#now());
    const edit = editFor(found.approval, reply);
    const content = await contentFor(found.approval, reply);
    const writes = rule === undefined ? [] : await this.#rules.store(rule);
    if (writes === undefined) throw tooManyRules();
    const { decision, remember = "once", note = null, by } = reply;
    const next: Approval = {
      ...found.approval,
      ...edit,
      status: decision === "approve" ? "approved" : "denied",
      answered_at: this.#now(),
      answered_by: by.via === "program" ? ANSWERED_BY_PROGRAM : by.tokenId,
      note,
      remember,
      rule_id: rule?.id ?? null,
    };
    // The rule, its audit event and the answer are stored together or not at all
    const more = rule === undefined ? [] : [ruleEvent("stored", rule, by)];
    // Whoever waits may read the answer before the next line does
    if (content !== undefined) this.#contents.set(id, content);
    const fields = content === undefined ? undefined : Object.keys(content);
    if (!await this.#records.change(found, next, { by, writes, more, fields })) {
      this.#contents.delete(id);
      // Somebody else settled the approval at the same moment, or it was forgotten since
      throw settledBefore((await this.#records.findCurrent(id))?.approval.status ?? "cancelled");
    }
    // Whoever waited has left at this moment
    if (!this.#records.isAwaited(id)) this.#contents.delete(id);
    return { approval: next, rule };
  }

  async cancel(id: string): Promise<void> {
    const found = await this.#records.findCurrent(id);
    if (found?.approval.status !== "pending") return;
    await this.#records.change(found, { ...found.approval, status: "cancelled", answered_at: this.#now() });
  }

  use(id: string, digest: string): Promise<ApprovalUse> {
    return this.#use(id, digest, once);
  }

  async #use(id: string, digest: string, patience: Patience): Promise<ApprovalUse> {
    const found = await patience(() => this.#records.findCurrent(id));
    if (found === undefined) return refused(id, "it never existed, or was forgotten since");
    const { approval } = found;
    if (approval.kind === "elicitation") {
      return refused(id, "it answers a question of a running call, and lets no call through");
    }
    if (approval.status === "pending") {
      return { ok: false, waiting: true, reason: `Cannot use approval "${id}": it has not been answered yet` };
    }
    const why = whyUnusable(approval, { digest, now: this.#options.clock.now() });
    if (why !== undefined) return refused(id, why);
    const next = { ...approval, used_at: this.#now() };
    // A change that fails means that another call used the approval at the same moment
    return await this.#records.change(found, next, { patience }) ? { ok: true, approval: next } : refused(id, USED);
  }

  async get(id: string): Promise<Approval | undefined> {
    return (await this.#records.findCurrent(id))?.approval;
  }

  async list({ status, limit, after }: Parameters<Approvals["list"]>[0]): Promise<ApprovalPage> {
    const approvals: Approval[] = [];
    if (after !== undefined && !APPROVAL_ID.test(after)) return { approvals, hasMore: false };
    // Settle first: the index by status then knows of each approval whose time is over
    await this.#records.settleExpired();
    const where = status === undefined ? undefined : { field: "status", value: status };
    for await (const approval of this.#records.all({ after, where })) {
      if (approvals.length === limit) return { approvals, hasMore: true };
      approvals.push(approval);
    }
    return { approvals, hasMore: false };
  }

  ofRuns(runIds: ReadonlySet<string>, status?: ApprovalStatus): Promise<readonly Approval[]> {
    return this.#records.ofRuns(runIds, status);
  }

  remembered(subject: RuleSubject, runId: string): Promise<ApprovalRule | undefined> {
    return this.#rules.remembered(subject, runId);
  }

  rules(): Promise<readonly ApprovalRule[]> {
    return this.#rules.rules();
  }

  revoke(ruleId: string, by: Actor): Promise<boolean> {
    return this.#rules.revoke(ruleId, by);
  }

  async tidy(days: number): Promise<void> {
    // No time is before the empty text: 0 days forget nothing
    const before = days === 0 ? "" : new Date(this.#options.clock.now() - days * DAY_MS).toISOString();
    await this.#records.settleExpired();
    const forgotten: string[] = [];
    for await (const { id, answered_at } of this.#records.all()) {
      if (answered_at !== null && answered_at < before) forgotten.push(id);
    }
    for (const id of forgotten) await this.#records.delete(id);
    await this.#rules.forgetRuns(before);
  }

  /** Makes room for an approval. @returns false when as many wait as may */
  async #hasRoom(tokenId: string | null): Promise<boolean> {
    await this.#records.makeRoom();
    // The count is cheap and holds approvals whose time is over. Only when it is too high, those are settled and all are looked at
    if (await this.#records.countPending() < shareOf(APPROVAL_LIMITS.pending)) return true;
    await this.#records.settleExpired();
    return hasRoom(await this.#records.pendingOf(tokenId), APPROVAL_LIMITS.pending);
  }

  /** Returns the time in ISO 8601. */
  #now(): string {
    return new Date(this.#options.clock.now()).toISOString();
  }

  /** Makes the approval that a request asks for. */
  #toApproval(request: NewApproval): Approval {
    const { tool, workspace, inputDigest, wider, reachesNetwork, input, runId, rule } = request;
    const subject = { tool, workspace, inputDigest, wider, reachesNetwork };
    const offers = asksAlways(rule) ? [] : offersOf(subject, { input, runId });
    return {
      id: this.#options.random.id("apr_"),
      object: "approval",
      status: "pending",
      ...partsOf(request.elicitation),
      tool,
      access: request.access,
      input,
      input_digest: inputDigest,
      reason: withMasks(request.reason, request.masked ?? []),
      rule,
      workspace,
      files: request.files.map(({ path, sha256 }) => ({ path, sha256 })),
      containment: request.containment ?? null,
      ...request.shown,
      ...(request.bound === undefined ? {} : { bound: request.bound.map((each) => ({ ...each })) }),
      digest: request.digest,
      run_id: runId,
      call_id: request.callId,
      request_id: request.requestId ?? null,
      requested_by: request.requestedBy.tokenId,
      created_at: this.#now(),
      expires_at: new Date(this.#options.clock.now() + request.timeoutMs).toISOString(),
      always_rule: offers.find(({ remember, match }) => remember === "always" && match === "call")?.text ?? null,
      offers,
      answered_at: null,
      answered_by: null,
      note: null,
      remember: null,
      rule_id: null,
      used_at: null,
    };
  }
}

/**
 * Returns the rule that an answer stores. undefined: the answer counts once.
 * @throws {HttpError} 409 conflict for an approval that is settled; 400 invalid_request for a rule that is refused
 */
function ruleFor(found: FoundApproval, reply: ApprovalReply, time: string): ApprovalRule | undefined {
  const { approval } = found;
  const { remember = "once", match } = reply;
  if (approval.status !== "pending") throw settledBefore(approval.status);
  if (remember === "once" && match !== undefined) throw matchWithoutRemember();
  if (remember !== "once" && approval.always_rule === null) throw notRemembered(approval);
  const rule = ruleOf(found, reply, time);
  if (rule === "not_offered") throw matchNotOffered(match ?? "call", kindsOf(approval));
  return rule;
}

/**
 * Returns the parts of an approval that another input changes. Undefined: the call is as it was.
 * @throws {HttpError} 400 invalid_request for a call that is made as it stands, and for an answer that is remembered; 409 conflict where what
 *   the person saw is not what is there now
 */
function editFor(
  approval: Approval,
  { decision, remember = "once", edit }: ApprovalReply,
): Partial<Approval> | undefined {
  if (edit === undefined) return undefined;
  if (decision === "deny") throw editNotTaken("a denial needs none");
  if (approval.editable !== true) throw notEditable(approval);
  if (remember !== "once") throw editNotTaken('an answer with another input counts once; leave "remember" out');
  const moved = [
    ...approval.files.filter(({ path, sha256 }) =>
      edit.files.some((now) => now.path === path && now.sha256 !== sha256)
    ),
    ...(approval.bound ?? []).filter((was) =>
      // A tool may bind files by its input, so another input binds other ones
      was.kind !== "file" &&
      edit.bound.some((now) => now.kind === was.kind && now.name === was.name && now.sha256 !== was.sha256)
    ),
  ];
  if (moved.length > 0) throw movedSince();
  const { bound, ...rest } = edit;
  // Parts of the earlier call that the new one may lack
  const none = { changes: undefined, fails: undefined, commands: undefined };
  const was = { input: approval.input, digest: approval.digest };
  return { ...none, ...rest, bound: bound.map((each) => ({ ...each })), edited: was, offers: [], always_rule: null };
}

/**
 * Returns the content of an answer. undefined: the answer has none.
 * @throws {HttpError} 400 invalid_request, with the field in `param`
 */
async function contentFor(
  { kind, schema }: Approval,
  { decision, content }: ApprovalReply,
): Promise<FormContent | undefined> {
  if (kind !== "elicitation") {
    if (content !== undefined) throw contentNotTaken("this approval is about a call, which is as it stands");
    return undefined;
  }
  if (decision === "deny") {
    if (content !== undefined) throw contentNotTaken("a denial gives no fields");
    return undefined;
  }
  if (schema === null || schema === undefined) {
    if (content !== undefined) throw contentNotTaken("it asks to open an address, and not for fields");
    return undefined;
  }
  const { checkContent } = await import("./elicitation.ts");
  const checked = checkContent(schema, content ?? {});
  if (!checked.ok) throw contentRefused(checked);
  return checked.content;
}

function isMasked({ masked = [] }: NewApproval): boolean {
  return masked.length > 0;
}

/** Returns the parts of an approval that say what it is about. */
function partsOf(
  elicitation: NewApproval["elicitation"],
): Pick<Approval, "kind" | "server" | "agent" | "message" | "schema" | "url"> {
  return elicitation === undefined ? { kind: "call" } : { kind: "elicitation", ...elicitation };
}

const USED = "it has let its one call through";

/** Returns why a settled approval does not let this call through. undefined when it does. */
function whyUnusable(
  approval: Approval,
  { digest, now }: { readonly digest: string; readonly now: number },
): string | undefined {
  if (approval.status !== "approved") return `it is ${approval.status}`;
  if (approval.used_at !== null) return USED;
  if (isOver(approval, now)) return "it was approved, and has expired since";
  if (approval.digest === digest) return undefined;
  return "the call is not the one that was approved: its input, a file it changes or the tool differs";
}

/** Returns the matches that an answer may be remembered with. Records of earlier versions have no offers: the exact call alone. */
function kindsOf({ offers = [] }: Approval): readonly string[] {
  return [...new Set(["call", ...offers.map(({ match }) => match)])];
}

/** Returns what the record keeps of a call, so that the answer can store a wider rule. Such a rule compares two words of a command. */
function toWiderBody(wider: RuleSubject["wider"]): KeptApproval["wider"] {
  if (wider === undefined) return undefined;
  const { op, access, folder, command } = wider;
  return {
    op,
    access,
    ...(folder === undefined ? {} : { folder }),
    ...(command === undefined || !isUnderstood(command) ? {} : { command: command.slice(0, 2) }),
  };
}

/** Returns the refusal of a use, for the model or the client that wanted to make the call. */
function refused(id: string, why: string) {
  return { ok: false, waiting: false, reason: `Cannot use approval "${id}": ${why}` } as const;
}
