import process from "node:process";
import type { Clock } from "../clock.ts";
import type { Metrics } from "./metrics.ts";

const LAG_EVERY_MS = 500;

/**
 * Metrics of the process itself: version, start, memory, processor time and how late the event loop is.
 * @returns a function that ends the measuring
 */
export function observeProcess(
  metrics: Metrics,
  options: { readonly clock: Clock; readonly version: string },
): () => void {
  const { clock, version } = options;
  const startedSeconds = clock.now() / 1000;
  metrics.gauge("postern_build_info", "Version and runtime, always 1", ["version", "runtime"]).with(version, runtime())
    .set(1);
  metrics.gaugeOf("postern_process_start_time_seconds", "Start, seconds since the epoch", () => startedSeconds);
  const memory = metrics.gauge("postern_process_resident_memory_bytes", "Resident memory, read each 500 ms").with();
  memory.set(process.memoryUsage.rss());
  metrics.counterOf("postern_process_cpu_seconds_total", "User and system processor time", () => {
    const { user, system } = process.cpuUsage();
    return (user + system) / 1e6;
  });
  const lag = metrics.gauge("postern_event_loop_lag_seconds", "How late the last timer of 500 ms fired").with();
  let due = clock.monotonic() + LAG_EVERY_MS;
  const timer = clock.every(LAG_EVERY_MS, () => {
    const now = clock.monotonic();
    lag.set(Math.max(0, now - due) / 1000);
    due = now + LAG_EVERY_MS;
    // Not at the scrape: the system's answer costs more than all the rest of it
    memory.set(process.memoryUsage.rss());
  });
  return () => timer.clear();
}

function runtime(): string {
  return "deno" in process.versions ? `deno ${process.versions["deno"]}` : `node ${process.versions.node}`;
}
