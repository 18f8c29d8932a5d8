import * as v from "valibot";

/** One thing the agent keeps. Times are ISO 8601. */
export interface MemoryRecord {
  readonly namespace: string;
  readonly key: string;
  readonly value: string;
  readonly tags: readonly string[];
  readonly created_at: string;
  readonly updated_at: string;
}

const bodySchema = v.object({
  v: v.literal(1),
  namespace: v.string(),
  key: v.string(),
  value: v.string(),
  tags: v.array(v.string()),
  created_at: v.string(),
  updated_at: v.string(),
});

/**
 * A persisted body as the newest form of the record: the one place where older versions are upcast.
 * @throws {v.ValiError} for a body that no version wrote
 */
export function parseMemoryRecord(body: unknown): MemoryRecord {
  const { v: _version, ...record } = v.parse(bodySchema, body);
  return record;
}

/** The body to persist, in the newest version. */
export function toMemoryBody(record: MemoryRecord): v.InferOutput<typeof bodySchema> {
  return { v: 1, ...record, tags: [...record.tags] };
}
