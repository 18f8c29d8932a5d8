import { ConfigError, messageOf } from "../../lib/base/errors.ts";
import { type RecordKeysOptions, verifyRecordKeys } from "../../lib/storage/record_keys.ts";
import { createUnreadableRecords, type Stored } from "../../lib/storage/store.ts";
import { failure, type Finding, warning } from "./finding.ts";

/** Options of `checkKeys`. */
export interface KeyCheckOptions extends Pick<RecordKeysOptions, "settings" | "environment" | "isShared"> {
  /** True: a gateway runs on the data directory, which has other variables than this terminal perhaps. */
  readonly isRunning: boolean;
  /** Reads a record. Default: there is no database yet */
  readonly get?: ((collection: string, key: string) => Promise<Stored | undefined>) | undefined;
}

/** Checks that this environment has the key of the encrypted records, as a start does. Takes no first key over. */
export async function checkKeys(
  name: string,
  { isRunning, get = () => Promise.resolve(undefined), ...options }: KeyCheckOptions,
): Promise<readonly Finding[]> {
  try {
    await verifyRecordKeys({ ...options, store: { get, unreadable: createUnreadableRecords() } });
    return [];
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    const { message, fix } = splitRefusal(error);
    if (!isRunning) return [failure(name, message, fix)];
    const what = `The running gateway has its key, and a start from this terminal is refused: ${message}`;
    return [warning(name, what, fix)];
  }
}

/** Splits the refusal of a start into its problem and the way out at its end. */
export function splitRefusal(error: unknown): { readonly message: string; readonly fix: string } {
  const message = messageOf(error);
  const at = message.lastIndexOf("; ");
  if (!(error instanceof ConfigError)) return { message, fix: "see the log of the database" };
  if (at >= 0) return { message: message.slice(0, at), fix: message.slice(at + 2) };
  return { message, fix: error.key === undefined ? "see the log of the database" : `see ${error.key}` };
}
