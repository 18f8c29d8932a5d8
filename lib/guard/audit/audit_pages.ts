import type { WhereField } from "../../storage/indexed_fields.ts";
import type { Store } from "../../storage/store.ts";
import { AUDIT_RECORDS, auditKey, auditSeq } from "./audit_chain.ts";

/** A record as it lies in the store; `body` is undefined where it cannot be read. */
export interface AuditEntry {
  readonly key: string;
  readonly body: unknown;
}

const PAGE = 250;
/** How far a record that cannot be read is looked for after the one before it */
const MAX_STEPS = 1000;

/**
 * The records after a key, a page at a time; an empty page is the end.
 *
 * A record that is not JSON any more breaks the store's own page: it is stepped over, one record at a time. Each page waits for
 * a turn of the event loop, so that a long audit holds up nobody.
 */
export async function readAuditPage(
  store: Store,
  { after, reverse = false, limit = PAGE, where }: {
    readonly after?: string | undefined;
    readonly reverse?: boolean;
    readonly limit?: number;
    /** Only records of this type, tool or run; no record that cannot be read is among them */
    readonly where?: WhereField | undefined;
  },
): Promise<readonly AuditEntry[]> {
  const scan = (size: number) =>
    store.scan(AUDIT_RECORDS, { order: "key", reverse, limit: size, where, ...(after === undefined ? {} : { after }) });
  await new Promise((resolve) => setImmediate(resolve));
  if (where !== undefined) return await scan(limit);
  try {
    return await scan(limit);
  } catch {
    return limit > 1
      ? await readAuditPage(store, { after, reverse, limit: 1 })
      : [await findBroken(store, { after, reverse })];
  }
}

/** The record next to `after`, which cannot be read and so not be scanned. */
async function findBroken(
  store: Store,
  { after, reverse }: { readonly after: string | undefined; readonly reverse: boolean },
): Promise<AuditEntry> {
  const from = after === undefined ? 0 : auditSeq(after) ?? 0;
  for (let step = 1; step <= MAX_STEPS; step++) {
    const key = auditKey(Math.max(0, reverse ? from - step : from + step));
    if (await store.get(AUDIT_RECORDS, key).then(() => false, () => true)) return { key, body: undefined };
  }
  throw new Error(`Cannot read the audit after record ${from}: the next record is damaged`);
}
