import { type AgentEvent, isTerminal } from "../../lib/base/records/agent_event.ts";
import { EventStreamDecoder } from "../../lib/system/net/event_stream_decoder.ts";
import { type CommandContext, CommandError } from "../command.ts";
import type { ReachedGateway } from "../reach_gateway.ts";
import { answerQuestion, shownApproval } from "./ask_person.ts";
import { createReplyView } from "./reply_view.ts";
import { messageColumns } from "./terminal_text.ts";

/** Options of `showRunEvents`. */
export interface ShowRunEventsOptions {
  readonly context: CommandContext;
  readonly gateway: ReachedGateway;
  /** Shows only events after this seq */
  readonly after: number;
  /** True: waits for further events, to the run's end or Ctrl-C */
  readonly follow: boolean;
}

/** Shows what a run says and does. When the run goes on without the reader, stderr tells how to come back to it. */
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
      const isAsked = event.type === "approval_needed" && follow;
      if (isAsked && !await meetQuestion(context, gateway, event.approval_id)) break;
    }
  } catch (error) {
    if (!signal.aborted) failure = error;
  } finally {
    stop();
    view.end();
  }
  const isNews = failure === undefined || seq > after;
  if (!ended && isNews) context.say(`The run goes on: postern run events ${id} --follow --after ${seq}`);
  if (failure !== undefined) throw failure;
}

/** Shows a question of a run that works in a gateway, and asks one of a run in this process. @returns false when nobody answered that */
async function meetQuestion(context: CommandContext, gateway: ReachedGateway, id: string): Promise<boolean> {
  if (gateway.running === undefined) return await answerQuestion(context, gateway, id);
  await showQuestion(context, gateway, id);
  return true;
}

/** Shows the call that a run waits for, and how to answer. Shows nothing with --json, and for an approval that was answered meanwhile. */
async function showQuestion(context: CommandContext, gateway: ReachedGateway, id: string): Promise<void> {
  if (context.flags.json) return;
  const approval = await gateway.call("GET /v1/approvals/:id", { params: { id } }).catch((error: unknown) => {
    // The approval was deleted meanwhile
    if (error instanceof CommandError) return undefined;
    throw error;
  });
  if (approval?.status !== "pending") return;
  context.say(shownApproval(approval, { columns: messageColumns(context.io) }));
  context.say(
    `The run waits for an answer until ${approval.expires_at}, in the dashboard or by:\n` +
      `  postern approval approve ${id}\n  postern approval deny ${id}\n` +
      `How to remember the answer:\n  postern approval show ${id}`,
  );
}

/** Longest event of a run: a tool's largest output has 64 MiB, and its JSON at most six times as much. */
const MAX_EVENT_BYTES = 400 * 1024 * 1024;

/**
 * Reads the events of a run from the gateway's event stream.
 * @throws {CommandError} the gateway refuses; with its sentence
 * @throws {CancelError} `signal` was aborted
 */
export async function* runEvents(
  gateway: ReachedGateway,
  id: string,
  { after, follow, signal }: {
    /** Gives only events after this seq */
    readonly after: number;
    /** True: waits for further events, to the run's end. False: gives only the present ones */
    readonly follow: boolean;
    readonly signal?: AbortSignal;
  },
): AsyncGenerator<AgentEvent, void, undefined> {
  const path = `/v1/runs/${encodeURIComponent(id)}/events?after=${after}${follow ? "" : "&follow=0"}`;
  const body = await gateway.stream({ method: "GET", path, signal });
  const decoder = new EventStreamDecoder({ maxBytes: MAX_EVENT_BYTES });
  for await (const bytes of body) {
    // The gateway writes nothing but its own events
    for (const data of decoder.push(bytes)) yield JSON.parse(data) as AgentEvent;
  }
}

/** Where the gateway has a run. @param action what follows, such as `/cancel` */
export function runPath(id: string, action = ""): string {
  return `/v1/runs/${encodeURIComponent(id)}${action}`;
}

/** Returns a signal that the first Ctrl-C aborts. `stop` removes the listener. */
export function untilInterrupt({ io }: CommandContext): { readonly signal: AbortSignal; readonly stop: () => void } {
  const controller = new AbortController();
  return { signal: controller.signal, stop: io.onInterrupt(() => controller.abort()) };
}
