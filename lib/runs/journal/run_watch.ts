import { shownUpTo } from "./run_records.ts";
import { Backoff, type Clock, type Timer, withTimeout } from "../../base/clock.ts";
import { type HttpError, refuse } from "../../base/errors.ts";
import type { KeyedNotifier } from "../../base/keyed_queues.ts";
import { Poller } from "../../base/poller.ts";
import type { Random } from "../../base/random.ts";
import { type AgentEvent, isTerminal } from "../../base/records/agent_event.ts";
import { isAtWork } from "../../base/records/run.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { GatewayLinkError, type GatewayLinks, type LinkedGateway } from "../../cluster/gateway_links.ts";
import { POLL_MS } from "../../cluster/cluster_news.ts";
import { isUnreadable } from "../../storage/read_records.ts";
import type { RunPace } from "../run_request.ts";
import type { JournalPlace } from "./recorded_events.ts";
import type { RunStore } from "./run_store.ts";

/** Parts that the watches of one gateway share. */
export interface RunWatchOptions {
  readonly runs: Pick<RunStore, "read" | "recorded">;
  readonly links: Pick<GatewayLinks, "ownerOf" | "events">;
  /** Wakes the followers of a run, by its id, when they should look again. */
  readonly news: KeyedNotifier;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
}

/**
 * The next step of a follower: events to show, or what to do without. `journal`: the events after its place are in the journal. `wait`:
 * it has all there is. `over`: it has all there will be.
 */
export type WatchLook =
  | { readonly kind: "events"; readonly events: readonly AgentEvent[] }
  | { readonly kind: "journal" | "wait" | "over" };

/** Events that a watch keeps beyond those that are not in the journal yet. */
const RECENT = 512;
/** Longest events of a link that the journal does not have yet, in characters. */
const MAX_UNRECORDED = 64 * 1024 * 1024;
/** A link that lives less long counts as a failure. Milliseconds */
const SHORT_MS = 2_000;
/** Pause before a link is made again: doubled with each failure, and half of it left to chance. Milliseconds */
const PAUSES = { firstMs: 250, mostMs: 8_000 } as const;
/** Time between two looks whether a link is behind the journal. Milliseconds */
const CHECK_MS = 5_000;
/** Time that a link has to bring what a note says is in the journal. Milliseconds */
const BEHIND_MS = 1_000;
/** Time after which a gateway without an address is looked at again. Milliseconds */
const NO_LINK_MS = 5_000;

/** The watches of one gateway, one for each run that is at work elsewhere and followed here. */
export class RunWatches {
  readonly #options: RunWatchOptions;
  readonly #watches = new Map<string, RunWatch>();
  #isStopped = false;

  constructor(options: RunWatchOptions) {
    this.#options = options;
  }

