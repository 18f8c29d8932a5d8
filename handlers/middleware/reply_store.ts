import * as v from "valibot";
import type { Clock } from "../../lib/base/clock.ts";
import { refuse } from "../../lib/base/errors.ts";
import type { JoinedGateway } from "../../lib/cluster/leases.ts";
import { Collection } from "../../lib/storage/read_records.ts";
import type { Store, Write } from "../../lib/storage/store.ts";
import type { RequestContext } from "../route.ts";
import { sendText } from "../wire/reply.ts";

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
    sendText(context, status, body, headers["content-type"] ?? "application/json", { ...headers, ...extra });
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
    return sendText(context, status, this.#open(), "text/event-stream", { ...headers, ...extra });
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

const OF_THE_REQUEST = /^(?:x-request-id|request-id|vary|x-ratelimit-.*|access-control-.*|connection|content-length)$/;

/** Returns the headers that belong to the reply itself. The others belong to one request, and a repeat gets its own. */
function ownHeaders(headers: Headers): Record<string, string> {
  return Object.fromEntries([...headers].filter(([name]) => !OF_THE_REQUEST.test(name)));
}

function tooLongToKeep() {
  return refuse("idempotency_conflict", "Cannot repeat this request: its first reply was too long to keep");
}

/** A stored reply with the fingerprint of the request it answered. */
export interface StoredReply extends RecordedReply {
  readonly kind: "reply";
  readonly fingerprint: string;
}

/** The stored mark of a request that began and has no stored reply yet. */
export interface StoredClaim {
  readonly kind: "claim";
  readonly fingerprint: string;
  /** The run that was accepted for the request; null when the request started none */
  readonly runId: string | null;
  /** Numbers of the run's turns whose text may have been sent */
  readonly told: readonly number[];
  /** Gateway of a cluster that handles a request without a run. Undefined: it may have stopped */
  readonly gateway?: JoinedGateway | undefined;
}

/** Stored claims and replies, by the scope of an idempotency key. */
export interface ReplyStore {
  /**
   * Reads the claim or the reply of a scope. One that has expired is none, and a new claim takes its place.
   * @returns undefined for an unknown scope
   * @throws {HttpError} 500 `record_unreadable`: whether the request was answered is unknown, so it is not done again
   */
  find(scope: string): Promise<StoredReply | StoredClaim | undefined>;
  /** Returns the write that inserts a new claim, for a transaction */
  claimWrite(scope: string, claim: Omit<StoredClaim, "kind">): Write;
  /** Inserts a claim; durable when it resolves. @returns false when the scope has a claim or a reply already */
  claim(scope: string, fingerprint: string): Promise<boolean>;
  /** Changes a claim; durable when it resolves. What other gateways have told of it stays. */
  reclaim(scope: string, claim: Omit<StoredClaim, "kind">): Promise<void>;
  /**
   * Stores the reply in place of the claim. Of two gateways that answer one request, the first to store it counts. The claim of another run stays.
   * @param runId of the claim; undefined: none
   */
  keep(scope: string, reply: Omit<StoredReply, "kind">, runId: string | undefined): Promise<void>;
  /**
   * Forgets a claim. The reply that another gateway has stored stays, and the claim that another request or another gateway has made.
   * @param runId of the claim; undefined: none
   */
  forget(scope: string, runId: string | undefined): Promise<void>;
}

/** This gateway in its cluster. */
interface ClusterMember {
  /** Id, which it keeps over a loss of its lease */
  readonly id: string;
  /** Returns it with its fence. Undefined: it has no lease now */
  own(): JoinedGateway | undefined;
}

const KEPT_MS = 24 * 60 * 60 * 1000;
/** Time for which expired records of a cluster stay, since a gateway may just be claiming the key of one again. Milliseconds */
const LEFT_MS = 60 * 60 * 1000;
/** Fence of a gateway that has no lease for the moment: nobody takes it for one that is at work */
const NO_LEASE = 0;
const SWEEP_EVERY = 50;
const SWEEP_LIMIT = 200;
/** Records that are read at once: each may hold a reply of MAX_RECORDED_BYTES. */
const SWEEP_PAGE = 8;

/** Milliseconds since the epoch */
const expires = { expires_at: v.number() };
const recordSchema = v.variant("record_version", [
  v.object({
    record_version: v.literal(1),
    fingerprint: v.string(),
    status: v.number(),
    headers: v.record(v.string(), v.string()),
    body: v.nullable(v.string()),
    ...expires,
  }),
  // A claim is changed while its request is at work, and keeps fields of a newer version
  v.looseObject({
    record_version: v.literal(2),
    fingerprint: v.string(),
    run_id: v.nullable(v.string()),
    told: v.array(v.number()),
    /** In a cluster: gateway that handles the request, with its fence */
    gateway: v.optional(v.looseObject({ id: v.string(), fence: v.number() })),
    ...expires,
  }),
]);

type ReplyBody = v.InferInput<typeof recordSchema>;
type ClaimRecord = Extract<v.InferOutput<typeof recordSchema>, { record_version: 2 }>;

/** Collection of claims and replies. The key is the scope of an idempotency key. */
export const IDEMPOTENT_REPLIES = new Collection("idempotent_replies", recordSchema);

/** Creates the store of claims and replies, which are kept for 24 hours. New replies sweep out the oldest expired ones. */
export function createReplyStore({ store, clock, member }: {
  readonly store: Store;
  readonly clock: Clock;
  /** This gateway as a member of a cluster. Default: it is alone, and nobody else changes its records */
  readonly member?: ClusterMember | undefined;
}): ReplyStore {
  let writes = 0;

  async function sweep(): Promise<void> {
    for (let swept = 0; swept < SWEEP_LIMIT && await sweepPage() === SWEEP_PAGE;) swept += SWEEP_PAGE;
  }

  /** @returns how many expired records were the oldest ones, and are gone */
  async function sweepPage(): Promise<number> {
    const found = await IDEMPOTENT_REPLIES.page(store, { order: "created", limit: SWEEP_PAGE });
    const over = clock.now() - (member === undefined ? 0 : LEFT_MS);
    const expired = found.filter(({ value }) => value.expires_at <= over);
    if (expired.length === 0) return 0;
    const deletes = expired.flatMap(({ key, version }): readonly Write[] => [
      // Another gateway may have claimed the key again
      ...(member === undefined ? [] : [IDEMPOTENT_REPLIES.check(key, version)]),
      IDEMPOTENT_REPLIES.remove(key),
    ]);
    return await store.batch(deletes) ? expired.length : 0;
  }

  /**
   * Versions of expired records that a new claim takes the place of, by scope. In a cluster they are not deleted first: of two gateways that
   * find one, the second would delete the claim of the first.
   */
  const replaced = new Map<string, number>();
  const place = (scope: string) => {
    const version = replaced.get(scope) ?? 0;
    replaced.delete(scope);
    return (body: ReplyBody) => IDEMPOTENT_REPLIES.putOver(scope, version, body);
  };

  const toBody = ({ fingerprint, runId, told, gateway }: Omit<StoredClaim, "kind">) => ({
    record_version: 2 as const,
    fingerprint,
    run_id: runId,
    told: [...told],
    ...(gateway === undefined ? {} : { gateway: { ...gateway } }),
    expires_at: clock.now() + KEPT_MS,
  });
  const drop = async (scope: string) => {
    await store.batch([IDEMPOTENT_REPLIES.remove(scope)]);
  };

  /** Changes a claim that other gateways may change too. Does nothing where there is no claim any more, or nothing to write. */
  async function change(
    scope: string,
    write: (claim: StoredClaim, record: ClaimRecord) => Write | undefined,
  ): Promise<void> {
    for (;;) {
      const stored = await IDEMPOTENT_REPLIES.read(store, scope);
      if (stored === undefined || stored.value.record_version === 1) return;
      const changed = write(toClaim(stored.value), stored.value);
      if (changed === undefined || await store.batch([IDEMPOTENT_REPLIES.check(scope, stored.version), changed])) {
        return;
      }
    }
  }

  return {
    async find(scope) {
      replaced.delete(scope);
      const stored = await IDEMPOTENT_REPLIES.read(store, scope);
      if (stored === undefined) return undefined;
      const record = stored.value;
      if (record.expires_at <= clock.now()) {
        if (member === undefined) await drop(scope);
        else replaced.set(scope, stored.version);
        return undefined;
      }
      if (record.record_version === 1) {
        const { fingerprint, status, headers, body } = record;
        return { kind: "reply", fingerprint, status, headers, body };
      }
      return toClaim(record);
    },
    claimWrite: (scope, claim) => place(scope)(toBody(claim)),
    claim: (scope, fingerprint) =>
      store.batch([
        place(scope)(
          toBody({
            fingerprint,
            runId: null,
            told: [],
            gateway: member && (member.own() ?? { id: member.id, fence: NO_LEASE }),
          }),
        ),
      ]),
    async reclaim(scope, claim) {
      if (member !== undefined) {
        return await change(scope, (now, { gateway: _gateway, ...record }) =>
          IDEMPOTENT_REPLIES.put(scope, {
            ...record,
            ...toBody({ ...claim, told: [...new Set([...now.told, ...claim.told])] }),
          }));
      }
      await store.batch([IDEMPOTENT_REPLIES.put(scope, toBody(claim))]);
    },
    async keep(scope, { fingerprint, status, headers, body }, runId) {
      const record: ReplyBody = {
        record_version: 1,
        fingerprint,
        status,
        headers,
        body,
        expires_at: clock.now() + KEPT_MS,
      };
      const put = IDEMPOTENT_REPLIES.put(scope, record);
      if (member === undefined) await store.batch([put]);
      // A harmless request has made no claim
      else if (!await store.batch([place(scope)(record)])) {
        await change(scope, (now) => now.runId === (runId ?? null) ? put : undefined);
      }
      if (++writes % SWEEP_EVERY === 0) await sweep();
    },
    forget: (scope, runId) =>
      member === undefined ? drop(scope) : change(
        scope,
        (now) => {
          const isOurs = runId === undefined
            ? now.runId === null && now.gateway?.id === member.id
            : now.runId === runId;
          return isOurs ? IDEMPOTENT_REPLIES.remove(scope) : undefined;
        },
      ),
  };
}

function toClaim(record: ClaimRecord): StoredClaim {
  const { fingerprint, run_id: runId, told, gateway } = record;
  return { kind: "claim", fingerprint, runId, told, gateway };
}
