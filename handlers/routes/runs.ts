import * as v from "valibot";
import { refuse } from "../../lib/base/errors.ts";
import { reviewOutcomeSchema } from "../../lib/base/records/agent_event.ts";
import { type Run, RUN_ID_SCHEMA, runSchema, runStatusSchema } from "../../lib/base/records/run.ts";
import { createRunState } from "../../lib/runs/journal/apply_event.ts";
import { defineRoute } from "../define_route.ts";
import { choiceQuery, LIMIT_QUERY, listReply, listSchema, textQuery } from "../wire/lists.ts";
import { requireAgent, RUN_ERRORS, runsToRead } from "../wire/agent_runs.ts";
import { cancelRun, findRun, runMessageSchema, sayToRun, startRun, startRunSchema } from "../wire/run_work.ts";
import { jsonReply, type Reply } from "../wire/reply.ts";

const resolveSchema = v.object({
  /** `resume`: the run goes on; `close`: the run ends */
  action: v.picklist(["resume", "close"]),
  /** Outcome of the interrupted call, which the model is told. `not_done` makes the call again. Default `unknown` */
  outcome: v.optional(reviewOutcomeSchema),
  note: v.optional(v.pipe(v.string(), v.maxLength(1000))),
});

/**
 * POST /v1/runs: starts a durable run, which is on disk before the reply.
 * Source: docs/design/http.md "Runs over HTTP"
 */
export const startRunRoute = defineRoute({
  method: "POST",
  path: "/v1/runs",
  access: "runs",
  needs: ["agent"],
  summary: "Start a run; it is on disk before the reply, and goes on after a restart",
  body: startRunSchema,
  reply: { status: 202, type: "application/json", schema: runSchema },
  errors: [...RUN_ERRORS, "model_not_found", "provider_error"],
  idempotency: "by_run",
  repeat: async ({ agent }, { head }, runId) =>
    accepted(head, await findRun(requireAgent({ agent }).runs, runId ?? "")),
  before: (parts) => void requireAgent(parts),
  async handle(parts, { body, caller, requestId, claim, head }) {
    const { runs } = requireAgent(parts);
    return accepted(head, await startRun(runs, body, { by: { caller, requestId }, claim: claim?.write }));
  },
});

/** Replies with the run as it was accepted, whatever has happened since, so that a repeat gets the same reply. */
function accepted({ url }: { readonly url: string }, run: Run): Reply {
  const runsPath = new URL(url).pathname.replace(/\/[^/]+\/messages$/, "");
  return jsonReply(202, createRunState(run).run, { location: `${runsPath}/${run.id}` });
}

/** GET /v1/runs: recorded runs, newest first. */
export const runsRoute = defineRoute({
  method: "GET",
  path: "/v1/runs",
  access: "runs",
  needs: ["agent", "storedRuns"],
  summary: "Runs that are recorded, newest first",
  query: {
    status: choiceQuery("Only those in this state", runStatusSchema.options),
    limit: LIMIT_QUERY,
    after: textQuery("Only those older than this id"),
  },
  reply: { status: 200, type: "application/json", schema: listSchema(runSchema) },
  async handle(parts, { query }) {
    const { runs, hasMore } = await runsToRead(parts).list(query);
    return listReply(runs, hasMore);
  },
});

/** GET /v1/runs/:id: one run. */
export const runRoute = defineRoute({
  method: "GET",
  path: "/v1/runs/:id",
  access: "runs",
  needs: ["agent", "storedRuns"],
  params: { id: RUN_ID_SCHEMA },
  summary: "One run",
  reply: { status: 200, type: "application/json", schema: runSchema },
  async handle(parts, { params }) {
    return jsonReply(200, await findRun(runsToRead(parts), params.id));
  },
});

const browserSchema = v.object({
  object: v.literal("run.browser"),
  run_id: v.string(),
  /** False: the browser is closed, and what follows is how it was */
  open: v.boolean(),
  /** The newest operations, in their order */
  actions: v.array(v.object({
    at: v.string(),
    op: v.string(),
    /** Element, address, key or file; never what was typed */
    target: v.string(),
    /** Address of the page afterwards */
    url: v.string(),
    /** Why it failed; null when it did not */
    error: v.nullable(v.string()),
  })),
  /** Operations before those */
  actions_dropped: v.number(),
  /** Last picture of the page, in base64; null where none could be taken */
  picture: v.nullable(v.object({ media_type: v.literal("image/jpeg"), data: v.string(), taken_at: v.string() })),
});

