import * as v from "valibot";
import { storedObject } from "../base/records/stored_object.ts";
import type { Clock } from "../base/clock.ts";
import type { Taken } from "../base/fair_share.ts";
import { KeyedNotifier, type Listening } from "../base/keyed_queues.ts";
import {
  type Approval,
  APPROVAL_ID,
  APPROVAL_STATUSES,
  type ApprovalRule,
  approvalRuleSchema,
  approvalSchema,
  type ApprovalStatus,
} from "../base/records/approval.ts";
import { type Actor, storedActor } from "../base/records/caller.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { Metrics } from "../base/telemetry/metrics.ts";
import {
  Collection,
  parseMark,
  type Patience,
  type ScanAllOptions,
  unlessUnreadable,
} from "../storage/read_records.ts";
import type { Store, Write } from "../storage/store.ts";
import { APPROVAL_LIMITS } from "./approvals.ts";
import type { Askers } from "./askers.ts";
import type { AuditAppend } from "./audit/audit_chain.ts";
import type { ApprovalEvent, AuditEvent } from "./audit/audit_event.ts";
import type { RuleMatch } from "./rule_match.ts";

/**
 * Records of approvals and rules in the store. Every body carries its version `v`. This file alone parses them, and brings an older
 * version up to the newest.
 */

const access = approvalSchema.entries.access;
const approvalBodySchema = storedObject({
  v: v.literal(1),
  ...approvalSchema.entries,
  /** Properties of the call that wider rules compare, where there are such rules */
  wider: v.optional(storedObject({
    op: v.nullable(v.string()),
    access,
    folder: v.optional(v.string()),
    command: v.optional(v.array(v.string())),
  })),
  /** True for a command that reaches the network */
  reaches_network: v.optional(v.literal(true)),
});
const ruleBodySchema = storedObject({ v: v.literal(1), ...approvalRuleSchema.entries });

/** An approval, with the properties of its call that wider rules compare. */
export interface KeptApproval {
  readonly approval: Approval;
  readonly wider: v.InferOutput<typeof approvalBodySchema>["wider"];
  /** As in RuleSubject. */
  readonly reachesNetwork: boolean;
}

/** Collection of the approvals, by approval id. */
export const APPROVALS = new Collection(
  "approvals",
  v.pipe(
    approvalBodySchema,
    v.transform(({ v: _version, wider, reaches_network: reaches = false, ...approval }): KeptApproval => (
      { approval, wider, reachesNetwork: reaches }
    )),
  ),
  { onDamage: { removes: ["approvals", "open_approvals"] } },
);
/** Collection of the ids of pending approvals, so that they are found without reading all approvals. */
export const OPEN_APPROVALS = new Collection("open_approvals", parseMark, {
  replaced: "never changed",
  onDamage: { becomes: { v: 1 } },
});

/** Returns an approval as the store keeps it. */
export function toApprovalBody(
  { approval, wider, reachesNetwork }: KeptApproval,
): v.InferOutput<typeof approvalBodySchema> {
  return {
    v: 1,
    ...approval,
    ...(wider === undefined ? {} : { wider }),
    ...(reachesNetwork ? { reaches_network: true } : {}),
  };
}

/** Collection of the rules, by rule id. The id is made from the match, so each match has one rule at most. */
export const APPROVAL_RULES = new Collection(
  "approval_rules",
  v.pipe(ruleBodySchema, v.transform(({ v: _version, ...rule }): ApprovalRule => rule)),
);

/** Returns a rule as the store keeps it. */
export function toRuleBody(rule: ApprovalRule): v.InferOutput<typeof ruleBodySchema> {
  return { v: 1, ...rule };
}

