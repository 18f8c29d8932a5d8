import { cancelError } from "../../base/cancel.ts";
import type { Store } from "../../storage/store.ts";
import {
  AUDIT_HEAD,
  type AuditHead,
  type AuditRecord,
  auditSeq,
  HEAD_KEY,
  NO_HASH,
  parseAuditHead,
  parseAuditRecord,
  recordHash,
} from "./audit_chain.ts";
import { type AuditEntry, readAuditPage } from "./list_audit.ts";

/**
 * Kind of damage at a position. `altered`: the record does not have its own hash, or cannot be read; `missing`: records are not
 * there; `inserted`: a record the chain does not know; `moved`: a record that belongs elsewhere; `broken`: it does not follow on
 * the record before it, so one of the two was replaced; `head`: the kept head, or the given one, is not this chain's.
 */
export type AuditProblemCode = "altered" | "missing" | "inserted" | "moved" | "broken" | "head";

/** Damage of the chain that a verification found. */
export interface AuditProblem {
  /** Position of the first record concerned */
  readonly seq: number;
  readonly code: AuditProblemCode;
  readonly message: string;
}

/** Result of a verification of the audit. */
export interface AuditReport {
  readonly ok: boolean;
  /** Records there are */
  readonly records: number;
  /** Positions of the oldest and newest record; null for an empty audit */
  readonly first_seq: number | null;
  readonly last_seq: number | null;
  /** Kept elsewhere, it tells the next verification that nothing before it was rewritten; null where it is lost */
  readonly head: AuditHead | null;
  /** The first of them, in order */
  readonly problems: readonly AuditProblem[];
  /** How many there are */
  readonly problem_count: number;
}

/** Store and known head that a verification compares. */
export interface VerifyOptions {
  readonly store: Store;
  /** A head kept from before, as the log has them */
  readonly given?: AuditHead | undefined;
  readonly signal?: AbortSignal | undefined;
}

const MAX_PROBLEMS = 100;

/** Checks the chain from its begin to its head. Records may be added meanwhile. @throws {CancelError} when `signal` aborts */
export async function verifyAudit({ store, given, signal }: VerifyOptions): Promise<AuditReport> {
  const chain = createChainCheck(given);
  let head = await readHead(store);
  let after: string | undefined;
  for (;;) {
    if (signal?.aborted) throw cancelError(signal);
    const page = await readAuditPage(store, { after });
    // Read after the page: a record of the audit's own is never newer than its head
    const newer = await readHead(store);
    if (page.length === 0 && newer?.seq === head?.seq) break;
    head = newer;
    for (const entry of page) chain.check(entry);
    after = page.at(-1)?.key ?? after;
  }
  return chain.report(head);
}

async function readHead(store: Store): Promise<AuditHead | undefined> {
  const stored = await store.get(AUDIT_HEAD, HEAD_KEY);
  return stored === undefined ? undefined : parseAuditHead(stored.body);
}

/** The record before the one being checked; `hash` is what it says of itself, undefined where that cannot be relied on. */
interface Before {
  readonly seq: number;
  readonly hash: string | undefined;
}

function createChainCheck(given: AuditHead | undefined) {
  const problems: AuditProblem[] = [];
  let problemCount = 0;
  let records = 0;
  let first: { readonly seq: number; readonly prev: string | undefined } | undefined;
  let before: Before = { seq: 0, hash: NO_HASH };
  let begin: "open" | "explained" = "open";
  let isGivenSeen = false;

  const report = (code: AuditProblemCode, seq: number, message: string) => {
    problemCount++;
    if (problems.length < MAX_PROBLEMS) problems.push({ seq, code, message });
  };

  /** The hash the record says it has, where it stands in its place and is what it was. */
  const checkRecord = (seq: number, body: unknown): AuditRecord | undefined => {
    const record = parseAuditRecord(body);
    if (record === undefined) {
      report("altered", seq, `Record ${seq} was altered: it cannot be read as one`);
      return undefined;
    }
    if (hashOf(body) !== record.hash) {
      report("altered", seq, `Record ${seq} was altered: its content does not have its hash`);
      return undefined;
    }
    if (record.seq !== seq) {
      report("moved", seq, `Record ${seq} was put there: it was written as record ${record.seq}`);
      return undefined;
    }
    return record;
  };

  return {
    check({ key, body }: AuditEntry): void {
      records++;
      const seq = auditSeq(key);
      if (seq === undefined) {
        report(
          "inserted",
          before.seq,
          `A record ${JSON.stringify(key.slice(0, 40))} was inserted after record ${before.seq}`,
        );
        return;
      }
      const isFirst = first === undefined;
      const record = checkRecord(seq, body);
      if (isFirst) first = { seq, prev: record?.prev };
      else if (seq > before.seq + 1) report("missing", before.seq + 1, missing(before.seq + 1, seq - 1));
      const follows = before.hash === undefined || record === undefined || record.prev === before.hash;
      if ((!isFirst || seq === 1) && seq === before.seq + 1 && !follows) {
        const pair = seq === 1 ? "its begin" : `record ${before.seq}`;
        report("broken", seq, `Record ${seq} does not follow on ${pair}: one of the two was replaced`);
      }
      if (given?.seq === seq) {
        isGivenSeen = true;
        if (record?.hash !== given.hash) {
          report("head", seq, `Record ${seq} is not the one of the given head: it, or one before it, was replaced`);
        }
      }
      if (
        record?.type === "retention" && record.through + 1 === first?.seq &&
        (first.prev === undefined || first.prev === record.through_hash)
      ) begin = "explained";
      before = { seq, hash: record?.hash };
    },

    report(head: AuditHead | undefined): AuditReport {
      const last = first === undefined ? 0 : before.seq;
      if (first !== undefined && first.seq > 1 && begin === "open") {
        problemCount++;
        problems.unshift({ seq: 1, code: "missing", message: missing(1, first.seq - 1) });
      }
      if (head === undefined) {
        if (records > 0) {
          report("head", last, `The head is lost: nothing tells whether records after ${last} are missing`);
        }
      } else if (head.seq > last) {
        report("missing", last + 1, missing(last + 1, head.seq));
      } else if (head.seq < last) {
        report(
          "inserted",
          head.seq + 1,
          `Records ${head.seq + 1}-${last} were added after the head, which is ${head.seq}`,
        );
      } else if (before.hash !== undefined && before.hash !== head.hash) {
        report("head", last, `Record ${last} is not the one of the kept head: it, or one before it, was replaced`);
      }
      if (given !== undefined && !isGivenSeen && given.seq > last) {
        report("missing", last + 1, `${missing(last + 1, given.seq)}, by the given head`);
      } else if (given !== undefined && !isGivenSeen) {
        report("head", given.seq, `Record ${given.seq} of the given head is not there any more: give a newer head`);
      }
      return {
        ok: problemCount === 0,
        records,
        first_seq: first?.seq ?? null,
        last_seq: first === undefined ? null : last,
        head: head ?? null,
        problems: problems.slice(0, MAX_PROBLEMS),
        problem_count: problemCount,
      };
    },
  };
}

function missing(from: number, to: number): string {
  return from === to ? `Record ${from} is missing` : `Records ${from}-${to} are missing`;
}

function hashOf(body: unknown): string | undefined {
  try {
    return recordHash(body as Readonly<Record<string, unknown>>); // it was parsed as a record
  } catch {
    return undefined;
  }
}
