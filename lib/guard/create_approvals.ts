import { cancelError } from "../base/cancel.ts";
import type { Clock } from "../base/clock.ts";
import type { Random } from "../base/random.ts";
import { type Approval, APPROVAL_ID } from "../base/records/approval.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Metrics } from "../base/telemetry/metrics.ts";
import { createKeyedNotifier } from "../base/keyed_queues.ts";
import {
  parseMark,
  readable,
  readRecord,
  scanAll,
  type ScanAllOptions,
  unlessUnreadable,
} from "../storage/read_records.ts";
import type { Store, Write } from "../storage/store.ts";
import {
  approvalEvent,
  APPROVALS,
  type KeptApproval,
  OPEN_APPROVALS,
  parseApproval,
  toApprovalBody,
} from "./approval_records.ts";
import {
  approvalClaimed,
  matchNotOffered,
  matchWithoutRemember,
  notRemembered,
  settledBefore,
  tooManyRules,
  unknownApproval,
} from "./approval_refusals.ts";
import { createApprovalRules, offersOf, ruleEvent, ruleOf } from "./approval_rules.ts";
import { type Actor, APPROVAL_LIMITS, type Approvals } from "./approvals.ts";
import type { AuditAppend } from "./audit/audit_chain.ts";
import type { AuditEvent } from "./audit/audit_event.ts";
import { asksAlways } from "./policy.ts";
import type { RuleSubject } from "./rule_match.ts";

/** Store, clock and audit that the approvals work with. */
export interface CreateApprovalsOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly metrics: Metrics;
  /** Told of every step, in one transaction with it */
  readonly audit: AuditAppend;
}

/** An approval as it lies in the store. */
interface Found extends KeptApproval {
  readonly version: number;
}

const PAGE = 200;
const DAY_MS = 24 * 60 * 60 * 1000;
/** A timer holds less than 25 days. An approval may wait longer, so it is looked at once a day */
const MAX_TIMER_MS = DAY_MS;

