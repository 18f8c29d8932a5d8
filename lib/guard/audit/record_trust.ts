import * as v from "valibot";
import { canonicalDigest } from "../../base/json.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { acceptedFiles } from "../../config/trust_store.ts";
import { Collection } from "../../storage/read_records.ts";
import type { Store } from "../../storage/store.ts";
import type { AuditAppend } from "./audit_chain.ts";

const recordSchema = v.object({ v: v.literal(1), sha256: v.string(), accepted_at: v.string() });

/** Collection of the acceptances of files that the audit has already, by the digest of the path. */
export const RECORDED_TRUST = new Collection("recorded_trust", recordSchema, {
  replaced: "says which content of a file the audit has",
});

/** Store, audit and folder that recording trust works with. */
export interface RecordTrustOptions {
  readonly store: Store;
  readonly audit: AuditAppend;
  readonly log: Logger;
  /** Folder of the list of accepted files */
  readonly trustDir: string;
}

/**
 * Records every acceptance of a configuration file that is new in the list of accepted files, once. `postern trust` writes that list
 * without the gateway, so the gateway calls this at its start and before it takes a configuration over. Never throws: a list that cannot
 * be read lets no file in, and is logged.
 */
export async function recordTrust(options: RecordTrustOptions): Promise<void> {
  const logFailure = (error: unknown) =>
    options.log.error("A file that a person accepted cannot be recorded in the audit", { error });
  const files = await acceptedFiles(options.trustDir).catch((error: unknown) => {
    logFailure(error);
    return [];
  });
  // A record that is damaged keeps the others from nothing
  for (const file of files) await recordFile(file, options).catch(logFailure);
}

async function recordFile(
  { path, sha256, accepted_at }: Awaited<ReturnType<typeof acceptedFiles>>[number],
  { store, audit }: RecordTrustOptions,
): Promise<void> {
  const key = canonicalDigest(path);
  const { value: known, version } = await RECORDED_TRUST.readForChange(store, key);
  const body = { v: 1 as const, sha256, accepted_at };
  // Trust whose record cannot be read is recorded once more
  if (known !== undefined && canonicalDigest(known) === canonicalDigest(body)) return;
  const write = RECORDED_TRUST.putOver(key, version, body);
  await audit({
    type: "trust",
    subject: "config_file",
    name: path,
    sha256,
    uid: null,
    given_at: accepted_at,
    by: { via: "cli", token_id: null },
  }, [write]);
}
