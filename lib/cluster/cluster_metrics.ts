import type { Clock } from "../base/clock.ts";
import { DURATION_BUCKETS_SECONDS, type Metrics } from "../base/telemetry/metrics.ts";
import { type NoteCounts, POLL_MS } from "./cluster_news.ts";
import type { GatewayLease } from "./gateway_lease.ts";
import type { ClusterQueue } from "./run_claims.ts";
import type { RunOwnership } from "./run_ownership.ts";

/** Time after which the last look at the queue says nothing any more. Milliseconds */
const STALE_MS = 5 * POLL_MS;

/** The runs that wait for a gateway, as the looks of this gateway find them. The figures cost no statement. */
export class SeenQueue {
  readonly #clock: Clock;
  /** Waiting runs by the monotonic time at which a look first found them, the oldest run first. */
  #since: ReadonlyMap<string, number> = new Map();
  #waiting = 0;
  #lookedAt = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Takes what a look has found. */
  take({ waiting, ids }: Pick<ClusterQueue, "waiting" | "ids">): void {
    const now = this.#clock.monotonic();
    this.#since = new Map(ids.map((id) => [id, this.#since.get(id) ?? now]));
    this.#waiting = waiting;
    this.#lookedAt = now;
  }

  /** Returns the number of waiting runs. NaN when this gateway has not looked for some seconds, as after a drain. */
  depth(): number {
    return this.isStale() ? Number.NaN : this.#waiting;
  }

  /** Returns for how many seconds this gateway has seen the oldest run wait; 0: none waits. NaN as for `depth`. */
  lagSeconds(): number {
    const [oldest = this.#clock.monotonic()] = this.#since.values();
    return this.isStale() ? Number.NaN : (this.#clock.monotonic() - oldest) / 1_000;
  }

  /** Tells whether this gateway has not looked for some seconds, so that its figures say nothing. */
  isStale(): boolean {
    return this.#clock.monotonic() - this.#lookedAt > STALE_MS;
  }
}

/** Parts whose figures are metrics. */
export interface ClusterMetricsParts {
  readonly lease: Pick<GatewayLease, "heartbeats" | "onRoundTrip">;
  readonly notes: () => NoteCounts;
  readonly ownership: Pick<RunOwnership, "count">;
  readonly queue: SeenQueue;
  /** Returns the number of gateways with a lease, as the last look found them. Undefined when this gateway has not looked for some seconds. */
  readonly gateways: () => number | undefined;
  /** Returns how many gateways this one has fenced off. */
  readonly takeovers: () => number;
}

/** Registers the metrics of this gateway in its cluster. A scrape asks the database for nothing. */
export function observeCluster(metrics: Metrics, parts: ClusterMetricsParts): void {
  const { lease, notes, ownership, queue, gateways, takeovers } = parts;
  metrics.gaugeOf(
    "postern_cluster_gateways",
    "Gateways with a lease, the same at each gateway",
    () => gateways() ?? Number.NaN,
  );
  metrics.gaugeOf(
    "postern_cluster_queue_runs",
    "Runs that wait for a gateway, the same at each gateway",
    () => queue.depth(),
  );
  metrics.gaugeOf(
    "postern_cluster_queue_lag_seconds",
    "Time for which the oldest of them has waited, as far as this gateway has seen it",
    () => queue.lagSeconds(),
  );
  metrics.gaugeOf("postern_cluster_runs_owned", "Open runs that this gateway owns", () => ownership.count());
  metrics.gaugeOf(
    "postern_cluster_lease_left_seconds",
    "Time for which this gateway may still act; 0 while its lease is lost",
    () => lease.heartbeats().leftMs / 1_000,
  );
  metrics.counterOf(
    "postern_cluster_heartbeat_failures_total",
    "Heartbeats of this gateway that failed",
    () => lease.heartbeats().failures,
  );
  metrics.counterOf(
    "postern_cluster_lease_losses_total",
    "Times that others fenced this gateway off",
    () => lease.heartbeats().losses,
  );
  metrics.counterOf("postern_cluster_takeovers_total", "Gateways that this gateway fenced off", takeovers);
  metrics.counterOf("postern_cluster_notes_sent_total", "Notes sent to the gateways", () => notes().sent);
  metrics.counterOf("postern_cluster_notes_heard_total", "Notes heard of all gateways", () => notes().heard);
  metrics.counterOf(
    "postern_cluster_notes_unsent_total",
    "Notes that could not be sent: the gateways find out by their looks",
    () => notes().unsent,
  );
  const beats = metrics.histogram(
    "postern_cluster_heartbeat_duration_seconds",
    "Time until the database answered a heartbeat that succeeded",
    { buckets: DURATION_BUCKETS_SECONDS },
  ).with();
  lease.onRoundTrip((ms) => beats.observe(ms / 1_000));
}
