import { readable, readRecord, readRecords } from "../storage/read_records.ts";
import type { Store, Write } from "../storage/store.ts";
import {
  type ClaimBody,
  CONVERSATION_HOLDS,
  type HoldBody,
  parseClaim,
  parseHold,
  RUN_CLAIMS,
  RUN_SIGNALS,
} from "./cluster_records.ts";
import { fenceCheck, isOwned, type JoinedGateway, type Leases } from "./leases.ts";

/** An open run as claims know it. */
export interface ClaimableRun {
  readonly id: string;
  readonly conversationId: string | null;
  /** Run that started it as a sub-agent. */
  readonly parentId: string | null;
}

/** Open runs that nobody owns, as the last look found them. */
export interface ClusterQueue {
  readonly waiting: number;
  /** Number of those that wait by conversation. */
  readonly byConversation: ReadonlyMap<string, number>;
}

/** Most runs that one look reads. Those beyond wait for the next look. */
const MAX_LOOKED_AT = 1_000;

/** Claims of runs over a store: which gateway owns which run, and which run works in which conversation. */
export class RunClaims {
  readonly #store: Store;
  readonly #leases: Leases;

  constructor(store: Store, leases: Leases) {
    this.#store = store;
    this.#leases = leases;
  }

  /** Returns the writes that go with the acceptance of a run. @param owner undefined: the run waits for a gateway that claims it */
  opening(run: ClaimableRun, owner: JoinedGateway | undefined): readonly Write[] {
    const claim: Write = { op: "insert", collection: RUN_CLAIMS, key: run.id, body: toClaim(run, owner) };
    return owner === undefined ? [claim] : [fenceCheck(owner), claim];
  }

  /** Returns the writes that go with the end of a run. @param holds true: the run works in its conversation */
  ending({ id, conversationId }: ClaimableRun, holds: boolean): readonly Write[] {
    return [
      { op: "delete", collection: RUN_CLAIMS, key: id },
      { op: "delete", collection: RUN_SIGNALS, key: id },
      ...(holds && conversationId !== null
        ? [{ op: "delete", collection: CONVERSATION_HOLDS, key: conversationId } as const]
        : []),
    ];
  }

