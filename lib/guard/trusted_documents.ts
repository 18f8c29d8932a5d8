import { realpath } from "node:fs/promises";
import * as v from "valibot";
import type { Clock } from "../base/clock.ts";
import { type HttpError, refuse } from "../base/errors.ts";
import { canonicalDigest } from "../base/json.ts";
import { lineDifference } from "../base/line_difference.ts";
import { type Actor, storedActor } from "../base/records/caller.ts";
import { firstBytes } from "../base/text.ts";
import { Collection } from "../storage/read_records.ts";
import type { Store, Write } from "../storage/store.ts";
import type { AuditAppend } from "./audit/audit_chain.ts";

/** Bytes of UTF-8 of a trusted text that are kept, to show a later change */
export const MAX_TRUSTED_TEXT = 262_144;

const sha256 = v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/));

const recordSchema = v.object({
  v: v.literal(1),
  kind: v.picklist(["skill", "workspace_instructions"]),
  /** Absolute, links resolved */
  path: v.string(),
  digest: sha256,
  /** Trusted text, cut to MAX_TRUSTED_TEXT */
  text: v.string(),
  trusted_at: v.string(),
  by: v.object({ via: v.string(), token_id: v.nullable(v.string()) }),
});
type TrustRecord = v.InferOutput<typeof recordSchema>;

/** Collection of the trusted documents. The key is the digest of the real path. */
export const TRUSTED_DOCUMENTS = new Collection("trusted_documents", recordSchema, {
  replaced: "a decision about one content of a document",
});

/** Document that a person trusts with one content. `trusted_at` is ISO 8601. */
export type TrustedDocument = Pick<TrustRecord, "kind" | "path" | "digest" | "text" | "trusted_at" | "by">;

/** Document as it is now. */
export interface PresentDocument {
  readonly kind: TrustRecord["kind"];
  /** Absolute path of the file or folder */
  readonly path: string;
  /** SHA-256 of the content as its owner counts it, hexadecimal */
  readonly digest: string;
  /** Content for a person: what the trust is given for, and what a later change is compared with */
  readonly text: string;
}

/** Trust in a document as it is now. */
export interface DocumentTrust {
  /** `changed`: another content was trusted */
  readonly state: "trusted" | "changed" | "unknown";
  /** Content that was trusted last; undefined where none was */
  readonly trusted: TrustedDocument | undefined;
  /** Lines that changed since, see lineDifference, bounded; null unless the state is `changed` */
  readonly difference: string | null;
}

/** Condition of a trust, and who gives it. */
export interface TrustOptions {
  readonly by: Actor;
  /** Digest that was trusted when the person looked; null: none was. Default: whatever was */
  readonly before?: string | null | undefined;
}

/** Documents that steer the agent, each trusted by a person with exactly one content (docs/design/policy.md "Trusted documents"). */
export interface TrustedDocuments {
  /** Tells whether a person trusts this content at this path. A record that cannot be read is no trust. */
  isTrusted(document: Pick<PresentDocument, "path" | "digest">): Promise<boolean>;
  /** Compares a document with what was trusted at its path. */
  examine(document: PresentDocument): Promise<DocumentTrust>;
  /** Trusts a content, in place of what was trusted at its path. @throws {HttpError} 409 `conflict` where `before` does not hold */
  trust(document: PresentDocument, options: TrustOptions): Promise<TrustedDocument>;
  /** Takes the trust back. @returns false where there was none */
  untrust(path: string, options: Pick<TrustOptions, "by">): Promise<boolean>;
  /** Returns all of them, by path. */
  list(): Promise<readonly TrustedDocument[]>;
}

/** Store, clock and audit of the trusted documents. */
export interface TrustedDocumentsOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly audit: AuditAppend;
}

/** Times that a change is tried again which another one was faster than */
const MAX_TRIES = 5;

/** The trusted documents over a store. Every change is in the audit, in one transaction with the record. */
export class StoredTrustedDocuments implements TrustedDocuments {
  readonly #options: TrustedDocumentsOptions;

