import { type AgentEvent, isTerminal } from "../../lib/base/records/agent_event.ts";
import type { Approval } from "../../lib/base/records/approval.ts";
import { EventStreamDecoder } from "../../lib/system/net/event_stream_decoder.ts";
import { CommandError } from "../cli_error.ts";
import type { CommandContext } from "../command.ts";
import type { ReachedGateway } from "../reach_gateway.ts";
import { answerQuestion, describeApproval } from "./ask_person.ts";
import { createReplyView } from "./reply_view.ts";

export interface ShowRunEventsOptions {
  readonly context: CommandContext;
  readonly gateway: ReachedGateway;
  /** Only events after this seq */
  readonly after: number;
  /** Waits for more, to the run's end or Ctrl-C */
  readonly follow: boolean;
}

/** Shows what a run says and does; where it goes on without the reader, stderr tells how to come back to it. */
export async function showRunEvents(
  id: string,
  { context, gateway, after, follow }: ShowRunEventsOptions,
): Promise<void> {
  const view = createReplyView(context);
  const { signal, stop } = untilInterrupt(context);
  let seq = after;
  let ended = !follow;
  let failure: unknown;
  try {
    for await (const event of runEvents(gateway, id, { after, follow, signal })) {
      view.show(event);
      seq = event.seq;
      ended ||= isTerminal(event);
      if (event.type === "approval_needed" && follow) {
        if (gateway.running !== undefined) await showQuestion(context, gateway, event.approval_id);
        else if (!await answerQuestion(context, gateway, event.approval_id)) break;
      }
    }
  } catch (error) {
    if (!signal.aborted) failure = error;
  } finally {
    stop();
    view.end();
  }
  const isNews = failure === undefined || seq > after;
  if (!ended && isNews) context.say(`The run goes on: postern runs events ${id} --follow --after ${seq}`);
  if (failure !== undefined) throw failure;
}

/** Shows what a run waits for, and how to answer; nothing where it was answered meanwhile, or with --json. */
async function showQuestion(context: CommandContext, gateway: ReachedGateway, id: string): Promise<void> {
  if (context.flags.json) return;
  const path = `/v1/approvals/${encodeURIComponent(id)}`;
  const approval = await gateway.request({ method: "GET", path }).catch((error: unknown) => {
    // The approval was forgotten meanwhile
    if (error instanceof CommandError) return undefined;
    throw error;
  }) as Approval | undefined;
  if (approval?.status !== "pending") return;
  context.say(describeApproval(approval));
  context.say(
    `The run waits for an answer until ${approval.expires_at}, in the dashboard or by:\n` +
      `  postern approvals approve ${id}\n  postern approvals deny ${id}\n` +
      `  postern approvals show ${id}      how to remember the answer`,
  );
}

/** Longest event of a run: a tool's largest output has 64 MiB, and its JSON at most six times as much. */
const MAX_EVENT_BYTES = 400 * 1024 * 1024;

export interface RunEventsOptions {
  /** Only events after this seq */
  readonly after: number;
  /** Waits for those to come, to the run's end; false: those that are there */
  readonly follow: boolean;
  readonly signal?: AbortSignal;
}

/**
 * The events of a run, from the gateway's event stream.
 * @throws {CommandError} the gateway's own sentence when it refuses; {CancelError} on abort
 */
export async function* runEvents(
  gateway: ReachedGateway,
  id: string,
  { after, follow, signal }: RunEventsOptions,
): AsyncGenerator<AgentEvent, void, undefined> {
  const path = runPath(id, `/events?after=${after}${follow ? "" : "&follow=0"}`);
  const body = await gateway.stream({ method: "GET", path, signal });
  const decoder = new EventStreamDecoder({ maxBytes: MAX_EVENT_BYTES });
  for await (const bytes of body) {
    // The gateway writes nothing but its own events
    for (const data of decoder.push(bytes)) yield JSON.parse(data) as AgentEvent;
  }
}

/** The argument that names a run. */
export const RUN_ID = {
  type: "positional",
  required: true,
  description: "Id of the run, from postern runs list",
} as const;

/** Where the gateway has a run. @param action what follows, as `/cancel` */
export function runPath(id: string, action = ""): string {
  return `/v1/runs/${encodeURIComponent(id)}${action}`;
}

/** A signal that the first Ctrl-C aborts; `stop` ends the listening. */
export function untilInterrupt({ io }: CommandContext): { readonly signal: AbortSignal; readonly stop: () => void } {
  const controller = new AbortController();
  return { signal: controller.signal, stop: io.onInterrupt(() => controller.abort()) };
}
