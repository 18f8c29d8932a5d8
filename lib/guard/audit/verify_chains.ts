import { cancelError } from "../../base/cancel.ts";
import { scanAll } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import { later, NewestHashes, pointsOf, toPoint } from "./chain_points.ts";
import { AUDIT_RECORDS, type AuditHead, type AuditRecord, auditSeq, readHead } from "./audit_chain.ts";
import type { ChainPoint } from "./audit_event.ts";
import {
  AUDIT_CHAINS,
  type ChainHead,
  keyOfRecord,
  LONE_CHAIN,
  placeOfHead,
  placeOfKey,
  timeKey,
} from "./chain_records.ts";
import { AUDIT_PAGE, type AuditEntry, readAuditPage } from "./list_audit.ts";
import {
  type AuditProblem,
  type AuditReport,
  ChainCheck,
  type ChainReport,
  missing,
  type VerifyOptions,
} from "./verify_audit.ts";

/** Problems and chains that a report names. */
const MAX_PROBLEMS = 100;
const MAX_CHAINS = 1_000;
/** Chains that are kept in memory: records of further ones are not checked, and the report says so. */
const MAX_WALKED = 100_000;
/** Records named before they were read, of one chain. */
const MAX_AWAITED = 64;
/** Looks for records that were written late, and the records that one of them reads. */
const MAX_LATE_LOOKS = 200;
const MAX_LATE_RECORDS = 10_000;
/** Readings of the heads, when they do not fit together. */
const MAX_HEAD_READS = 3;
/** Time that a write may take, between the moment that its record names and its commit. */
const LATE_MS = 60_000;

/**
 * Checks all chains of a cluster: each by itself, and each against what the others know of it. Records may be added meanwhile.
 * @throws {CancelError} when `signal` aborts
 */
export async function verifyChains({ store, given, signal }: VerifyOptions): Promise<AuditReport> {
  const check = new ChainsCheck(store, given);
  for (let after: string | undefined = undefined;;) {
    if (signal?.aborted) throw cancelError(signal);
    const page: readonly AuditEntry[] = await readAuditPage(store, { after });
    for (const entry of page) await check.take(entry);
    after = page.at(-1)?.key;
    // A page that is not full is the end, also while others go on writing
    if (after === undefined || page.length < AUDIT_PAGE) return await check.end(signal);
  }
}

/** A place of a chain that a record of another chain names. */
interface Naming extends ChainPoint {
  /** Chain and position of the record that names it */
  readonly by: string;
}

/** Chain as the walk knows it. */
interface WalkedChain {
  readonly check: ChainCheck;
  /** Key of the record that was checked last */
  lastKey: string | undefined;
  /** Type of the record that was checked last, with its action */
  lastType: string;
  /** Places that were named and not read yet */
  readonly awaited: Naming[];
  /** The furthest place that was named */
  furthest: Naming | undefined;
  /** Place up to which its records were forgotten */
  forgotten: ChainPoint | undefined;
  /** Place that another chain says is its last */
  leftOff: ChainPoint | undefined;
}

/** Walk over the records of all chains of a cluster, in the order of their times. */
class ChainsCheck {
  readonly #store: Store;
  readonly #given: VerifyOptions["given"];
  readonly #chains = new Map<string, WalkedChain>();
  readonly #hashes = new NewestHashes();
  readonly #problems: AuditProblem[] = [];
  #problemCount = 0;
  #strangers = 0;
  /** Records of chains beyond the bound. */
  #unchecked = 0;
  #lateLooks = 0;

  constructor(store: Store, given: VerifyOptions["given"]) {
    this.#store = store;
    this.#given = given;
  }

