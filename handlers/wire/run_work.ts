import * as v from "valibot";
import type { Clock } from "../../lib/base/clock.ts";
import { refuse } from "../../lib/base/errors.ts";
import type { Message } from "../../lib/base/records/message.ts";
import { isEnded, MESSAGE_MODES, type Run } from "../../lib/base/records/run.ts";
import type { StoredRuns } from "../../lib/runs/journal/stored_runs.ts";
import type { RunRequest, RunSupervisor } from "../../lib/runs/run_request.ts";
import { conversationIdSchema, reachesRun, spokenSchema } from "./agent_runs.ts";
import { completionSchema } from "./completion_body.ts";
import { toCompletionInput } from "./to_completion_input.ts";

/** Body that starts a run. */
export const startRunSchema = v.object({
  /** Message of the user, in place of `messages` */
  message: v.optional(spokenSchema),
  messages: v.optional(completionSchema.entries.messages),
  model: v.optional(v.string()),
  /** Conversation that the run continues and is recorded under; `new` begins one. Default: none */
  conversation_id: v.optional(conversationIdSchema),
  /** Name of a configured agent, as in `[agents.<name>]` */
  agent: v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(128))),
});
type StartInput = v.InferOutput<typeof startRunSchema>;

/** Body that says something to the conversation of a run. */
export const runMessageSchema = v.object({
  message: spokenSchema,
  /**
   * `queue`: the next turn. `steer`: the run takes it in at its next tool boundary. `interrupt`: the run ends, and the message is the next
   * turn. Of a run that has ended each is the next turn. Default `queue`
   */
  mode: v.optional(v.picklist(MESSAGE_MODES)),
  model: startRunSchema.entries.model,
});

/** How long a cancel waits for the end of the run before it replies with the run as it is, in milliseconds. */
const CANCEL_WAIT_MS = 5_000;

/**
 * Starts a durable run, for the route and for the program that mounts the gateway.
 * @returns the run, which is on disk
 * @throws {HttpError} 400 invalid_request; see RunSupervisor.start
 */
export async function startRun(
  runs: RunSupervisor,
  { model, conversation_id: conversationId, agent, ...said }: StartInput,
  circumstances: Pick<RunRequest, "by" | "claim">,
): Promise<Run> {
  const handle = await runs.start({
    ...circumstances,
    kind: "chat",
    messages: messagesOf(said),
    model,
    conversationId,
    agent: { name: agent },
    durable: true,
    agentTools: "configured",
  });
  return await findRun(runs, handle.id);
}

/**
 * Says something to the conversation of a run.
 * @returns the run that the message was accepted as, which is on disk; `steers` says which run takes it in
 * @throws {HttpError} 404 not_found; 403 insufficient_scope; 409 conflict for a run in no conversation; see RunSupervisor.start
 */
export async function sayToRun(
  runs: RunSupervisor,
  id: string,
  { body: { message, mode = "queue", model }, ...circumstances }:
    & { readonly body: v.InferOutput<typeof runMessageSchema> }
    & Pick<RunRequest, "by" | "claim">,
): Promise<Run> {
  const reaches = await reachesRun(runs, id, circumstances.by.caller);
  const { conversation_id: conversationId, kind } = await findRun(runs, id);
  if (reaches !== true) {
    throw refuse(
      "insufficient_scope",
      'Cannot write to this run: another token began it, and yours lacks the scope "runs"',
    );
  }
  if (conversationId === null || kind !== "chat") {
    throw refuse(
      "conflict",
      kind === "chat"
        ? 'Cannot write to this run: it is in no conversation; start runs with "conversation_id", "new" begins one'
        : `Cannot write to this run: its kind is "${kind}", and no person talks with it; POST /v1/runs/${id}/cancel stops it`,
    );
  }
  const handle = await runs.start({
    ...circumstances,
    by: { ...circumstances.by, steers: { mode, runId: id } },
    kind: "chat",
    messages: [{ role: "user", content: message }],
    model,
    conversationId,
    durable: true,
    agentTools: "configured",
  });
  return await findRun(runs, handle.id);
}

/**
 * Stops a run, and waits a short time for its end.
 * @returns the run: ended, or still at work where a tool is slow to stop
 * @throws {HttpError} 404 not_found; 409 conflict for a run that cannot be cancelled
 */
export async function cancelRun(runs: RunSupervisor, id: string, clock: Clock): Promise<Run> {
  if (!await runs.cancel(id, "cancelled")) throw notToCancel(await findRun(runs, id));
  const timeout = clock.timeoutSignal(CANCEL_WAIT_MS);
  // The wait is bounded, because a tool may be slow to stop: the reply then says that the run is still at work
  const ended = await runs.ended(id, timeout.signal).catch(() => undefined);
  timeout.clear();
  return ended ?? await findRun(runs, id);
}

/** Reads the run with this id. @throws {HttpError} 404 not_found */
export async function findRun(runs: StoredRuns, id: string): Promise<Run> {
  const run = await runs.get(id);
  if (run !== undefined) return run;
  throw refuse(
    "not_found",
    'Cannot find this run: "postern run list" and GET /v1/runs show those that are recorded',
  );
}

function notToCancel(run: Run) {
  const reason = isEnded(run.status)
    ? `it is ${run.status} already`
    : run.status === "needs_review"
    ? `it waits for a person; close it with "postern run resolve ${run.id} close" or POST /v1/runs/${run.id}/resolve`
    : "it is being stopped already";
  return refuse("conflict", `Cannot cancel this run: ${reason}`);
}

type Said = Pick<StartInput, "message" | "messages">;

function messagesOf({ message, messages }: Said): readonly Message[] {
  if (message !== undefined && messages !== undefined) {
    throw refuse("invalid_request", 'Cannot take both "message" and "messages": send one of them', {
      param: "messages",
    });
  }
  if (messages !== undefined) return toCompletionInput({ messages }).messages;
  if (message !== undefined) return [{ role: "user", content: message }];
  throw refuse("invalid_request", 'Cannot start a run without a message: send "message" or "messages"', {
    param: "message",
  });
}
