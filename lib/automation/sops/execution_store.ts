import type { Store, Write } from "../../storage/store.ts";
import {
  type Execution,
  type ExecutionPlan,
  hasEnded,
  OPEN_SOPS,
  SOP_EXECUTIONS,
  SOP_PLANS,
  SOP_RESULTS,
  type StepResult,
} from "./execution_record.ts";

/** An execution as it lies in the store. */
export interface KeptExecution {
  readonly execution: Execution;
  readonly version: number;
  /** Writes that go with each change of it in a cluster: the precondition of its owner, or the signal for the owner. Default: none */
  readonly alongside?: readonly Write[] | undefined;
}

/** Result of a step that has ended. */
export interface EndedStep {
  readonly stepId: string;
  readonly result: StepResult;
}

const EXECUTION_ID = /^sop_[0-9a-z]{1,64}$/;
/** Executions that are read at most: well over what may be open at once */
const MAX_OPEN = 1_000;

/** Executions over a store. */
export class ExecutionStore {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /** @param mark the write that marks it as open in a cluster. Default: a mark without an owner */
  async create(execution: Execution, plan: ExecutionPlan, mark?: Write): Promise<void> {
    const key = execution.id;
    await this.#store.batch([
      SOP_EXECUTIONS.insert(key, execution),
      SOP_PLANS.insert(key, plan),
      mark ?? OPEN_SOPS.insert(key, { v: 1 }),
    ]);
  }

  async find(id: string): Promise<KeptExecution | undefined> {
    if (!EXECUTION_ID.test(id)) return undefined;
    const found = await SOP_EXECUTIONS.read(this.#store, id);
    return found === undefined ? undefined : { execution: found.value, version: found.version };
  }

  /** Returns the plan of an execution. @throws {TypeError} for an execution without a plan */
  async plan(id: string): Promise<ExecutionPlan> {
    const found = await SOP_PLANS.read(this.#store, id);
    if (found === undefined) throw new TypeError(`Execution "${id}" has no plan`);
    return found.value;
  }

  /** Returns the id of the token whose call started an execution; null: no token's; undefined where no record says it */
  async ownerOf(id: string): Promise<string | null | undefined> {
    const plan = await SOP_PLANS.tryRead(this.#store, id);
    return plan?.value.requested_by.token_id;
  }

  /** Returns the results of the steps that have ended, by step id */
  async results({ id, steps }: Execution): Promise<ReadonlyMap<string, StepResult>> {
    const ended = steps.filter(({ ended_at }) => ended_at !== null);
    const found = await Promise.all(ended.map((step) => SOP_RESULTS.read(this.#store, `${id}/${step.id}`)));
    return new Map(
      found.flatMap((result, index) => result === undefined ? [] : [[ended[index]?.id ?? "", result.value] as const]),
    );
  }

  /** Returns the writes that put `next` in the place of what was found. They fail when another write came between */
  writes({ version, alongside = [] }: KeptExecution, next: Execution): readonly Write[] {
    return [...alongside, SOP_EXECUTIONS.putOver(next.id, version, next)];
  }

  /** Writes `next` and the result of a step that has ended. @returns false when the execution was changed since it was found */
  change(found: KeptExecution, next: Execution, result?: EndedStep): Promise<boolean> {
    const { id } = next;
    const put = result === undefined ? [] : [SOP_RESULTS.put(`${id}/${result.stepId}`, result.result)];
    const closed = hasEnded(next) ? [OPEN_SOPS.remove(id)] : [];
    return this.#store.batch([...this.writes(found, next), ...put, ...closed]);
  }

  /** Returns the ids of the executions that have not ended, oldest first */
  async open(): Promise<readonly string[]> {
    const stored = await this.#store.scan(OPEN_SOPS.name, { order: "created", limit: MAX_OPEN });
    OPEN_SOPS.readable(this.#store, stored);
    return stored.map(({ key }) => key);
  }

  /** Forgets executions that ended before a time in ISO 8601, and the oldest ended ones over `keep`. @returns their number */
  async prune({ before, keep }: { readonly before: string; readonly keep: number }): Promise<number> {
    const all: Execution[] = [];
    for await (const { value } of SOP_EXECUTIONS.all(this.#store, { order: "created" })) all.push(value);
    const over = all.length - keep;
    const ended = all.filter(hasEnded);
    const old = ended.filter(({ ended_at }, index) => (ended_at ?? "") < before || index < over);
    for (const execution of old) await this.#forget(execution);
    return old.length;
  }

  async #forget({ id, steps }: Execution): Promise<void> {
    await this.#store.batch([
      SOP_EXECUTIONS.remove(id),
      SOP_PLANS.remove(id),
      ...steps.map((step) => SOP_RESULTS.remove(`${id}/${step.id}`)),
    ]);
  }
}
