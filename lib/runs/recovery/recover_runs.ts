import { CancelError } from "../../base/cancel.ts";
import type { Approval } from "../../base/records/approval.ts";
import type { Run, RunStatus } from "../../base/records/run.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { appendEvents } from "../journal/run_recorder.ts";
import type { Conversations } from "../conversations/conversations.ts";
import { endStatus } from "../journal/apply_event.ts";
import { openCallsOf, type RecalledRun, recallRun, type RecordedApproval, type StartedCall } from "./recall_run.ts";
import { placeIn, type RunInput } from "../journal/run_records.ts";
import type { OpenRunId, RunStore } from "../journal/run_store.ts";

/** A run that goes on after its last finished step. */
export interface InterruptedRun {
  readonly run: Run;
  readonly input: RunInput;
  /** Last seq in the journal, 0 when the run never began. */
  readonly seq: number;
  /** Approvals of calls that have not ended, by call id. */
  readonly approvals: ReadonlyMap<string, RecordedApproval>;
}

/** An approval that waits for a person. */
type PendingApproval = Pick<Approval, "id" | "run_id" | "call_id">;

/** Journal of the runs, their approvals, and the ways to end or continue a run. */
export interface RecoverOptions {
  readonly runs: RunStore;
  readonly log: Logger;
  readonly time: () => string;
  /** Returns the approvals of some runs that wait for a person. */
  readonly pendingApprovals: (runIds: ReadonlySet<string>) => Promise<readonly PendingApproval[]>;
  /** Withdraws an approval that no run needs any more. */
  readonly withdraw: (approvalId: string) => Promise<void>;
  /** Runs for each run that was ended. */
  readonly onEnd: (id: string, status: RunStatus) => void;
  /** Gives back the conversation of a run that has said nothing in it. Default: nobody does */
  readonly giveBack?: Conversations["giveBack"] | undefined;
  /** Lets a run go on. @throws when the run cannot go on; the run then ends with that error */
  readonly resume: (interrupted: InterruptedRun) => Promise<void>;
}

type End = { readonly code: string; readonly message: string };

/** End of a run whose message another run took in. */
const TAKEN_IN: End = { code: "taken_in", message: new CancelError("taken_in").message };

/**
 * Takes up the runs that a crash or a shutdown left open, in the order in which they were accepted.
 *
 * Durable runs go on. A run with a call that had an effect, had begun and had not ended becomes `needs_review`. An attached run ends with
 * `interrupted`. A run that was cancelled before, or whose parent was, ends with `cancelled`. A run that cannot be read is logged and left
 * for a person. Approvals that no run takes up again are withdrawn.
 */
export async function recoverRuns(open: readonly OpenRunId[], options: RecoverOptions): Promise<void> {
  const { log } = options;
  const resumable: InterruptedRun[] = [];
  const awaited = new Map<string, ReadonlySet<string>>();
  for (const { id, cancelled } of open) {
    try {
      const settled = await settle(id, cancelled, options);
      if (settled !== undefined) resumable.push(settled.interrupted);
      awaited.set(id, new Set(settled?.openCalls));
    } catch (error) {
      log.error("Interrupted run could not be recovered", { run_id: id, error });
    }
  }
  await withdrawUnneeded(awaited, options);
  for (const interrupted of resumable) await continueRun(interrupted, options);
}

/**
 * Ends a run that this gateway has claimed in a cluster and cannot go on with, where it would not go on anyway: cancelled, interrupted, or
 * with an effect whose outcome nobody knows. @returns the run when it would go on elsewhere
 */
export async function settleRun(
  { id, cancelled }: OpenRunId,
  options: RecoverOptions,
): Promise<InterruptedRun | undefined> {
  return (await settle(id, cancelled, options))?.interrupted;
}

/** Ends a run that would go on, and withdraws its approvals. */
export async function endInterrupted(interrupted: InterruptedRun, end: End, options: RecoverOptions) {
  const { run, approvals } = interrupted;
  await endRun(interrupted, end, options);
  for (const { approvalId } of approvals.values()) await options.withdraw(approvalId);
  options.log.warn("Interrupted run was ended", { run_id: run.id, code: end.code });
}

/** Takes up one run that this gateway has claimed in a cluster, as `recoverRuns` does. @throws when the run cannot be read or ended */
export async function recoverRun({ id, cancelled }: OpenRunId, options: RecoverOptions): Promise<void> {
  const settled = await settle(id, cancelled, options);
  await withdrawUnneeded(new Map([[id, new Set(settled?.openCalls)]]), options);
  if (settled !== undefined) await continueRun(settled.interrupted, options);
}

/**
 * Withdraws approvals that no run takes up again. An approval is filed before the journal says so. After a crash between the two, the turn
 * is asked again and may make other calls.
 * @param awaited calls that are made again, by run
 */
