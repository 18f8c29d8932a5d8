import process from "node:process";
import { systemCodeOf } from "../../base/errors.ts";
import type { Clock } from "../../base/clock.ts";
import { processIdentity } from "../process_identity.ts";
import type { DaemonProcess } from "./daemon_state.ts";

const LOOK_MS = 50;
/** After SIGKILL only the kernel has work left */
const KILL_LIMIT_MS = 10_000;

/** How a process ended: by itself after the signal, by SIGKILL, or not within 10 s of SIGKILL. */
export type EndedBy = "itself" | "kill" | "nothing";

/** Ends a process: SIGTERM, up to `graceMs` for its own end, then SIGKILL to its whole group where it leads one. */
export async function endProcess(
  target: Pick<DaemonProcess, "pid" | "identity" | "leads_group">,
  { clock, graceMs, isTold = false }: {
    readonly clock: Clock;
    /** Milliseconds that the process gets to end by itself, before SIGKILL */
    readonly graceMs: number;
    /** True when the process is ending already: a second SIGTERM would cut its work off. Default false */
    readonly isTold?: boolean;
  },
): Promise<EndedBy> {
  const gone = async (limitMs: number) => {
    const until = clock.monotonic() + limitMs;
    for (;;) {
      if (await processIdentity(target.pid) !== target.identity) return true;
      if (clock.monotonic() >= until) return false;
      await clock.sleep(LOOK_MS);
    }
  };
  if (await gone(0)) return "itself";
  if (!isTold) signal(target.pid, "SIGTERM");
  if (await gone(graceMs)) return "itself";
  signal(target.leads_group ? -target.pid : target.pid, "SIGKILL");
  return await gone(KILL_LIMIT_MS) ? "kill" : "nothing";
}

function signal(pid: number, name: "SIGTERM" | "SIGKILL"): void {
  try {
    process.kill(pid, name);
  } catch (error) {
    // ESRCH: the process ended meanwhile. The caller has to know of anything else
    if (systemCodeOf(error) !== "ESRCH") throw error;
  }
}