/** Returns the calls that a stored rule stands for. Undefined for a record with a missing field: such a rule matches no call. */
export function matchOfRule({ match, input_digest, folder, command, op, access }: ApprovalRule): RuleMatch | undefined {
  switch (match) {
    case "call":
      if (input_digest === null) return undefined;
      return { kind: "call", inputDigest: input_digest, ...(access === "network" ? { access } : {}) };
    case "folder":
      return folder === null || access === null ? undefined : { kind: "folder", op, access, folder };
    case "command":
      return command === null || access === null ? undefined : { kind: "command", op, access, command };
  }
}

/**
 * Returns the audit event of an approval's new state.
 * @param by null when nobody acted, as for an expiry
 * @param options.fields names of the fields that the person filled in. Default: the answer has no content
 */
export function approvalEvent(
  approval: Approval,
  by: Actor | null,
  { fields }: { readonly fields?: readonly string[] | undefined } = {},
): ApprovalEvent {
  const { id, status, used_at, kind = "call", server, tool, digest, run_id, call_id, remember, rule_id, note } =
    approval;
  return {
    type: "approval",
    action: status === "pending" ? "asked" : used_at === null ? status : "used",
    approval_id: id,
    tool,
    digest,
    run_id,
    call_id,
    by: by === null ? null : storedActor(by),
    remember,
    rule_id,
    note,
    ...(kind === "call" ? {} : { kind, server }),
    ...(fields === undefined ? {} : { fields }),
  };
}

/** An approval as it lies in the store. */
export interface FoundApproval extends KeptApproval {
  readonly version: number;
}

/** The rest of a change of an approval: its actor, and what is written with it. */
export interface ApprovalChange {
  /** Default null: nobody acted */
  readonly by?: Actor | null;
  readonly writes?: readonly Write[];
  /** Events of what `writes` change */
  readonly more?: readonly AuditEvent[];
  /** Names of the fields that the person filled in */
  readonly fields?: readonly string[] | undefined;
  /** Waits for the database, with the same event for each try: the audit then knows one again that was written. Default: nobody waits */
  readonly patience?: Patience;
}

/** Store, clock and audit that the records of approvals work with. */
export interface ApprovalRecordsOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Metrics;
  /** Receives every step, in one transaction with it */
  readonly audit: AuditAppend;
  /** Default: nobody else settles an approval */
  readonly news?: ApprovalNews | undefined;
}

/** Wakes whoever waits for the settlement of an approval. */
export interface ApprovalNews {
  /** True: calls of other processes may wait for the approvals of the store. */
  readonly mayWaitElsewhere: boolean;
  /** Begins to wait for the settlement of an approval, whichever caller settles it. It may be heard without one. */
  listen(id: string, signal: AbortSignal): Listening;
  /** Tells everybody that an approval was settled. */
  tell(id: string): void;
  /** Joins the looks of people at each gateway. Default: there is no other */
  readonly shareLooks?: ((askers: Askers) => void) | undefined;
}

/** Returns the news of a process that no other shares its approvals with. */
function createOwnNews(): ApprovalNews {
  const notifier = new KeyedNotifier();
  return {
    mayWaitElsewhere: false,
    listen: (id, signal) => notifier.listen(id, signal),
    tell: (id) => notifier.wake(id),
  };
}

/** Settled approvals that are looked at to make room. */
const PAGE = 200;

/** The records of approvals: finds them, changes them, and settles those whose time is over. */
export class ApprovalRecords {
  readonly #options: ApprovalRecordsOptions;
  readonly #counted: ReturnType<Metrics["counter"]>;
  readonly #news: ApprovalNews;
  /** Elicitations that a call of this process waits for. */
  readonly #awaited = new Set<string>();

