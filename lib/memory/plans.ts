import * as v from "valibot";
import { storedObject, unknownFieldsOf } from "../base/records/stored_object.ts";
import type { Clock } from "../base/clock.ts";
import { ToolError } from "../base/errors.ts";
import { joinTaints, type Taint, taintField, UNTAINTED } from "../base/taint.ts";
import { listSome } from "../base/text.ts";
import { Collection } from "../storage/read_records.ts";
import type { Store, Write } from "../storage/store.ts";

/** States of a planned task. */
export const PLAN_STATUSES = ["pending", "in_progress", "completed", "cancelled"] as const;
/** State of a planned task. */
export type PlanStatus = (typeof PLAN_STATUSES)[number];

/** A task of a plan. Ids are "1", "2" ... in order of addition and never used twice in a plan. Times are ISO 8601. */
export interface PlanTask {
  readonly id: string;
  readonly title: string;
  readonly status: PlanStatus;
  readonly created_at: string;
  readonly updated_at: string;
}

/** The tasks of one scope, in order. */
export interface Plan {
  readonly tasks: readonly PlanTask[];
  /** Outside content that its titles were made from */
  readonly taint: Taint;
}

const bodySchema = storedObject({
  v: v.literal(1),
  tasks: v.array(
    storedObject({
      id: v.string(),
      title: v.string(),
      status: v.picklist(PLAN_STATUSES),
      created_at: v.string(),
      updated_at: v.string(),
    }),
  ),
  taint: v.optional(v.array(v.string())),
});

/** Collection of the plans. The key is the scope. Older versions are upcast here and nowhere else. */
export const PLANS = new Collection(
  "plans",
  v.pipe(
    bodySchema,
    v.transform(({ tasks, taint = [], ...plan }): Plan => ({ ...unknownFieldsOf(plan), tasks, taint })),
  ),
);

/** Returns the body to store, in the newest version. */
export function toPlanBody(plan: Plan): v.InferOutput<typeof bodySchema> {
  return { ...unknownFieldsOf(plan), v: 1, tasks: [...plan.tasks], ...taintField(plan.taint) };
}

/** Bounds of a plan and of all of them. */
export const PLAN_LIMITS = {
  tasks: 200,
  titleCharacters: 500,
  scopeCharacters: 512,
  /** Plans in the store. One more plan replaces the oldest */
  plans: 1_000,
} as const;

const MAX_ATTEMPTS = 20;
const SHOWN_IDS = 20;
const NO_PLAN: Plan = { tasks: [], taint: UNTAINTED };

/**
 * Task plans over a store, one record per scope: a conversation id or a workspace path, 1-512 characters.
 *
 * Every method throws ToolError `invalid_input` for a value out of bounds, naming the field.
 */
export class Plans {
  readonly #store: Store;
  readonly #clock: Clock;

  constructor({ store, clock }: { readonly store: Store; readonly clock: Clock }) {
    this.#store = store;
    this.#clock = clock;
  }

  /** Creates a plan of pending tasks, in place of an earlier plan. @param taint outside content that the titles are made from */
  async create(scope: string, titles: readonly string[], taint: Taint): Promise<Plan> {
    if (titles.length < 1 || titles.length > PLAN_LIMITS.tasks) {
      throw invalid("tasks", `there must be 1-${PLAN_LIMITS.tasks}, and there are ${titles.length}`);
    }
    titles.forEach((title, index) => checkTitle(`tasks[${index}]`, title));
    return this.#change(scope, () => ({
      tasks: titles.map((title, index) => pending(index + 1, title, this.#now())),
      taint,
    }));
  }

  /**
   * Adds a pending task at the end. Starts a plan where there is none. @param taint as for `create`
   * @throws {ToolError} `plan_full`
   */
  async add(scope: string, title: string, taint: Taint): Promise<Plan> {
    checkTitle("title", title);
    return this.#change(scope, ({ tasks, taint: earlier }) => {
      if (tasks.length >= PLAN_LIMITS.tasks) {
        throw new ToolError("plan_full", `Cannot add "${title}": the plan has ${PLAN_LIMITS.tasks} tasks already`);
      }
      const added = pending(Number(tasks.at(-1)?.id ?? 0) + 1, title, this.#now());
      return { tasks: [...tasks, added], taint: joinTaints(earlier, taint) };
    });
  }

  /** Changes the status of a task. @throws {ToolError} `task_not_found` naming the ids there are */
  async update(scope: string, id: string, status: PlanStatus): Promise<Plan> {
    return this.#change(scope, ({ tasks, taint }) => {
      if (!tasks.some((task) => task.id === id)) throw notFound(id, tasks);
      return {
        tasks: tasks.map((task) => (task.id === id ? { ...task, status, updated_at: this.#now() } : task)),
        taint,
      };
    });
  }

  /** Returns the plan. Without tasks when there is none */
  async list(scope: string): Promise<Plan> {
    return (await PLANS.read(this.#store, checkScope(scope)))?.value ?? NO_PLAN;
  }

  /** Removes the plan. @returns false when there was none */
  async delete(scope: string): Promise<boolean> {
    return (await this.#store.takeOnce(PLANS.name, checkScope(scope))) !== undefined;
  }

  #now(): string {
    return new Date(this.#clock.now()).toISOString();
  }

  /** Reads, changes and writes back. A concurrent change makes it start again. */
  async #change(scope: string, apply: (plan: Plan) => Plan): Promise<Plan> {
    checkScope(scope);
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
      const earlier = await PLANS.read(this.#store, scope);
      const plan = apply(earlier?.value ?? NO_PLAN);
      const body = { ...unknownFieldsOf(earlier?.value), ...toPlanBody(plan) };
      const room = earlier === undefined ? await this.#makeRoom() : [];
      if (await this.#store.batch([...room, PLANS.putOver(scope, earlier?.version ?? 0, body)])) return plan;
    }
    throw new ToolError("plan_busy", "Cannot change the plan: it is being changed by others; try again");
  }

  /** Returns the writes that remove the oldest plan when there are too many. */
  async #makeRoom(): Promise<Write[]> {
    if ((await this.#store.count(PLANS.name)) < PLAN_LIMITS.plans) return [];
    const oldest = await this.#store.scan(PLANS.name, { order: "created", limit: 1 });
    return oldest.map(({ key }) => PLANS.remove(key));
  }
}

function notFound(id: string, tasks: readonly PlanTask[]): ToolError {
  const ids = listSome(tasks.map((task) => task.id), SHOWN_IDS);
  const there = tasks.length === 0 ? "there is no plan" : `the ids are ${ids}`;
  return new ToolError("task_not_found", `Cannot update task "${id}": ${there}`);
}

function pending(number: number, title: string, at: string): PlanTask {
  return { id: String(number), title, status: "pending", created_at: at, updated_at: at };
}

function checkScope(scope: string): string {
  const { length } = scope;
  if (length >= 1 && length <= PLAN_LIMITS.scopeCharacters && scope.isWellFormed() && !scope.includes("\0")) {
    return scope;
  }
  throw invalid("scope", `it must be 1-${PLAN_LIMITS.scopeCharacters} characters of valid Unicode without NUL`);
}

function checkTitle(field: string, title: string): void {
  if (title.trim() !== "" && title.length <= PLAN_LIMITS.titleCharacters) return;
  throw invalid(field, `it must be 1-${PLAN_LIMITS.titleCharacters} characters and not blank`);
}

function invalid(field: string, reason: string): ToolError {
  return new ToolError("invalid_input", `Cannot use "${field}": ${reason}`);
}