async function withdrawUnneeded(
  awaited: ReadonlyMap<string, ReadonlySet<string>>,
  { pendingApprovals, withdraw, log }: RecoverOptions,
): Promise<void> {
  if (awaited.size === 0) return;
  try {
    for (const { id, run_id, call_id } of await pendingApprovals(new Set(awaited.keys()))) {
      if (awaited.get(run_id)?.has(call_id) === false) await withdraw(id);
    }
  } catch (error) {
    log.error("Approvals of interrupted runs could not be withdrawn, and wait until they expire", { error });
  }
}

/** Lets a run go on. A run that cannot go on ends with the reason. Never throws. */
export async function continueRun(interrupted: InterruptedRun, options: RecoverOptions): Promise<void> {
  const { log } = options;
  const { run: { id }, seq } = interrupted;
  try {
    await options.resume(interrupted);
    log.info("Run goes on", { run_id: id, after_seq: seq });
  } catch (error) {
    log.error("Run could not go on", { run_id: id, error });
    const message = `Cannot go on after the restart: ${textOf(error)}`;
    await endRun(interrupted, { code: codeOf(error), message }, options).catch((error) =>
      log.error("Run that could not go on could not be ended", { run_id: id, error })
    );
  }
}

/** Ends a run that does not go on. @returns a run that goes on, with the ids of the calls that it makes again */
async function settle(
  id: string,
  cancelled: boolean | "unknown",
  options: RecoverOptions,
): Promise<{ readonly interrupted: InterruptedRun; readonly openCalls: readonly string[] } | undefined> {
  const { runs, log } = options;
  const [run, input] = await Promise.all([runs.get(id), runs.input(id)]);
  if (run === undefined || input === undefined) throw new TypeError(`Run "${id}" is listed as open and has no record`);
  const recalled = await recallRun(runs, id);
  const parent = run.parent_id === null ? undefined : await runs.get(run.parent_id);
  const isTaken = cancelled === true && run.steers !== undefined && await runs.hasTaken(run.steers.run_id, id);
  const end = isTaken ? TAKEN_IN : endOf({ input, recalled, cancelled: parent?.status === "cancelled" || cancelled });
  if (end === undefined) {
    const { seq, approvals } = recalled;
    const openCalls = recalled.turns.slice(-1).flatMap(openCallsOf).map((call) => call.id);
    return { interrupted: { run, input, seq, approvals }, openCalls };
  }
  await endRun({ run, input, seq: recalled.seq }, end, options);
  for (const { approvalId } of recalled.approvals.values()) await options.withdraw(approvalId);
  const what = end.code === "needs_review" ? "waits for a person's decision" : "was ended";
  log.warn(`Interrupted run ${what}`, { run_id: id, code: end.code });
  return undefined;
}

function endOf(
  { input, recalled, cancelled }: {
    readonly input: RunInput;
    readonly recalled: RecalledRun;
    readonly cancelled: boolean | "unknown";
  },
): End | undefined {
  const { openEffects } = recalled;
  const effect = openEffects.length === 0 ? "" : unfinished(openEffects);
  if (cancelled === "unknown") {
    const why = `the record that says whether it was cancelled is damaged${effect === "" ? "" : `, and ${effect}`}`;
    return { code: "needs_review", message: `The gateway stopped, and ${why}` };
  }
  if (cancelled) return { code: "cancelled", message: `The work was cancelled${effect === "" ? "" : `; ${effect}`}` };
  if (effect !== "") return { code: "needs_review", message: `The gateway stopped, and ${effect}` };
  if (!input.durable || !recalled.isWhole) {
    return { code: "interrupted", message: "The gateway stopped while the run was at work" };
  }
  return undefined;
}

function unfinished(calls: readonly StartedCall[]): string {
  const names = calls.map(({ id, tool }) => `${tool} ${id}`).join(", ");
  return `a call with an effect was at work (${names}): whether it happened is unknown`;
}

async function endRun(
  { run: { id, conversation_id: conversationId }, input, seq }: Pick<InterruptedRun, "run" | "input" | "seq">,
  end: End,
  { runs, time, onEnd, giveBack }: RecoverOptions,
): Promise<void> {
  const body = { type: "error", ...end } as const;
  await appendEvents(id, seq, [body], { runs, time });
  const place = placeIn(input);
  // A run that waits for a person may go on there
  const isOver = end.code !== "needs_review";
  if (isOver && place !== undefined && conversationId !== null) await giveBack?.(conversationId, { place, runId: id });
  onEnd(id, endStatus(body));
}

function codeOf(error: unknown): string {
  const code = error instanceof Error && "code" in error ? error.code : undefined;
  return typeof code === "string" ? code : "internal_error";
}

function textOf(error: unknown): string {
  return error instanceof Error && "code" in error ? error.message : "the gateway's log names the cause";
}
