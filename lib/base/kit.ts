import type { Clock } from "./clock.ts";
import type { Random } from "./random.ts";
import type { Logger } from "./telemetry/log.ts";
import type { Metrics } from "./telemetry/metrics.ts";

/** Everything that any part of a gateway may use. Five fields, and never a service: what only some parts need, they declare. */
export interface Kit {
  /** In a cluster the clock of the database */
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly metrics: Metrics;
  /** Reads an environment variable. Undefined when it is not set */
  readonly environment: (name: string) => string | undefined;
}
