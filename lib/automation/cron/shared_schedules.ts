import type { Clock } from "../../base/clock.ts";
import { Poller } from "../../base/poller.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { ClusterBus } from "../../cluster/cluster_news.ts";
import type { Store, Write } from "../../storage/store.ts";
import type { FollowedSchedules, ScheduleSharing } from "./cron_service.ts";
import { SCHEDULE_CHANGES, SCHEDULES } from "./schedule_record.ts";

/** Store, clock and notes that gateways follow each other's schedules with. */
export interface SharedSchedulesOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Logger;
  readonly bus: ClusterBus;
  /** Reads all schedules again. Called when others may have changed some */
  readonly read: () => Promise<void>;
}

/** Lets the gateways of a cluster share their schedules. */
export function shareSchedules(
  { workspace, ...options }: Omit<SharedSchedulesOptions, "read"> & Pick<ScheduleSharing, "workspace">,
): ScheduleSharing {
  return {
    workspace,
    follow: (read) => new SharedSchedules({ ...options, read }),
  };
}

/** Milliseconds after which a gateway looks at the version, whether it was told of a change or not. */
const LOOK_MS = 1_000;
const KEY = "all";

/**
 * The version of all schedules of a cluster: a record that each change writes again.
 *
 * A gateway follows the changes of others by a note, and by a look at this one record each second. It reads the schedules themselves after a
 * change alone, and at most once a second. A firing is no change: each gateway has the time itself, and reads the schedule when it is due.
 */
export class SharedSchedules implements FollowedSchedules {
  readonly #options: SharedSchedulesOptions;
  /** Version that this gateway has read the schedules of. */
  #seen = -1;
  readonly #poller: Poller;
  #stopListening = () => {};
  #readAt = -Infinity;

  constructor(options: SharedSchedulesOptions) {
    this.#options = options;
    this.#poller = new Poller(() => this.#look(), (error) => {
      options.log.error("Schedules cannot be followed: the gateway looks again each second", { error });
    });
  }

  writes(version?: number): readonly Write[] {
    const body = { v: 1 };
    return [version === undefined ? SCHEDULE_CHANGES.put(KEY, body) : SCHEDULE_CHANGES.putOver(KEY, version, body)];
  }

  async unchanged(id: string): Promise<readonly Write[]> {
    return [SCHEDULES.check(id, await SCHEDULES.versionOf(this.#options.store, id))];
  }

  tell(): void {
    this.#options.bus.tell("schedules", KEY);
  }

  /** 0: nothing was changed since the cluster began */
  async version(): Promise<number> {
    return await SCHEDULE_CHANGES.versionOf(this.#options.store, KEY);
  }

  /** Reads the schedules, and begins to follow their changes. While the database is down they are read at a later look. */
  async start(): Promise<void> {
    this.stop();
    const { clock, bus } = this.#options;
    this.#poller.start(clock, LOOK_MS);
    this.#stopListening = bus.onNote(({ kind }) => void (kind === "schedules" && this.#poller.look()));
    this.#readAt = -Infinity;
    await this.#poller.look();
  }

  stop(): void {
    this.#seen = -1;
    void this.#poller.stop();
    this.#stopListening();
  }

  async #look(): Promise<void> {
    // The next look of the poller reads what is told of before its time
    if (this.#options.clock.monotonic() - this.#readAt < LOOK_MS) return;
    if (await this.version() !== this.#seen) await this.#read();
  }

  /** Reads the schedules. A change while they are read makes the next look read them again. */
  async #read(): Promise<void> {
    const version = await this.version();
    this.#readAt = this.#options.clock.monotonic();
    await this.#options.read();
    this.#seen = version;
  }
}
