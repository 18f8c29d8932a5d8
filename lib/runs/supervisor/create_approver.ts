import type { AgentApprover } from "../../agent/agent_run.ts";
import { cancelReason } from "../../base/cancel.ts";
import type { AgentEventBody } from "../../base/records/agent_event.ts";
import type { Approval } from "../../base/records/approval.ts";
import {
  ANSWERED_BY_PROGRAM,
  type Approvals,
  type NewApproval,
  type PatientApprovals,
  sayAnswerer,
  sayAsker,
} from "../../guard/approvals.ts";
import type { Askers } from "../../guard/askers.ts";
import {
  type ApprovalAnswer,
  type ApprovalRequest,
  type DenialRule,
  type ElicitationRequest,
  nobodyCouldAnswer,
} from "../../tools/runtime/tool_call.ts";
import type { ElicitationAnswer } from "../../tools/runtime/askable_client.ts";
import { isStorageAway, type Patience } from "../../storage/read_records.ts";
import type { RecordedApproval } from "../recovery/recall_run.ts";
import { loadNeeded, toAnswered } from "./approval_events.ts";
import { askElicitation, cancelUnasked } from "./ask_elicitation.ts";
import type { QueuePlace } from "./run_queue.ts";

/** Properties of a run that decide whether it asks for approvals, and for how long. */
export interface ApprovableRun {
  readonly durable: boolean;
  /**
   * Reader that the run was started for: one who may approve is asked also after leaving. `none`: nobody follows work that somebody began
   * who may approve; `nobody`: it began by itself, or by a caller who may not
   */
  readonly reader: "none" | "nobody" | "reads" | "approves";
  /** Returns facts about the run for the person who is asked: most runs ask nobody. Default: nothing is known of it */
  readonly origin?: (() => RunOrigin) | undefined;
  readonly place: Pick<QueuePlace, "pause">;
  /** Approvals from before the interruption, by call id, for a run that goes on. */
  readonly earlier?: ReadonlyMap<string, RecordedApproval> | undefined;
  /** Resolves once all events are on disk, so that after a crash an approval finds its call again. Undefined: the run does not go on after a crash. */
  readonly recorded?: (() => Promise<void>) | undefined;
  /** Waits for the database that gateways share. Default: the gateway is alone */
  readonly patience?: Patience | undefined;
}

/** Work that a run belongs to, and the message that it was begun with; known secrets masked. */
export interface RunOrigin {
  readonly parentId: string | null;
  readonly message: string | null;
}

/** The approvals, and how long they wait. */
export interface ApproverOptions {
  readonly approvals: Approvals;
  /** Ways to a person beside the reader of a run. Default: there is none, and work without a reader asks all the same */
  readonly askers?: Pick<Askers, "canAsk" | "names"> | undefined;
  /** Returns how long an approval waits, in milliseconds, of work without and with a record; read for each approval. */
  readonly timeoutMs: () => { readonly attached: number; readonly durable: number };
}

/**
 * Returns the approver of each run (docs/design/policy.md "Approvals").
 *
 * A call is asked about as long as somebody can be asked: the reader of the run, whoever began it, one of the `askers`, or the program.
 * Otherwise the answer is an immediate denial that says what would have helped. The approval stays for its time when the reader of durable
 * work leaves. One that expires is a denial.
 *
 * A run that goes on after a restart files no second approval for the same call: the earlier approval still waits, or its answer counts.
 */
