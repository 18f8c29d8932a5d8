import * as v from "valibot";
import { CancelError, unlessAborted } from "../base/cancel.ts";
import type { Clock } from "../base/clock.ts";
import { refuse } from "../base/errors.ts";
import { type Actor, storedActor } from "../base/records/caller.ts";
import { type Halt, haltedPart, haltSchema } from "../base/records/gateway_status.ts";
import { storedObject, unknownFieldsOf } from "../base/records/stored_object.ts";
import type { Logger } from "../base/telemetry/log.ts";
import { Collection } from "../storage/read_records.ts";
import type { Store } from "../storage/store.ts";
import type { AuditAppend } from "./audit/audit_chain.ts";
import type { Access } from "./policy.ts";

/** Most tools and runs that are halted at a time; the other kinds always find room. */
const MAX_NAMED = 200;

const storedHaltSchema = storedObject({ ...haltSchema.entries, by: storedObject(haltSchema.entries.by.entries) });
/** Collection with one record: what a person has halted, and nobody has let go on yet. */
export const HALTS = new Collection(
  "halts",
  storedObject({
    v: v.literal(1),
    halts: v.pipe(v.array(storedHaltSchema), v.maxLength(MAX_NAMED + 3)),
  }),
);
const KEY = "halts";

/** Stands for a record that cannot be read: it may have halted anything. */
const UNREADABLE: Halt = {
  ...{ id: "all", kind: "all", name: null, halted_at: "a time that is not known" },
  by: { via: "unknown", token_id: null },
};

/** Writes that others may be faster with. */
const MAX_TRIES = 20;

/** Work that may have effects, as halts look at it. */
export interface HaltSubject {
  /** Empty: no tool does it */
  readonly tool: string;
  readonly access: Access;
  readonly runId: string;
}

/** Parts of `Halts`. */
export interface HaltsOptions {
  readonly store: Pick<Store, "get" | "unreadable">;
  readonly clock: Pick<Clock, "now">;
  readonly log: Logger;
  readonly audit: AuditAppend;
  /** Tells the other gateways of the database, which look once a second too. */
  readonly tell: () => void;
}

/** Rule of the audit for a call that a halt refuses. */
export const RULE_HALTED = "halted";

/**
 * Halts: what a person has stopped at once, until a person lets it go on. The tool executor asks here before a call's decision and at the
 * moment of its effect, and so does whatever has effects beside it. All gateways have one record, and each has it in memory.
 * Source: docs/design/policy.md "Halt"
 */
export class Halts {
  readonly #options: HaltsOptions;
  #recorded: readonly Halt[] = [];
  /** Halts of this gateway whose record is still to be written. They count already */
  #unwritten: readonly Halt[] = [];
  readonly #watched = new Set<{ readonly subject: HaltSubject; readonly stop: (error: CancelError) => void }>();
  readonly #listeners: ((halts: readonly Halt[]) => void)[] = [];
  #next = Promise.withResolvers<void>();
  /** The last look or change: the next one waits for it, so that none puts an older state in the place of a newer one */
  #working: Promise<unknown> = Promise.resolve();
  /** True after a look that failed: somebody may have halted anything since, so nothing may begin before one succeeds */
  #isUncertain = false;

  constructor(options: HaltsOptions) {
    this.#options = options;
  }

  get isUncertain(): boolean {
    return this.#isUncertain;
  }

  /** Returns what is halted now, the oldest first. */
  list(): readonly Halt[] {
    const more = this.#unwritten.filter(({ id }) => !this.#recorded.some((halt) => halt.id === id));
    return more.length === 0 ? this.#recorded : [...this.#recorded, ...more];
  }

