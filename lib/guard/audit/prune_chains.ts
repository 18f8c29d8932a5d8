import type { Store, Write } from "../../storage/store.ts";
import { AUDIT_RECORDS, type AuditAppend, auditKey, parseAuditRecord, readHead } from "./audit_chain.ts";
import type { ChainPoint } from "./audit_event.ts";
import { AUDIT_CHAINS, keyOfRecord, LONE_CHAIN, MAX_OPEN } from "./chain_records.ts";

/** Options of `pruneChains`. */
export interface PruneChainsOptions {
  readonly store: Store;
  readonly append: AuditAppend;
  /** ISO 8601: older records are forgotten */
  readonly before: string;
  /** Chain of this gateway. */
  readonly own: string;
}

/** Records that one step of forgetting looks at */
const PAGE = 500;

/**
 * Forgets the oldest records of all chains of a cluster, those written before a time, in the order of their times. Each step is one
 * transaction with the record that says so. The gateway whose chain is the oldest open one does this for all.
 *
 * The newest record of a chain that is not over stays: without it, nothing would explain where the chain begins. Each step names these
 * chains again, since the record that named them before may be forgotten in the same step.
 * @returns how many were forgotten
 */
export async function pruneChains(options: PruneChainsOptions): Promise<number> {
  const { store, own } = options;
  const open = await store.scan(AUDIT_CHAINS.name, { prefix: "open.", order: "created", limit: MAX_OPEN });
  // A head that cannot be read belongs to nobody who would forget
  if (AUDIT_CHAINS.readable(store, open)[0]?.key !== `open.${own}`) return 0;
  const pruning = new ChainPruning(options);
  for (let after: string | undefined = undefined;;) {
    const page: Awaited<ReturnType<Store["scan"]>> = await store.scan(AUDIT_RECORDS.name, {
      order: "key",
      limit: PAGE,
      ...(after === undefined ? {} : { after }),
    });
    AUDIT_RECORDS.readable(store, page);
    if (!await pruning.step(page) || page.length < PAGE) return pruning.count;
    after = page.at(-1)?.key;
  }
}

/** Head of a chain, as far as pruning needs it. */
interface PrunedHead {
  /** Place of the head in the store. Undefined for the chain of a gateway alone, which nothing ends */
  readonly endedKey: string | undefined;
  readonly seq: number;
}

class ChainPruning {
  readonly #options: PruneChainsOptions;
  readonly #heads = new Map<string, PrunedHead | undefined>();
  /** Chains whose newest record stayed, with the place before it. */
  readonly #kept = new Map<string, ChainPoint>();
  count = 0;

  constructor(options: PruneChainsOptions) {
    this.#options = options;
  }

  /** Forgets what is old of a page. @returns false at the first record that is not old, or is no record */
  async step(page: Awaited<ReturnType<Store["scan"]>>): Promise<boolean> {
    const { append, before } = this.#options;
    const through = new Map<string, ChainPoint>();
    const deletes: Write[] = [];
    let isUpkeepAlone = true;
    let goesOn = true;
    for (const { key, body } of page) {
      const record = parseAuditRecord(body);
      const expected = record && (keyOfRecord(record) ?? auditKey(record.seq));
      // An entry that is no record of a chain stays with all that follow it, so that `audit verify` can name it
      if (record === undefined || expected !== key || record.time >= before) {
        goesOn = false;
        break;
      }
      const chain = record.chain ?? LONE_CHAIN;
      const head = await this.#headOf(chain);
      if (head !== undefined && head.endedKey === undefined && head.seq === record.seq) {
        this.#kept.set(chain, { chain, seq: record.seq - 1, hash: record.prev });
        continue;
      }
      if (head?.endedKey !== undefined && head.seq === record.seq) {
        deletes.push(AUDIT_CHAINS.remove(head.endedKey));
      }
      deletes.push(AUDIT_RECORDS.remove(key));
      through.set(chain, { chain, seq: record.seq, hash: record.hash });
      if (record.type !== "audit_chain" || record.action !== "forgot") isUpkeepAlone = false;
      this.count++;
    }
    // Each pass appends a record: passes that remove such records alone would go on for ever
    if (through.size > 0 && (!isUpkeepAlone || goesOn)) {
      const points = [...through.values(), ...[...this.#kept.values()].filter(({ chain }) => !through.has(chain))];
      await append({ type: "audit_chain", action: "forgot", through: points }, deletes);
    }
    return goesOn;
  }

  async #headOf(chain: string): Promise<PrunedHead | undefined> {
    if (!this.#heads.has(chain)) this.#heads.set(chain, await this.#readHead(chain));
    return this.#heads.get(chain);
  }

  async #readHead(chain: string): Promise<PrunedHead | undefined> {
    const { store } = this.#options;
    if (chain === LONE_CHAIN) {
      const head = await readHead(store);
      return head && { endedKey: undefined, seq: head.seq };
    }
    for (const key of [`open.${chain}`, `ended.${chain}`]) {
      const stored = await store.get(AUDIT_CHAINS.name, key);
      const found = AUDIT_CHAINS.parsed(store, stored);
      if (found !== undefined) return { endedKey: key.startsWith("ended.") ? key : undefined, seq: found.value.seq };
    }
    return undefined;
  }
}