export function createApprover(
  { approvals, askers, timeoutMs }: ApproverOptions,
): (run: ApprovableRun) => AgentApprover {
  return (run) => {
    // Whoever looked before a restart has no time to come back before the run goes on
    const isReached = run.reader === "approves" || run.reader === "none" || run.earlier !== undefined ||
      (askers === undefined && run.reader === "nobody");
    // People come and go while a run is at work
    const canAsk = () => isReached || askers?.canAsk() === true;
    const waitMs = () => timeoutMs()[run.durable ? "durable" : "attached"];
    if (!isReached && askers === undefined && approvals.program === undefined) return denyUnattended;
    const patient = run.patience === undefined ? approvals : approvals.patient(run.patience);
    const earlier = run.earlier === undefined ? undefined : createEarlierApprovals(patient, run.earlier);
    const ask: AgentApprover = async (request, signal, emit) => {
      const known = await earlier?.find(request, emit);
      if (known?.answer !== undefined) return known.answer;
      const isUnattended = known === undefined && !canAsk();
      if (isUnattended && approvals.program === undefined) return await denyAtOnce(request, { emit, askers });
      const toNeeded = await loadNeeded();
      if (known === undefined) await run.recorded?.();
      const asked = known?.approval ??
        await patient.ask(
          await toNewApproval(request, { timeoutMs: waitMs(), origin: run.origin?.(), editable: request.mayBeEdited }),
        );
      if (asked === undefined) {
        return denyUnasked(`as many approvals wait for a person as may, so nobody was asked: ${request.reason}`, emit);
      }
      if (known?.isShown !== true) emit(toNeeded(asked));
      if (isUnattended) withdrawWhenLeft(asked.id, approvals);
      const settled = await wait(asked.id, { approvals, patient, run, signal });
      if (known?.isAnswerShown !== true) emit(toAnswered(settled));
      if (isUnattended && settled.status === "cancelled") {
        return denyUnasked(`the program left the answer to people, and ${unattended(request, askers)}`, emit);
      }
      return await toAnswer(settled, patient);
    };
    const elicit: NonNullable<AgentApprover["elicit"]> = async (request, signal, emit) => {
      const isUnattended = !canAsk();
      if (isUnattended && approvals.program === undefined) return await cancelAtOnce(request, { emit, askers });
      return await askElicitation(request, {
        approvals,
        patient,
        timeoutMs: waitMs(),
        signal,
        emit,
        pause: (waiting) => run.place.pause(waiting),
        ...(isUnattended ? { onAsked: (id) => withdrawWhenLeft(id, approvals) } : {}),
      });
    };
    return Object.assign<AgentApprover, Partial<AgentApprover>>(ask, {
      elicit,
      withdraw: earlier?.withdraw,
      isAsked: earlier?.isAsked,
    });
  };
}

/** Returns the approval to file for a call. @param options.timeoutMs how long the approval waits */
export async function toNewApproval(
  request: ApprovalRequest,
  { timeoutMs, origin, editable = false }: {
    readonly timeoutMs: number;
    readonly origin?: RunOrigin | undefined;
    /** True: the call waits for the answer, and is made with another input where that brings one. Default false */
    readonly editable?: boolean | undefined;
  },
): Promise<NewApproval> {
  const { prepared, input, masked, binding, subject, reason, rule, callId, scope } = request;
  return {
    shown: {
      ...await request.preview?.(),
      ...(editable ? { editable: true } : {}),
      asker: {
        via: scope.caller.via,
        ...(scope.direct === true ? { direct: true } : {}),
        conversation_id: scope.conversationId,
        parent_id: origin?.parentId ?? null,
        message: origin?.message ?? null,
      },
    },
    ...subject,
    access: prepared.access,
    input,
    masked,
    reason,
    rule,
    files: binding.files,
    bound: binding.bound,
    containment: binding.containment,
    digest: binding.digest,
    runId: scope.runId,
    callId,
    requestId: scope.requestId,
    requestedBy: scope.caller,
    timeoutMs,
  };
}

async function wait(
  id: string,
  { approvals, patient, run, signal }: {
    readonly approvals: Approvals;
    readonly patient: PatientApprovals;
    readonly run: ApprovableRun;
    readonly signal: AbortSignal;
  },
): Promise<Approval> {
  try {
    return await run.place.pause(() => patient.settled(id, signal));
  } catch (error) {
    // An approval of work that stops for a shutdown stays open
    if (!run.durable || cancelReason(signal) !== "shutdown") await cancelIfThere(id, { approvals, run });
    throw error;
  }
}

