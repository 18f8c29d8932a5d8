import type { Clock, Timer } from "../../base/clock.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { AuditAppend } from "./audit.ts";

const MINUTE_MS = 60_000;
/** Addresses counted by themselves in one minute; those beyond are counted together */
const MAX_ADDRESSES = 256;
const OTHERS = "others";

interface Failures {
  readonly address: string | null;
  readonly codes: Record<string, number>;
}

/** Counts refused credentials and writes them once a minute: one record an address, so that guessing cannot fill the audit. */
export function createAccessFailures(
  options: {
    readonly clock: Clock;
    readonly log: Logger;
    readonly append: AuditAppend;
    readonly enabled: () => boolean;
  },
): { count(address: string | undefined, code: string): void; close(): Promise<void> } {
  const { clock, log, append } = options;
  let minute = new Map<string, Failures>();
  let since = "";

  async function write(): Promise<void> {
    const failures = [...minute.values()];
    minute = new Map();
    const written = failures.map(({ address, codes }) => append({ type: "access_failures", address, codes, since }));
    const failed = (await Promise.allSettled(written)).find((result) => result.status === "rejected");
    if (failed !== undefined) log.error("Cannot record refused credentials in the audit", { error: failed.reason });
  }

  let timer: Timer | undefined;
  return {
    count(address, code) {
      if (!options.enabled()) return;
      if (minute.size === 0) since = new Date(clock.now()).toISOString();
      timer ??= clock.every(MINUTE_MS, () => void (minute.size > 0 && write()));
      const known = address ?? "";
      const key = minute.has(known) || minute.size < MAX_ADDRESSES ? known : OTHERS;
      let failures = minute.get(key);
      if (failures === undefined) {
        minute.set(key, failures = { address: key === OTHERS ? OTHERS : address ?? null, codes: {} });
      }
      failures.codes[code] = (failures.codes[code] ?? 0) + 1;
    },
    close() {
      timer?.clear();
      return write();
    },
  };
}
