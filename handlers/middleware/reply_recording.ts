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
    // The web's type leaves out the type of the buffer
    return new StreamRecording(reply.body as ReadableStream<Bytes>, { status: reply.status, headers });
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

/** Records an event stream while its readers read it. */
class StreamRecording implements ReplyRecording {
  readonly #head: Omit<RecordedReply, "body">;
  readonly #source: ReadableStreamDefaultReader<Bytes>;
  readonly #end = Promise.withResolvers<RecordedReply>();
  readonly ended = this.#end.promise;
  #chunks: Bytes[] = [];
  /** Number of the first chunk in `#chunks`: above 0 once the reply got too long to keep */
  #base = 0;
  #bytes = 0;
  #readers = 0;
  #isDone = false;
  /** The read under way, which all readers that need the next chunk wait for */
  #step: Promise<void> | undefined = undefined;

  constructor(stream: ReadableStream<Bytes>, head: Omit<RecordedReply, "body">) {
    this.#head = head;
    this.#source = stream.getReader();
    this.#end.promise.catch(() => {});
  }

  readonly reply = (context: RequestContext): Response => this.#send(context, {});

  readonly replay = (context: RequestContext): Response => {
    if (this.#base > 0) throw tooLongToKeep();
    return this.#send(context, REPLAYED);
  };

  #send(context: RequestContext, extra: Record<string, string>): Response {
    const { status, headers } = this.#head;
    return textReply(context, status, this.#open(), "text/event-stream", { ...headers, ...extra });
  }

  /** Opens a stream that reads the recording from its start. */
  #open(): ReadableStream<Bytes> {
    let at = 0;
    this.#readers++;
    return new ReadableStream<Bytes>({
      pull: async (controller) => {
        while (at >= this.#base + this.#chunks.length && !this.#isDone) await (this.#step ??= this.#readOn());
        if (at < this.#base) throw tooLongToKeep();
        const chunk = this.#chunks[at++ - this.#base];
        if (chunk === undefined) controller.close();
        else controller.enqueue(chunk);
      },
      cancel: (reason) => {
        if (--this.#readers > 0 || this.#isDone) return;
        this.#end.reject(reason);
        return this.#source.cancel(reason);
      },
    }, { highWaterMark: 0 });
  }

  async #readOn(): Promise<void> {
    try {
      const { done, value } = await this.#source.read();
      if (done) this.#finish();
      else this.#keep(value);
    } catch (error) {
      this.#end.reject(error);
      throw error;
    } finally {
      this.#step = undefined;
    }
  }

  #keep(chunk: Bytes): void {
    this.#bytes += chunk.length;
    if (this.#bytes > MAX_RECORDED_BYTES) {
      this.#base += this.#chunks.length;
      this.#chunks = [];
    }
    this.#chunks.push(chunk);
  }

  #finish(): void {
    this.#isDone = true;
    const body = this.#base > 0 ? null : new TextDecoder().decode(Buffer.concat(this.#chunks));
    this.#end.resolve({ ...this.#head, body });
  }
}

const OF_THE_REQUEST = /^(?:x-request-id|vary|x-ratelimit-.*|access-control-.*|connection|content-length)$/;

/** Returns the headers that belong to the reply itself. The others belong to one request, and a repeat gets its own. */
function ownHeaders(headers: Headers): Record<string, string> {
  return Object.fromEntries([...headers].filter(([name]) => !OF_THE_REQUEST.test(name)));
}

function tooLongToKeep() {
  return httpError("idempotency_conflict", "Cannot repeat this request: its first reply was too long to keep");
}
