import { refuse } from "../../lib/base/errors.ts";
import { firingSchema, SCHEDULE_STATES, scheduleSchema } from "../../lib/base/records/schedule.ts";
import { SCHEDULE_LIMITS } from "../../lib/tools/schedule/schedules.ts";
import type { Route } from "../route.ts";
import { callerOf } from "../door.ts";
import { choiceOf, choiceQuery, LIMIT_QUERY, listReply, listSchema, pageOf, textQuery } from "../wire/lists.ts";
import { jsonReply } from "../wire/reply.ts";
import { requireAgent, RUN_ERRORS } from "../wire/agent_runs.ts";

/** GET /v1/schedules: active and paused schedules, newest first. The schedule tools make and change them. */
export const schedulesRoute: Route = {
  method: "GET",
  path: "/v1/schedules",
  access: "runs",
  summary: "Schedules that are active or paused, newest first",
  query: {
    state: choiceQuery("Only those in this state; done: schedules with one time that have fired", SCHEDULE_STATES),
    limit: LIMIT_QUERY,
    after: textQuery("Only those made before the one with this id"),
  },
  reply: { status: 200, type: "application/json", schema: listSchema(scheduleSchema) },
  async handler(_request, context) {
    const { schedules, hasMore } = await context.services.cron.page({
      ...pageOf(context),
      state: choiceOf(context, "state", SCHEDULE_STATES),
    });
    return listReply(context, schedules, hasMore);
  },
};

/** GET /v1/schedules/:id: one schedule. */
export const scheduleRoute: Route = {
  method: "GET",
  path: "/v1/schedules/:id",
  access: "runs",
  summary: "One schedule, with its next time and its last firing",
  reply: { status: 200, type: "application/json", schema: scheduleSchema },
  async handler(_request, context) {
    const schedule = await context.services.cron.get(context.params["id"] ?? "");
    if (schedule === undefined) throw unknown();
    return jsonReply(context, 200, schedule);
  },
};

/** GET /v1/schedules/:id/history: firings of a schedule with their outcomes, newest first. */
export const scheduleHistoryRoute: Route = {
  method: "GET",
  path: "/v1/schedules/:id/history",
  access: "runs",
  summary: "Firings of a schedule with their runs, skipped, missed and failed ones among them, newest first",
  query: { limit: LIMIT_QUERY, after: textQuery("Only those before the firing with this id") },
  reply: { status: 200, type: "application/json", schema: listSchema(firingSchema) },
  async handler(_request, context) {
    const page = await context.services.cron.history(context.params["id"] ?? "", pageOf(context));
    if (page === undefined) throw unknown();
    return listReply(context, page.firings, page.hasMore);
  },
};

/** POST /v1/schedules/:id/run: fires a schedule now. The run is on disk before the reply; the schedule's own times stay. */
export const runScheduleRoute: Route = {
  method: "POST",
  path: "/v1/schedules/:id/run",
  access: "runs",
  errors: RUN_ERRORS,
  summary: "Fire a schedule now, with no more rights than both its maker and the caller have",
  reply: { status: 202, type: "application/json", schema: firingSchema },
  idempotency: "by_run",
  async repeat(_request, context, runId) {
    const page = await context.services.cron.history(context.params["id"] ?? "", { limit: SCHEDULE_LIMITS.history });
    const firing = page?.firings.find((firing) => firing.run_id === runId);
    if (firing === undefined) {
      throw refuse(
        "conflict",
        `Cannot repeat this request: the schedule's history no longer has the firing of run "${runId}"`,
      );
    }
    return jsonReply(context, 202, firing);
  },
  async handler(_request, context) {
    requireAgent(context.services);
    const { cron } = context.services;
    const firing = await cron.run(context.params["id"] ?? "", callerOf(context, "http"), context.claim?.write);
    return jsonReply(context, 202, firing);
  },
};

function unknown() {
  return refuse(
    "not_found",
    'Cannot find this schedule: "postern schedule list", cron_list and GET /v1/schedules show those there are',
  );
}
