import * as v from "valibot";
import type { Clock } from "../../base/clock.ts";
import { canonicalDigest } from "../../base/json.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { Collection } from "../../storage/read_records.ts";
import type { Store, Write } from "../../storage/store.ts";
import type { AuditEvent, ChainPoint } from "./audit_event.ts";

/** Key of the head in its collection. */
export const HEAD_KEY = "head";
/** The `prev` of the first record. */
export const NO_HASH = "0".repeat(64);
const KEY_DIGITS = 15;

/** Position and hash of the newest record. A kept head shows when records at the end are gone. */
export interface AuditHead {
  /** 0: no record yet */
  readonly seq: number;
  readonly hash: string;
}

/** A record of the chain. `hash` is the SHA-256 of the canonical JSON (RFC 8785) of all the rest, `prev` that of the record before. */
export type AuditRecord = AuditEvent & {
  readonly v: 1;
  /** Counts from 1 without a gap */
  readonly seq: number;
  /** ISO 8601 */
  readonly time: string;
  readonly prev: string;
  readonly hash: string;
  /** Id of the chain. Absent from the one chain of a gateway alone */
  readonly chain?: string;
  /** Newest records of other chains of the cluster that the writer knew of, as far as they are new in this chain */
  readonly heads?: readonly ChainPoint[];
};

const headSchema = v.object({ v: v.literal(1), seq: v.pipe(v.number(), v.integer(), v.minValue(0)), hash: v.string() });
const recordSchema = v.looseObject({
  v: v.literal(1),
  seq: v.number(),
  time: v.string(),
  prev: v.string(),
  hash: v.string(),
  type: v.string(),
});

/** Returns the key of the record at a position. */
export function auditKey(seq: number): string {
  return String(seq).padStart(KEY_DIGITS, "0");
}

/** The position a key stands for; undefined for a key the audit does not write. */
export function auditSeq(key: string): number | undefined {
  const seq = Number(key);
  return Number.isSafeInteger(seq) && seq > 0 && auditKey(seq) === key ? seq : undefined;
}

/**
 * The record of an event after `head`.
 * @param options.seq its position, the one after the head unless that is taken
 * @param options.more fields of a record of a cluster
 */
export function chainRecord(
  head: AuditHead,
  { event, time, seq, more }: {
    readonly event: AuditEvent;
    readonly time: string;
    readonly seq: number;
    readonly more?: Pick<AuditRecord, "chain" | "heads">;
  },
): AuditRecord {
  const content = { v: 1 as const, seq, time, prev: head.hash, ...more, ...event };
  return { ...content, hash: canonicalDigest(content) };
}

/** The hash a record should have. @throws {TypeError} for what JSON cannot carry */
export function recordHash({ hash: _, ...content }: Readonly<Record<string, unknown>>): string {
  return canonicalDigest(content);
}

/** undefined for a body that is no record of this version. */
export function parseAuditRecord(body: unknown): AuditRecord | undefined {
  const result = v.safeParse(recordSchema, body);
  // The fields of each type are those that chainRecord wrote; verify tells whether anyone changed them
  return result.success ? result.output as unknown as AuditRecord : undefined;
}

/** undefined for a body that is no head. */
export function parseAuditHead(body: unknown): AuditHead | undefined {
  const result = v.safeParse(headSchema, body);
  return result.success ? { seq: result.output.seq, hash: result.output.hash } : undefined;
}

/** Collection of the records, by their position in decimal so that the order of keys is that of the chain. */
export const AUDIT_RECORDS = new Collection("audit", (body) => known(parseAuditRecord(body)), {
  replaced: "never changed, and digested as it is",
});
/** Collection of the one head. */
export const AUDIT_HEAD = new Collection("audit_head", (body) => known(parseAuditHead(body)), {
  replaced: "written by a gateway alone, from what it has added",
});

/** Returns the kept head of the chain of a gateway alone. */
export async function readHead(store: Store): Promise<AuditHead | undefined> {
  const stored = await store.get(AUDIT_HEAD.name, HEAD_KEY);
  return stored === undefined ? undefined : parseAuditHead(stored.body);
}

function known<T>(parsed: T | undefined): T {
  if (parsed === undefined) throw new TypeError("The body is no record of the audit");
  return parsed;
}

/**
 * Writes one event, in one transaction with the `writes` that are the fact it tells of; durable when it resolves.
 *
 * Events keep the order of the calls. Texts are redacted and cut.
 * @param more further events of the same fact, written with it
 * @returns false when a precondition of `writes` did not hold: then neither they nor the event were written
 * @throws when the store cannot be written: then neither they nor the event were written
 */
export type AuditAppend = (
  event: AuditEvent,
  writes?: readonly Write[],
  more?: readonly AuditEvent[],
) => Promise<boolean>;

/** Store, clock and settings that the writer of the chain works with. */
export interface AuditWriterOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly redact: (text: string) => string;
  /** False: events are dropped, and only the writes that come with them are made */
  readonly enabled: () => boolean;
}