  constructor(options: TrustedDocumentsOptions) {
    this.#options = options;
  }

  async isTrusted({ path, digest }: Pick<PresentDocument, "path" | "digest">): Promise<boolean> {
    const { record } = await this.#find(await realPathOf(path));
    return record?.digest === digest;
  }

  async examine({ path, digest, text }: PresentDocument): Promise<DocumentTrust> {
    const { record } = await this.#find(await realPathOf(path));
    if (record === undefined) return { state: "unknown", trusted: undefined, difference: null };
    if (record.digest === digest) return { state: "trusted", trusted: record, difference: null };
    const difference = lineDifference(record.text, firstBytes(text, MAX_TRUSTED_TEXT), { ofParts: true });
    return { state: "changed", trusted: record, difference };
  }

  async trust({ kind, path, digest, text }: PresentDocument, { by, before }: TrustOptions): Promise<TrustedDocument> {
    const real = await realPathOf(path);
    const body: TrustRecord = {
      v: 1,
      kind,
      path: real,
      digest,
      text: firstBytes(text, MAX_TRUSTED_TEXT),
      trusted_at: new Date(this.#options.clock.now()).toISOString(),
      by: storedActor(by),
    };
    for (let tries = 0; tries < MAX_TRIES; tries++) {
      const { record, version } = await this.#find(real);
      if (before !== undefined && (record?.digest ?? null) !== before) break;
      const write = TRUSTED_DOCUMENTS.putOver(keyOf(real), version, body);
      if (await this.#commit(body, { action: "given", by, write })) return body;
    }
    throw changedMeanwhile(real);
  }

  async untrust(path: string, { by }: Pick<TrustOptions, "by">): Promise<boolean> {
    const real = await realPathOf(path);
    const { record, version } = await this.#find(real);
    if (version === 0) return false;
    // A damaged record does not tell what kind of document it was about
    const subject = record ?? { kind: "unknown" as const, path: real, digest: null };
    const write = TRUSTED_DOCUMENTS.remove(keyOf(real));
    return await this.#commit(subject, { action: "withdrawn", by, write });
  }

  async list(): Promise<readonly TrustedDocument[]> {
    const { store } = this.#options;
    const records: TrustRecord[] = [];
    for await (const { value } of TRUSTED_DOCUMENTS.all(store)) records.push(value);
    return records.sort((one, other) => one.path < other.path ? -1 : 1);
  }

  /** Returns the record of a path with the version of what is stored. 0: nothing is. A damaged record has a version alone. */
  async #find(path: string): Promise<{ readonly record: TrustRecord | undefined; readonly version: number }> {
    const { value, version } = await TRUSTED_DOCUMENTS.readForChange(this.#options.store, keyOf(path));
    // A path may not have been the one that the record is about
    return { record: value?.path === path ? value : undefined, version };
  }

  async #commit(
    { kind, path, digest }: {
      readonly kind: TrustRecord["kind"] | "unknown";
      readonly path: string;
      readonly digest: string | null;
    },
    { action, by, write }: Pick<TrustOptions, "by"> & {
      readonly action: "given" | "withdrawn";
      readonly write: Write;
    },
  ): Promise<boolean> {
    const { clock, audit } = this.#options;
    return await audit({
      type: "trust",
      action,
      subject: kind,
      name: path,
      sha256: digest,
      uid: null,
      given_at: new Date(clock.now()).toISOString(),
      by: storedActor(by),
    }, [write]);
  }
}

/** Returns the real path of a document. One that is gone is known by the path that it had. */
async function realPathOf(path: string): Promise<string> {
  return await realpath(path).catch(() => path);
}

/** A path may be longer than a key. */
function keyOf(path: string): string {
  return canonicalDigest(path);
}

function changedMeanwhile(path: string): HttpError {
  const reason = "the trust in it changed meanwhile; look at it again";
  return refuse("conflict", `Cannot trust "${path}": ${reason}`);
}
