import type { PluginAnswer, PluginCall, PluginHost } from "./plugin_host.ts";

/** A host on its way or at work, with the calls that it has. */
interface Lane {
  readonly key: string;
  readonly host: Promise<PluginHost>;
  calls: number;
  isRetired: boolean;
}

/** Options of a RunningPlugin. */
export interface RunningPluginOptions {
  /** Opens a host by the newest configuration */
  readonly open: () => Promise<PluginHost>;
  /** Returns what a host was opened by: another value means that the next call needs another host */
  readonly key: () => string;
  /** Takes the error of a host that does not close */
  readonly onCloseError: (error: unknown) => void;
}

/**
 * Content of a plugin that answers calls. Its host is opened by the first call. A host that a change of the configuration replaces, or
 * that is retired, ends the calls that it has and then closes.
 */
export class RunningPlugin {
  readonly #options: RunningPluginOptions;
  readonly #lanes = new Set<Lane>();
  readonly #idle = Promise.withResolvers<void>();
  #lane: Lane | undefined;
  #isRetired = false;

  constructor(options: RunningPluginOptions) {
    this.#options = options;
  }

  /** Makes one call. @throws what the opening or the call of the host throws */
  async call(call: PluginCall, signal: AbortSignal): Promise<PluginAnswer> {
    const lane = this.#laneNow();
    lane.calls++;
    try {
      const host = await lane.host;
      return await host.call(call, signal);
    } finally {
      lane.calls--;
      this.#closeIdle(lane);
    }
  }

  /** Takes no new calls. Resolves when the calls that it has are done and its hosts are closed. */
  retire(): Promise<void> {
    this.#isRetired = true;
    this.#retireLane(this.#lane);
    if (this.#lanes.size === 0) this.#idle.resolve();
    return this.#idle.promise;
  }

  /** Closes its hosts now, whatever they do. */
  async close(): Promise<void> {
    this.#isRetired = true;
    const lanes = [...this.#lanes];
    await Promise.all(lanes.map(async (lane) => {
      lane.isRetired = true;
      await this.#close(lane);
    }));
  }

  #laneNow(): Lane {
    if (this.#isRetired) throw new TypeError("A plugin that is retired takes no calls");
    const key = this.#options.key();
    if (this.#lane?.key === key) return this.#lane;
    this.#retireLane(this.#lane);
    const lane: Lane = { key, host: this.#options.open(), calls: 0, isRetired: false };
    this.#lane = lane;
    this.#lanes.add(lane);
    // A host that cannot be opened is tried again by the next call
    lane.host.catch(() => {
      this.#lanes.delete(lane);
      if (this.#lane === lane) this.#lane = undefined;
      if (this.#isRetired && this.#lanes.size === 0) this.#idle.resolve();
    });
    return lane;
  }

  #retireLane(lane: Lane | undefined): void {
    if (lane === undefined) return;
    lane.isRetired = true;
    if (this.#lane === lane) this.#lane = undefined;
    this.#closeIdle(lane);
  }

  #closeIdle(lane: Lane): void {
    if (lane.isRetired && lane.calls === 0) void this.#close(lane);
  }

  async #close(lane: Lane): Promise<void> {
    if (!this.#lanes.has(lane)) return;
    try {
      await (await lane.host).close();
    } catch (error) {
      this.#options.onCloseError(error);
    }
    this.#lanes.delete(lane);
    if (this.#isRetired && this.#lanes.size === 0) this.#idle.resolve();
  }
}
