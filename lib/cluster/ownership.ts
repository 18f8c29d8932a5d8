/**
 * The rules of ownership in a cluster, as functions without I/O: who may act, who may take over, and when.
 *
 * The database keeps one lease row for each gateway and one claim for each open run. A gateway keeps what it knows of its own lease. Every
 * driver follows these functions, and `test/cluster/ownership.system.ts` enumerates all their interleavings on small bounds.
 * Source: docs/design/cluster.md "Rules"
 */

/** A moment by both clocks of one machine. One of them may stand still or jump: a suspended machine has no monotonic time. */
export interface Instant {
  /** Milliseconds since an arbitrary start. */
  readonly monotonic: number;
  /** Milliseconds since the epoch. */
  readonly wall: number;
}

/** Lengths that all gateways of a cluster share. */
export interface LeaseTerms {
  /** Milliseconds that a renewal counts by the database's clock. */
  readonly leaseMs: number;
  /** Milliseconds before the end of its lease at which an owner stops: for an effect on its way, for killing programs, for clocks that differ. */
  readonly marginMs: number;
}

/** Lease row of a gateway. */
export interface LeaseRow {
  /** Counts the joins of the gateway and the times that others fenced it off. A claim counts while its fence is the row's. */
  readonly fence: number;
  /** End of the lease by the database's clock, in ms since the epoch. */
  readonly until: number;
}

/** Claim of a run: the gateway that owns it, with the fence that the gateway had. */
export interface Claim {
  readonly gateway: string;
  readonly fence: number;
}

/** Lease as the gateway that has it knows it. */
export interface Hold {
  readonly fence: number;
  /** Time at which the last renewal that succeeded was sent. Undefined after an error of the heartbeat: the gateway may do nothing. */
  readonly sentAt: Instant | undefined;
  /** Time at which the first renewal was sent of those without an error and without a gap. Undefined after an error. */
  readonly unbrokenSince: Instant | undefined;
}

/** Returns the row of a gateway that joins, also after it was fenced off. Earlier claims of the gateway do not count any more. */
export function joined(row: LeaseRow | undefined, now: number, { leaseMs }: LeaseTerms): LeaseRow {
  return { fence: (row?.fence ?? 0) + 1, until: now + leaseMs };
}

/** Returns the row after a renewal. Undefined: others have fenced the gateway off. A lease that ran out is renewed while nobody took it. */
export function renewed(
  row: LeaseRow | undefined,
  { fence, now, leaseMs }: { readonly fence: number; readonly now: number } & Pick<LeaseTerms, "leaseMs">,
): LeaseRow | undefined {
  return row?.fence === fence ? { fence, until: now + leaseMs } : undefined;
}

/** Returns the row of a gateway that another one fences off. Undefined: its lease has not run out. */
export function fencedRow(row: LeaseRow, now: number): LeaseRow | undefined {
  return row.until <= now ? { fence: row.fence + 1, until: row.until } : undefined;
}

/** Tells whether a write or a claim with this fence counts. */
export function counts(row: LeaseRow | undefined, fence: number): boolean {
  return row?.fence === fence;
}

/** Tells whether nobody owns a run: no gateway has claimed it, or the gateway that has was fenced off or has left. */
export function isFree(claim: Claim | undefined, rowOf: (gateway: string) => LeaseRow | undefined): boolean {
  return claim === undefined || !counts(rowOf(claim.gateway), claim.fence);
}

/**
 * Tells whether a gateway may claim a run: nobody owns it, and no work of an earlier claim goes on at this gateway. Work that was lost needs
 * a while to stop, and must not get a fence that counts.
 * @param isAtWork true: this gateway works on the run, or ends its work
 */
export function mayClaim(
  claim: Claim | undefined,
  rowOf: (gateway: string) => LeaseRow | undefined,
  isAtWork: boolean,
): boolean {
  return !isAtWork && isFree(claim, rowOf);
}

/** Returns the hold of a gateway whose join was sent at `sentAt` and has succeeded. */
export function held(fence: number, sentAt: Instant): Hold {
  return { fence, sentAt, unbrokenSince: sentAt };
}

/** Returns the hold after a renewal that succeeded. A gap in which the owner's deadline passed restarts the unbroken renewals. */
export function extended(hold: Hold, sentAt: Instant, terms: LeaseTerms): Hold {
  const isUnbroken = hold.unbrokenSince !== undefined && mayAct(hold, sentAt, terms);
  return { fence: hold.fence, sentAt, unbrokenSince: isUnbroken ? hold.unbrokenSince : sentAt };
}

/** Returns the hold after any error of the heartbeat. The gateway may do nothing until a renewal succeeds. */
export function brokenHold({ fence }: Hold): Hold {
  return { fence, sentAt: undefined, unbrokenSince: undefined };
}

/** Tells whether an owner may begin an effect: its own deadline has passed by neither clock, and no clock went back. */
export function mayAct(hold: Hold, now: Instant, { leaseMs, marginMs }: LeaseTerms): boolean {
  const { sentAt } = hold;
  if (sentAt === undefined) return false;
  const isWithin = (passed: number) => passed >= 0 && passed < leaseMs - marginMs;
  return isWithin(now.monotonic - sentAt.monotonic) && isWithin(now.wall - sentAt.wall);
}

/**
 * Tells whether a gateway may fence off others whose lease ran out. It needs one lease of its own unbroken renewals: after an outage of the
 * database all leases have run out, and their owners get the time to renew them.
 */
export function mayTakeOver(hold: Hold, now: Instant, terms: LeaseTerms): boolean {
  const { unbrokenSince } = hold;
  if (unbrokenSince === undefined || !mayAct(hold, now, terms)) return false;
  return now.monotonic - unbrokenSince.monotonic >= terms.leaseMs;
}

/** Default margin: a quarter of the lease, at most 2 seconds. */
export function marginOf(leaseMs: number): number {
  return Math.min(2_000, leaseMs / 4);
}

/** Returns the pause between two renewals: three fit into the time that an owner may act. */
export function renewalPause({ leaseMs, marginMs }: LeaseTerms): number {
  return (leaseMs - marginMs) / 3;
}
