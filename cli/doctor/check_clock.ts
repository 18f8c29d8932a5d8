import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import { readProcessStat } from "../../lib/host/process_identity.ts";
import { type Check, failure, type Finding, fine, warning } from "./finding.ts";

const NAME = "clock";
/** Earliest time that can be right: no Postern existed before */
const EARLIEST = Date.UTC(2026, 0, 1);
const LATEST = Date.UTC(2100, 0, 1);
/** Difference that is tolerated, in ms: file systems and records are not exact to the second */
const TOLERATED_MS = 120_000;
const WRITTEN = ["postern.db", "postern.db-wal", "control.json", "daemon.log"];
/** Clock ticks in a second of the times in /proc. Source: proc(5), sysconf(3) */
const TICKS_PER_SECOND = 100;
const FIX = "timedatectl set-ntp true";

/** Checks that the time of day can be right: later than this program and its records, and not changed since the gateway started. */
export const clockCheck: Check = {
  name: NAME,
  async run({ loaded: { dataDir }, running }) {
    const now = systemClock.now();
    if (now < EARLIEST || now > LATEST) return failure(NAME, `It says ${shown(now)}, which cannot be`, FIX);
    const newest = Math.max(...await Promise.all(WRITTEN.map((name) => writtenAt(join(dataDir, name)))));
    if (newest > now + TOLERATED_MS) {
      const message = `It says ${shown(now)}, and records were written at ${shown(newest)}: it was set back`;
      return failure(NAME, `${message}; schedules and tokens go by it`, FIX);
    }
    const moved = running === undefined ? 0 : await movedSince(running.record, now);
    if (Math.abs(moved) > TOLERATED_MS) return tellMove(moved);
    return fine(NAME, shown(now));
  },
};

function tellMove(moved: number): Finding {
  const way = moved > 0 ? "forward" : "back";
  const message = `It was set ${way} by ${Math.round(Math.abs(moved) / 1000)} s since the gateway started`;
  return warning(NAME, `${message}; times of its records before and after do not compare`, FIX);
}

async function writtenAt(path: string): Promise<number> {
  return await stat(path).then(({ mtimeMs }) => mtimeMs, () => 0);
}

/**
 * Measures by how much the time of day was set forward since a process started, in ms. Negative: back.
 * @returns 0 where that cannot be measured: outside Linux, and where `/proc` of a container mixes the times of two machines
 */
async function movedSince(
  { pid, started_at }: { readonly pid: number; readonly started_at: string },
  now: number,
): Promise<number> {
  if (process.platform !== "linux") return 0;
  const [own, age] = await Promise.all([ageOf(process.pid), ageOf(pid)]);
  if (Math.abs(own - process.uptime()) > TOLERATED_MS / 1000) return 0;
  const moved = now - Date.parse(started_at) - age * 1000;
  return Number.isFinite(moved) ? moved : 0;
}

/** Returns the age of a process in seconds, including sleep of the machine. NaN where it cannot be read. */
async function ageOf(pid: number): Promise<number> {
  const reading = Promise.all([readFile("/proc/uptime", "utf8"), readProcessStat(pid)]);
  return await reading.then(
    ([uptime, { startTicks }]) => Number(uptime.split(" ")[0]) - Number(startTicks) / TICKS_PER_SECOND,
    () => NaN,
  );
}

function shown(time: number): string {
  return new Date(time).toISOString();
}
