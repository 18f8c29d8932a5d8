import { parseMark, readable, readRecord, readRecords, unlessUnreadable } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";
import {
  type Execution,
  type ExecutionPlan,
  hasEnded,
  OPEN_SOPS,
  parseExecution,
  parseExecutionPlan,
  parseResult,
  SOP_EXECUTIONS,
  SOP_PLANS,
  SOP_RESULTS,
  type StepResult,
} from "./execution_record.ts";

/** An execution as it lies in the store. */
export interface KeptExecution {
  readonly execution: Execution;
  readonly version: number;
}

/** Executions over a store. */
export interface ExecutionStore {
  create(execution: Execution, plan: ExecutionPlan): Promise<void>;
  find(id: string): Promise<KeptExecution | undefined>;
  /** @throws {TypeError} for an execution without one */
  plan(id: string): Promise<ExecutionPlan>;
  /** Returns the id of the token whose call started an execution; null: no token's; undefined where no record says it */
  ownerOf(id: string): Promise<string | null | undefined>;
  /** Returns the results of the steps that have ended, by step id */
  results(execution: Execution): Promise<ReadonlyMap<string, StepResult>>;
  /** The write that puts `next` in the place of what was found: none other came between when it holds */
  write(found: KeptExecution, next: Execution): Write;
  /** Writes it, with a step's result where there is one. @returns false when it changed meanwhile */
  change(
    found: KeptExecution,
    next: Execution,
    result?: { readonly stepId: string; readonly result: StepResult },
  ): Promise<boolean>;
  /** Ids of those that have not ended, oldest first */
  open(): Promise<readonly string[]>;
  /** Forgets what ended before that time, in ISO 8601, and the oldest ended ones over `keep` */
  prune(options: { readonly before: string; readonly keep: number }): Promise<number>;
}

const EXECUTION_ID = /^sop_[0-9a-z]{1,64}$/;
/** Well over what may be open at once */
const MAX_OPEN = 1_000;

/** Creates the store of executions over a store of records. */
export function createExecutionStore(store: Store): ExecutionStore {
  const write = (found: KeptExecution, next: Execution): Write => ({
    op: "putIf",
    collection: SOP_EXECUTIONS,
    key: next.id,
    version: found.version,
    body: next,
  });

  const forget = async (execution: Execution): Promise<void> => {
    const { id } = execution;
    await store.batch([
      { op: "delete", collection: SOP_EXECUTIONS, key: id },
      { op: "delete", collection: SOP_PLANS, key: id },
      ...execution.steps.map((step): Write => ({ op: "delete", collection: SOP_RESULTS, key: `${id}/${step.id}` })),
    ]);
  };

  return {
    async create(execution, plan) {
      const key = execution.id;
      await store.batch([
        { op: "insert", collection: SOP_EXECUTIONS, key, body: execution },
        { op: "insert", collection: SOP_PLANS, key, body: plan },
        { op: "insert", collection: OPEN_SOPS, key, body: { v: 1 } },
      ]);
    },
    async find(id) {
      if (!EXECUTION_ID.test(id)) return undefined;
      const found = await readRecord(store, SOP_EXECUTIONS, id, parseExecution);
      return found === undefined ? undefined : { execution: found.value, version: found.version };
    },
    async plan(id) {
      const found = await readRecord(store, SOP_PLANS, id, parseExecutionPlan);
      if (found === undefined) throw new TypeError(`Execution "${id}" has no plan`);
      return found.value;
    },
    async ownerOf(id) {
      const plan = await unlessUnreadable(readRecord(store, SOP_PLANS, id, parseExecutionPlan));
      return plan?.value.requested_by.token_id;
    },
    async results({ id, steps }) {
      const ended = steps.filter(({ ended_at }) => ended_at !== null);
      const found = await Promise.all(
        ended.map((step) => readRecord(store, SOP_RESULTS, `${id}/${step.id}`, parseResult)),
      );
      return new Map(
        found.flatMap((result, index) => result === undefined ? [] : [[ended[index]?.id ?? "", result.value] as const]),
      );
    },
    write,
    change(found, next, result) {
      const { id } = next;
      return store.batch([
        write(found, next),
        ...(result === undefined ? [] : [
          { op: "put", collection: SOP_RESULTS, key: `${id}/${result.stepId}`, body: result.result } as const,
        ]),
        ...(hasEnded(next) ? [{ op: "delete", collection: OPEN_SOPS, key: id } as const] : []),
      ]);
    },
    async open() {
      const stored = await store.scan(OPEN_SOPS, { order: "created", limit: MAX_OPEN });
      readable(store, OPEN_SOPS, stored, parseMark);
      return stored.map(({ key }) => key);
    },
    async prune({ before, keep }) {
      const all: Execution[] = [];
      for await (const { value } of readRecords(store, SOP_EXECUTIONS, parseExecution, { order: "created" })) {
        all.push(value);
      }
      const over = all.length - keep;
      const ended = all.filter(hasEnded);
      const old = ended.filter(({ ended_at }, index) => (ended_at ?? "") < before || index < over);
      for (const execution of old) await forget(execution);
      return old.length;
    },
  };
}
