import type { HostBoard } from "../../system/machine/read_host_board.ts";
import type { Config } from "../../config/config.ts";
import type { GdbTarget } from "./gdb_target.ts";

/** The boards of the configuration, and the one that the gateway itself runs on. */
export interface Boards {
  /**
   * Attaches to a configured board and lets it go afterwards; one call at a time has a board, others wait.
   * @throws {ToolError} `unknown_board`, and what attachTarget throws; {CancelError} when the signal aborts
   */
  attach<T>(board: string, signal: AbortSignal, work: (target: GdbTarget) => Promise<T>): Promise<T>;
  /** What the machine says about itself; nothing is run */
  host(): Promise<HostBoard>;
}

/** What the tools of boards work with. */
export interface BoardContext {
  readonly boards: Boards;
  readonly config: Pick<Config, "hardware">;
  readonly signal: AbortSignal;
}
