import { nextTick } from "../../base/tick.ts";
import type { WhereField } from "../../storage/indexed_fields.ts";
import { readable } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import {
  AUDIT_RECORDS,
  auditKey,
  type AuditRecord,
  auditSeq,
  parseAuditRecord,
  readAuditRecord,
} from "./audit_chain.ts";
import type { AuditEvent } from "./audit_event.ts";

/** A part of the audit, newest first. */
export interface AuditPart {
  readonly records: readonly AuditRecord[];
  /** Older records were not looked at: go on before `lastSeq` */
  readonly hasMore: boolean;
  readonly lastSeq: number;
}

/** Filters and bounds of a list of audit records. */
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

/** Records that one list looks at, so that a filter which nothing fits ends */
const MAX_LOOKED_AT = 20_000;

/** The newest records before a position that fit, newest first. */
export async function listAudit(
  store: Store,
  query: AuditQuery & { readonly before: number },
): Promise<AuditPart> {
  const records: AuditRecord[] = [];
  const where = rarestOf(query);
  let before = query.before;
  for (let looked = 0; looked < MAX_LOOKED_AT;) {
    const page = await readAuditPage(store, { after: auditKey(before), reverse: true, where });
    if (page.length === 0) return { records, hasMore: false, lastSeq: before };
    for (const { key, body } of page) {
      const record = parseAuditRecord(body);
      const isWanted = record !== undefined && fits(record, query);
      if (isWanted && records.length === query.limit) return { records, hasMore: true, lastSeq: before };
      before = auditSeq(key) ?? before;
      if (isWanted) records.push(record);
    }
    looked += page.length;
  }
  return { records, hasMore: true, lastSeq: before };
}

/** The filter that the fewest records pass, which is read from its index; `fits` applies the others. */
function rarestOf({ type, tool, runId }: AuditQuery): WhereField | undefined {
  if (runId !== undefined) return { field: "run_id", value: runId };
  if (tool !== undefined) return { field: "tool", value: tool };
  return type === undefined ? undefined : { field: "type", value: type };
}

/** Tells whether a record passes the filters of type and tool. The one of the run is read from its index wherever it is given. */
function fits(record: AuditRecord, { type, tool }: AuditQuery): boolean {
  if (type !== undefined && record.type !== type) return false;
  return tool === undefined || ("tool" in record && record.tool === tool);
}

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
