import type { RequestContext } from "../route.ts";
import { httpError } from "../wire/http_errors.ts";
import { textReply } from "../wire/reply.ts";

/** A whole reply for repeats. `body` is null when it was longer than MAX_RECORDED_BYTES. */
export interface RecordedReply {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
}

/** A reply that several clients may read, each from its start, while it is still being made. */
export interface ReplyRecording {
  /** Returns the reply to the client of the first request */
  reply(context: RequestContext): Response;
  /** Returns the reply to a client that repeated the request. @throws {HttpError} 409 idempotency_conflict when the reply was too long to keep */
  replay(context: RequestContext): Response;
  /** The whole reply; rejects when its source failed or every reader went away */
  readonly ended: Promise<RecordedReply>;
}

/** Longest reply that is kept for repeats, in bytes. */
export const MAX_RECORDED_BYTES = 4 * 1024 * 1024;

/** Records a handler's reply. A JSON reply is read at once, an event stream at the pace of its fastest reader. */
export async function recordReply(reply: Response): Promise<ReplyRecording> {
  const headers = ownHeaders(reply.headers);
  if (reply.body !== null && headers["content-type"] === "text/event-stream") {
    return recordStream(reply.body as ReadableStream<Bytes>, reply.status, headers); // the web's type leaves out the buffer's
  }
  return recordText({ status: reply.status, headers, body: await reply.text() });
}

/** Returns the recording of a reply that is complete. */
export function recordText(recorded: RecordedReply): ReplyRecording {
  const { status, headers, body } = recorded;
  const send = (context: RequestContext, extra: Record<string, string>) =>
    textReply(context, status, body, headers["content-type"] ?? "application/json", { ...headers, ...extra });
  return {
    reply: (context) => send(context, {}),
    replay(context) {
      if (body === null) throw tooLongToKeep();
      return send(context, REPLAYED);
    },
    ended: Promise.resolve(body !== null && body.length > MAX_RECORDED_BYTES ? { ...recorded, body: null } : recorded),
  };
}

type Bytes = Uint8Array<ArrayBuffer>;
const REPLAYED = { "idempotency-replayed": "true" };

function recordStream(
  stream: ReadableStream<Bytes>,
  status: number,
  headers: Readonly<Record<string, string>>,
): ReplyRecording {
  const source = stream.getReader();
  const end = Promise.withResolvers<RecordedReply>();
  end.promise.catch(() => {});
  let chunks: Bytes[] = [];
  /** Number of the first chunk in `chunks`: above 0 once the reply got too long */
  let base = 0;
  let bytes = 0;
  let readers = 0;
  let done = false;
  let step: Promise<void> | undefined;

  async function readOn(): Promise<void> {
    try {
      const { done: last, value } = await source.read();
      if (last) {
        done = true;
        end.resolve({ status, headers, body: base > 0 ? null : new TextDecoder().decode(Buffer.concat(chunks)) });
        return;
      }
      bytes += value.length;
      if (bytes > MAX_RECORDED_BYTES) {
        base += chunks.length;
        chunks = [];
      }
      chunks.push(value);
    } catch (error) {
      end.reject(error);
      throw error;
    } finally {
      step = undefined;
    }
  }

  function open(): ReadableStream<Bytes> {
    let at = 0;
    readers++;
    return new ReadableStream<Bytes>({
      async pull(controller) {
        while (at >= base + chunks.length && !done) await (step ??= readOn());
        if (at < base) throw tooLongToKeep();
        const chunk = chunks[at++ - base];
        if (chunk === undefined) controller.close();
        else controller.enqueue(chunk);
      },
      cancel(reason) {
        if (--readers > 0 || done) return;
        end.reject(reason);
        return source.cancel(reason);
      },
    }, { highWaterMark: 0 });
  }

  const send = (context: RequestContext, extra: Record<string, string>) =>
    textReply(context, status, open(), "text/event-stream", { ...headers, ...extra });
  return {
    ended: end.promise,
    reply: (context) => send(context, {}),
    replay(context) {
      if (base > 0) throw tooLongToKeep();
      return send(context, REPLAYED);
    },
  };
}

const OF_THE_REQUEST = /^(?:x-request-id|vary|x-ratelimit-.*|access-control-.*|connection|content-length)$/;

/** Returns the headers that belong to the reply itself. The others belong to one request, and a repeat gets its own. */
function ownHeaders(headers: Headers): Record<string, string> {
  return Object.fromEntries([...headers].filter(([name]) => !OF_THE_REQUEST.test(name)));
}

function tooLongToKeep() {
  return httpError("idempotency_conflict", "Cannot repeat this request: its first reply was too long to keep");
}
