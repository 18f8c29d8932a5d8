import type { RequestContext } from "../route.ts";
import { CancelError } from "../../lib/base/cancel.ts";
import { HttpError } from "../../lib/base/errors.ts";
import type { CollectedReply } from "./collect_reply.ts";
import {
  errorBody,
  type ErrorMapping,
  isProviderFailure,
  messageErrorBody,
  messageStatus,
  toHttpError,
} from "./http_errors.ts";

/** Body of a reply; null for none. */
export type ReplyBody = string | Uint8Array<ArrayBuffer> | ReadableStream<Uint8Array<ArrayBuffer>> | null;
type ExtraHeaders = Readonly<Record<string, string>>;

/** A reply as a plain value. What belongs to its request, such as the id, is added when it is sent. */
export type Reply = PlainReply | FailureReply;

interface PlainReply {
  readonly status: number;
  readonly body: ReplyBody;
  /** Media type; null where there is no body */
  readonly type: string | null;
  readonly headers?: ExtraHeaders | undefined;
  /** Ends the stream of a reader who follows a run, for a shutdown and the end of its token. Aborted once the stream is over. Default: none */
  readonly reading?: AbortController | undefined;
  /** Names of fields of the request that were not honoured, beside those that no schema knows. Default: none */
  readonly ignored?: readonly string[] | undefined;
  /** Names of fields of the request that the model got in another form. Default: none */
  readonly changed?: readonly string[] | undefined;
  /** Id of the run that answers, for the header `x-postern-run`. Default: none does */
  readonly runId?: string | undefined;
}

/** A reply that tells of an error after work was begun. An error before that is thrown. */
export interface FailureReply extends Pick<PlainReply, "ignored" | "changed" | "runId"> {
  readonly error: unknown;
  /** A tool with an effect ran before, so the client must not retry */
  readonly hadEffect?: boolean | undefined;
}

/** Returns a reply with a value as JSON. */
export function jsonReply(status: number, value: unknown, headers?: ExtraHeaders): PlainReply {
  return { status, body: JSON.stringify(value), type: "application/json", headers };
}

/** Returns a reply without a body. */
export function emptyReply(): PlainReply {
  return { status: 204, body: null, type: null };
}

/** Returns the response of a reply, with the request's reply headers. */
export function sendReply(context: RequestContext, reply: Reply): Response {
  if (reply.ignored !== undefined) context.ignored.push(...reply.ignored);
  if (reply.runId !== undefined) context.replyHeaders["x-postern-run"] = reply.runId;
  if (reply.changed !== undefined && reply.changed.length > 0) {
    context.replyHeaders["x-postern-changed"] = namesOf(reply.changed);
  }
  if ("error" in reply) return errorReply(context, reply.error, reply);
  if (reply.reading !== undefined) listFollower(context, reply.reading);
  return build(context, reply.status, reply.body, reply.type, reply.headers);
}

/** Lists the reader of a stream among the followers of runs. @throws {HttpError} 503 `overloaded`, and the stream is ended */
function listFollower({ services, identity }: RequestContext, reading: AbortController): void {
  const close = () => reading.abort(new CancelError("client_gone"));
  try {
    const remove = services.followers.add({ tokenId: identity?.tokenId ?? null, close });
    reading.signal.addEventListener("abort", remove, { once: true });
  } catch (error) {
    close();
    throw error;
  }
}

/** Returns a JSON reply with the request's reply headers. */
export function sendJson(context: RequestContext, status: number, body: unknown, headers?: ExtraHeaders): Response {
  return sendText(context, status, JSON.stringify(body), "application/json", headers);
}

/** Returns a reply with a ready body, such as JSON written by hand, the metrics or a page. */
export function sendText(
  context: RequestContext,
  status: number,
  body: ReplyBody,
  contentType: string,
  headers?: ExtraHeaders,
): Response {
  return build(context, status, body, contentType, headers);
}

/**
 * Returns an event stream. Each chunk is one network write of encoded `text/event-stream`, read as the client reads. A source that throws
 * breaks the connection, so failures must be events.
 * @param onCancel called once when the client goes away before the end. Stop the work there: the generator may be waiting
 */
