import { nextTick } from "../../base/tick.ts";
import type { WhereField } from "../../storage/indexed_fields.ts";
import type { Store } from "../../storage/store.ts";
import { AUDIT_RECORDS, auditKey, type AuditRecord, auditSeq, parseAuditRecord } from "./audit_chain.ts";
import type { AuditEvent } from "./audit_event.ts";

/** A part of the audit, newest first. */
export interface AuditPart {
  readonly records: readonly AuditRecord[];
  /** Older records were not looked at: go on before `last` */
  readonly hasMore: boolean;
  /** Place of the oldest record that was looked at */
  readonly last: string;
}

/** Filters and bounds of a list of audit records. */
export interface AuditQuery {
  /** Only this type of event */
  readonly type?: AuditEvent["type"] | undefined;
  readonly tool?: string | undefined;
  readonly runId?: string | undefined;
  /** Only records before this place: the position of a record in the chain of a gateway alone, the key of a record in a cluster */
  readonly before?: string | undefined;
  /** 1-1000 */
  readonly limit: number;
}

/** Records that one list looks at, so that a filter which nothing fits ends */
const MAX_LOOKED_AT = 20_000;

/** The newest records before a place that fit, newest first. In a cluster their order is that of their times. */
export async function listAudit(store: Store, query: AuditQuery): Promise<AuditPart> {
  const records: AuditRecord[] = [];
  const where = rarestOf(query);
  let before = query.before;
  for (let looked = 0; looked < MAX_LOOKED_AT;) {
    const after = before === undefined ? undefined : keyOfPlace(before);
    const page = await readAuditPage(store, { after, reverse: true, where });
    if (page.length === 0) return { records, hasMore: false, last: before ?? "1" };
    for (const { key, body } of page) {
      const record = parseAuditRecord(body);
      const isWanted = record !== undefined && fits(record, query);
      if (isWanted && records.length === query.limit) return { records, hasMore: true, last: before ?? "1" };
      before = placeOfRecord(key) ?? before;
      if (isWanted) records.push(record);
    }
    looked += page.length;
  }
  return { records, hasMore: true, last: before ?? "1" };
}

/** Begin of the keys of a cluster's records, see chain_records.ts. */
const CLUSTER_KEY = /^t\d{15}\./;

/** Returns the place that stands for a key. Undefined for a key that the audit does not write. */
function placeOfRecord(key: string): string | undefined {
  if (CLUSTER_KEY.test(key)) return key;
  const seq = auditSeq(key);
  return seq === undefined ? undefined : String(seq);
}

function keyOfPlace(place: string): string {
  return CLUSTER_KEY.test(place) ? place : auditKey(Number(place));
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

/** Records of a full page. */
export const AUDIT_PAGE = 250;

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
  const page = await store.scan(AUDIT_RECORDS.name, {
    order: "key",
    reverse,
    limit: AUDIT_PAGE,
    where,
    ...(after === undefined ? {} : { after }),
  });
  AUDIT_RECORDS.readable(store, page);
  return page;
}
