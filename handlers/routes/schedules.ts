import { refuse } from "../../lib/base/errors.ts";
import { firingSchema, SCHEDULE_STATES, scheduleSchema } from "../../lib/base/records/schedule.ts";
import { SCHEDULE_LIMITS } from "../../lib/tools/schedule/schedules.ts";
import { defineRoute } from "../define_route.ts";
import { choiceQuery, LIMIT_QUERY, listReply, listSchema, textQuery } from "../wire/lists.ts";
import { requireAgent, RUN_ERRORS } from "../wire/agent_runs.ts";
import { jsonReply } from "../wire/reply.ts";

/** GET /v1/schedules: active and paused schedules, newest first. The schedule tools make and change them. */
export const schedulesRoute = defineRoute({
  method: "GET",
  path: "/v1/schedules",
  access: "runs",
  needs: ["cron"],
  summary: "Schedules that are active or paused, newest first",
  query: {
    state: choiceQuery("Only those in this state; done: schedules with one time that have fired", SCHEDULE_STATES),
    limit: LIMIT_QUERY,
    after: textQuery("Only those made before the one with this id"),
  },
  reply: { status: 200, type: "application/json", schema: listSchema(scheduleSchema) },
  async handle(parts, { query }) {
    const { schedules, hasMore } = await parts.cron.page(query);
    return listReply(schedules, hasMore);
  },
});

/** GET /v1/schedules/:id: one schedule. */
export const scheduleRoute = defineRoute({
  method: "GET",
  path: "/v1/schedules/:id",
  access: "runs",
  needs: ["cron"],
  summary: "One schedule, with its next time and its last firing",
  reply: { status: 200, type: "application/json", schema: scheduleSchema },
  async handle(parts, { params }) {
    const schedule = await parts.cron.get(params.id);
    if (schedule === undefined) throw unknown();
    return jsonReply(200, schedule);
  },
});

/** GET /v1/schedules/:id/history: firings of a schedule with their outcomes, newest first. */
export const scheduleHistoryRoute = defineRoute({
  method: "GET",
  path: "/v1/schedules/:id/history",
  access: "runs",
  needs: ["cron"],
  summary: "Firings of a schedule with their runs, skipped, missed and failed ones among them, newest first",
  query: { limit: LIMIT_QUERY, after: textQuery("Only those before the firing with this id") },
  reply: { status: 200, type: "application/json", schema: listSchema(firingSchema) },
  async handle(parts, { params, query }) {
    const page = await parts.cron.history(params.id, query);
    if (page === undefined) throw unknown();
    return listReply(page.firings, page.hasMore);
  },
});

/** POST /v1/schedules/:id/run: fires a schedule now. The run is on disk before the reply; the schedule's own times stay. */
export const runScheduleRoute = defineRoute({
  method: "POST",
  path: "/v1/schedules/:id/run",
  access: "runs",
  needs: ["agent", "cron"],
  errors: RUN_ERRORS,
  summary: "Fire a schedule now, with no more rights than both its maker and the caller have",
  reply: { status: 202, type: "application/json", schema: firingSchema },
  idempotency: "by_run",
  async repeat(parts, { params }, runId) {
    const page = await parts.cron.history(params.id, { limit: SCHEDULE_LIMITS.history });
    const firing = page?.firings.find((firing) => firing.run_id === runId || firing.check_run_id === runId);
    if (firing === undefined) {
      throw refuse(
        "conflict",
        `Cannot repeat this request: the schedule's history no longer has the firing of run "${runId}"`,
      );
    }
    return jsonReply(202, firing);
  },
  async handle(parts, { params, caller, claim }) {
    requireAgent(parts);
    return jsonReply(202, await parts.cron.run(params.id, caller, claim?.write));
  },
});

function unknown() {
  return refuse(
    "not_found",
    'Cannot find this schedule: "postern schedule list", cron_list and GET /v1/schedules show those there are',
  );
}
