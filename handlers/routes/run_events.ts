import { type AgentEvent, isTerminal } from "../../lib/base/records/agent_event.ts";
import { RUN_ID_SCHEMA } from "../../lib/base/records/run.ts";
import { type HttpError, refuse } from "../../lib/base/errors.ts";
import type { RunPace } from "../../lib/runs/run_request.ts";
import { defineRoute } from "../define_route.ts";
import { toHttpError } from "../wire/http_errors.ts";
import { type EventEncoder, followReply, paceComment } from "../wire/event_stream.ts";
import { openRunEvents, requireAgent, runsToRead, upTo } from "../wire/agent_runs.ts";
import { afterOf, choiceQuery, positionQuery } from "../wire/lists.ts";

const FOLLOW = choiceQuery("0: only what is recorded by now, without waiting for more. Default 1", ["0", "1"]);

/**
 * GET /v1/runs/:id/events: the events of a run, from the journal and then live, to the terminal event.
 *
 * Each event has its seq as `id:`, so that a browser's EventSource, and any client that sends `Last-Event-ID` or `?after=`, goes on
 * where its connection broke. 204 tells an EventSource to stop reconnecting, so only a reader that has every event of an ended run gets
 * it; a reader of a queued run waits. Each reader reads at its own pace.
 * Source: https://html.spec.whatwg.org/multipage/server-sent-events.html
 * Source: docs/design/http.md "Runs over HTTP"
 */
export const runEventsRoute = defineRoute({
  method: "GET",
  path: "/v1/runs/:id/events",
  access: "runs",
  needs: ["agent", "storedRuns", "kit"],
  summary:
    "Events of a run as server-sent events, live to the terminal one; 204 when the run is over and nothing comes after the position",
  query: {
    after: {
      ...positionQuery("Only events after this seq; the header Last-Event-ID wins. Default: from the first"),
      // Where the header wins, the parameter is not looked at
      read: (text: string | null) => text ?? "0",
    },
    follow: FOLLOW,
  },
  headers: { "Last-Event-ID": positionQuery("Only events after this seq") },
  params: { id: RUN_ID_SCHEMA },
  reply: { status: 200, type: "text/event-stream", description: "Each event as JSON, with its seq as the event's id" },
  otherReplies: [{ status: 204, description: "The run is over, and nothing comes after the position" }],
  errors: ["overloaded"],
  async handle({ agent, storedRuns, kit: { clock, log } }, { params, query, head, caller, requestId }) {
    const { name, place } = afterOf(head.headers, { name: "after", text: query.after });
    const after = { name, seq: place };
    const follows = query.follow !== "0";
    const reading = new AbortController();
    const encoder = createEventLines({ follows, now: () => clock.now(), after: after.seq });
    const { events, recorded, eventsFollow } = await openRunEvents(runsToRead({ agent, storedRuns }), params.id, {
      after,
      signal: reading.signal,
      caller,
      onPace: encoder.onPace,
    });
    if (!eventsFollow && after.seq >= recorded) return { status: 204, body: null, type: "text/event-stream" };
    return followReply({
      events: follows ? events : upTo(recorded, { after: after.seq, events }),
      reading,
      encoder,
      clock,
      toError: (error) => error === undefined ? cutShort() : toHttpError(error, { log, requestId }),
    });
  },
});

/**
 * GET /v1/cluster/runs/:id/events: the events of a run that this gateway works on, for another gateway of the cluster.
 *
 * A run that is not at work here is refused, so that no gateway asks another one in a circle. The stream ends when the run leaves this
 * gateway, and has signs of life.
 * Source: docs/design/cluster.md "Links"
 */
export const clusterRunEventsRoute = defineRoute({
  method: "GET",
  path: "/v1/cluster/runs/:id/events",
  access: "cluster",
  needs: ["agent", "cluster", "kit"],
  steady: "link",
  summary: "For other gateways of the cluster: events of a run that is at work at this gateway; any other run is 409",
  query: { after: positionQuery("Only events after this seq. Default: from the first") },
  params: { id: RUN_ID_SCHEMA },
  errors: ["agent_unavailable", "conflict", "overloaded"],
  reply: { status: 200, type: "text/event-stream", description: "Each event as JSON, with its seq as the event's id" },
  handle({ agent, cluster, kit: { clock, log } }, { params, query: { after }, requestId }) {
    const reading = new AbortController();
    const events = requireAgent({ agent }).runs.followHere(params.id, { afterSeq: after, signal: reading.signal });
    if (events === undefined) throw refuse("conflict", "Cannot stream this run: it is not at work at this gateway");
    return followReply({
      events,
      reading,
      encoder: createEventLines({ follows: true, now: () => clock.now(), after }),
      clock,
      keepAliveMs: cluster.links.beatMs,
      toError: (error) => toHttpError(error ?? cutShort(), { log, requestId }),
    });
  },
});

const CUT_SHORT = "shutting_down";

/** Returns the error that ends a stream before the end of its run: a shutdown stops the run, or `follow=0` was sent. */
function cutShort() {
  return refuse(
    CUT_SHORT,
    "Cannot send more events of this run: the gateway is shutting down, or only the recorded events were requested",
  );
}

/** How soon a reader should come back, in milliseconds. */
const RETRY_MS = 1000;

/** Creates the encoder that writes each event as one line of JSON with its seq as the id. A comment says how the events come. */
function createEventLines({ follows, after, now }: {
  readonly follows: boolean;
  /** Seq after which the reader reads */
  readonly after: number;
  readonly now: () => number;
}) {
  let ended = false;
  let last = after;
  let comment = "";
  return {
    onPace: (pace: RunPace) => void (comment = paceComment(pace)),
    start: () => `retry: ${RETRY_MS}\n\n`,
    encode(events: readonly AgentEvent[]) {
      let text = comment;
      comment = "";
      for (const event of events) {
        if (ended) break;
        text += `id: ${event.seq}\ndata: ${JSON.stringify(event)}\n\n`;
        ended = isTerminal(event);
        last = event.seq;
      }
      return text;
    },
    fail({ code, message }: HttpError) {
      if (code === "not_found") {
        // Nothing goes on: the reader gets an end that no journal has
        const end: AgentEvent = { seq: last + 1, time: new Date(now()).toISOString(), type: "error", code, message };
        return `data: ${JSON.stringify(end)}\n\n`;
      }
      // The run goes on, so the stream has no terminal event: the reader comes back with its position
      return follows || code !== CUT_SHORT
        ? `: no more now (${code}), come back with Last-Event-ID\n\n`
        : ": these are the events recorded by now, come back with Last-Event-ID for more\n\n";
    },
    get ended() {
      return ended;
    },
  } satisfies EventEncoder & { readonly onPace: unknown };
}
