import { CONTROL } from "../../lib/access/identity.ts";
import type { Clock } from "../../lib/base/clock.ts";
import { refuse } from "../../lib/base/errors.ts";

/** A stream of messages to a client of MCP. */
export interface McpStream {
  /** Id of the client's token; null while pairing is off */
  readonly tokenId: string | null;
  /** True for a stream of notifications, which a shutdown ends at once. A stream of a call ends with its reply */
  readonly isStanding: boolean;
  /** Runs once when the stream ends before its source: the client is gone, reads nothing, or may not read any more */
  readonly onGone: () => void;
  /** Runs once when the stream is over, however it ended. Default: nothing */
  readonly onOver?: () => void;
}

/** Streams that may be open at once, of all clients and of one token. */
const MAX_STREAMS = 4096;
const MAX_STREAMS_PER_TOKEN = 128;
/** Bytes that may wait for a reader when the next message comes. */
const MAX_UNREAD_BYTES = 1_048_576;
/** A reader that takes nothing for this long is disconnected, in milliseconds: otherwise its call would never end. */
const STALLED_MS = 300_000;

/** The open streams of one gateway's `/mcp`: bounded in number and in bytes that wait. The end of a token ends its streams. */
export class McpStreams {
  readonly #clock: Clock;
  readonly #open = new Set<GuardedBody>();

  constructor({ clock }: { readonly clock: Clock }) {
    this.#clock = clock;
  }

  /** Makes room for one more stream of a token. Streams of others take no room of the command line. @throws {HttpError} 503 overloaded */
  checkRoom(tokenId: string | null): void {
    const own = [...this.#open].filter((body) => body.stream.tokenId === tokenId).length;
    const hasRoom = this.#open.size < MAX_STREAMS || tokenId === CONTROL;
    if (own < MAX_STREAMS_PER_TOKEN && hasRoom) return;
    const [count, whose] = own < MAX_STREAMS_PER_TOKEN
      ? [MAX_STREAMS, "of all clients"]
      : [MAX_STREAMS_PER_TOKEN, "of this token"];
    throw refuse("overloaded", `Cannot open the stream: ${count} streams ${whose} are open already; close one`);
  }

  /** Returns the reply with its event stream guarded. A reply of another type goes on as it is. */
  guard(reply: Response, stream: McpStream): Response {
    if (reply.body === null || reply.headers.get("content-type") !== "text/event-stream") {
      stream.onOver?.();
      return reply;
    }
    const body = new GuardedBody(reply.body, { stream, clock: this.#clock, onOver: () => this.#open.delete(body) });
    this.#open.add(body);
    const headers = new Headers(reply.headers);
    headers.set("cache-control", "no-cache, no-transform");
    headers.set("x-accel-buffering", "no");
    return new Response(body.toStream(), { status: reply.status, headers });
  }

  /** Tells how many streams are open. */
  count(): number {
    return this.#open.size;
  }

  /** Ends the streams of a token. */
  closeToken(tokenId: string): void {
    for (const body of [...this.#open]) if (body.stream.tokenId === tokenId) body.end();
  }

  /** Ends the streams of notifications, for the start of a shutdown. Calls at work go on. */
  closeStanding(): void {
    for (const body of [...this.#open]) if (body.stream.isStanding) body.end();
  }
}

interface GuardedBodyOptions {
  readonly stream: McpStream;
  readonly clock: Clock;
  readonly onOver: () => void;
}

/** Body of one stream. The source does not wait for its reader, so this counts the bytes that wait. */
class GuardedBody {
  readonly stream: McpStream;
  readonly #source: ReadableStreamDefaultReader<Uint8Array>;
  readonly #options: GuardedBodyOptions;
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined = undefined;
  #lastTaken: number;
  #isOver = false;

  constructor(source: ReadableStream<Uint8Array>, options: GuardedBodyOptions) {
    this.stream = options.stream;
    this.#source = source.getReader();
    this.#options = options;
    this.#lastTaken = options.clock.monotonic();
  }

  toStream(): ReadableStream<Uint8Array> {
    return new ReadableStream({
      start: (controller) => {
        this.#controller = controller;
        void this.#pump(controller);
      },
      pull: () => void (this.#lastTaken = this.#options.clock.monotonic()),
      cancel: () => this.#leave(),
    }, { highWaterMark: 0, size: (chunk: Uint8Array) => chunk.byteLength });
  }

  /** Ends the stream before its source. */
  end(): void {
    if (this.#isOver) return;
    this.#leave();
    this.#controller?.close();
  }

  async #pump(controller: ReadableStreamDefaultController<Uint8Array>): Promise<void> {
    for (;;) {
      const next = await this.#source.read().catch(() => undefined);
      if (this.#isOver) return;
      if (next?.value === undefined) {
        this.#settle();
        return controller.close();
      }
      if (this.#isUnread(-(controller.desiredSize ?? 0))) return this.end();
      controller.enqueue(next.value);
    }
  }

  #isUnread(bytes: number): boolean {
    const silence = this.#options.clock.monotonic() - this.#lastTaken;
    return bytes > MAX_UNREAD_BYTES || (bytes > 0 && silence >= STALLED_MS);
  }

  #leave(): void {
    if (this.#isOver) return;
    this.#settle();
    this.#source.cancel().catch(() => {});
    this.stream.onGone();
  }

  #settle(): void {
    this.#isOver = true;
    this.#options.onOver();
    this.stream.onOver?.();
  }
}