  /** Returns why a call must not begin, as the end of a sentence. Undefined: it may */
  refusalOf({ tool, access, runId }: HaltSubject): string | undefined {
    return this.#why(({ kind, name }) =>
      kind === "all" || (kind === "network" && access === "network") ||
      // The access of a call is the widest thing it does: one that reaches the network may write as well
      (kind === "writes" && (access === "write" || access === "network")) ||
      (kind === "tool" && name === tool) || (kind === "run" && name === runId)
    );
  }

  /** Returns why a run must not go on, or without one why no work begins, as the end of a sentence. Undefined: it may */
  refusalOfRun(runId?: string): string | undefined {
    return this.#why(({ kind, name }) => kind === "all" || (kind === "run" && name === runId));
  }

  #why(isMet: (halt: Halt) => boolean): string | undefined {
    if (this.#recorded.length === 0 && this.#unwritten.length === 0) return undefined;
    const found = this.list().find(isMet);
    if (found === undefined) return undefined;
    const lifts = '"postern resume" lets it go on, for whoever has the scope "admin"';
    return `a person has halted ${haltedPart(found)} (since ${found.halted_at}); ${lifts}`;
  }

  /** Calls `stop` at once when the work is halted. Begins in the step of a look at `refusalOf`. @returns a function that ends this */
  watch(subject: HaltSubject, stop: (error: CancelError) => void): () => void {
    const watched = { subject, stop };
    this.#watched.add(watched);
    return () => void this.#watched.delete(watched);
  }

  /** Calls a function with all halts, now and after each change. It must not throw. */
  onChange(listener: (halts: readonly Halt[]) => void): void {
    this.#listeners.push(listener);
    listener(this.list());
  }

  /** Resolves once work may begin. @throws {CancelError} the signal aborted */
  async untilResumed(subject: HaltSubject, signal: AbortSignal): Promise<void> {
    while (this.refusalOf(subject) !== undefined) await unlessAborted(this.#next.promise, signal);
  }

  /** Reads the record: at the start, and among gateways after news of a change and once a second. @throws what the store throws */
  look(): Promise<void> {
    return this.#inTurn(async () => {
      this.#isUncertain = true;
      this.#take((await this.#read()).halts);
    });
  }

  /**
   * Halts work: here before the record is written, and also when the record cannot be written.
   * @throws {HttpError} 409 `conflict`: too many tools and runs are halted; what the store throws
   */
  async halt({ kind, name }: Pick<Halt, "kind" | "name">, by: Actor): Promise<Halt> {
    const { clock, log } = this.#options;
    const id = name === null ? kind : `${kind}:${name}`;
    if (name !== null && this.list().filter((halt) => halt.name !== null).length >= MAX_NAMED) {
      throw refuse("conflict", `Cannot halt it: ${MAX_NAMED} tools and runs are halted; resume some, or halt all`);
    }
    const halt: Halt = { id, kind, name, halted_at: new Date(clock.now()).toISOString(), by: storedActor(by) };
    this.#unwritten = [...this.#unwritten, halt];
    this.#changed();
    log.warn("A person has halted work", { halt: id, by: halt.by });
    try {
      await this.#change("halted", by, (halts) => halts.some((each) => each.id === id) ? halts : [...halts, halt]);
    } catch (error) {
      log.error("Work is halted here alone, until this gateway ends: it could not be recorded", { halt: id, error });
      throw error;
    }
    this.#unwritten = this.#unwritten.filter((each) => each !== halt);
    return this.#recorded.find((each) => each.id === id) ?? halt;
  }

  /** Lets work begin again. @param id of one halt. Undefined: all of them @returns the ids of those that were lifted */
  async resume(id: string | undefined, by: Actor): Promise<readonly string[]> {
    const stays = (halt: Halt) => id !== undefined && halt.id !== id;
    const own = this.#unwritten.filter((halt) => !stays(halt)).map((halt) => halt.id);
    const lifted = await this.#change("resumed", by, (halts) => halts.every(stays) ? halts : halts.filter(stays));
    this.#unwritten = this.#unwritten.filter(stays);
    this.#changed();
    return [...new Set([...own, ...lifted])];
  }

  /** @param to returns the same list where there is nothing to change @returns the ids of the halts that came or went */
  #change(action: "halted" | "resumed", by: Actor, to: (halts: readonly Halt[]) => readonly Halt[]) {
    return this.#inTurn(async () => {
      for (let tries = 0; tries < MAX_TRIES; tries++) {
        const { version, halts, stored } = await this.#read();
        const next = to(halts);
        const [longer, shorter] = next.length > halts.length ? [next, halts] : [halts, next];
        const ids = longer.filter((halt) => !shorter.includes(halt)).map(({ id }) => id);
        const write = HALTS.putOver(KEY, version, { ...unknownFieldsOf(stored), v: 1, halts: [...next] });
        const event = { type: "halt", action, halts: ids, by: storedActor(by) } as const;
        if (ids.length > 0 && !await this.#options.audit(event, [write])) continue;
        this.#take(next);
        if (ids.length > 0) this.#options.tell();
        return ids;
      }
      throw refuse("conflict", "Cannot change what is halted: others change it at the same time; try again");
    });
  }

  async #read() {
    const { value: stored, version } = await HALTS.readForChange(this.#options.store, KEY);
    return { version, halts: version === 0 ? [] : stored?.halts ?? [UNREADABLE], stored };
  }

  #take(halts: readonly Halt[]): void {
    const before = this.#recorded.map(({ id }) => id).join();
    this.#isUncertain = false;
    this.#recorded = halts;
    if (before !== halts.map(({ id }) => id).join()) this.#changed();
  }

  /** Stops what is halted now, and tells whoever waits. */
  #changed(): void {
    for (const { subject, stop } of [...this.#watched]) {
      const reason = this.refusalOf(subject);
      if (reason !== undefined) stop(new CancelError("halted", `it was stopped in the middle: ${reason}`));
    }
    for (const listener of this.#listeners) listener(this.list());
    this.#next.resolve();
    this.#next = Promise.withResolvers();
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#working.then(work);
    this.#working = turn.catch(() => {});
    return turn;
  }
}