/** GET /v1/runs/:id/browser: what a run does in its browser, for a person who watches. */
export const runBrowserRoute = defineRoute({
  method: "GET",
  path: "/v1/runs/:id/browser",
  access: "runs",
  needs: ["agent", "storedRuns", "browserOf"],
  params: { id: RUN_ID_SCHEMA },
  summary: "What a run does in its browser: the last picture and the operations",
  reply: { status: 200, type: "application/json", schema: browserSchema },
  async handle(parts, { params }) {
    const { id } = await findRun(runsToRead(parts), params.id);
    const view = await parts.browserOf(id);
    if (view === undefined) {
      throw refuse("not_found", "Cannot show a browser: this run has used none since the gateway started");
    }
    const { isOpen, actions, dropped, picture } = view;
    return jsonReply(200, {
      object: "run.browser",
      run_id: id,
      open: isOpen,
      actions,
      actions_dropped: dropped,
      picture: picture === undefined ? null : {
        media_type: "image/jpeg",
        data: picture.data,
        taken_at: picture.takenAt,
      },
    });
  },
});

/**
 * POST /v1/runs/:id/messages: says something to a run at work, which is on disk before the reply.
 * Source: docs/design/runs.md "Steering"
 */
export const runMessageRoute = defineRoute({
  method: "POST",
  path: "/v1/runs/:id/messages",
  access: "chat",
  needs: ["agent"],
  params: { id: RUN_ID_SCHEMA },
  summary: "Say something to the conversation of a run: next, at the run's next tool boundary, or in its place",
  body: runMessageSchema,
  reply: { status: 202, type: "application/json", schema: runSchema },
  errors: [...RUN_ERRORS, "model_not_found", "provider_error"],
  idempotency: "by_run",
  repeat: async ({ agent }, { head }, runId) =>
    accepted(head, await findRun(requireAgent({ agent }).runs, runId ?? "")),
  before: (parts) => void requireAgent(parts),
  async handle(parts, { params, body, caller, requestId, claim, head }) {
    const { runs } = requireAgent(parts);
    return accepted(head, await sayToRun(runs, params.id, { body, by: { caller, requestId }, claim: claim?.write }));
  },
});

/** POST /v1/runs/:id/cancel: stops the model's stream, the tools and their processes. */
export const cancelRunRoute = defineRoute({
  method: "POST",
  path: "/v1/runs/:id/cancel",
  access: "runs",
  needs: ["agent", "kit"],
  params: { id: RUN_ID_SCHEMA },
  errors: RUN_ERRORS,
  summary: "Stop a run; one that has ended is 409",
  reply: { status: 200, type: "application/json", schema: runSchema },
  idempotency: "honoured",
  // A run is cancelled once, so its status tells whether the first request did it
  async repeat(parts, { params: { id } }) {
    const { runs } = requireAgent(parts);
    const run = await findRun(runs, id);
    return jsonReply(200, run.status === "cancelled" ? run : await cancelRun(runs, id, parts.kit.clock));
  },
  async handle(parts, { params }) {
    const { runs } = requireAgent(parts);
    return jsonReply(200, await cancelRun(runs, params.id, parts.kit.clock));
  },
});

/** POST /v1/runs/:id/resolve: a person's review of a run that a crash interrupted during an effect. */
export const resolveRunRoute = defineRoute({
  method: "POST",
  path: "/v1/runs/:id/resolve",
  access: "runs",
  needs: ["agent"],
  params: { id: RUN_ID_SCHEMA },
  errors: RUN_ERRORS,
  summary: "Let a run that needs review go on, or end it; any other is 409",
  body: resolveSchema,
  reply: { status: 200, type: "application/json", schema: runSchema },
  idempotency: "honoured",
  before: (parts) => void requireAgent(parts),
  // A run is resolved once, so its status tells whether the first request did it
  async repeat(parts, { params: { id }, body, caller }) {
    const { runs } = requireAgent(parts);
    const run = await findRun(runs, id);
    return jsonReply(200, run.status === "needs_review" ? await runs.resolve(id, { ...body, by: caller }) : run);
  },
  async handle(parts, { params, body, caller }) {
    const { runs } = requireAgent(parts);
    return jsonReply(200, await runs.resolve(params.id, { ...body, by: caller }));
  },
});
