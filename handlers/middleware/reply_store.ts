import * as v from "valibot";
import type { Clock } from "../../lib/base/clock.ts";
import { readable, readRecord } from "../../lib/storage/read_records.ts";
import type { Store, Write } from "../../lib/storage/store.ts";
import type { RecordedReply } from "./reply_recording.ts";

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
}

/** Stored claims and replies, by the scope of an idempotency key. */
export interface ReplyStore {
  /**
   * Reads the claim or the reply of a scope. Deletes one that has expired.
   * @returns undefined for an unknown scope
   * @throws {HttpError} 500 `record_unreadable`: whether the request was answered is unknown, so it is not done again
   */
  find(scope: string): Promise<StoredReply | StoredClaim | undefined>;
  /** Returns the write that inserts a new claim, for a transaction */
  claimWrite(scope: string, claim: Omit<StoredClaim, "kind">): Write;
  /** Inserts a claim; durable when it resolves. @returns false when the scope has a claim or a reply already */
  claim(scope: string, fingerprint: string): Promise<boolean>;
  /** Changes a claim; durable when it resolves */
  reclaim(scope: string, claim: Omit<StoredClaim, "kind">): Promise<void>;
  /** Stores the reply in place of the claim */
  keep(scope: string, reply: Omit<StoredReply, "kind">): Promise<void>;
  forget(scope: string): Promise<void>;
}

/** Collection of claims and replies. The key is the scope of an idempotency key. */
export const IDEMPOTENT_REPLIES = "idempotent_replies";
const KEPT_MS = 24 * 60 * 60 * 1000;
const SWEEP_EVERY = 50;
const SWEEP_LIMIT = 200;

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
  v.object({
    record_version: v.literal(2),
    fingerprint: v.string(),
    run_id: v.nullable(v.string()),
    told: v.array(v.number()),
    ...expires,
  }),
]);

/** Parses a stored claim or reply. @throws {v.ValiError} for a body that no version wrote */
export function parseReply(body: unknown): v.InferOutput<typeof recordSchema> {
  return v.parse(recordSchema, body);
}

/** Creates the store of claims and replies, which are kept for 24 hours. New replies sweep out the oldest expired ones. */
export function createReplyStore({ store, clock }: { readonly store: Store; readonly clock: Clock }): ReplyStore {
  let writes = 0;

  async function sweep(): Promise<void> {
    const oldest = await store.scan(IDEMPOTENT_REPLIES, { order: "created", limit: SWEEP_LIMIT });
    const found = readable(store, IDEMPOTENT_REPLIES, oldest, parseReply);
    const expired = found.filter(({ value }) => value.expires_at <= clock.now());
    if (expired.length > 0) {
      await store.batch(expired.map(({ key }) => ({ op: "delete", collection: IDEMPOTENT_REPLIES, key })));
    }
  }

  const toBody = ({ fingerprint, runId, told }: Omit<StoredClaim, "kind">) => ({
    record_version: 2,
    fingerprint,
    run_id: runId,
    told: [...told],
    expires_at: clock.now() + KEPT_MS,
  });
  const forget = async (scope: string) => {
    await store.batch([{ op: "delete", collection: IDEMPOTENT_REPLIES, key: scope }]);
  };

  return {
    async find(scope) {
      const stored = await readRecord(store, IDEMPOTENT_REPLIES, scope, parseReply);
      if (stored === undefined) return undefined;
      const record = stored.value;
      if (record.expires_at <= clock.now()) {
        await forget(scope);
        return undefined;
      }
      if (record.record_version === 1) {
        const { fingerprint, status, headers, body } = record;
        return { kind: "reply", fingerprint, status, headers, body };
      }
      const { fingerprint, run_id: runId, told } = record;
      return { kind: "claim", fingerprint, runId, told };
    },
    claimWrite: (scope, claim) => ({ op: "insert", collection: IDEMPOTENT_REPLIES, key: scope, body: toBody(claim) }),
    claim: (scope, fingerprint) =>
      store.insertOnce(IDEMPOTENT_REPLIES, scope, toBody({ fingerprint, runId: null, told: [] })),
    async reclaim(scope, claim) {
      await store.batch([{ op: "put", collection: IDEMPOTENT_REPLIES, key: scope, body: toBody(claim) }]);
    },
    async keep(scope, { fingerprint, status, headers, body }) {
      const record = { record_version: 1, fingerprint, status, headers, body, expires_at: clock.now() + KEPT_MS };
      await store.batch([{ op: "put", collection: IDEMPOTENT_REPLIES, key: scope, body: record }]);
      if (++writes % SWEEP_EVERY === 0) await sweep();
    },
    forget,
  };
}
