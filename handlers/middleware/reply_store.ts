import * as v from "valibot";
import type { Clock } from "../../lib/base/clock.ts";
import type { Store } from "../../lib/storage/store.ts";
import type { RecordedReply } from "./reply_recording.ts";

/** A stored reply with the fingerprint of the request it answered. */
export interface StoredReply extends RecordedReply {
  readonly fingerprint: string;
}

export interface ReplyStore {
  /** @returns undefined for an unknown or expired scope */
  find(scope: string): Promise<StoredReply | undefined>;
  keep(scope: string, reply: StoredReply): Promise<void>;
}

const COLLECTION = "idempotent_replies";
const KEPT_MS = 24 * 60 * 60 * 1000;
const SWEEP_EVERY = 50;
const SWEEP_LIMIT = 200;

const recordSchema = v.object({
  record_version: v.literal(1),
  fingerprint: v.string(),
  status: v.number(),
  headers: v.record(v.string(), v.string()),
  body: v.nullable(v.string()),
  /** Milliseconds since the epoch */
  expires_at: v.number(),
});

/** Replies kept for 24 hours. The oldest that have expired go as new ones come. */
export function createReplyStore({ store, clock }: { readonly store: Store; readonly clock: Clock }): ReplyStore {
  let writes = 0;

  async function sweep(): Promise<void> {
    const oldest = await store.scan(COLLECTION, { order: "created", limit: SWEEP_LIMIT });
    const expired = oldest.filter(({ body }) => !v.is(recordSchema, body) || body.expires_at <= clock.now());
    if (expired.length > 0) {
      await store.batch(expired.map(({ key }) => ({ op: "delete", collection: COLLECTION, key })));
    }
  }

  return {
    async find(scope) {
      const record = await store.get(COLLECTION, scope);
      if (record === undefined || !v.is(recordSchema, record.body) || record.body.expires_at <= clock.now()) {
        return undefined;
      }
      const { fingerprint, status, headers, body } = record.body;
      return { fingerprint, status, headers, body };
    },
    async keep(scope, { fingerprint, status, headers, body }) {
      const record = { record_version: 1, fingerprint, status, headers, body, expires_at: clock.now() + KEPT_MS };
      await store.batch([{ op: "put", collection: COLLECTION, key: scope, body: record }]);
      if (++writes % SWEEP_EVERY === 0) await sweep();
    },
  };
}
