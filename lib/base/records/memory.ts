import * as v from "valibot";

/** Fields of a memory, in its record and in the view of it. Times are ISO 8601. */
export const memoryEntries = {
  namespace: v.string(),
  key: v.string(),
  value: v.string(),
  tags: v.array(v.string()),
  created_at: v.string(),
  updated_at: v.string(),
  /** Origins of outside content that it was made from. Absent: none */
  taint: v.optional(v.array(v.string())),
} as const;

/** A memory, as `/v1/memory` shows it. */
export const memoryViewSchema = v.object({ object: v.literal("memory"), ...memoryEntries });
/** A memory, as `/v1/memory` shows it. */
export type MemoryView = v.InferOutput<typeof memoryViewSchema>;
