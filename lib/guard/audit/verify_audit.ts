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
  const chain = new ChainCheck(given);
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
  return chain.end(head);
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

/** Walk over the records of a chain, which collects what is wrong with it. */
class ChainCheck {
  readonly #given: AuditHead | undefined;
  readonly #problems: AuditProblem[] = [];
  #problemCount = 0;
  #records = 0;
  /** The oldest record there is */
  #first: { readonly seq: number; readonly prev: string | undefined } | undefined;
  #before: Before = { seq: 0, hash: NO_HASH };
  /** True once a record of retention says that the records before `#first` were pruned */
  #isBeginExplained = false;
  #isGivenSeen = false;

  /** @param given a head that the caller kept */
  constructor(given: AuditHead | undefined) {
    this.#given = given;
  }

  /** Checks the next record. */
  check({ key, body }: AuditEntry): void {
    this.#records++;
    const before = this.#before;
    const seq = auditSeq(key);
    if (seq === undefined) {
      const shown = JSON.stringify(key.slice(0, 40));
      return this.#note("inserted", before.seq, `A record ${shown} was inserted after record ${before.seq}`);
    }
    const isFirst = this.#first === undefined;
    const record = this.#readRecord(seq, body);
    if (isFirst) this.#first = { seq, prev: record?.prev };
    else if (seq > before.seq + 1) this.#note("missing", before.seq + 1, missing(before.seq + 1, seq - 1));
    const follows = before.hash === undefined || record === undefined || record.prev === before.hash;
    if ((!isFirst || seq === 1) && seq === before.seq + 1 && !follows) {
      const pair = seq === 1 ? "its begin" : `record ${before.seq}`;
      this.#note("broken", seq, `Record ${seq} does not follow on ${pair}: one of the two was replaced`);
    }
    this.#compareGiven(seq, record);
    this.#explainBegin(record);
    this.#before = { seq, hash: record?.hash };
  }

  /** Compares the chain with its kept head and the given one. @returns the report */
  end(head: AuditHead | undefined): AuditReport {
    const first = this.#first;
    const last = first === undefined ? 0 : this.#before.seq;
    if (first !== undefined && first.seq > 1 && !this.#isBeginExplained) {
      this.#problemCount++;
      this.#problems.unshift({ seq: 1, code: "missing", message: missing(1, first.seq - 1) });
    }
    this.#compareHead(head, last);
    this.#findGiven(last);
    return {
      ok: this.#problemCount === 0,
      records: this.#records,
      first_seq: first?.seq ?? null,
      last_seq: first === undefined ? null : last,
      head: head ?? null,
      problems: this.#problems.slice(0, MAX_PROBLEMS),
      problem_count: this.#problemCount,
    };
  }

  #note(code: AuditProblemCode, seq: number, message: string): void {
    this.#problemCount++;
    if (this.#problems.length < MAX_PROBLEMS) this.#problems.push({ seq, code, message });
  }

  /** Returns the record when its content has its hash and it stands in its place. */
  #readRecord(seq: number, body: unknown): AuditRecord | undefined {
    const record = parseAuditRecord(body);
    if (record === undefined) {
      this.#note("altered", seq, `Record ${seq} was altered: it cannot be read as one`);
      return undefined;
    }
    if (hashOf(body) !== record.hash) {
      this.#note("altered", seq, `Record ${seq} was altered: its content does not have its hash`);
      return undefined;
    }
    if (record.seq !== seq) {
      this.#note("moved", seq, `Record ${seq} was put there: it was written as record ${record.seq}`);
      return undefined;
    }
    return record;
  }

  #compareGiven(seq: number, record: AuditRecord | undefined): void {
    if (this.#given?.seq !== seq) return;
    this.#isGivenSeen = true;
    if (record?.hash === this.#given.hash) return;
    this.#note("head", seq, `Record ${seq} is not the one of the given head: it, or one before it, was replaced`);
  }

  #explainBegin(record: AuditRecord | undefined): void {
    const first = this.#first;
    if (record?.type !== "retention" || record.through + 1 !== first?.seq) return;
    if (first.prev === undefined || first.prev === record.through_hash) this.#isBeginExplained = true;
  }

  #compareHead(head: AuditHead | undefined, last: number): void {
    const { hash } = this.#before;
    if (head === undefined) {
      if (this.#records === 0) return;
      this.#note("head", last, `The head is lost: nothing tells whether records after ${last} are missing`);
    } else if (head.seq > last) {
      this.#note("missing", last + 1, missing(last + 1, head.seq));
    } else if (head.seq < last) {
      const added = `Records ${head.seq + 1}-${last} were added after the head, which is ${head.seq}`;
      this.#note("inserted", head.seq + 1, added);
    } else if (hash !== undefined && hash !== head.hash) {
      this.#note("head", last, `Record ${last} is not the one of the kept head: it, or one before it, was replaced`);
    }
  }

  #findGiven(last: number): void {
    const given = this.#given;
    if (given === undefined || this.#isGivenSeen) return;
    if (given.seq > last) {
      this.#note("missing", last + 1, `${missing(last + 1, given.seq)}, by the given head`);
    } else {
      const gone = `Record ${given.seq} of the given head is not there any more: give a newer head`;
      this.#note("head", given.seq, gone);
    }
  }
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
