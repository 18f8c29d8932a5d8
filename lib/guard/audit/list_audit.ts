import type { WhereField } from "../../storage/indexed_fields.ts";
import type { Store } from "../../storage/store.ts";
import type { Audit, AuditQuery } from "./audit.ts";
import { auditKey, type AuditRecord, auditSeq, parseAuditRecord } from "./audit_chain.ts";
import { readAuditPage } from "./audit_pages.ts";

/** Records one question looks at, so that a filter nothing fits ends */
const MAX_LOOKED_AT = 20_000;

/** The newest records before a position that fit, newest first. */
export async function listAudit(
  store: Store,
  query: AuditQuery & { readonly before: number },
): ReturnType<Audit["list"]> {
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
