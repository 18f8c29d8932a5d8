import { readable } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import type { AuditAppend } from "./audit.ts";
import { AUDIT_RECORDS, auditSeq, parseAuditRecord, readAuditRecord } from "./audit_chain.ts";

const PAGE = 500;

/**
 * Forgets the oldest records, those written before a time. Each step is one transaction with the record that says so, without
 * which the gap at the begin would be an attack.
 * @param options.before ISO 8601
 * @returns how many were forgotten
 */
export async function pruneAudit(
  { store, append, before }: { readonly store: Store; readonly append: AuditAppend; readonly before: string },
): Promise<number> {
  for (let count = 0;;) {
    const page = await store.scan(AUDIT_RECORDS, { order: "key", limit: PAGE });
    readable(store, AUDIT_RECORDS, page, readAuditRecord);
    const old = page.map(({ key, body }) => ({ key, seq: auditSeq(key), record: parseAuditRecord(body) }));
    // What does not look like a record of the chain stays, for verify to name
    const end = old.findIndex(({ seq, record }) => seq === undefined || record?.seq !== seq || record.time >= before);
    const gone = end < 0 ? old : old.slice(0, end);
    const last = gone.at(-1);
    if (last?.seq === undefined || last.record === undefined) return count;
    // Each step leaves a record, so one that removed nothing but such records would go on for ever
    if (gone.length < PAGE && gone.every(({ record }) => record?.type === "retention")) return count;
    const deletes = gone.map(({ key }) => ({ op: "delete" as const, collection: AUDIT_RECORDS, key }));
    await append({ type: "retention", through: last.seq, through_hash: last.record.hash }, deletes);
    count += gone.length;
    if (gone.length < PAGE) return count;
  }
}