  /** Checks an entry of the store. */
  async take({ key, body }: AuditEntry): Promise<void> {
    const lone = auditSeq(key);
    const place = lone === undefined ? placeOfKey(key) : { chain: LONE_CHAIN, seq: lone };
    if (place === undefined) {
      this.#strangers++;
      const shown = JSON.stringify(key.slice(0, 40));
      return this.#note({ seq: 0, code: "inserted", message: `A record ${shown} was inserted that is of no chain` });
    }
    if (this.#isBeyond(place.chain)) return this.#leaveOut(place.chain);
    const chain = this.#chainOf(place.chain);
    const next = chain.check.last.seq + 1;
    if (place.chain !== LONE_CHAIN && place.seq > next) {
      await this.#lookForLate(place.chain, chain, { from: next, until: key });
    }
    this.#check(place.chain, chain, { seq: place.seq, key, body });
  }

  /** Compares each chain with its head and with what the others know of it. @returns the report */
  async end(signal: AbortSignal | undefined): Promise<AuditReport> {
    const heads = await this.#catchUp(signal);
    const lone = await readHead(this.#store);
    if (lone !== undefined && lone.seq > 0) this.#chainOf(LONE_CHAIN);
    if (this.#given !== undefined) this.#chainOf(this.#given.chain ?? LONE_CHAIN);
    const reports: ChainReport[] = [];
    let records = this.#strangers + this.#unchecked;
    for (const [id, chain] of this.#chains) {
      const kept = heads.get(id);
      const head = id === LONE_CHAIN ? lone : kept;
      const report = await this.#endChain(id, chain, { head, kept });
      if (report === undefined) continue;
      records += report.records;
      const { first_seq, last_seq } = report;
      const state = head === undefined ? null : kept?.end ?? "open";
      reports.push({ chain: id, state, records: report.records, first_seq, last_seq, head: report.head });
    }
    const alone = reports.find(({ chain }) => chain === LONE_CHAIN);
    return {
      ok: this.#problemCount === 0,
      records,
      first_seq: alone?.first_seq ?? null,
      last_seq: alone?.last_seq ?? null,
      head: alone?.head ?? null,
      problems: this.#problems,
      problem_count: this.#problemCount,
      chains: reports.slice(0, MAX_CHAINS),
    };
  }

  /** Tells whether a chain is one too many. */
  #isBeyond(id: string): boolean {
    return this.#chains.size >= MAX_WALKED && !this.#chains.has(id);
  }

  /** Takes note of a record that is not checked. */
  #leaveOut(chain: string): void {
    if (this.#unchecked++ > 0) return;
    const message = `Records of chain ${chain} and others were not checked: there are more than ${MAX_WALKED} chains`;
    this.#note({ chain, seq: 0, code: "inserted", message });
  }

  #chainOf(id: string): WalkedChain {
    const found = this.#chains.get(id);
    if (found !== undefined) return found;
    const given = this.#given !== undefined && (this.#given.chain ?? LONE_CHAIN) === id ? this.#given : undefined;
    const chain: WalkedChain = {
      check: new ChainCheck({ given, chain: id }),
      lastKey: undefined,
      lastType: "",
      awaited: [],
      furthest: undefined,
      forgotten: undefined,
      leftOff: undefined,
    };
    this.#chains.set(id, chain);
    return chain;
  }

  #check(id: string, chain: WalkedChain, { seq, key, body }: AuditEntry & { readonly seq: number }): void {
    const said = body as AuditRecord | undefined; // read no further than keyOfRecord does, which checks each field
    const written = said === undefined || said === null ? undefined : keyOfRecord(said);
    const isInPlace = id === LONE_CHAIN ? said?.chain === undefined : written === undefined || written === key;
    const record = chain.check.checkAt(seq, body, isInPlace);
    chain.lastKey = key;
    if (record === undefined) return;
    chain.lastType = record.type === "audit_chain" ? record.action : record.type;
    this.#hashes.keep(id, record);
    this.#meetAwaited(id, chain, record);
    const by = `record ${seq} of chain ${id}`;
    for (const point of pointsOf(record.heads)) this.#name({ ...point, by });
    if (record.type === "retention") chain.forgotten = later(chain.forgotten, toPoint(id, record));
    if (record.type !== "audit_chain") return;
    if (record.action === "left_off") {
      for (const point of pointsOf([record.last])) {
        this.#name({ ...point, by });
        if (!this.#isBeyond(point.chain)) this.#chainOf(point.chain).leftOff = point;
      }
    }
    if (record.action === "forgot") {
      for (const point of pointsOf(record.through)) {
        if (this.#isBeyond(point.chain)) continue;
        const other = this.#chainOf(point.chain);
        other.forgotten = later(other.forgotten, point);
      }
    }
  }

  /** Takes word of a place in a chain. It is compared with the record there, now or when the walk comes to it. */
  #name(naming: Naming): void {
    if (this.#isBeyond(naming.chain)) return;
    const chain = this.#chainOf(naming.chain);
    if (chain.furthest === undefined || naming.seq > chain.furthest.seq) chain.furthest = naming;
    if (naming.seq > chain.check.last.seq) {
      if (chain.awaited.length < MAX_AWAITED) chain.awaited.push(naming);
      return;
    }
    const hash = this.#hashes.at(naming.chain, naming.seq);
    if (hash !== undefined && hash !== naming.hash) this.#notWhatIsNamed(naming);
  }

  #meetAwaited(id: string, chain: WalkedChain, { seq, hash }: AuditRecord): void {
    if (chain.awaited.length === 0) return;
    const met = chain.awaited.filter((naming) => naming.seq <= seq);
    chain.awaited.splice(0, chain.awaited.length, ...chain.awaited.filter((naming) => naming.seq > seq));
    for (const naming of met) {
      const there = naming.seq === seq ? hash : this.#hashes.at(id, naming.seq);
      if (there !== undefined && there !== naming.hash) this.#notWhatIsNamed(naming);
    }
  }

  #notWhatIsNamed({ chain, seq, by }: Naming): void {
    const message =
      `Record ${seq} of chain ${chain} is not the one that ${by} names: it, or one before it, was replaced`;
    this.#note({ chain, seq, code: "head", message });
  }

