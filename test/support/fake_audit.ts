import type { Audit } from "../../lib/guard/audit/audit.ts";
import { chainRecord, NO_HASH } from "../../lib/guard/audit/audit_chain.ts";
import type { AuditEvent } from "../../lib/guard/audit/audit_event.ts";
import type { Store } from "../../lib/storage/store.ts";

/** An audit in memory that shows what it was told. Facts go to the store it is given. */
export interface FakeAudit extends Audit {
  readonly events: AuditEvent[];
  /** Code and address of refused credentials */
  readonly refused: string[];
  /** From now on nothing can be written */
  fail(error: Error): void;
}

export function createFakeAudit(store?: Store): FakeAudit {
  const events: AuditEvent[] = [];
  const refused: string[] = [];
  let failure: Error | undefined;
  return {
    events,
    refused,
    fail: (error) => void (failure = error),
    async append(event, writes = [], more = []) {
      if (failure !== undefined) throw failure;
      const written = await store?.batch(writes) ?? true;
      if (written) events.push(event, ...more);
      return written;
    },
    list({ limit }) {
      const records = events.map((event, index) =>
        chainRecord({ seq: index, hash: NO_HASH }, { event, time: "2026-01-01T00:00:00.000Z", seq: index + 1 })
      ).reverse();
      return Promise.resolve({
        records: records.slice(0, limit),
        hasMore: records.length > limit,
        last: String(records[limit - 1]?.seq ?? 1),
      });
    },
    verify: () =>
      Promise.resolve({
        ok: true,
        records: events.length,
        first_seq: 1,
        last_seq: events.length,
        head: { seq: events.length, hash: NO_HASH },
        problems: [],
        problem_count: 0,
      }),
    head: () => ({ seq: events.length, hash: NO_HASH }),
    healthy: () => failure === undefined,
    accessFailed: (address, code) => void refused.push(`${code} ${address ?? "unknown"}`),
    close: () => Promise.resolve(),
  };
}
