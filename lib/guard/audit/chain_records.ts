import * as v from "valibot";
import { storedObject } from "../../base/records/stored_object.ts";
import { Collection } from "../../storage/read_records.ts";
import type { AuditRecord } from "./audit_chain.ts";

/** Name of the one chain that a gateway alone writes, among those of a cluster. Its records have no field `chain`. */
export const LONE_CHAIN = "alone";

/** Most chains that are written at one time: there is one for each gateway. */
export const MAX_OPEN = 1_000;

const countSchema = v.pipe(v.number(), v.safeInteger(), v.minValue(0));
const headSchema = storedObject({
  v: v.literal(1),
  /** Gateway that writes the chain, with the fence that its batches check. */
  gateway: v.pipe(v.string(), v.regex(/^[\w-]{1,80}$/)),
  fence: countSchema,
  seq: v.pipe(countSchema, v.minValue(1)),
  hash: v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/)),
  /** Time of the newest record, ISO 8601. */
  time: v.pipe(v.string(), v.maxLength(40)),
  /** Position of the newest record that tells of more than the heads of other chains. */
  told: countSchema,
  /** `closed`: by an orderly stop; `left_off`: its gateway is gone. Absent: the chain goes on. */
  end: v.optional(v.picklist(["closed", "left_off"])),
});

/** Head of a chain of a cluster. */
export type ChainHead = v.InferOutput<typeof headSchema>;

/**
 * Collection of the heads of the chains of a cluster, by `open.<chain>` while the chain's gateway writes it, then by `ended.<chain>`.
 * The records stand in the collection of the audit, by keys whose order is that of their time.
 */
export const AUDIT_CHAINS = new Collection("audit_chains", headSchema);

/** Returns the id of the chain that a gateway writes under a fence. */
export function chainId({ id, fence }: { readonly id: string; readonly fence: number }): string {
  return `${id}.${fence}`;
}

/** Returns the id of the chain that a head is of. Undefined where the head stands under the key of another chain, or of another state. */
export function placeOfHead(key: string, head: ChainHead): string | undefined {
  const chain = chainId({ id: head.gateway, fence: head.fence });
  return key === `${head.end === undefined ? "open" : "ended"}.${chain}` ? chain : undefined;
}

const TIME_DIGITS = 15;
const SEQ_DIGITS = 15;
const KEY = /^t(\d{15})\.([\w-]{1,80}\.\d{1,15})\.(\d{15})$/;

/** Returns the key of a record: by its time, then its chain, then its position. Digits sort before it, so the chain of a gateway alone is first. */
export function chainKey({ time, chain, seq }: {
  /** Milliseconds since the epoch */
  readonly time: number;
  readonly chain: string;
  readonly seq: number;
}): string {
  return `${timeKey(time)}.${chain}.${String(seq).padStart(SEQ_DIGITS, "0")}`;
}

/** Returns a text that sorts before all keys of a time and after those of earlier times. */
export function timeKey(time: number): string {
  return `t${String(Math.max(0, time)).padStart(TIME_DIGITS, "0")}`;
}

/** Returns chain and position that a key stands for. Undefined for a key that no gateway of a cluster writes. */
export function placeOfKey(key: string): { readonly chain: string; readonly seq: number } | undefined {
  const [, , chain, seq] = KEY.exec(key) ?? [];
  const found = Number(seq);
  return chain === undefined || !Number.isSafeInteger(found) || found < 1 ? undefined : { chain, seq: found };
}

/** Returns the key that a record of a cluster was written under. Undefined for a record of a gateway alone. */
export function keyOfRecord({ time, chain, seq }: Pick<AuditRecord, "time" | "chain" | "seq">): string | undefined {
  const at = Date.parse(time);
  return typeof chain !== "string" || !Number.isFinite(at) ? undefined : chainKey({ time: at, chain, seq });
}
