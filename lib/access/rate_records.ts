import * as v from "valibot";
import { Collection } from "../storage/read_records.ts";

const countSchema = v.pipe(v.number(), v.safeInteger(), v.minValue(0));
/** Keys of one window in a record: more than any version of Postern writes. */
const MAX_READ = 1_000;
const MAX_WINDOWS = 32;
const keysSchema = v.pipe(
  v.record(v.pipe(v.string(), v.maxLength(300)), v.pipe(v.array(countSchema), v.maxLength(120))),
  v.check((keys) => Object.keys(keys).length <= MAX_READ),
);
const recordSchema = v.object({
  v: v.literal(1),
  /** Time of the write by the database's clock, in ms since the epoch. */
  at: v.number(),
  /** Requests by kind of window: `keys` has pairs of a bucket, counted back from `newest`, and the requests in it. */
  windows: v.pipe(
    v.record(v.string(), v.object({ window_ms: v.number(), newest: countSchema, keys: keysSchema })),
    v.check((windows) => Object.keys(windows).length <= MAX_WINDOWS),
  ),
});
/** Requests that one gateway has let in. */
export type RateWindowsBody = v.InferOutput<typeof recordSchema>;

/** Collection of the requests that each gateway of a cluster has let in, by gateway. */
export const RATE_WINDOWS = new Collection("rate_windows", recordSchema, { replaced: "written by its gateway alone" });