export function streamReply(chunks: AsyncIterable<Uint8Array>, onCancel?: () => void): PlainReply {
  if (chunks instanceof ReadableStream) return { status: 200, body: chunks, type: EVENT_STREAM };
  const iterator = chunks[Symbol.asyncIterator]();
  const body = new ReadableStream<Uint8Array<ArrayBuffer>>({
    async pull(controller) {
      const step = await iterator.next();
      if (step.done) controller.close();
      else controller.enqueue(step.value as Uint8Array<ArrayBuffer>); // encoders make no shared memory
    },
    cancel() {
      onCancel?.();
      // Not awaited: a waiting generator returns only when its wait ends
      iterator.return?.().catch(() => {});
    },
  }, { highWaterMark: 0 });
  return { status: 200, body, type: EVENT_STREAM };
}

const EVENT_STREAM = "text/event-stream";

/** Returns the error reply for anything thrown. `hadEffect`: a tool with an effect ran before, so the client must not retry. */
export function errorReply(
  context: RequestContext,
  error: unknown,
  options: Pick<ErrorMapping, "hadEffect"> = {},
): Response {
  const { requestId, services } = context;
  const told = toHttpError(error, { log: services.log, requestId, ...options });
  const isFinal = error instanceof HttpError && error.headers["x-should-retry"] === "false";
  // A conflict may pass. The end of cancelled work is final
  const mayPass = isProviderFailure(error) || (told.status === 409 && !(error instanceof CancelError));
  if (mayPass && !options.hadEffect && !isFinal) context.claim?.reopen();
  const program = services.programName;
  if (!context.wantsMessagesForm) return sendJson(context, told.status, errorBody(told, program), told.headers);
  return sendJson(context, messageStatus(told), messageErrorBody(told, { requestId, program }), told.headers);
}

/** Returns the header that names the `provider/model` that answers in place of the requested one. */
export function fallbackHeader(model: string): Readonly<Record<"x-postern-fallback", string>> {
  return { "x-postern-fallback": model.slice(0, MAX_MODEL_NAME).replace(/[^\x21-\x7e]/g, "_") };
}

const MAX_MODEL_NAME = 256;

/** Headers of a reply by a run, as /openapi.json describes them. */
export const CHANGE_HEADERS = {
  "x-postern-run": {
    description:
      "Id of the run that answers; GET /v1/runs/:id/events and a frame `resume` read on where a connection broke",
    schema: { type: "string" },
  },
  "x-postern-fallback": {
    description: "The provider/model that answers in place of the default one",
    schema: { type: "string" },
  },
  "x-postern-trimmed": {
    description: "Messages of the conversation that were left out, shortened or condensed to fit the model's window",
    schema: { type: "integer", minimum: 1 },
  },
} as const;

/** Returns the headers that name a fallback model and the number of trimmed messages. */
export function changeHeaders({ fallback, trimmed }: Pick<CollectedReply, "fallback" | "trimmed">): ExtraHeaders {
  return {
    ...(fallback === undefined ? {} : fallbackHeader(fallback)),
    ...(trimmed > 0 ? { "x-postern-trimmed": String(trimmed) } : {}),
  };
}

function build(
  context: RequestContext,
  status: number,
  body: ReplyBody,
  contentType: string | null,
  extra: ExtraHeaders | undefined,
): Response {
  const headers = context.replyHeaders;
  if (contentType === EVENT_STREAM && body !== null) {
    // Proxies may not keep, change or buffer a stream
    headers["cache-control"] = "no-cache, no-transform";
    headers["x-accel-buffering"] = "no";
  }
  if (contentType !== null) headers["content-type"] = contentType;
  if (context.ignored.length > 0) headers["x-postern-ignored"] = namesOf(context.ignored);
  if (context.services.isDraining()) headers["connection"] = "close";
  if (extra !== undefined) { for (const name in extra) headers[name.toLowerCase()] = extra[name] as string; } // the name is a key of `extra`
  return context.reply(body, { status, headers });
}

const MAX_IGNORED_NAMES = 20;

/** Returns the names for a header. They come from the client, so they are cut to visible ASCII without a comma and to a bounded length. */
function namesOf(names: readonly string[]): string {
  const shown = names.slice(0, MAX_IGNORED_NAMES).map((name) =>
    name.slice(0, 64).replace(/[^\x21-\x2b\x2d-\x7e]/g, "_")
  );
  return shown.join(", ");
}