  /**
   * Claims runs that nobody owns, the oldest first, and those that this gateway owns without knowing it, as after an answer that was lost.
   * A run whose conversation is at work is left for later.
   * @param isKnown tells whether this gateway works on a run
   */
  async claim(
    own: JoinedGateway,
    { limit, isKnown }: { readonly limit: number; readonly isKnown: (id: string) => boolean },
  ): Promise<{ readonly claimed: readonly ClaimableRun[]; readonly queue: ClusterQueue }> {
    const page = await this.#store.scan(RUN_CLAIMS, { order: "created", limit: MAX_LOOKED_AT });
    const claims = readable(this.#store, RUN_CLAIMS, page, parseClaim);
    const owners = claims.flatMap(({ value }) => value.gateway ?? []);
    const fences = await this.#leases.fences([...owners, own.id]);
    const claimed: ClaimableRun[] = [];
    const byConversation = new Map<string, number>();
    const passed = new Set<string>();
    let waiting = 0;
    for (const { key: id, version, value } of claims) {
      const run = toRun(id, value);
      const isMine = value.gateway === own.id && value.fence === own.fence;
      // The run may have ended since the page was read: it has no claim then, and the write does not hold
      if (isMine && !isKnown(id) && await this.#store.batch([fenceCheck(own), claimWrite(run, version, own)])) {
        claimed.push(run);
      }
      if (isMine || isOwned(value, fences)) continue;
      // Runs of a conversation begin in the order in which they were accepted
      const isBehind = run.conversationId !== null && passed.has(run.conversationId);
      if (!isBehind && claimed.length < limit && await this.#claimOne(run, version, own)) {
        claimed.push(run);
        continue;
      }
      waiting++;
      if (run.conversationId === null) continue;
      passed.add(run.conversationId);
      byConversation.set(run.conversationId, (byConversation.get(run.conversationId) ?? 0) + 1);
    }
    return { claimed, queue: { waiting, byConversation } };
  }

  /** Claims one run, if nobody owns it. The conversation is not asked for: the run is to be ended. @returns undefined when others own it */
  async claimToEnd(id: string, own: JoinedGateway): Promise<ClaimableRun | undefined> {
    const found = await readRecord(this.#store, RUN_CLAIMS, id, parseClaim);
    if (found === undefined) return undefined;
    const fences = await this.#leases.fences(found.value.gateway === null ? [] : [found.value.gateway]);
    if (isOwned(found.value, fences)) return undefined;
    const run = toRun(id, found.value);
    return await this.#store.batch([fenceCheck(own), claimWrite(run, found.version, own)]) ? run : undefined;
  }

  /** Returns the ids of the open runs that a run has started as sub-agents. */
  async childrenOf(runId: string): Promise<readonly string[]> {
    const children: string[] = [];
    for await (const { key, value } of readRecords(this.#store, RUN_CLAIMS, parseClaim)) {
      if (value.parent_id === runId) children.push(key);
    }
    return children;
  }

  /** Takes a conversation for a run at work. @returns false while another run works in it */
  async hold(
    conversationId: string,
    { runId, own }: { readonly runId: string; readonly own: JoinedGateway },
  ): Promise<boolean> {
    const write = await this.#holdWrite(conversationId, runId, own);
    return write !== undefined && await this.#store.batch([fenceCheck(own), write]);
  }

  /** Gives a conversation back that a run without a record of its end held. */
  async release(
    conversationId: string,
    { runId, own }: { readonly runId: string; readonly own: JoinedGateway },
  ): Promise<void> {
    const found = await readRecord(this.#store, CONVERSATION_HOLDS, conversationId, parseHold);
    if (found === undefined || found.value.run_id !== runId) return;
    await this.#store.batch([
      fenceCheck(own),
      { op: "check", collection: CONVERSATION_HOLDS, key: conversationId, version: found.version },
      { op: "delete", collection: CONVERSATION_HOLDS, key: conversationId },
    ]);
  }

  /** Returns what the owner of a run has to know, as a write that goes with the reason for it. */
  signal(runId: string): Write {
    return { op: "put", collection: RUN_SIGNALS, key: runId, body: { v: 1 } };
  }

  /** Returns the ids of the runs whose owners have something to read. */
  async signals(): Promise<readonly string[]> {
    return (await this.#store.scan(RUN_SIGNALS, { limit: MAX_LOOKED_AT })).map(({ key }) => key);
  }

  async #claimOne(run: ClaimableRun, version: number, own: JoinedGateway): Promise<boolean> {
    const writes = [fenceCheck(own), claimWrite(run, version, own)];
    if (run.conversationId !== null) {
      const hold = await this.#holdWrite(run.conversationId, run.id, own);
      if (hold === undefined) return false;
      writes.push(hold);
    }
    return await this.#store.batch(writes);
  }

  /** Returns the write that takes a conversation. Undefined while another run works in it */
  async #holdWrite(conversationId: string, runId: string, own: JoinedGateway): Promise<Write | undefined> {
    const found = await readRecord(this.#store, CONVERSATION_HOLDS, conversationId, parseHold);
    const body: HoldBody = { v: 1, run_id: runId, gateway: own.id, fence: own.fence };
    const place = { collection: CONVERSATION_HOLDS, key: conversationId, body };
    if (found === undefined) return { op: "insert", ...place };
    const { run_id: holder, gateway, fence } = found.value;
    if (holder !== runId) {
      // A hold counts while its owner does. One of a run that is still open waits for whoever claims the run
      if (isOwned({ gateway, fence }, await this.#leases.fences([gateway]))) return undefined;
      if (await this.#store.get(RUN_CLAIMS, holder) !== undefined) return undefined;
    }
    return { op: "putIf", ...place, version: found.version };
  }
}

function toClaim({ conversationId, parentId }: ClaimableRun, owner: JoinedGateway | undefined): ClaimBody {
  return {
    v: 1,
    gateway: owner?.id ?? null,
    fence: owner?.fence ?? 0,
    conversation_id: conversationId,
    parent_id: parentId,
  };
}

function toRun(id: string, { conversation_id, parent_id }: ClaimBody): ClaimableRun {
  return { id, conversationId: conversation_id, parentId: parent_id };
}

function claimWrite(run: ClaimableRun, version: number, own: JoinedGateway): Write {
  return { op: "putIf", collection: RUN_CLAIMS, key: run.id, version, body: toClaim(run, own) };
}
