import { cancelError } from "../../base/cancel.ts";
import type { Store } from "../../storage/store.ts";
import {
  type AuditHead,
  type AuditRecord,
  auditSeq,
  NO_HASH,
  parseAuditRecord,
  readHead,
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
  /** Id of the chain, in a cluster. Absent for an entry that belongs to none */
  readonly chain?: string;
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
  /** Head of the chain: kept elsewhere, it tells the next verification that nothing before it was rewritten; null where it is lost */
  readonly head: AuditHead | null;
  /** The first of them, in order */
  readonly problems: readonly AuditProblem[];
  /** How many there are */
  readonly problem_count: number;
  /** Chains of a cluster, in the order of their begin, at most 1,000 of them. Absent for a gateway alone */
  readonly chains?: readonly ChainReport[];
}

/** Chain of a cluster in a report. */
export interface ChainReport extends Pick<AuditReport, "records" | "first_seq" | "last_seq" | "head"> {
  readonly chain: string;
  /** `open`: a gateway writes it; `closed`: its gateway has stopped; `left_off`: its gateway is gone. Null where the head is lost */
  readonly state: "open" | "closed" | "left_off" | null;
}

/** A head that the caller kept. */
export interface GivenHead extends AuditHead {
  /** Id of its chain. Default: the one chain of a gateway alone */
  readonly chain?: string | undefined;
}

/** Store and known head that a verification compares. */
export interface VerifyOptions {
  readonly store: Store;
  /** A head kept from before, as the log has them */
  readonly given?: GivenHead | undefined;
  readonly signal?: AbortSignal | undefined;
}

const MAX_PROBLEMS = 100;

/**
 * Checks the chain of a gateway alone from its begin to its head. Records may be added meanwhile.
 * @throws {CancelError} when `signal` aborts
 */
