import { SILENT } from "../../../lib/base/telemetry/log.ts";
import { type Audit, createAudit } from "../../../lib/guard/audit/audit.ts";
import { openSqliteStore } from "../../../lib/storage/open_sqlite_store.ts";
import type { Store } from "../../../lib/storage/store.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

/** The audit of a database, as a gateway opens it at its start. */
export async function openAudit(
  path: string,
  clock = createFakeClock(),
): Promise<{ readonly store: Store; readonly audit: Audit; close(): Promise<void> }> {
  const store = await openSqliteStore({ path, clock });
  const audit = await createAudit({
    store,
    clock,
    log: SILENT,
    redact: (text) => text,
    enabled: () => true,
    retentionDays: () => 365,
  });
  return { store, audit, close: () => audit.close().then(() => store.close()) };
}
