import * as v from "valibot";
import { CancelError, unlessAborted } from "../base/cancel.ts";
import type { Clock } from "../base/clock.ts";
import { type HttpError, refuse } from "../base/errors.ts";
import { type Actor, storedActor } from "../base/records/caller.ts";
import { type Halt, haltedPart, haltFlags, haltSchema } from "../base/records/gateway_status.ts";
import { storedObject, unknownFieldsOf } from "../base/records/stored_object.ts";
import type { Logger } from "../base/telemetry/log.ts";
import { Collection } from "../storage/read_records.ts";
import type { Store } from "../storage/store.ts";
import type { AuditAppend } from "./audit/audit_chain.ts";
import type { Access } from "./policy.ts";

/** Halts of tools and runs that count at a time; `all` always finds room. */
const MAX_NAMED = 200;
const haltsSchema = storedObject({
  v: v.literal(1),
  halts: v.pipe(v.array(storedObject(haltSchema.entries)), v.maxLength(MAX_NAMED + 3)),
});

/** Collection with one record: what a person has halted, and nobody has let go on yet. */
export const HALTS = new Collection("halts", haltsSchema);
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

/** Rule of the audit for a call that a halt refuses, or has stopped. */
export const RULE_HALTED = "halted";

/**
 * Halts: what a person has stopped at once, until a person lets it go on. Every effect asks here: the tool executor before a call's decision
 * and at the moment of its effect, and whatever has effects beside it. The record of all gateways is one; each has it in memory.
 * Source: docs/design/policy.md "Halt"
 */
export class Halts {
  readonly #options: HaltsOptions;
  #recorded: readonly Halt[] = [];
  /** Halts of this gateway whose record is still to be written. They count already */
  #unwritten: readonly Halt[] = [];
  readonly #watched = new Set<{ readonly subject: HaltSubject; readonly stop: (error: CancelError) => void }>();
  readonly #listeners: ((halts: readonly Halt[]) => void)[] = [];
  #resumed = Promise.withResolvers<void>();
  /** The reading or change at work: one comes after the other, so that none puts an older state in the place of a newer one */
  #working: Promise<unknown> = Promise.resolve();
  /** Set by a look that failed: somebody may have halted anything since */
  #isUncertain = false;

  constructor(options: HaltsOptions) {
    this.#options = options;
  }

