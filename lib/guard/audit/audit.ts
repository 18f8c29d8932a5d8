import type { Timer } from "../../base/clock.ts";
import type { Store } from "../../storage/store.ts";
import {
  AUDIT_RECORDS,
  type AuditAppend,
  type AuditHead,
  auditSeq,
  type AuditWriterOptions,
  parseAuditRecord,
} from "./audit_chain.ts";
import { AuditWriter } from "./audit_writer.ts";
import type { GatewayChain, GatewayChainOptions } from "./gateway_chain.ts";
import type { AuditPart, AuditQuery } from "./list_audit.ts";
import type { AuditReport, GivenHead } from "./verify_audit.ts";

/** The audit: an append-only, hash-chained list of what was decided, approved and called (docs/design/policy.md "Audit"). */
export interface Audit {
  readonly append: AuditAppend;
  /** Newest first. A record that cannot be read is left out: `verify` names it */
  list(query: AuditQuery): Promise<AuditPart>;
  /**
   * Checks every record against the chain, the chain against its kept head, and against a head the caller kept.
   * @throws {CancelError} when `signal` aborts
   */
  verify(options?: { readonly head?: GivenHead | undefined; readonly signal?: AbortSignal }): Promise<AuditReport>;
  /** Position and hash of this gateway's newest record; `{seq: 0}` for an empty audit */
  head(): AuditHead;
  /** Tells whether the last event reached the disk. After a failure, each call tries another write */
  healthy(): boolean;
  /** Counts refused credentials, written once a minute for each address. Cheap, and bounded whatever comes. Does nothing after `close` */
  accessFailed(address: string | undefined, code: string): void;
  /** Writes what is pending */
  close(): Promise<void>;
}

/** Store, clock and settings that the audit works with. */
export interface AuditOptions extends AuditWriterOptions {
  /** Days a record is kept */
  readonly retentionDays: () => number;
  /** Opens the chain of this gateway, where each writes one of its own. Default: there is one chain for good */
  readonly openChain?: ((options: Omit<GatewayChainOptions, "cluster">) => Promise<GatewayChain>) | undefined;
}

const MINUTE_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** Opens the audit over a store. Events that come while others are written share the next transaction. */
export async function createAudit(options: AuditOptions): Promise<Audit> {
  const { store, clock } = options;
  const chain = await options.openChain?.(options);
  const writer = await AuditWriter.open(options, chain);
  const upkeep = new AuditUpkeep(options, writer, chain);
  const failures = new AccessFailures(options, writer.append);
  if (chain !== undefined && options.enabled()) await writer.begin();
  upkeep.look();
  chain?.start(writer.append);
  // Last: a start that fails before leaves no timer behind
  const hourly = clock.every(HOUR_MS, () => upkeep.look());
  return {
    append: writer.append,
    async list(query) {
      const newest = chain === undefined ? String(writer.head.seq + 1) : undefined;
      const { listAudit } = await import("./list_audit.ts");
      return await listAudit(store, { ...query, before: query.before ?? newest });
    },
    verify: ({ head: given, signal } = {}) =>
      upkeep.withoutPruning(async () => {
        const verify = chain === undefined
          ? (await import("./verify_audit.ts")).verifyAudit
          : (await import("./verify_chains.ts")).verifyChains;
        return await verify({ store, given, signal });
      }),
    head: () => writer.head,
    healthy: () => writer.healthy(),
    accessFailed: (address, code) => failures.count(address, code),
    async close() {
      if (writer.isClosed) return;
      hourly.clear();
      await failures.close();
      await chain?.stop();
      await writer.close(chain !== undefined && !chain.isEnded ? { type: "audit_chain", action: "closed" } : undefined);
      await upkeep.close();
    },
  };
}

/** Logs new heads and forgets old records, each time that it looks. */
class AuditUpkeep {
  readonly #options: AuditOptions;
  readonly #writer: AuditWriter;
  readonly #chain: GatewayChain | undefined;
  #pruning: Promise<void> = Promise.resolve();
  /** Monotonic time of the last pruning */
  #prunedAt = -Infinity;
  /** Verifications at work */
  #verifying = 0;
  /** Position of the head that was logged last */
  #shown = 0;

  constructor(options: AuditOptions, writer: AuditWriter, chain: GatewayChain | undefined) {
    this.#options = options;
    this.#writer = writer;
    this.#chain = chain;
  }

  look(): void {
    this.#showHead();
    this.#prune();
  }

  /** Does work on the records while none of them is forgotten. */
  async withoutPruning<T>(work: () => Promise<T>): Promise<T> {
    this.#verifying++;
    try {
      await this.#pruning;
      return await work();
    } finally {
      this.#verifying--;
    }
  }

  /** Resolves when the last pruning has ended and the last head is in the log. */
  async close(): Promise<void> {
    await this.#pruning;
    this.#showHead();
  }

