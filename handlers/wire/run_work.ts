import * as v from "valibot";
import type { Clock } from "../../lib/base/clock.ts";
import { refuse } from "../../lib/base/errors.ts";
import type { Message } from "../../lib/base/records/message.ts";
import { isEnded, type Run } from "../../lib/base/records/run.ts";
import type { StoredRuns } from "../../lib/runs/journal/stored_runs.ts";
import type { RunRequest, RunSupervisor } from "../../lib/runs/run_request.ts";
import { conversationIdSchema, spokenSchema } from "./agent_runs.ts";
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
