import { nextTick } from "../../base/tick.ts";
import type { WhereField } from "../../storage/indexed_fields.ts";
import { readable } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import { AUDIT_RECORDS, readAuditRecord } from "./audit_chain.ts";

/** A record as it lies in the store; `body` is undefined where it cannot be read. */
export interface AuditEntry {
  readonly key: string;
  readonly body: unknown;
}

const PAGE = 250;

/**
 * Returns the records after a key, a page at a time; an empty page is the end. A record that cannot be read is set aside, and stays
 * in its page. Each page waits for a tick of the event loop, so that a long audit holds up nobody.
 */
export async function readAuditPage(
  store: Store,
  { after, reverse = false, where }: {
    readonly after?: string | undefined;
    readonly reverse?: boolean;
    /** Only records of this type, tool or run; no record that cannot be read is among them */
    readonly where?: WhereField | undefined;
  },
): Promise<readonly AuditEntry[]> {
  await nextTick();
  const page = await store.scan(AUDIT_RECORDS, {
    order: "key",
    reverse,
    limit: PAGE,
    where,
    ...(after === undefined ? {} : { after }),
  });
  readable(store, AUDIT_RECORDS, page, readAuditRecord);
  return page;
}