  /** Logs the head. Logs are kept elsewhere than the records that the head vouches for. */
  #showHead(): void {
    const { seq, hash } = this.#writer.head;
    if (seq === this.#shown) return;
    this.#shown = seq;
    const chain = this.#chain === undefined ? {} : { chain: this.#chain.id };
    this.#options.log.info("Audit head", { ...chain, seq, hash });
  }

  /** Prunes once a day, and never while the records are being verified. */
  #prune(): void {
    const { store, clock, log, enabled, retentionDays } = this.#options;
    if (this.#verifying > 0 || !enabled() || clock.monotonic() - this.#prunedAt < DAY_MS) return;
    this.#prunedAt = clock.monotonic();
    const before = new Date(clock.now() - retentionDays() * DAY_MS).toISOString();
    const { append } = this.#writer;
    const prune = async () => {
      if (this.#chain === undefined) return await pruneAudit({ store, append, before });
      const { pruneChains } = await import("./prune_chains.ts");
      return await pruneChains({ store, append, before, own: this.#chain.id });
    };
    this.#pruning = this.#pruning.then(prune).then(
      (count) => void (count > 0 && log.info("Forgot audit records past their retention", { count })),
      (error: unknown) => void (this.#writer.isClosed || log.error("Cannot forget old audit records", { error })),
    );
  }
}

/** Records that one step of forgetting looks at */
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
    const page = await store.scan(AUDIT_RECORDS.name, { order: "key", limit: PAGE });
    AUDIT_RECORDS.readable(store, page);
    const old = page.map(({ key, body }) => ({ key, seq: auditSeq(key), record: parseAuditRecord(body) }));
    // An entry that is no record of the chain stays with all that follow it, so that `audit verify` can name it
    const end = old.findIndex(({ seq, record }) => seq === undefined || record?.seq !== seq || record.time >= before);
    const gone = end < 0 ? old : old.slice(0, end);
    const last = gone.at(-1);
    if (last?.seq === undefined || last.record === undefined) return count;
    // Each pass appends a retention record: passes that remove retention records alone would go on for ever
    if (gone.length < PAGE && gone.every(({ record }) => record?.type === "retention")) return count;
    const deletes = gone.map(({ key }) => AUDIT_RECORDS.remove(key));
    await append({ type: "retention", through: last.seq, through_hash: last.record.hash }, deletes);
    count += gone.length;
    if (gone.length < PAGE) return count;
  }
}

interface Failures {
  readonly address: string | null;
  readonly codes: Record<string, number>;
}

/** Addresses counted by themselves in one minute; those beyond are counted together */
const MAX_ADDRESSES = 256;
const OTHERS = "others";

/** Counts refused credentials and writes them once a minute: one record an address, so that guessing cannot fill the audit. */
class AccessFailures {
  readonly #options: Pick<AuditOptions, "clock" | "log" | "enabled">;
  readonly #append: AuditAppend;
  /** Failures since the last record, by address */
  #minute = new Map<string, Failures>();
  /** Time of the first of them, ISO 8601 */
  #since = "";
  #timer: Timer | undefined;
  #isClosed = false;

  constructor(options: Pick<AuditOptions, "clock" | "log" | "enabled">, append: AuditAppend) {
    this.#options = options;
    this.#append = append;
  }

  count(address: string | undefined, code: string): void {
    const { clock, enabled } = this.#options;
    if (this.#isClosed || !enabled()) return;
    if (this.#minute.size === 0) this.#since = new Date(clock.now()).toISOString();
    this.#timer ??= clock.every(MINUTE_MS, () => void (this.#minute.size > 0 && this.#write()));
    const { codes } = this.#failuresOf(address);
    codes[code] = (codes[code] ?? 0) + 1;
  }

  close(): Promise<void> {
    this.#isClosed = true;
    this.#timer?.clear();
    return this.#write();
  }

  #failuresOf(address: string | undefined): Failures {
    const known = address ?? "";
    const key = this.#minute.has(known) || this.#minute.size < MAX_ADDRESSES ? known : OTHERS;
    const found = this.#minute.get(key);
    if (found !== undefined) return found;
    const failures: Failures = { address: key === OTHERS ? OTHERS : address ?? null, codes: {} };
    this.#minute.set(key, failures);
    return failures;
  }

  async #write(): Promise<void> {
    const failures = [...this.#minute.values()];
    const since = this.#since;
    this.#minute = new Map();
    const written = failures.map(({ address, codes }) =>
      this.#append({ type: "access_failures", address, codes, since })
    );
    const failed = (await Promise.allSettled(written)).find((result) => result.status === "rejected");
    if (failed === undefined) return;
    this.#options.log.error("Cannot record refused credentials in the audit", { error: failed.reason });
  }
}
