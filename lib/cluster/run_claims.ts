import { scanAll } from "../storage/read_records.ts";
import type { Store, Write } from "../storage/store.ts";
import { BlockedLines } from "./blocked_lines.ts";
import {
  type ClaimBody,
  CONVERSATION_HOLDS,
  type HoldBody,
  RUN_CLAIMS,
  RUN_SIGNALS,
  waiterOf,
} from "./cluster_records.ts";
import { fenceCheck, isOwned, type JoinedGateway, type Leases } from "./leases.ts";
import { type OpenWork, WorkClaims, type WorkPlaces } from "./work_claims.ts";

/** An open run as claims know it. */
export interface ClaimableRun {
  readonly id: string;
  readonly conversationId: string | null;
  /** Run that started it as a sub-agent. */
  readonly parentId: string | null;
  /** Workspace that its tools need; null: any gateway may go on with it. */
  readonly workspace: string | null;
}

/** Open run whose workspace has no gateway. */
export interface StrandedRun {
  readonly id: string;
  /** Time since which it has none, by the database's clock in ms. Undefined: that was just found */
  readonly since: number | undefined;
}

/** Open runs that nobody owns, as the last look found them. Stranded ones and those behind them are no part of it. */
export interface ClusterQueue {
  readonly waiting: number;
  /** Number of those that this gateway may claim. Runs of a conversation that is at work are no part of it. */
  readonly waitingHere: number;
  /** True: this gateway may claim runs of gateways that are gone, or of a workspace that was gone. A look after news does not find them. */
  readonly hasAbandoned: boolean;
  /** Ids of the first that wait: of gateways that are gone, then in the order of acceptance. */
  readonly ids: readonly string[];
  /** Number of those that wait by conversation. */
  readonly byConversation: ReadonlyMap<string, number>;
}

/** Most signals that one look reads. */
const MAX_SIGNALS = 1_000;
/** Runs of one conversation that are looked at. */
const MAX_LINE = 1_000;

/** Claims of runs over a store: which gateway owns which run, and which run works in which conversation. */
export class RunClaims {
  readonly #store: Store;
  readonly #leases: Leases;
  readonly #work: WorkClaims<ClaimBody>;
  readonly #blocked = new BlockedLines();

  constructor(store: Store, leases: Leases) {
    this.#store = store;
    this.#leases = leases;
    this.#work = new WorkClaims({ store, leases, collection: RUN_CLAIMS.name, parse: RUN_CLAIMS.parse });
  }