  /** Returns the watch of a run, which goes on until each of its followers has left. */
  watch(id: string): RunWatch {
    const known = this.#watches.get(id);
    if (known !== undefined) return known.join();
    const watch: RunWatch = new RunWatch(id, {
      ...this.#options,
      onEnd: () => {
        if (this.#watches.get(id) === watch) this.#watches.delete(id);
      },
    });
    this.#watches.set(id, watch);
    watch.join();
    if (this.#isStopped) watch.stop();
    else watch.start();
    return watch;
  }

  /** Takes a note: the journal of a run has come to `seq`. */
  onNote(id: string, seq: number): void {
    this.#watches.get(id)?.onNote(seq);
  }

  /** Returns the number of runs that are watched. */
  size(): number {
    return this.#watches.size;
  }

  /** Ends all watches, for a shutdown. Followers leave without the end of their runs. */
  stop(): void {
    this.#isStopped = true;
    for (const watch of [...this.#watches.values()]) watch.stop();
  }
}

/**
 * A run at work elsewhere, as all its followers at this gateway see it: one link to its owner, or one look into the journal for all.
 *
 * The watch keeps the newest events: all that the journal does not have yet, and some before. A follower behind them reads the journal. The link
 * begins where the journal ended, so each event is in the one or in the other. The end of a run is read from the journal alone.
 */
export class RunWatch {
  readonly #id: string;
  readonly #options: RunWatchOptions & { readonly onEnd: () => void };
  readonly #stop = new AbortController();
  #followers = 0;
  /** The newest events, in order. Each event of the run with a seq above `#from` is there, as far as it is known. */
  #events: AgentEvent[] = [];
  #from = 0;
  /** Place up to which the events are known, by the journal or by a link. Undefined before the first read */
  #place: JournalPlace | undefined = undefined;
  /** History of the database in which the watch has begun. */
  #history: string | undefined = undefined;
  /** End of the journal, as far as it is known. */
  #recorded = 0;
  /** Number of events at which it is looked how many of them the journal has. */
  #nextLook = 4 * RECENT;
  /** Characters of the events that the journal does not have. */
  #unrecorded = 0;
  #isOver = false;
  #failure: HttpError | undefined = undefined;
  #pace: RunPace = { live: true };
  /** Furthest seq that a note has told of. It is a hint: anybody who may write the database may send notes. */
  #hint = 0;
  /** True by a note, until the journal is read. */
  #isNoted = false;
  readonly #backoff: Backoff;
  /** Monotonic time before which no link is made. */
  #again = 0;
  /** Ends the wait or the look that is due. */
  #onNote: () => void = () => {};
  #databaseIsDown = false;

  constructor(id: string, options: RunWatchOptions & { readonly onEnd: () => void }) {
    this.#id = id;
    this.#options = options;
    this.#backoff = new Backoff(PAUSES, options.random);
  }

  /** Adds a follower. */
  join(): this {
    this.#followers++;
    return this;
  }

  /** Removes a follower. The watch ends with the last one. */
  leave(): undefined {
    if (--this.#followers === 0) this.stop();
  }

  start(): void {
    void this.#work();
  }

  /** Ends the watch; its followers leave. */
  stop(): void {
    this.#isOver = true;
    this.#options.onEnd();
    this.#stop.abort();
    this.#options.news.wake(this.#id);
  }

  /** Tells whether no more events will come. */
  isOver(): boolean {
    return this.#isOver;
  }

  /** Returns the reason for which no more events will come although the run has not ended. Undefined while there is none. */
  failure(): HttpError | undefined {
    return this.#failure;
  }

  /** Returns how the events come now. */
  pace(): RunPace {
    return this.#pace;
  }

  /** Returns the next step of a follower that has everything up to a seq. */
  look(seq: number): WatchLook {
    if (this.#place === undefined) return { kind: this.#isOver ? "over" : "wait" };
    if (seq < this.#from) return { kind: "journal" };
    const at = firstAfter(this.#events, seq);
    if (at < this.#events.length) return { kind: "events", events: this.#events.slice(at, at + RECENT) };
    return { kind: this.#isOver ? "over" : "wait" };
  }

  onNote(seq: number): void {
    this.#hint = Math.max(this.#hint, seq);
    this.#isNoted = true;
    this.#onNote();
  }

  async #work(): Promise<void> {
    const { signal } = this.#stop;
    while (!signal.aborted) {
      try {
        if (!await this.#catchUp()) return this.stop();
        this.#databaseIsDown = false;
        await this.#goOn();
      } catch (error) {
        if (signal.aborted) return;
        const { log } = this.#options;
        if (!this.#databaseIsDown) {
          log.warn("A run of another gateway cannot be read: it is tried again", { run_id: this.#id, error });
        }
        this.#databaseIsDown = true;
        await this.#pause(POLL_MS);
      }
    }
  }

  /** Reads the journal to its end. @returns false when the run is over, is not there any more, or cannot be read */
  async #catchUp(): Promise<boolean> {
    try {
      return await this.#readOn();
    } catch (error) {
      if (!isUnreadable(error)) throw error;
      this.#failure = error;
      return false;
    }
  }

  /** @returns as `#catchUp` @throws {HttpError} `record_unreadable` */
  async #readOn(): Promise<boolean> {
    const { runs } = this.#options;
    for (;;) {
      this.#isNoted = false;
      const recorded = await runs.recorded(this.#id);
      if (recorded === undefined) {
        this.#failure = runIsGone(this.#id);
        return false;
      }
      const { run, end } = recorded;
      this.#recorded = end.seq;
      const from = this.#place === undefined || end.history !== this.#history ? this.#beginAt(end) : this.#place;
      if (end.seq <= from.seq) return isAtWork(run.status);
      for (let at = from;;) {
        const { events, place } = await runs.read(this.#id, at);
        this.#place = at = place;
        if (events.length === 0) break;
        this.#add(events);
      }
      this.#trim();
      // A journal that is shorter than its run says is looked at again later
      if (this.#place.seq < end.seq) return true;
    }
  }

  /** Begins at the end of the journal, also when events that were known are not in the database's history any more. */
  #beginAt(end: JournalPlace): JournalPlace {
    this.#place = end;
    this.#history = end.history;
    this.#from = end.seq;
    this.#events = [];
    this.#unrecorded = 0;
    this.#options.news.wake(this.#id);
    return end;
  }

  /** Waits for more: from the owner by a link where there may be one now, else from the journal. */
  async #goOn(): Promise<void> {
    const { links, clock } = this.#options;
    const wait = this.#again - clock.monotonic();
    if (wait > 0) return await this.#pause(Math.min(wait, POLL_MS));
    const owner = await links.ownerOf(this.#id);
    if (owner.kind !== "elsewhere") return await this.#pause(POLL_MS);
    const { gateway } = owner;
    if (gateway.address !== undefined) return await this.#read(gateway);
    this.#setPace({ live: false, why: gateway.problem ?? "" });
    this.#again = clock.monotonic() + NO_LINK_MS;
  }

  /** Reads a link to its end. */
  async #read(gateway: LinkedGateway): Promise<void> {
    const { links, log, clock } = this.#options;
    const link = new AbortController();
    const signal = AbortSignal.any([link.signal, this.#stop.signal]);
    const check = this.#checkLink(link);
    const begin = clock.monotonic();
    try {
      for await (const events of links.events(gateway, { runId: this.#id, after: this.#place?.seq ?? 0, signal })) {
        this.#setPace({ live: true });
        if (await this.#take(events)) return;
      }
    } catch (error) {
      if (this.#stop.signal.aborted) return;
      const reason = error instanceof GatewayLinkError ? error.message : "broke off";
      log.info("The link to another gateway is down: it is made again", {
        gateway: gateway.id,
        run_id: this.#id,
        reason,
      });
      this.#setPace({ live: false, why: `the link to gateway ${gateway.id} ${reason}` });
    } finally {
      check.clear();
      this.#planAgain(clock.monotonic() - begin < SHORT_MS);
    }
  }

  /** Ends a link that is behind the journal: its gateway does not own the run any more, or does not tell. */
  #checkLink(link: AbortController): Timer {
    const { clock } = this.#options;
    let soon: Timer | undefined;
    // While the database is down the link goes on
    const poller = new Poller(async () => {
      const recorded = await this.#options.runs.recorded(this.#id);
      const isBehind = recorded === undefined || !isAtWork(recorded.run.status) ||
        recorded.end.seq > this.#last() || recorded.end.history !== this.#history;
      if (isBehind) link.abort(new GatewayLinkError("was behind the journal"));
    });
    this.#onNote = () => {
      if (this.#hint <= this.#last()) return;
      soon ??= clock.after(BEHIND_MS, () => {
        soon = undefined;
        if (this.#hint > this.#last()) void poller.look();
      });
    };
    poller.start(clock, CHECK_MS);
    return {
      clear: () => {
        void poller.stop();
        soon?.clear();
        this.#onNote = () => {};
      },
    };
  }

  /** Takes events of a link. @returns true at the end of the run, which the journal tells */
  async #take(events: readonly AgentEvent[]): Promise<boolean> {
    let isEnd = false;
    const some: AgentEvent[] = [];
    for (const event of events) {
      isEnd = isTerminal(event);
      if (isEnd) break;
      if (event.seq > (some.at(-1)?.seq ?? this.#last())) some.push(event);
    }
    const furthest = some.at(-1)?.seq ?? 0;
    // An owner shows only so much more than is in the journal
    if (furthest > shownUpTo(this.#recorded)) await this.#refresh();
    if (furthest > shownUpTo(this.#recorded)) {
      throw new GatewayLinkError("gave events that the journal cannot reach");
    }
    this.#add(some);
    for (const event of some) this.#unrecorded += sizeOf(event);
    if (this.#events.length > this.#nextLook || this.#unrecorded > MAX_UNRECORDED) {
      await this.#refresh();
      this.#nextLook = this.#events.length + 4 * RECENT;
    }
    if (this.#unrecorded > MAX_UNRECORDED) {
      throw new GatewayLinkError("gave more than a run may say between two records");
    }
    return isEnd;
  }

  /** Learns how far the journal is, and forgets what is in it. */
  async #refresh(): Promise<void> {
    // While the database is down a link goes on, within its bounds
    const recorded = await this.#options.runs.recorded(this.#id).catch(() => undefined);
    if (recorded === undefined || recorded.end.seq <= this.#recorded) return;
    this.#recorded = recorded.end.seq;
    // Should the link break now, the journal has what the link has not brought yet
    if (recorded.end.seq <= this.#last()) this.#place = recorded.end;
    this.#trim();
  }

  #add(events: readonly AgentEvent[]): void {
    const last = this.#last();
    const more = events.filter(({ seq }) => seq > last);
    if (more.length === 0) return;
    this.#events.push(...more);
    this.#options.news.wake(this.#id);
  }

  #trim(): void {
    const recorded = firstAfter(this.#events, this.#recorded);
    this.#unrecorded = this.#events.slice(recorded).reduce((sum, event) => sum + sizeOf(event), 0);
    const dropped = Math.min(recorded, this.#events.length - RECENT);
    if (dropped <= 0) return;
    this.#from = this.#events[dropped - 1]?.seq ?? this.#from;
    this.#events = this.#events.slice(dropped);
  }

  #last(): number {
    return this.#events.at(-1)?.seq ?? this.#from;
  }

  #setPace(pace: RunPace): void {
    const isSame = pace.live === this.#pace.live && (pace.live || this.#pace.live || pace.why === this.#pace.why);
    if (isSame) return;
    this.#pace = pace;
    this.#options.news.wake(this.#id);
  }

  /** Decides when a link is made again. */
  #planAgain(wasShort: boolean): void {
    if (!wasShort) this.#backoff.reset();
    this.#again = this.#options.clock.monotonic() + this.#backoff.next();
  }

  /** Waits for a note, at most `ms` milliseconds. Does not throw. */
  async #pause(ms: number): Promise<void> {
    const { clock } = this.#options;
    if (this.#isNoted) return;
    const heard = Promise.withResolvers<void>();
    this.#onNote = () => heard.resolve();
    const end = () => heard.resolve();
    this.#stop.signal.addEventListener("abort", end, { once: true });
    await withTimeout(heard.promise, { ms, clock });
    this.#stop.signal.removeEventListener("abort", end);
    this.#onNote = () => {};
  }
}

function runIsGone(id: string): HttpError {
  return refuse(
    "not_found",
    `Cannot go on with the run "${id}": its record is gone. A database loses its last changes in a failover to a standby that lacks them; ` +
      "start the run again",
  );
}

/** Returns the index of the first event after a seq. */
function firstAfter(events: readonly AgentEvent[], seq: number): number {
  let [low, high] = [0, events.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((events[middle]?.seq ?? Infinity) > seq) high = middle;
    else low = middle + 1;
  }
  return low;
}

function sizeOf(event: AgentEvent): number {
  return "delta" in event ? event.delta.length : JSON.stringify(event).length;
}