export async function verifyAudit({ store, given, signal }: VerifyOptions): Promise<AuditReport> {
  const chain = new ChainCheck({ given });
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

/** The record before the one being checked; `hash` is what it says of itself, undefined where that cannot be relied on. */
interface Before {
  readonly seq: number;
  readonly hash: string | undefined;
}

/** Walk over the records of a chain, which collects what is wrong with it. */
export class ChainCheck {
  readonly #given: AuditHead | undefined;
  /** Words that name the chain in messages */
  readonly #of: string;
  readonly #problems: AuditProblem[] = [];
  #problemCount = 0;
  /** Problems that are gaps, with the position of the last record that is missing. */
  readonly #gaps = new Map<AuditProblem, number>();
  #records = 0;
  /** The oldest record there is */
  #first: { readonly seq: number; readonly prev: string | undefined } | undefined;
  #before: Before = { seq: 0, hash: NO_HASH };
  /** True once a record of retention says that the records before `#first` were pruned */
  #isBeginExplained = false;
  #isGivenSeen = false;

  /**
   * @param options.given a head that the caller kept
   * @param options.chain id of the chain, in a cluster
   */
  constructor({ given, chain }: { readonly given: AuditHead | undefined; readonly chain?: string }) {
    this.#given = given;
    this.#of = chain === undefined ? "" : ` of chain ${chain}`;
  }

  /** Position of the newest record that was checked, and its hash where that can be relied on. */
  get last(): Before {
    return this.#before;
  }

  /** Position of the oldest record that was checked, and what it says of the one before it. */
  get first(): { readonly seq: number; readonly prev: string | undefined } | undefined {
    return this.#first;
  }

  /** Checks the next entry of the one chain of a gateway alone. */
  check({ key, body }: AuditEntry): void {
    const seq = auditSeq(key);
    if (seq !== undefined) return void this.checkAt(seq, body);
    this.#records++;
    const shown = JSON.stringify(key.slice(0, 40));
    this.note("inserted", this.#before.seq, `A record ${shown} was inserted after record ${this.#before.seq}`);
  }

  /** Checks the next record. @param isInPlace false: it is under the key of another. @returns it when its content has its hash and it is in its place */
  checkAt(seq: number, body: unknown, isInPlace = true): AuditRecord | undefined {
    this.#records++;
    const before = this.#before;
    const isFirst = this.#first === undefined;
    const record = this.#readRecord(seq, body, isInPlace);
    if (!isFirst && seq <= before.seq) {
      this.note("inserted", seq, `Record ${seq}${this.#of} is there twice: one of the two was inserted`);
      return undefined;
    }
    if (isFirst) this.#first = { seq, prev: record?.prev };
    else if (seq > before.seq + 1) this.#noteGap(before.seq + 1, seq - 1);
    const follows = before.hash === undefined || record === undefined || record.prev === before.hash;
    if ((!isFirst || seq === 1) && seq === before.seq + 1 && !follows) {
      const pair = seq === 1 ? "its begin" : `record ${before.seq}`;
      this.note("broken", seq, `Record ${seq}${this.#of} does not follow on ${pair}: one of the two was replaced`);
    }
    this.#compareGiven(seq, record);
    this.#explainBegin(record);
    this.#before = { seq, hash: record?.hash };
    return record;
  }

  /** Takes word of another record that the records up to a place were forgotten, some of them perhaps while they were checked. */
  explain(through: AuditHead): void {
    const first = this.#first;
    if (first === undefined) {
      this.#before = { seq: through.seq, hash: through.hash };
      this.#isBeginExplained = true;
    } else if (through.seq >= first.seq) {
      this.#isBeginExplained = true;
    } else if (through.seq + 1 === first.seq && (first.prev === undefined || first.prev === through.hash)) {
      this.#isBeginExplained = true;
    }
    for (const [problem, to] of this.#gaps) {
      if (to > through.seq) continue;
      this.#gaps.delete(problem);
      this.#problems.splice(this.#problems.indexOf(problem), 1);
      this.#problemCount--;
    }
  }

  /** Compares the chain with its kept head and the given one. @returns the report */
  end(head: AuditHead | undefined): AuditReport {
    const first = this.#first;
    const last = this.#before.seq;
    if (first !== undefined && first.seq > 1 && !this.#isBeginExplained) {
      this.#problemCount++;
      this.#problems.unshift({ seq: 1, code: "missing", message: this.#missing(1, first.seq - 1) });
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

  /** Notes damage. */
  note(code: AuditProblemCode, seq: number, message: string): void {
    this.#problemCount++;
    if (this.#problems.length < MAX_PROBLEMS) this.#problems.push({ seq, code, message });
  }

  #noteGap(from: number, to: number): void {
    this.note("missing", from, this.#missing(from, to));
    const problem = this.#problems.at(-1);
    if (this.#problemCount === this.#problems.length && problem !== undefined) this.#gaps.set(problem, to);
  }

  /** Returns the record when its content has its hash and is at its place. */
  #readRecord(seq: number, body: unknown, isInPlace: boolean): AuditRecord | undefined {
    const record = parseAuditRecord(body);
    if (record === undefined) {
      this.note("altered", seq, `Record ${seq}${this.#of} was altered: it cannot be read as one`);
      return undefined;
    }
    if (hashOf(body) !== record.hash) {
      this.note("altered", seq, `Record ${seq}${this.#of} was altered: its content does not have its hash`);
      return undefined;
    }
    if (record.seq !== seq || !isInPlace) {
      const was = record.chain === undefined ? `record ${record.seq}` : `record ${record.seq} of chain ${record.chain}`;
      this.note("moved", seq, `Record ${seq}${this.#of} was put there: it was written as ${was}`);
      return undefined;
    }
    return record;
  }

  #compareGiven(seq: number, record: AuditRecord | undefined): void {
    if (this.#given?.seq !== seq) return;
    this.#isGivenSeen = true;
    if (record?.hash === this.#given.hash) return;
    this.note(
      "head",
      seq,
      `Record ${seq}${this.#of} is not the one of the given head: it, or one before it, was replaced`,
    );
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
      this.note("head", last, `The head${this.#of} is lost: nothing tells whether records after ${last} are missing`);
    } else if (head.seq > last) {
      this.note("missing", last + 1, this.#missing(last + 1, head.seq));
    } else if (head.seq < last) {
      const added = `Records ${head.seq + 1}-${last}${this.#of} were added after the head, which is ${head.seq}`;
      this.note("inserted", head.seq + 1, added);
    } else if (hash !== undefined && hash !== head.hash) {
      this.note(
        "head",
        last,
        `Record ${last}${this.#of} is not the one of the kept head: it, or one before it, was replaced`,
      );
    }
  }

  #findGiven(last: number): void {
    const given = this.#given;
    if (given === undefined || this.#isGivenSeen) return;
    if (given.seq > last) {
      this.note("missing", last + 1, `${this.#missing(last + 1, given.seq)}, by the given head`);
    } else {
      const gone = `Record ${given.seq}${this.#of} of the given head is not there any more: give a newer head`;
      this.note("head", given.seq, gone);
    }
  }

  #missing(from: number, to: number): string {
    return missing(from, to, this.#of);
  }
}

/** Returns the words for records that are not there. @param of words that name the chain */
export function missing(from: number, to: number, of: string): string {
  return from === to ? `Record ${from}${of} is missing` : `Records ${from}-${to}${of} are missing`;
}

function hashOf(body: unknown): string | undefined {
  try {
    return recordHash(body as Readonly<Record<string, unknown>>); // it was parsed as a record
  } catch {
    return undefined;
  }
}
