import type { Write } from "../../storage/store.ts";
import type { AuditHead, AuditRecord } from "./audit_chain.ts";
import type { AuditEvent } from "./audit_event.ts";
import type { AuditReport } from "./verify_audit.ts";

/**
 * Writes one event, in one transaction with the `writes` that are the fact it tells of; durable when it resolves.
 *
 * Events keep the order of the calls. Texts are redacted and cut.
 * @param more further events of the same fact, written with it
 * @returns false when a precondition of `writes` did not hold: then neither they nor the event were written
 * @throws when the store cannot be written: then neither they nor the event were written
 */
export type AuditAppend = (
  event: AuditEvent,
  writes?: readonly Write[],
  more?: readonly AuditEvent[],
) => Promise<boolean>;

/** A part of the audit, newest first. */
export interface AuditPart {
  readonly records: readonly AuditRecord[];
  /** Older records were not looked at: go on before `lastSeq` */
  readonly hasMore: boolean;
  readonly lastSeq: number;
}

export interface AuditQuery {
  /** Only this type of event */
  readonly type?: AuditEvent["type"] | undefined;
  readonly tool?: string | undefined;
  readonly runId?: string | undefined;
  /** Only records before this position */
  readonly before?: number | undefined;
  /** 1-1000 */
  readonly limit: number;
}

/** The audit: an append-only, hash-chained list of what was decided, approved and called (docs/design/policy.md "Audit"). */
export interface Audit {
  readonly append: AuditAppend;
  /** Newest first. A record that cannot be read is left out: `verify` names it */
  list(query: AuditQuery): Promise<AuditPart>;
  /**
   * Checks every record against the chain, the chain against its kept head, and against a head the caller kept.
   * @throws {CancelError} when `signal` aborts
   */
  verify(options?: { readonly head?: AuditHead | undefined; readonly signal?: AbortSignal }): Promise<AuditReport>;
  /** Position and hash of the newest record; `{seq: 0}` for an empty audit */
  head(): AuditHead;
  /** Whether the last event reached the disk; where it did not, each look tries whether one would now */
  healthy(): boolean;
  /** Counts refused credentials, written once a minute for each address. Cheap, and bounded whatever comes */
  accessFailed(address: string | undefined, code: string): void;
  /** Writes what is pending */
  close(): Promise<void>;
}