  /** Tells whether a gateway still has its fence. */
  async counts(own: JoinedGateway): Promise<boolean> {
    return isOwned({ gateway: own.id, fence: own.fence }, await this.#leases.fences([own.id]));
  }

  /** Returns the writes that go with the acceptance of a run. @param owner undefined: the run waits for a gateway that claims it */
  opening(run: ClaimableRun, owner: JoinedGateway | undefined): readonly Write[] {
    const claim = RUN_CLAIMS.insert(run.id, toClaim(run, owner));
    return owner === undefined ? [claim] : [fenceCheck(owner), claim];
  }

  /** Returns the writes that go with the end of a run. @param holds true: the run works in its conversation */
  ending({ id, conversationId }: Pick<ClaimableRun, "id" | "conversationId">, holds: boolean): readonly Write[] {
    return [
      RUN_CLAIMS.remove(id),
      RUN_SIGNALS.remove(id),
      ...(holds && conversationId !== null ? [CONVERSATION_HOLDS.remove(conversationId)] : []),
    ];
  }

  /**
   * Claims runs as `WorkClaims` does. A run whose conversation is at work is left for later, and one of another workspace for the gateways of
   * that one.
   * @param isWhole see `ClaimRules`. Only a look that has counted all knows the queue
   * @param limit free slots
   * @param isKnown tells whether this gateway works on a run
   */
  async claim(
    own: JoinedGateway,
    { isWhole, places, limit, takesNoSlot, isKnown, staysWithParent = false }: {
      /** True: a sub-agent is left to the gateway of its parent, whose budget it uses. Default false */
      readonly staysWithParent?: boolean | undefined;
      readonly isWhole: boolean;
      readonly places: WorkPlaces;
      readonly limit: number;
      readonly takesNoSlot: (run: ClaimableRun) => boolean;
      readonly isKnown: (id: string) => boolean;
    },
  ): Promise<{
    readonly claimed: readonly ClaimableRun[];
    readonly queue: ClusterQueue | undefined;
    readonly stranded: readonly StrandedRun[];
  }> {
    /** The run of each conversation that was accepted first, once a run of the conversation was tried. */
    const firsts = new Map<string, string | undefined>();
    /** Runs that this look has asked. */
    const asked = new Set<string>();
    const blocked = this.#blocked;
    const lineAtParent = (parentId: string | null) =>
      staysWithParent && parentId !== null ? `parent ${parentId}` : undefined;
    // A look finds the runs of gateways that are gone before those that nobody had, so the one to begin may be any of them
    const mayBeFirst = ({ id, body: { conversation_id: conversation } }: OpenWork<ClaimBody>) => {
      if (conversation === null) return true;
      return firsts.has(conversation) ? firsts.get(conversation) === id : blocked.mayAsk(lineOf(conversation));
    };
    const mayAsk = (work: OpenWork<ClaimBody>) => {
      const line = lineAtParent(work.body.parent_id);
      return (line === undefined || blocked.mayAsk(line)) && mayBeFirst(work);
    };
    const isStuck = ({ id, body: { conversation_id: conversation, parent_id } }: OpenWork<ClaimBody>) => {
      const line = lineAtParent(parent_id);
      if (line !== undefined && blocked.has(line)) return true;
      if (conversation === null) return false;
      return blocked.has(lineOf(conversation)) || (firsts.has(conversation) && firsts.get(conversation) !== id);
    };
    blocked.begin(isWhole);
    const { claimed, left, beyond } = await this.#work.claim(own, {
      isWhole,
      places,
      isKnown,
      isFull: (claimed) => claimed >= limit,
      hasRoom: (work, claimed) => (claimed < limit || takesNoSlot(toRun(work))) && mayAsk(work),
      // Runs of a conversation begin in the order in which they were accepted, one at a time
      more: async ({ id, body: { conversation_id, parent_id } }) => {
        asked.add(id);
        const line = lineAtParent(parent_id);
        const atParent = line === undefined || parent_id === null ? [] : await this.#atParent(parent_id, own);
        if (line !== undefined) blocked.note(line, atParent === undefined);
        if (atParent === undefined || conversation_id === null) return atParent;
        if (firsts.has(conversation_id) && firsts.get(conversation_id) !== id) return undefined;
        // A run that has an owner may be before it, as an attached one that waits
        const [hold, first] = await Promise.all([
          this.#holdWrite(conversation_id, id, own),
          this.runIn(conversation_id),
        ]);
        firsts.set(conversation_id, first);
        const mayBegin = hold !== undefined && first === id;
        // When two runs of a conversation are asked together, the first one says whether it is blocked
        if (first === id || first === undefined || !asked.has(first)) blocked.note(lineOf(conversation_id), !mayBegin);
        return mayBegin ? [hold, ...atParent] : undefined;
      },
    });
    blocked.end();
    const byConversation = new Map<string, number>();
    /** Conversations with a run whose workspace has no gateway: the runs behind it wait for that one. */
    const held = new Set<string>();
    const waiting = left.filter(({ place, body: { conversation_id: conversation } }) => {
      if (conversation === null) return place !== "nowhere";
      byConversation.set(conversation, (byConversation.get(conversation) ?? 0) + 1);
      if (place === "nowhere") held.add(conversation);
      return !held.has(conversation);
    });
    const ids = waiting.map(({ id }) => id);
    const here = waiting.filter((work) => work.place === "here" && !isStuck(work));
    const queue = beyond === undefined ? undefined : {
      waiting: ids.length + beyond,
      waitingHere: here.length + beyond,
      hasAbandoned: here.some(({ body }) => body.gateway !== null),
      ids,
      byConversation,
    };
    const stranded = left.flatMap((work) =>
      work.place === "nowhere" ? [{ id: work.id, since: work.body.waiting_since }] : []
    );
    return { claimed: claimed.map(toRun), queue, stranded };
  }

  /** Returns the precondition that a gateway owns an open run, or that it has ended. Undefined while it is another's, or nobody's. */
  async #atParent(parentId: string, own: JoinedGateway): Promise<readonly Write[] | undefined> {
    const stored = await this.#store.get(RUN_CLAIMS.name, parentId);
    if (stored === undefined) return [];
    const parent = RUN_CLAIMS.parsed(this.#store, stored);
    if (parent?.value.gateway !== own.id || parent.value.fence !== own.fence) return undefined;
    return [RUN_CLAIMS.check(parentId, parent.version)];
  }

  /** Returns the write by which the owner of a run gives it back, to wait until its workspace has a gateway again. */
  stranding(run: ClaimableRun, since: number): Write {
    const claim = { ...toClaim(run, undefined), gateway: waiterOf(run.workspace ?? ""), waiting_since: since };
    return RUN_CLAIMS.put(run.id, claim);
  }

  /** Returns the write by which the owner of a run says that its workspace has a gateway again. */
  comingBack(run: ClaimableRun, owner: JoinedGateway): Write {
    return RUN_CLAIMS.put(run.id, toClaim(run, owner));
  }

  /** Claims one run, if nobody owns it. The conversation is not asked for: the run is to be ended. @returns undefined when others own it */
  async claimToEnd(id: string, own: JoinedGateway): Promise<ClaimableRun | undefined> {
    const claimed = await this.#work.claimOne(id, own);
    return claimed === undefined ? undefined : toRun(claimed);
  }

  /**
   * Gives a claim to each open run that has none, in the order of acceptance: a gateway alone, whose records were moved here, makes none.
   * @param openRuns collection with a record for each open run
   * @param find returns a run; undefined for one that cannot be read, which stays for a person
   */
  async adopt(openRuns: string, find: (id: string) => Promise<ClaimableRun | undefined>): Promise<number> {
    const claimed = new Set<string>();
    for await (const { key } of scanAll(this.#store, RUN_CLAIMS.name)) claimed.add(key);
    let adopted = 0;
    for await (const { key, version } of scanAll(this.#store, openRuns, { order: "created" })) {
      const run = claimed.has(key) ? undefined : await find(key);
      if (run === undefined) continue;
      const isOpen: Write = { op: "check", collection: openRuns, key, version };
      if (await this.#store.batch([isOpen, ...this.opening(run, undefined)])) adopted++;
    }
    return adopted;
  }

  /** Returns the ids of the open runs that a run has started as sub-agents. */
  async childrenOf(runId: string): Promise<readonly string[]> {
    const where = { field: "parent_id", value: runId };
    const children: string[] = [];
    for await (const { key } of scanAll(this.#store, RUN_CLAIMS.name, { order: "created", where })) children.push(key);
    return children;
  }

  /**
   * Gives a run of a conversation its place in the order of acceptance, before it has a record, and the conversation with it when that is
   * wanted, free, and nobody is before the run.
   * @param options.maxBefore open runs of the conversation that may be before this one, wherever they work; undefined: any number
   * @returns `full` when there are more; undefined when others have fenced the gateway off
   */
  async lineUp(
    run: ClaimableRun & { readonly conversationId: string },
    { own, mayHold, maxBefore }: {
      readonly own: JoinedGateway;
      readonly mayHold: boolean;
      readonly maxBefore: number | undefined;
    },
  ): Promise<"holds" | "waits" | "full" | undefined> {
    const { id, conversationId } = run;
    const place = this.opening(run, own);
    const [hold, before] = await Promise.all([
      mayHold ? this.#holdWrite(conversationId, id, own) : undefined,
      this.#line(conversationId, Math.min(MAX_LINE, maxBefore === undefined ? 1 : maxBefore + 2)),
    ]);
    if (maxBefore !== undefined && before.length > maxBefore && !before.includes(id)) return "full";
    const isFirst = before.length === 0 || before[0] === id;
    if (hold !== undefined && isFirst && await this.#store.batch([...place, hold])) return "holds";
    return await this.#store.batch(place) ? "waits" : undefined;
  }

  /** Takes a conversation for a run that has its place. @returns false while another run works in it, or is before this one */
  async hold(
    conversationId: string,
    { runId, own }: { readonly runId: string; readonly own: JoinedGateway },
  ): Promise<boolean> {
    const write = await this.#holdWrite(conversationId, runId, own);
    if (write === undefined || !await this.#isFirst(conversationId, runId)) return false;
    return await this.#store.batch([fenceCheck(own), write]);
  }

  /** Takes the place of a run away that never got a record, with the conversation that it may hold. */
  async leaveLine(
    { id, conversationId }: Pick<ClaimableRun, "id" | "conversationId">,
    { own, holds }: { readonly own: JoinedGateway; readonly holds: boolean },
  ): Promise<void> {
    await this.#store.batch([fenceCheck(own), ...this.ending({ id, conversationId }, holds)]);
  }

  /** Gives a conversation back that a run without a record of its end held. */
  async release(
    conversationId: string,
    { runId, own }: { readonly runId: string; readonly own: JoinedGateway },
  ): Promise<void> {
    const found = await CONVERSATION_HOLDS.read(this.#store, conversationId);
    if (found === undefined || found.value.run_id !== runId) return;
    await this.#store.batch([
      fenceCheck(own),
      CONVERSATION_HOLDS.check(conversationId, found.version),
      CONVERSATION_HOLDS.remove(conversationId),
    ]);
  }

  /** Gives back all runs that a gateway owns under its fence. */
  giveAllBack(own: JoinedGateway): Promise<void> {
    return this.#work.giveBack(own);
  }

  /** Gives an open run back, with its conversation, so that others may claim it at once. */
  async giveUp(
    { id, conversationId }: ClaimableRun,
    { own, holds }: { readonly own: JoinedGateway; readonly holds: boolean },
  ): Promise<void> {
    const found = await RUN_CLAIMS.read(this.#store, id);
    if (found === undefined || found.value.gateway !== own.id || found.value.fence !== own.fence) return;
    const { key, version, value } = found;
    await this.#store.batch([
      fenceCheck(own),
      RUN_CLAIMS.putOver(key, version, { ...value, gateway: null, fence: 0 }),
      ...(holds && conversationId !== null ? [CONVERSATION_HOLDS.remove(conversationId)] : []),
    ]);
  }

  /** Returns what the owner of a run has to know, as a write that goes with the reason for it. */
  signal(runId: string): Write {
    return RUN_SIGNALS.put(runId, { v: 1 });
  }

  /** Returns the ids of the runs whose owners have something to read. */
  async signals(): Promise<readonly string[]> {
    return (await this.#store.scan(RUN_SIGNALS.name, { limit: MAX_SIGNALS })).map(({ key }) => key);
  }

  /** Returns the precondition that no run works in a conversation. */
  unheld(conversationId: string): readonly Write[] {
    return [CONVERSATION_HOLDS.check(conversationId, 0)];
  }

  /** Returns the precondition that a run has no claim. */
  unclaimed(runId: string): readonly Write[] {
    return [RUN_CLAIMS.check(runId, 0)];
  }

  /** Tells whether no other open run of a conversation was accepted before this one. */
  async #isFirst(conversationId: string, runId: string): Promise<boolean> {
    const first = await this.runIn(conversationId);
    return first === undefined || first === runId;
  }

  /** Returns the id of the open run of a conversation that was accepted first. */
  async runIn(conversationId: string): Promise<string | undefined> {
    return (await this.#line(conversationId, 1))[0];
  }

  /** Returns the ids of the open runs of a conversation, in the order of their acceptance. */
  async #line(conversationId: string, limit: number): Promise<readonly string[]> {
    const where = { field: "conversation_id", value: conversationId };
    return (await this.#store.scan(RUN_CLAIMS.name, { order: "created", where, limit })).map(({ key }) => key);
  }

  /** Returns the write that takes a conversation. Undefined while another run works in it */
  async #holdWrite(conversationId: string, runId: string, own: JoinedGateway): Promise<Write | undefined> {
    const body: HoldBody = { v: 1, run_id: runId, gateway: own.id, fence: own.fence };
    // A run that holds the conversation has a claim before this one, so a damaged hold is nobody's once this run is first
    const { value: found = body, version } = await CONVERSATION_HOLDS.readForChange(this.#store, conversationId);
    const { run_id: holder, gateway, fence } = found;
    if (holder !== runId) {
      // A hold counts while its owner does. One of a run that is still open waits for whoever claims the run
      if (isOwned({ gateway, fence }, await this.#leases.fences([gateway]))) return undefined;
      if (await this.#store.get(RUN_CLAIMS.name, holder) !== undefined) return undefined;
    }
    return CONVERSATION_HOLDS.putOver(conversationId, version, body);
  }
}

/** Returns the name of the line of a conversation among those that may be blocked. */
function lineOf(conversationId: string): string {
  return `conversation ${conversationId}`;
}

function toClaim({ conversationId, parentId, workspace }: ClaimableRun, owner: JoinedGateway | undefined): ClaimBody {
  return {
    v: 1,
    gateway: owner?.id ?? null,
    fence: owner?.fence ?? 0,
    conversation_id: conversationId,
    parent_id: parentId,
    ...(workspace === null ? {} : { workspace }),
  };
}

function toRun({ id, body: { conversation_id, parent_id, workspace } }: OpenWork<ClaimBody>): ClaimableRun {
  return { id, conversationId: conversation_id, parentId: parent_id, workspace: workspace ?? null };
}
