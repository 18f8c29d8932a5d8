import type { RequestContext } from "../route.ts";
import { HttpError } from "../../lib/base/errors.ts";
import type { CollectedReply } from "./collect_reply.ts";
import { errorBody, isProviderFailure, toHttpError } from "./http_errors.ts";

export type ReplyBody = string | Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array<ArrayBuffer>> | null;
type ExtraHeaders = Readonly<Record<string, string>>;

/** A JSON reply that carries the request's reply headers; `body` is serialised once. */
export function jsonReply(context: RequestContext, status: number, body: unknown, headers?: ExtraHeaders): Response {
  return textReply(context, status, JSON.stringify(body), "application/json", headers);
}

/** A reply of a ready body, as JSON written by hand, the metrics or a page. */
export function textReply(
  context: RequestContext,
  status: number,
  body: ReplyBody,
  contentType: string,
  headers?: ExtraHeaders,
): Response {
  return build(context, status, body, contentType, headers);
}

export interface SseOptions {
  /** Called once when the client goes away before the end: stop the work here, the generator may be waiting */
  readonly onCancel?: () => void;
  readonly headers?: ExtraHeaders;
}

/**
 * An event stream: never cached, transformed or buffered by a proxy. Chunks are encoded `text/event-stream`, one network write
 * each, pulled as the client reads. A chunk source that throws breaks the connection, so it must tell failures as events.
 */
export function sseReply(
  context: RequestContext,
  chunks: AsyncIterable<Uint8Array>,
  options: SseOptions = {},
): Response {
  const sent = context.replyHeaders;
  sent["cache-control"] = "no-cache, no-transform";
  sent["x-accel-buffering"] = "no";
  if (chunks instanceof ReadableStream) return build(context, 200, chunks, "text/event-stream", options.headers);
  const iterator = chunks[Symbol.asyncIterator]();
  const stream = new ReadableStream<Uint8Array<ArrayBuffer>>({
    async pull(controller) {
      const step = await iterator.next();
      if (step.done) controller.close();
      else controller.enqueue(step.value as Uint8Array<ArrayBuffer>); // encoders make no shared memory
    },
    cancel() {
      options.onCancel?.();
      // Not awaited: a generator that waits returns only when its wait ends
      iterator.return?.().catch(() => {});
    },
  }, { highWaterMark: 0 });
  return build(context, 200, stream, "text/event-stream", options.headers);
}

/** The one error shape for anything thrown; `hadEffect`: a tool with an effect ran before, so the client must not retry. */
export function errorReply(
  context: RequestContext,
  error: unknown,
  options: { readonly hadEffect?: boolean } = {},
): Response {
  const { requestId, services } = context;
  const told = toHttpError(error, { log: services.log, requestId, ...options });
  const isFinal = error instanceof HttpError && error.headers["x-should-retry"] === "false";
  if (isProviderFailure(error) && !options.hadEffect && !isFinal) context.claim?.reopen();
  return jsonReply(context, told.status, errorBody(told), told.headers);
}

/** Sets `x-postern-fallback` to the `provider/model` that answers in place of the one that was asked for. */
export function nameFallback(context: RequestContext, model: string): void {
  context.replyHeaders["x-postern-fallback"] = model.slice(0, MAX_MODEL_NAME).replace(/[^\x21-\x7e]/g, "_");
}

const MAX_MODEL_NAME = 256;

/** Headers of a reply that `nameChanges` may set, as /openapi.json describes them. */
export const CHANGE_HEADERS = {
  "x-postern-fallback": {
    description: "The provider/model that answers in place of the default one",
    schema: { type: "string" },
  },
  "x-postern-trimmed": {
    description: "Messages of the conversation that were left out, shortened or condensed to fit the model's window",
    schema: { type: "integer", minimum: 1 },
  },
} as const;

/** Sets the headers of a reply of the agent: what answered in place of the default, and how much of the history was left out. */
export function nameChanges(context: RequestContext, reply: Pick<CollectedReply, "fallback" | "trimmed">): void {
  if (reply.fallback !== undefined) nameFallback(context, reply.fallback);
  if (reply.trimmed > 0) context.replyHeaders["x-postern-trimmed"] = String(reply.trimmed);
}

function build(
  context: RequestContext,
  status: number,
  body: ReplyBody,
  contentType: string,
  extra: ExtraHeaders | undefined,
): Response {
  const headers = context.replyHeaders;
  headers["content-type"] = contentType;
  if (context.ignored.length > 0) headers["x-postern-ignored"] = ignoredNames(context.ignored);
  if (context.services.state() === "draining") headers["connection"] = "close";
  if (extra !== undefined) { for (const name in extra) headers[name.toLowerCase()] = extra[name] as string; } // own names
  return (context.built = new context.Response(body, { status, headers }));
}

const MAX_IGNORED_NAMES = 20;

/** Names come from the client: kept to visible ASCII without a comma, and to a bounded length. */
function ignoredNames(names: readonly string[]): string {
  const shown = names.slice(0, MAX_IGNORED_NAMES).map((name) =>
    name.slice(0, 64).replace(/[^\x21-\x2b\x2d-\x7e]/g, "_")
  );
  return shown.join(", ");
}