  /** Returns what is halted now, the oldest first. */
  list(): readonly Halt[] {
    if (this.#unwritten.length === 0) return this.#recorded;
    return [...this.#recorded, ...this.#unwritten.filter(({ id }) => !this.#recorded.some((halt) => halt.id === id))];
  }

  /** Returns why work must not begin now, as the end of a sentence. Undefined: it may */
  refusalOf(subject: HaltSubject): string | undefined {
    const found = this.list().find((halt) => meets(halt, subject));
    return found && haltWords(found);
  }

  /** Returns why nothing at all begins, as the end of a sentence. Undefined: new work is taken */
  whyAll(): string | undefined {
    const found = this.list().find(({ kind }) => kind === "all");
    return found && haltWords(found);
  }

  /** Returns why a run must not go on, as the end of a sentence. Undefined: it may */
  refusalOfRun(runId: string): string | undefined {
    const found = this.list().find(({ kind, name }) => kind === "all" || (kind === "run" && name === runId));
    return found && haltWords(found);
  }

  /** Tells whether the last look has failed, so that nothing may begin before one succeeds. */
  isUncertain(): boolean {
    return this.#isUncertain;
  }

  /**
   * Stops work once it is halted. Begins in the same step as a look at `refusalOf`, so that no halt falls between.
   * @param stop is called at once with the reason @returns a function that ends this
   */
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

  /** Resolves once work may begin that waits while it is halted. @throws {CancelError} the signal aborted */
  async untilResumed(subject: HaltSubject, signal: AbortSignal): Promise<void> {
    while (this.refusalOf(subject) !== undefined) await unlessAborted(this.#resumed.promise, signal);
  }

  /** Reads the record: at the start, and among gateways after news of a change and once a second. @throws what the store throws */
  look(): Promise<void> {
    return this.#inTurn(async () => {
      try {
        this.#take((await this.#read()).halts);
      } catch (error) {
        this.#isUncertain = true;
        throw error;
      }
    });
  }

  /**
   * Halts work. It is halted here before the record is written, and stays so when the record cannot be written.
   * @throws {HttpError} 409 `conflict`: too many tools and runs are halted; what the store throws
   */
  async halt(
    { kind, name }: Pick<Halt, "kind" | "name">,
    by: Actor,
  ): Promise<{ readonly halt: Halt; readonly isRepeated: boolean }> {
    const { clock, log } = this.#options;
    const id = name === null ? kind : `${kind}:${name}`;
    const before = this.list();
    if (name !== null && before.filter((halt) => halt.name !== null).length >= MAX_NAMED) throw tooMany();
    const halt: Halt = { id, kind, name, halted_at: new Date(clock.now()).toISOString(), by: storedActor(by) };
    this.#unwritten = [...this.#unwritten, halt];
    this.#changed();
    log.warn("A person has halted work", { halt: id, by: halt.by });
    try {
      const isNew = await this.#change(
        { action: "halted", by },
        (halts) => halts.some((each) => each.id === id) ? undefined : { next: [...halts, halt], ids: [id] },
      );
      this.#unwritten = this.#unwritten.filter((each) => each !== halt);
      return { halt: this.#recorded.find((each) => each.id === id) ?? halt, isRepeated: isNew.length === 0 };
    } catch (error) {
      log.error("Work is halted at this gateway alone, until it ends: the record could not be written", {
        halt: id,
        error,
      });
      throw error;
    }
  }

  /** Lets work begin again. @param id of one halt. Undefined: all of them @returns the ids that were lifted */
  async resume(id: string | undefined, by: Actor): Promise<readonly string[]> {
    const isMeant = (halt: Halt) => id === undefined || halt.id === id;
    const own = this.#unwritten.filter(isMeant).map((halt) => halt.id);
    const lifted = await this.#change({ action: "resumed", by }, (halts) => {
      const ids = halts.filter(isMeant).map((halt) => halt.id);
      return ids.length === 0 ? undefined : { next: halts.filter((halt) => !isMeant(halt)), ids };
    });
    this.#unwritten = this.#unwritten.filter((halt) => !isMeant(halt));
    this.#changed();
    const ids = [...new Set([...own, ...lifted])];
    if (ids.length > 0) this.#options.log.warn("A person lets halted work go on", { halts: ids, by: storedActor(by) });
    return ids;
  }

  /** @returns the ids of the halts that the change was about; none: there was nothing to change */
  #change(
    { action, by }: { readonly action: "halted" | "resumed"; readonly by: Actor },
    change: (halts: readonly Halt[]) => { readonly next: readonly Halt[]; readonly ids: readonly string[] } | undefined,
  ): Promise<readonly string[]> {
    return this.#inTurn(async () => {
      for (let tries = 0; tries < MAX_TRIES; tries++) {
        const { version, halts, stored } = await this.#read();
        const changed = change(halts);
        if (changed === undefined) {
          this.#take(halts);
          return [];
        }
        const { next, ids } = changed;
        const body = { ...unknownFieldsOf(stored), v: 1 as const, halts: [...next] };
        const event = { type: "halt", action, halts: ids, by: storedActor(by) } as const;
        if (!await this.#options.audit(event, [HALTS.putOver(KEY, version, body)])) continue;
        this.#take(next);
        this.#options.tell();
        return ids;
      }
      throw refuse("conflict", "Cannot change what is halted: others change it at the same time; try again");
    });
  }

  async #read() {
    const { store } = this.#options;
    const stored = await store.get(HALTS.name, KEY);
    const found = HALTS.parsed(store, stored)?.value;
    const halts = stored === undefined ? [] : found?.halts ?? [UNREADABLE];
    return { version: stored?.version ?? 0, halts, stored: found };
  }

  #take(halts: readonly Halt[]): void {
    this.#isUncertain = false;
    const isSame = halts.length === this.#recorded.length && halts.every(({ id }, i) => id === this.#recorded[i]?.id);
    this.#recorded = halts;
    if (!isSame) this.#changed();
  }

  /** Stops what is halted now, and tells whoever waits. */
  #changed(): void {
    for (const { subject, stop } of [...this.#watched]) {
      const reason = this.refusalOf(subject);
      if (reason !== undefined) stop(new CancelError("halted", haltedMidway(reason)));
    }
    for (const listener of this.#listeners) listener(this.list());
    this.#resumed.resolve();
    this.#resumed = Promise.withResolvers();
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const turn = this.#working.then(work, work);
    this.#working = turn.catch(() => {});
    return turn;
  }
}

function meets({ kind, name }: Halt, { tool, access, runId }: HaltSubject): boolean {
  switch (kind) {
    case "all":
      return true;
    case "network":
      return access === "network";
    // The access of a call is the widest thing it does: one that reaches the network may write as well
    case "writes":
      return access === "write" || access === "network";
    case "tool":
      return tool === name;
    case "run":
      return runId === name;
  }
}

/** Returns why work does not begin, with what lets it go on, as the end of a sentence. */
function haltWords(halt: Halt): string {
  const lifts = `"postern resume${haltFlags(halt)}" lets it go on, for whoever has the scope "admin"`;
  return `a person has halted ${haltedPart(halt)} (since ${halt.halted_at}); ${lifts}`;
}

function haltedMidway(reason: string): string {
  return `it was stopped in the middle: ${reason}`;
}

function tooMany(): HttpError {
  return refuse(
    "conflict",
    `Cannot halt it: ${MAX_NAMED} tools and runs are halted; let some go on with postern resume, or halt all`,
  );
}