  constructor(options: ApprovalRecordsOptions) {
    this.#options = options;
    this.#counted = options.metrics.counter(
      "postern_approvals_total",
      "Approvals that were settled",
      ["decision"],
      APPROVAL_STATUSES.filter((status) => status !== "pending").map((status) => [status]),
    );
    this.#news = options.news ?? createOwnNews();
  }

  /** Listens for the settlement of an approval, whichever caller settles it. */
  listen(id: string, signal: AbortSignal): Listening {
    return this.#news.listen(id, signal);
  }

  /** Reads an approval as it is stored: it may be `pending` although its time is over. @returns undefined for an unknown id */
  async find(id: string): Promise<FoundApproval | undefined> {
    if (!APPROVAL_ID.test(id)) return undefined;
    const found = await APPROVALS.read(this.#options.store, id);
    return found === undefined ? undefined : { ...found.value, version: found.version };
  }

  /**
   * Reads an approval, and settles it when nobody can answer it any more: as expired when its time is over, as cancelled when it is an
   * elicitation of a call that ended with its process.
   * @returns undefined for an unknown id
   */
  async findCurrent(id: string): Promise<FoundApproval | undefined> {
    for (;;) {
      const found = await this.find(id);
      if (found?.approval.status !== "pending") return found;
      const end = this.#endOf(found.approval);
      if (end === undefined) return found;
      // When somebody answers at the same moment, the change fails, and the next reading finds the answer
      await this.change(found, { ...found.approval, ...end });
    }
  }

  /** Settles an approval that was just read when nobody can answer it any more. @returns undefined when it is gone, or damaged, by then */
  async #settled(approval: Approval): Promise<Approval | undefined> {
    if (approval.status !== "pending" || this.#endOf(approval) === undefined) return approval;
    return (await unlessUnreadable(this.findCurrent(approval.id)))?.approval;
  }

  /** Returns the end of a pending approval that nobody can answer any more. */
  #endOf({ id, kind, expires_at }: Approval): Pick<Approval, "status" | "answered_at"> | undefined {
    const now = this.#options.clock.now();
    // A call that may wait elsewhere keeps its elicitation until its time is over
    const isLost = kind === "elicitation" && !this.isAwaited(id) && !this.#news.mayWaitElsewhere;
    if (isLost) return { status: "cancelled", answered_at: new Date(now).toISOString() };
    return isOver({ expires_at }, now) ? { status: "expired", answered_at: expires_at } : undefined;
  }

  /** Notes that a call of this process waits for an elicitation, until `release`. */
  await(id: string): void {
    this.#awaited.add(id);
  }

  /** Tells whether a call of this process waits for an elicitation. */
  isAwaited(id: string): boolean {
    return this.#awaited.has(id);
  }

  /** Tells whether no call of this process waits for an elicitation, but one of another may. */
  mayWaitElsewhere(id: string): boolean {
    return this.#news.mayWaitElsewhere && !this.isAwaited(id);
  }

  /** Ends what `await` began. */
  release(id: string): void {
    this.#awaited.delete(id);
  }

  /** Writes a new approval. @param claim written with it. @returns false when the claim does not hold */
  async insert(
    kept: KeptApproval,
    { by, claim, patience }: {
      readonly by: Actor;
      readonly claim: Write | readonly Write[] | undefined;
      readonly patience: Patience;
    },
  ): Promise<boolean> {
    const key = kept.approval.id;
    const event = approvalEvent(kept.approval, by);
    const writes: readonly Write[] = [
      APPROVALS.insert(key, toApprovalBody(kept)),
      OPEN_APPROVALS.insert(key, { v: 1 }),
      ...(claim === undefined ? [] : [claim].flat()),
    ];
    return await patience(() => this.#options.audit(event, writes));
  }

  /** Writes the next state of an approval together with what belongs to it. @returns false when it changed meanwhile */
  async change(
    found: FoundApproval,
    next: Approval,
    { by = null, writes = [], more = [], fields, patience }: ApprovalChange = {},
  ): Promise<boolean> {
    const { version } = found;
    const body = toApprovalBody({ ...found, approval: next });
    const settles = found.approval.status === "pending";
    const event = approvalEvent(next, by, { fields });
    const all: readonly Write[] = [
      APPROVALS.putOver(next.id, version, body),
      ...(settles ? [OPEN_APPROVALS.remove(next.id)] : []),
      ...writes,
    ];
    const write = () => this.#options.audit(event, all, more);
    const written = await (patience?.(write) ?? write());
    if (written && settles) this.#tellSettled(next);
    return written;
  }

  /** Gives every approval as it is stored, the newest first. None that was given may be deleted before the end. */
  async *all({ after, where }: Pick<ScanAllOptions, "after" | "where"> = {}): AsyncGenerator<Approval> {
    const options = { order: "created", reverse: true, after, where } as const;
    for await (const { value } of APPROVALS.all(this.#options.store, options)) {
      yield value.approval;
    }
  }

  /** Returns the approvals of some runs among the newest of a status. @param status undefined: any */
  async ofRuns(runIds: ReadonlySet<string>, status: ApprovalStatus | undefined): Promise<readonly Approval[]> {
    const { store } = this.#options;
    const where = status === undefined ? undefined : { field: "status", value: status };
    const newest = await store.scan(APPROVALS.name, {
      order: "created",
      reverse: true,
      where,
      limit: APPROVAL_LIMITS.pending,
    });
    const stored = APPROVALS.readable(store, newest.filter(({ body }) => isOfRun(body, runIds)));
    const found: Approval[] = [];
    for (const { value } of stored) {
      const approval = await this.#settled(value.approval);
      if (approval !== undefined && (status === undefined || approval.status === status)) found.push(approval);
    }
    return found;
  }

  /** Counts the approvals that are pending, also those whose time is over. */
  async countPending(): Promise<number> {
    return await this.#options.store.count(OPEN_APPROVALS.name);
  }

  /** Counts the approvals that are pending, and those that calls of a token asked for. */
  async pendingOf(tokenId: string | null): Promise<Taken> {
    const { store } = this.#options;
    const where = { field: "status", value: "pending" } as const;
    const pending = await APPROVALS.page(store, { order: "created", where, limit: APPROVAL_LIMITS.pending });
    const own = pending.filter(({ value }) => value.approval.requested_by === tokenId);
    return { all: await this.countPending(), own: own.length };
  }

  /** Settles every approval whose time is over. */
  async settleExpired(): Promise<void> {
    const { store } = this.#options;
    const where = { field: "status", value: "pending" } as const;
    const limit = APPROVAL_LIMITS.pending;
    const [pending] = await Promise.all([
      // The oldest first: gateways that file at the same moment may exceed the limit by some
      APPROVALS.page(store, { order: "created", where, limit }),
      // A damaged mark is set aside, and its approval is settled all the same
      OPEN_APPROVALS.page(store, { limit }),
    ]);
    for (const { value } of pending) await this.#settled(value.approval);
  }

  /** Deletes the oldest settled approvals when there are as many records as may be. */
  async makeRoom(): Promise<void> {
    const { store } = this.#options;
    if (await store.count(APPROVALS.name) < APPROVAL_LIMITS.records) return;
    const deletes = await APPROVALS.removeOldest(store, PAGE, ({ approval }) => approval.status !== "pending");
    if (deletes.length > 0) await store.batch(deletes);
  }

  async delete(id: string): Promise<void> {
    await this.#options.store.takeOnce(APPROVALS.name, id);
  }

  #tellSettled({ id, run_id, call_id, tool, status, answered_by }: Approval): void {
    this.#counted.with(status).add();
    this.#options.log.info("Approval was settled", { approval_id: id, run_id, call_id, tool, status, answered_by });
    this.#news.tell(id);
  }
}

/** Tells whether a stored approval names one of these runs. Most are other runs', and are not parsed. */
function isOfRun(body: unknown, runIds: ReadonlySet<string>): boolean {
  const runId = typeof body === "object" && body !== null && "run_id" in body ? body.run_id : undefined;
  return typeof runId === "string" && runIds.has(runId);
}

/** Tells whether the time of an approval is over: it waits no more, and its answer counts no more. */
export function isOver({ expires_at }: Pick<Approval, "expires_at">, now: number): boolean {
  return Date.parse(expires_at) <= now;
}