/** Takes an approval back. One of a cluster whose database is down stays until its time is over: nobody waits for it. */
async function cancelIfThere(
  id: string,
  { approvals, run }: { readonly approvals: Approvals; readonly run: Pick<ApprovableRun, "patience"> },
): Promise<void> {
  try {
    await approvals.cancel(id);
  } catch (error) {
    if (run.patience === undefined || !isStorageAway(error)) throw error;
  }
}

/** Takes an approval back once the program has left it to people, where none of them follows the run. */
function withdrawWhenLeft(id: string, approvals: Approvals): void {
  void approvals.program?.isLeft(id).then(async (isLeft) => {
    if (isLeft) await approvals.cancel(id);
  }).catch(() => {}); // The approval stays, and expires
}

async function toAnswer(settled: Approval, approvals: Pick<Approvals, "use">): Promise<ApprovalAnswer> {
  const { id, status, tool, note, reason } = settled;
  const deny = (rule: DenialRule, why: string) => ({ decision: "deny", rule, reason: why, approvalId: id } as const);
  switch (status) {
    case "approved": {
      const use = await approvals.use(id, settled.digest);
      return use.ok ? approve(use.approval) : deny("approval_failed", use.reason);
    }
    case "denied":
      return {
        ...deny(
          "approval",
          `Cannot call "${tool}": ${sayAnswerer(settled)} denied it${note === null ? "" : `: ${note}`}`,
        ),
        by: settled.answered_by === ANSWERED_BY_PROGRAM ? "program" : "person",
      };
    case "expired":
      return deny("approval_expired", `Cannot call "${tool}": nobody answered in time. ${reason}`);
    case "pending":
    case "cancelled":
      return deny(
        "approval_failed",
        `Cannot call "${tool}": the approval was taken back, so nobody answered. ${reason}`,
      );
  }
}

/**
 * Denies every call at once and says what would allow it, for runs that nobody follows who may approve.
 * Source: docs/design/policy.md "Approvals"
 */
export const denyUnattended: AgentApprover = Object.assign<AgentApprover, Pick<AgentApprover, "elicit">>(
  (request, _signal, emit) => denyAtOnce(request, { emit }),
  { elicit: (request, _signal, emit) => cancelAtOnce(request, { emit }) },
);

/** Denial of a run: its reader is told. */
interface AtOnce {
  readonly emit: (body: AgentEventBody) => void;
  /** Ways that would have helped. Default: the dashboard and the terminal */
  readonly askers?: ApproverOptions["askers"];
}

function denyAtOnce(
  request: Pick<ApprovalRequest, "tool" | "reason">,
  { emit, askers }: AtOnce,
): Promise<ApprovalAnswer> {
  return Promise.resolve(denyUnasked(unattended(request, askers), emit));
}

function cancelAtOnce({ elicitation, tool }: ElicitationRequest, { emit, askers }: AtOnce): Promise<ElicitationAnswer> {
  const why = `nobody who may approve follows this run, so nobody was asked what ${sayAsker(elicitation)} asks in ` +
    `"${tool}". ${whatHelps(askers)}`;
  return Promise.resolve(cancelUnasked(why, emit));
}

function unattended(
  { tool, reason }: Pick<ApprovalRequest, "tool" | "reason">,
  askers: ApproverOptions["askers"],
): string {
  return `nobody who may approve follows this run, so nobody was asked: ${reason}. ` +
    `${whatHelps(askers)}; "postern tool call ${tool} --yes" makes the call`;
}

/** Says what would have let a person be asked. */
function whatHelps(askers: ApproverOptions["askers"]): string {
  const names = askers === undefined ? "an open dashboard" : askers.names();
  return `What would have helped: a chat in the dashboard or in "postern chat" at a terminal, ${names}`;
}

