/** Prints the cost of the audit on a database in a temporary folder: `node test/bench/audit.bench.ts`. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import { createRedactor } from "../../lib/base/redact.ts";
import { SILENT } from "../../lib/base/telemetry/log.ts";
import { createAudit } from "../../lib/guard/audit/audit.ts";
import { openSqliteStore } from "../../lib/storage/open_sqlite_store.ts";
import { auditedCall } from "../support/audited_call.ts";

const ONE_BY_ONE = 5_000;
const TOGETHER = 100_000;

const folder = mkdtempSync(join(tmpdir(), "postern-bench-"));
const store = await openSqliteStore({ path: join(folder, "postern.db"), clock: systemClock });
const { redact } = createRedactor(["a-secret-of-the-environment", "another-secret-of-a-file"]);
const options = { store, clock: systemClock, log: SILENT, redact, enabled: () => true, retentionDays: () => 365 };
const audit = await createAudit(options);
const event = auditedCall("write_file", { effects: { paths: ["src/a_file.ts"] }, request_id: "req_1" });
const show = (name: string, value: string) => console.log(`${name.padEnd(52)} ${value.padStart(9)}`);

try {
  const times: number[] = [];
  for (let index = 0; index < ONE_BY_ONE; index++) {
    const started = performance.now();
    await audit.append(event);
    times.push(performance.now() - started);
  }
  times.sort((a, b) => a - b);
  const at = (part: number) => `${(times[Math.floor(times.length * part)] ?? 0).toFixed(3)} ms`;
  show("one event, waited for until it is on disk, p50", at(0.5));
  show("the same, p99", at(0.99));

  const started = performance.now();
  let last: Promise<boolean> | undefined;
  for (let index = 0; index < TOGETHER; index++) {
    last = audit.append(event);
    if (index % 1000 === 0) await last;
  }
  await last;
  show(`an event of ${TOGETHER} that come together`, `${((performance.now() - started) / TOGETHER).toFixed(3)} ms`);

  const begun = performance.now();
  const { ok, records } = await audit.verify();
  show(
    `verify ${records} records (${ok ? "intact" : "BROKEN"})`,
    `${((performance.now() - begun) / 1000).toFixed(2)} s`,
  );
} finally {
  await audit.close();
  await store.close();
  rmSync(folder, { recursive: true, force: true });
}
