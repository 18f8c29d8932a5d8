import * as v from "valibot";
import { rekeySchema } from "../../lib/storage/rekey_records.ts";
import { defineRoute } from "../define_route.ts";
import { jsonReply } from "../wire/reply.ts";

/** POST /v1/storage/rekey: re-encrypts records with the key of the configuration, for `postern storage rekey`. */
export const rekeyRoute = defineRoute({
  method: "POST",
  path: "/v1/storage/rekey",
  access: "admin",
  strict: true,
  needs: ["rekey"],
  summary: "Encrypt up to 200 records with the new key; call it until complete is true",
  reply: { status: 200, type: "application/json", schema: rekeySchema },
  errors: ["conflict"],
  idempotency: "harmless",
  handle: async (parts, { caller }) => jsonReply(200, { ...await parts.rekey(caller) }),
});

const checkSchema = v.object({
  /** Damaged records that are known now, at most 1,000 */
  unreadable: v.array(v.object({ collection: v.string(), key: v.string(), reason: v.string() })),
  /** False: the time of 3 s was over before the last record */
  complete: v.boolean(),
});

/** POST /v1/storage/check: looks at every record of every collection, for `postern doctor`. Streams are looked at when they are read. */
export const checkRecordsRoute = defineRoute({
  method: "POST",
  path: "/v1/storage/check",
  access: "admin",
  strict: true,
  needs: ["store", "kit"],
  summary: "Look at every record for 3 s at most, and name those that are damaged",
  reply: { status: 200, type: "application/json", schema: checkSchema },
  idempotency: "harmless",
  async handle({ store, kit: { clock } }, { signal }) {
    const { lookAtRecords } = await import("../stored_records.ts");
    const complete = await lookAtRecords({ store, clock, signal });
    return jsonReply(200, { unreadable: store.unreadable.list(), complete });
  },
});