/** Denies a call without an approval, and tells the run's reader the same as the model. @param why see nobodyCouldAnswer */
export function denyUnasked(why: string, emit: (body: AgentEventBody) => void): ApprovalAnswer {
  const denied = nobodyCouldAnswer(why);
  emit({ type: "notice", code: denied.rule, message: denied.reason });
  return denied;
}

/** An earlier approval that still waits, or whose answer counts. */
interface EarlierApproval {
  readonly approval: Approval;
  /** True when the journal has its approval_needed. */
  readonly isShown: boolean;
  /** True when the journal has its approval_answered. */
  readonly isAnswerShown: boolean;
  /** Answer for a call that was let through and did not run, so that it may run now; undefined for every other call. */
  readonly answer: ApprovalAnswer | undefined;
}

/** Approvals that a run filed before it was interrupted. */
interface EarlierApprovals {
  /** Finds the approval of exactly this call. Withdraws it, or leaves its answer unused, when the call has become another, for example by a changed file. */
  find(request: ApprovalRequest, emit: (body: AgentEventBody) => void): Promise<EarlierApproval | undefined>;
  /** Withdraws the approval of a call that a rule or the policy decided meanwhile. */
  withdraw(callId: string, emit: (body: AgentEventBody) => void): Promise<void>;
  /** Tells whether a call was asked about, and is not decided yet. */
  isAsked(callId: string): boolean;
}

/** Returns the earlier approvals of a run. @param asked approvals in the journal, by call id */
function createEarlierApprovals(
  approvals: PatientApprovals,
  asked: ReadonlyMap<string, RecordedApproval>,
): EarlierApprovals {
  const open = new Map(asked);

  /** Finds an approval that the journal does not have. An approval is filed before the journal says so, and a crash can come between. */
  const unrecorded = async ({ callId, scope: { runId } }: ApprovalRequest): Promise<Approval | undefined> => {
    const filed = await approvals.ofRuns(new Set([runId]));
    return filed.find((approval) =>
      approval.call_id === callId && approval.used_at === null && approval.kind !== "elicitation"
    );
  };
  const withdraw: EarlierApprovals["withdraw"] = async (callId, emit) => {
    const earlier = open.get(callId);
    if (earlier === undefined) return;
    open.delete(callId);
    await approvals.cancel(earlier.approvalId);
    const approval = await approvals.get(earlier.approvalId);
    if (!earlier.answered && approval !== undefined) emit(toAnswered(approval));
  };
  return {
    async find(request, emit) {
      const { callId, binding } = request;
      const earlier = open.get(callId);
      const approval = earlier === undefined ? await unrecorded(request) : await approvals.get(earlier.approvalId);
      if (approval === undefined) return undefined;
      // A call with the input of a person is compared with its own digest before it runs
      const isSame = approval.digest === binding.digest || approval.edited !== undefined;
      // An answer to another call lets this one through no more than a question about it
      if (!isSame && approval.used_at === null && ["pending", "approved"].includes(approval.status)) {
        await approvals.cancel(approval.id);
        await withdraw(callId, emit);
        return undefined;
      }
      open.delete(callId);
      const isFree = approval.status === "approved" && approval.used_at !== null && isSame;
      if (isFree && earlier?.answered !== true) emit(toAnswered(approval));
      return {
        approval,
        isShown: earlier !== undefined,
        isAnswerShown: earlier?.answered === true,
        // The approval is used and the call's start is not in the journal. The journal comes before the effect, so there was none
        answer: isFree ? approve(approval) : undefined,
      };
    },
    withdraw,
    isAsked: (callId) => open.has(callId),
  };
}

/** Returns the answer of an approval that was approved. */
function approve(approval: Approval): ApprovalAnswer {
  const { id, edited, input, digest } = approval;
  return {
    decision: "approve",
    reason: `Approved by ${sayAnswerer(approval)}`,
    approvalId: id,
    ...(edited === undefined ? {} : { edited: { input, digest } }),
  };
}