/** The approvals over a store. */
export function createApprovals(options: CreateApprovalsOptions): Approvals {
  const { store, clock, random, log, audit } = options;
  const notifier = createKeyedNotifier();
  const rules = createApprovalRules({ store, log, audit });
  const counted = options.metrics.counter("postern_approvals_total", "Questions to a person that were settled", [
    "decision",
  ]);
  const now = () => new Date(clock.now()).toISOString();

  const find = async (id: string): Promise<Found | undefined> => {
    if (!APPROVAL_ID.test(id)) return undefined;
    const found = await readRecord(store, APPROVALS, id, parseApproval);
    return found === undefined ? undefined : { ...found.value, version: found.version };
  };

  /** Writes the next state of an approval together with what belongs to it. @returns false when it changed meanwhile */
  const change = async (
    found: Found,
    next: Approval,
    { by = null, writes = [], more = [] }: {
      readonly by?: Actor | null;
      readonly writes?: readonly Write[];
      /** Events of what `writes` change */
      readonly more?: readonly AuditEvent[];
    } = {},
  ): Promise<boolean> => {
    const { wider, version } = found;
    const body = toApprovalBody({ approval: next, wider });
    const settles = found.approval.status === "pending";
    const written = await audit(approvalEvent(next, by), [
      { op: "putIf", collection: APPROVALS, key: next.id, version, body },
      ...(settles ? [{ op: "delete", collection: OPEN_APPROVALS, key: next.id } as const] : []),
      ...writes,
    ], more);
    if (!written || !settles) return written;
    counted.with(next.status).add();
    const { id, run_id, call_id, tool, status, answered_by } = next;
    log.info("Approval was settled", { approval_id: id, run_id, call_id, tool, status, answered_by });
    notifier.wake(id);
    return true;
  };

  /** Reads an approval, and settles it as expired when its time is over. */
  const look = async (id: string): Promise<Found | undefined> => {
    for (;;) {
      const found = await find(id);
      if (found === undefined || found.approval.status !== "pending" || !isOver(found.approval, clock.now())) {
        return found;
      }
      const { expires_at } = found.approval;
      await change(found, { ...found.approval, status: "expired", answered_at: expires_at });
    }
  };

  /** Gives every id, the newest first. No approval that is listed may be deleted before the end. */
  async function* ids({ after, where }: Pick<ScanAllOptions, "after" | "where"> = {}): AsyncGenerator<string> {
    for await (const { key } of scanAll(store, APPROVALS, { order: "created", reverse: true, after, where })) yield key;
  }

  const settleExpired = async (): Promise<void> => {
    const open = await Array.fromAsync(scanAll(store, OPEN_APPROVALS, { order: "created", reverse: true }));
    // A damaged mark is set aside, and its approval is settled all the same: the key says which
    readable(store, OPEN_APPROVALS, open, parseMark);
    for (const { key } of open) await unlessUnreadable(look(key));
  };

  const makeRoom = async (): Promise<void> => {
    if (await store.count(APPROVALS) < APPROVAL_LIMITS.records) return;
    const oldest = await store.scan(APPROVALS, { order: "created", limit: PAGE });
    const settled = readable(store, APPROVALS, oldest, parseApproval)
      .filter(({ value }) => value.approval.status !== "pending");
    if (settled.length > 0) {
      await store.batch(settled.map(({ key }) => ({ op: "delete", collection: APPROVALS, key })));
    }
  };

  return {
    async ask(question, claim) {
      await makeRoom();
      if (await store.count(OPEN_APPROVALS) >= APPROVAL_LIMITS.pending) {
        await settleExpired();
        if (await store.count(OPEN_APPROVALS) >= APPROVAL_LIMITS.pending) return undefined;
      }
      const { tool, workspace, inputDigest, wider, input, runId, timeoutMs } = question;
      const offers = asksAlways(question.rule)
        ? []
        : offersOf({ tool, workspace, inputDigest, wider }, { input, runId });
      const approval: Approval = {
        id: random.id("apr_"),
        object: "approval",
        status: "pending",
        tool,
        access: question.access,
        input,
        input_digest: inputDigest,
        reason: question.reason,
        rule: question.rule,
        workspace,
        files: question.files.map(({ path, sha256 }) => ({ path, sha256 })),
        containment: question.containment ?? null,
        ...(question.bound === undefined ? {} : { bound: question.bound.map((each) => ({ ...each })) }),
        digest: question.digest,
        run_id: runId,
        call_id: question.callId,
        requested_by: question.requestedBy.tokenId,
        created_at: now(),
        expires_at: new Date(clock.now() + timeoutMs).toISOString(),
        always_rule: offers.find(({ remember, match }) => remember === "always" && match === "call")?.text ?? null,
        offers,
        answered_at: null,
        answered_by: null,
        note: null,
        remember: null,
        rule_id: null,
        used_at: null,
      };
      const key = approval.id;
      const written = await audit(approvalEvent(approval, question.requestedBy), [
        { op: "insert", collection: APPROVALS, key, body: toApprovalBody({ approval, wider: toWiderBody(wider) }) },
        { op: "insert", collection: OPEN_APPROVALS, key, body: { v: 1 } },
        ...(claim === undefined ? [] : [claim(key)]),
      ]);
      if (!written) throw approvalClaimed();
      return approval;
    },

    async settled(id, signal) {
      for (;;) {
        if (signal.aborted) throw cancelError(signal);
        // Heard before it is looked at, so that no answer falls between
        const news = notifier.listen(id, signal);
        try {
          const found = await look(id);
          if (found === undefined) throw unknownApproval();
          if (found.approval.status !== "pending") return found.approval;
          const remaining = Date.parse(found.approval.expires_at) - clock.now();
          const timer = clock.after(Math.min(remaining, MAX_TIMER_MS), news.wake);
          await news.heard.finally(() => timer.clear());
        } finally {
          news.stop();
        }
      }
    },

    async answer(id, reply) {
      const found = await look(id);
      if (found === undefined) throw unknownApproval();
      const { approval } = found;
      if (approval.status !== "pending") throw settledBefore(approval.status);
      const { remember: howLong = "once", match } = reply;
      if (howLong === "once" && match !== undefined) throw matchWithoutRemember();
      if (howLong !== "once" && approval.always_rule === null) throw notRemembered(approval);
      const rule = ruleOf(found, reply, now());
      if (rule === "not_offered") throw matchNotOffered(match ?? "call", kindsOf(approval));
      const writes = rule === undefined ? [] : await rules.store(rule);
      if (writes === undefined) throw tooManyRules();
      const { decision, remember = "once", note = null, by } = reply;
      const next: Approval = {
        ...approval,
        status: decision === "approve" ? "approved" : "denied",
        answered_at: now(),
        answered_by: by.tokenId,
        note,
        remember,
        rule_id: rule?.id ?? null,
      };
      const more = rule === undefined ? [] : [ruleEvent("stored", rule, by)];
      if (!await change(found, next, { by, writes, more })) {
        throw settledBefore((await look(id))?.approval.status ?? "cancelled");
      }
      return { approval: next, rule };
    },

    async cancel(id) {
      const found = await look(id);
      if (found?.approval.status !== "pending") return;
      await change(found, { ...found.approval, status: "cancelled", answered_at: now() });
    },

    async use(id, digest) {
      const found = await look(id);
      if (found === undefined) return refused(id, "it never existed, or was forgotten since");
      const { approval } = found;
      switch (approval.status) {
        case "pending":
          return { ok: false, waiting: true, reason: `Cannot use approval "${id}": it has not been answered yet` };
        case "approved":
          break;
        default:
          return refused(id, `it is ${approval.status}`);
      }
      if (approval.used_at !== null) return refused(id, "it has let its one call through");
      if (isOver(approval, clock.now())) return refused(id, "it was approved, and has expired since");
      if (approval.digest !== digest) {
        return refused(
          id,
          "the call is not the one that was approved: its input, a file it changes or the tool differs",
        );
      }
      const next = { ...approval, used_at: now() };
      return await change(found, next) ? { ok: true, approval: next } : refused(id, "it has let its one call through");
    },

    async get(id) {
      return (await look(id))?.approval;
    },

    async list({ status, limit, after }) {
      const approvals: Approval[] = [];
      if (after !== undefined && !APPROVAL_ID.test(after)) return { approvals, hasMore: false };
      // Settled first, so that what is stored says of each whether its time is over
      await settleExpired();
      const where = status === undefined ? undefined : { field: "status", value: status };
      for await (const id of ids({ after, where })) {
        const approval = (await unlessUnreadable(find(id)))?.approval;
        if (approval === undefined || (status !== undefined && approval.status !== status)) continue;
        if (approvals.length === limit) return { approvals, hasMore: true };
        approvals.push(approval);
      }
      return { approvals, hasMore: false };
    },

    remembered: rules.remembered,
    rules: rules.rules,
    revoke: rules.revoke,

    async tidy(days) {
      const before = days === 0 ? "" : new Date(clock.now() - days * DAY_MS).toISOString();
      await settleExpired();
      for (const id of await Array.fromAsync(ids())) {
        const approval = (await unlessUnreadable(find(id)))?.approval;
        if (approval?.answered_at && approval.answered_at < before) await store.takeOnce(APPROVALS, id);
      }
      await rules.forgetRuns(before);
    },
  };
}

function kindsOf({ offers = [] }: Approval): readonly string[] {
  return [...new Set(["call", ...offers.map(({ match }) => match)])];
}

function toWiderBody(wider: RuleSubject["wider"]): KeptApproval["wider"] {
  if (wider === undefined) return undefined;
  const { op, access, folder, command } = wider;
  return {
    op,
    access,
    ...(folder === undefined ? {} : { folder }),
    ...(command === undefined ? {} : { command: command.slice(0, 2) }),
  };
}

function isOver({ expires_at }: Approval, now: number): boolean {
  return Date.parse(expires_at) <= now;
}

function refused(id: string, why: string) {
  return { ok: false, waiting: false, reason: `Cannot use approval "${id}": ${why}` } as const;
}