  /**
   * Checks the records of a chain that lie before a place of the walk and were written after the walk had passed: a record is on disk a
   * moment after the time that its key names.
   * @param options.until key of the record that came too soon; undefined at the end of the walk
   */
  async #lookForLate(
    id: string,
    chain: WalkedChain,
    { from, until, time, upTo = Infinity }: {
      readonly from: number;
      readonly upTo?: number;
      readonly until?: string | undefined;
      readonly time?: string | undefined;
    },
  ): Promise<void> {
    // At the end there is one for each chain that is written on
    if (until !== undefined && this.#lateLooks++ >= MAX_LATE_LOOKS) return;
    const end = until === undefined ? Date.parse(time ?? "") : Number(until.slice(1, 16));
    if (!Number.isFinite(end)) return;
    const earliest = timeKey(end - LATE_MS);
    let after = chain.lastKey !== undefined && chain.lastKey > earliest ? chain.lastKey : earliest;
    let next = from;
    for (let looked = 0; looked < MAX_LATE_RECORDS;) {
      const page = await readAuditPage(this.#store, { after });
      for (const { key, body } of page) {
        if (until !== undefined && key >= until) return;
        const place = placeOfKey(key);
        if (place?.chain !== id || place.seq !== next) continue;
        this.#check(id, chain, { seq: place.seq, key, body });
        if (next++ >= upTo) return;
      }
      looked += page.length;
      const last = page.at(-1)?.key;
      if (last === undefined) return;
      after = last;
    }
  }

  async #readHeads(signal: AbortSignal | undefined): Promise<ReadonlyMap<string, ChainHead>> {
    const heads = new Map<string, ChainHead>();
    for await (const { key, body } of scanAll(this.#store, AUDIT_CHAINS.name)) {
      if (signal?.aborted) throw cancelError(signal);
      const head = headOf(body);
      const id = head && placeOfHead(key, head);
      if (head !== undefined && id !== undefined) heads.set(id, head);
    }
    return heads;
  }

  /**
   * Reads the heads, and checks the records up to them that were written after the walk had passed. All of them come before any chain is
   * compared with its head: the record that says how a chain has ended is in the chain of another.
   */
  async #catchUp(signal: AbortSignal | undefined): Promise<ReadonlyMap<string, ChainHead>> {
    for (let reads = 1;; reads++) {
      const heads = await this.#readHeads(signal);
      for (const id of heads.keys()) if (!this.#isBeyond(id)) this.#chainOf(id);
      for (const [id, chain] of this.#chains) {
        const from = chain.check.last.seq + 1;
        const kept = heads.get(id);
        if (kept === undefined || kept.seq < from) continue;
        await this.#lookForLate(id, chain, { from, upTo: kept.seq, time: kept.time });
      }
      // Heads are read page by page: a chain that changes between two pages does not fit to the others
      const isBehind = [...this.#chains].some(([id, chain]) => id !== LONE_CHAIN && isAhead(chain, heads.get(id)));
      if (!isBehind || reads === MAX_HEAD_READS) return heads;
    }
  }

  /** @returns undefined for a chain whose records were all forgotten after it had ended */
  async #endChain(id: string, chain: WalkedChain, { head, kept }: {
    readonly head: AuditHead | undefined;
    readonly kept: ChainHead | undefined;
  }): Promise<AuditReport | undefined> {
    const { check, forgotten } = chain;
    if (forgotten !== undefined) check.explain(forgotten);
    this.#compareFurthest(id, chain, head);
    if (kept?.end !== undefined) this.#compareEnd(id, chain, kept);
    const gone = head === undefined ? await this.#lastOfGone(chain) : undefined;
    const isGone = head === undefined && (check.first === undefined || gone !== undefined);
    const isAsked = this.#given?.chain === id;
    if (isGone && gone === undefined && !isAsked) return undefined;
    const report = check.end(head === undefined ? gone : { seq: head.seq, hash: head.hash });
    for (const problem of report.problems) this.#note({ ...problem, chain: id });
    this.#problemCount += report.problem_count - report.problems.length;
    return isGone && !isAsked ? undefined : report;
  }

  /** Returns the last record that was checked of a chain that was forgotten whole after that. Undefined for any other chain. */
  async #lastOfGone({ check: { first, last }, lastKey, forgotten }: WalkedChain): Promise<AuditHead | undefined> {
    if (first === undefined || forgotten === undefined || forgotten.seq < last.seq || lastKey === undefined) {
      return undefined;
    }
    // Records that are there again were put there by somebody
    if (await this.#store.get(AUDIT_RECORDS.name, lastKey) !== undefined) return undefined;
    return { seq: last.seq, hash: forgotten.seq === last.seq ? forgotten.hash : last.hash ?? "" };
  }

  /** Finds out whether another chain knows of a later record than there is. */
  #compareFurthest(id: string, { check, furthest, forgotten }: WalkedChain, head: AuditHead | undefined): void {
    const last = Math.max(check.last.seq, forgotten?.seq ?? 0);
    if (furthest === undefined || furthest.seq <= last) return;
    // The chain itself tells of records that are missing up to its head
    if (head !== undefined && furthest.seq <= head.seq) return;
    const from = Math.max(last, head?.seq ?? 0) + 1;
    const words = check.first === undefined && head === undefined
      ? `Chain ${id} is missing: ${furthest.by} names its record ${furthest.seq}`
      : `${missing(from, furthest.seq, ` of chain ${id}`)}: ${furthest.by} names the last of them`;
    this.#note({ chain: id, seq: from, code: "missing", message: words });
  }

  /** Checks that a chain that is over ends as it says. */
  #compareEnd(id: string, { check, lastType, leftOff, forgotten }: WalkedChain, head: ChainHead): void {
    const { seq, hash } = head;
    const wasForgotten = check.first === undefined && forgotten !== undefined;
    if (check.last.seq !== seq || wasForgotten) return;
    const isRight = head.end === "closed" ? lastType === "closed" : leftOff?.seq === seq && leftOff.hash === hash;
    if (isRight) return;
    const message = head.end === "closed"
      ? `Chain ${id} was ended by its gateway, and record ${seq} does not say so: records after it may be missing`
      : `Chain ${id} was left off at record ${seq}, and no record of another chain says so: records after it may be missing`;
    this.#note({ chain: id, seq, code: "head", message });
  }

  #note(problem: AuditProblem): void {
    this.#problemCount++;
    if (this.#problems.length < MAX_PROBLEMS) this.#problems.push(problem);
  }
}

/** Tells whether more is known of a chain than its head says. */
function isAhead({ check, furthest, forgotten }: WalkedChain, head: ChainHead | undefined): boolean {
  const known = Math.max(check.last.seq, furthest?.seq ?? 0);
  return known > (head?.seq ?? forgotten?.seq ?? 0);
}

function headOf(body: unknown): ChainHead | undefined {
  try {
    return AUDIT_CHAINS.parse(body);
  } catch {
    return undefined;
  }
}
