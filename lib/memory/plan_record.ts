import * as v from "valibot";

/** States of a planned task. */
export const PLAN_STATUSES = ["pending", "in_progress", "completed", "cancelled"] as const;
export type PlanStatus = (typeof PLAN_STATUSES)[number];

/** One task of a plan. Ids are "1", "2" ... in order of addition and never used twice in a plan. Times are ISO 8601. */
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
}

const bodySchema = v.object({
  v: v.literal(1),
  tasks: v.array(
    v.object({
      id: v.string(),
      title: v.string(),
      status: v.picklist(PLAN_STATUSES),
      created_at: v.string(),
      updated_at: v.string(),
    }),
  ),
});

/**
 * A persisted body as the newest form of a plan: the one place where older versions are upcast.
 * @throws {v.ValiError} for a body that no version wrote
 */
export function parsePlan(body: unknown): Plan {
  return { tasks: v.parse(bodySchema, body).tasks };
}

/** The body to persist, in the newest version. */
export function toPlanBody(plan: Plan): v.InferOutput<typeof bodySchema> {
  return { v: 1, tasks: [...plan.tasks] };
}
