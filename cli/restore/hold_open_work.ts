import { Tokens } from "../../lib/access/tokens.ts";
import { PAIRING_CODES } from "../../lib/access/pairing.ts";
import { changeOf, DELIVERIES } from "../../lib/automation/channels/delivery_record.ts";
import { timesOf } from "../../lib/automation/cron/firing_times.ts";
import { SCHEDULES } from "../../lib/automation/cron/schedule_record.ts";
import { type Execution, hasEnded, SOP_EXECUTIONS } from "../../lib/automation/sops/execution_record.ts";
import type { Clock } from "../../lib/base/clock.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import { APPROVALS, OPEN_APPROVALS, toApprovalBody } from "../../lib/guard/approval_records.ts";
import { accessEvent } from "../../lib/guard/audit/audit_event.ts";
import { createAudit } from "../../lib/guard/audit/audit.ts";
import { StoredApprovals, type StoredApprovalsOptions } from "../../lib/guard/stored_approvals.ts";
import { appendEvents } from "../../lib/runs/journal/run_recorder.ts";
import { recallRun } from "../../lib/runs/recovery/recall_run.ts";
import { journalOf, OPEN_RUNS } from "../../lib/runs/journal/run_records.ts";
import { RunStore } from "../../lib/runs/journal/run_store.ts";
import { isUnreadable } from "../../lib/storage/read_records.ts";
import type { Store } from "../../lib/storage/store.ts";

/** Counts of the work that a restore holds until a person decides, or ends. */
export interface HeldWork {
  readonly runs: number;
  readonly procedures: number;
  readonly deliveries: number;
  readonly schedules: number;
  readonly approvals: number;
  /** Number of revoked tokens. 0 where tokens are kept */
  readonly tokens: number;
}

/** Options of `holdOpenWork`. */
export interface HoldOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly keepTokens: boolean;
}

/** Days that audit records are kept: so long that none is removed. */
const KEPT_DAYS = 36_500;
const HELD = "It was unfinished when the backup was made: nobody knows what became of it after that";

/**
 * Stops all unfinished work in the records of a backup: it may have been finished after the backup, and must not happen twice.
 *
 * Runs become `needs_review`, procedures ask a person before their next step, deliveries become `held`, firings up to now are
 * skipped, open and unused approvals end, tokens and pairing codes are revoked.
 */
export async function holdOpenWork(options: HoldOptions): Promise<HeldWork> {
  const { store, clock, keepTokens } = options;
  const audit = await createAudit({
    store,
    clock,
    log: SILENT,
    redact: (text) => text,
    enabled: () => true,
    retentionDays: () => KEPT_DAYS,
  });
  try {
    return {
      approvals: await endApprovals(options, audit.append),
      runs: await holdRuns(options),
      procedures: await holdProcedures(store),
      deliveries: await holdDeliveries(options),
      schedules: await skipFirings(options),
      tokens: keepTokens ? 0 : await revokeTokens(options, audit.append),
    };
  } finally {
    await audit.close();
  }
}

type Append = StoredApprovalsOptions["audit"];

async function holdRuns({ store, clock }: HoldOptions): Promise<number> {
  const runs = new RunStore(store);
  const time = () => new Date(clock.now()).toISOString();
  let held = 0;
  for (const { id } of await runs.open()) {
    try {
      const { seq } = await recallRun(runs, id);
      await appendEvents(id, seq, [{ type: "error", code: "needs_review", message: HELD }], { runs, time });
      held++;
    } catch (error) {
      if (!isUnreadable(error)) throw error;
      // A run with damaged records cannot go on. postern doctor names the records
      await store.batch([OPEN_RUNS.remove(id), { op: "drop", stream: journalOf(id) }]);
    }
  }
  return held;
}

/** Holds procedures: the next step waits for a person, and a step that was at work waits for the review of its run. */
async function holdProcedures(store: Store): Promise<number> {
  let held = 0;
  for await (const { key, version, value } of SOP_EXECUTIONS.all(store)) {
    if (hasEnded(value)) continue;
    const steps = value.steps.map((step): Execution["steps"][number] =>
      step.status === "pending" || step.status === "waiting_for_approval"
        ? { ...step, status: "pending", approval_id: null, granted: false, call_digest: null, deadline: null }
        : step.status === "running"
        ? { ...step, status: "needs_review" }
        : step
    );
    const body: Execution = { ...value, steps, gate: { approval_id: null, granted: false, restored: true } };
    await store.batch([SOP_EXECUTIONS.putOver(key, version, body)]);
    held++;
  }
  return held;
}

async function holdDeliveries({ store, clock }: HoldOptions): Promise<number> {
  const ended_at = new Date(clock.now()).toISOString();
  let held = 0;
  for await (const { value } of DELIVERIES.all(store)) {
    if (value.status !== "waiting") continue;
    await store.batch(changeOf({ ...value, status: "held", last_error: HELD, next_attempt_at: null, ended_at }));
    held++;
  }
  return held;
}

/** Skips firings whose time has passed. A schedule whose one time has passed is paused: a person sets another time or removes it. */
async function skipFirings({ store, clock }: HoldOptions): Promise<number> {
  const now = clock.now();
  let skipped = 0;
  for await (const { key, version, value } of SCHEDULES.all(store)) {
    if (value.next_at === null || value.next_at > now) continue;
    const next_at = timesOf(value).next(now) ?? null;
    const state = next_at === null ? "paused" : value.state;
    await store.batch([SCHEDULES.putOver(key, version, { ...value, state, next_at })]);
    skipped++;
  }
  return skipped;
}

/** Ends approvals: open ones are withdrawn, and approved ones that were not used expire, since they may have been used after the backup. */
async function endApprovals({ store, clock }: HoldOptions, audit: Append): Promise<number> {
  const approvals = new StoredApprovals({
    store,
    clock,
    random: createSystemRandom(),
    log: SILENT,
    metrics: createMetrics(),
    audit,
  });
  const expires_at = new Date(clock.now()).toISOString();
  let ended = 0;
  for (const key of await Array.fromAsync(OPEN_APPROVALS.keys(store))) {
    await approvals.cancel(key).catch((error: unknown) => {
      if (!isUnreadable(error)) throw error;
    });
    ended++;
  }
  for await (const { key, version, value } of APPROVALS.all(store)) {
    const { approval } = value;
    const isUsable = approval.kind !== "elicitation" && approval.status === "approved" && approval.used_at === null;
    if (!isUsable || approval.expires_at <= expires_at) continue;
    const body = toApprovalBody({ ...value, approval: { ...approval, expires_at } });
    await store.batch([APPROVALS.putOver(key, version, body)]);
    ended++;
  }
  return ended;
}

async function revokeTokens({ store, clock }: HoldOptions, append: Append): Promise<number> {
  const codes = await Array.fromAsync(PAIRING_CODES.keys(store));
  await store.batch(codes.map((key) => PAIRING_CODES.remove(key)));
  const tokens = await Tokens.open({
    store,
    clock,
    random: createSystemRandom(),
    record: (change, writes) => append(accessEvent(change), writes),
  });
  return await tokens.revokeAll({ via: "cli", tokenId: null });
}
