import { cancelError } from "../base/cancel.ts";
import type { Clock } from "../base/clock.ts";
import { ToolError } from "../base/errors.ts";
import type { Config } from "../config/config.ts";
import { type HostBoard, readHostBoard } from "../system/read_host_board.ts";
import { connectTcp, type TcpAddress } from "../system/net/tcp.ts";
import { attachTarget, type GdbTarget } from "./gdb_target.ts";

/** The boards of the configuration, and the one that the gateway itself runs on. */
export interface Boards {
  /**
   * Attaches to a configured board and lets it go afterwards; one call at a time has a board, others wait.
   * @throws {ToolError} `unknown_board`, and what attachTarget throws; {CancelError} when the signal aborts
   */
  attach<T>(board: string, signal: AbortSignal, work: (target: GdbTarget) => Promise<T>): Promise<T>;
  /** Reads what the machine that the gateway runs on says about itself. Starts no program */
  host(): Promise<HostBoard>;
}

/** The parts of a tool call's context that the board tools use. */
export interface BoardContext {
  readonly boards: Boards;
  readonly config: Pick<Config, "hardware">;
  readonly signal: AbortSignal;
}

/** Creates the access to the configured boards. Calls for one board wait for each other. */
export function createBoards({ config, clock }: {
  /** The newest configuration: the operator names the addresses, the model never does */
  readonly config: () => Pick<Config, "hardware">;
  readonly clock: Clock;
}): Boards {
  /** By address: a stub serves one debugger, and a second connection would wait in silence */
  const last = new Map<string, Promise<void>>();
  return {
    async attach(board, signal, work) {
      const { gdb_remote: remote } = configuredBoard(config(), board);
      const address = toAddress(remote);
      const before = last.get(remote);
      const turn = Promise.withResolvers<void>();
      const mine = Promise.all([before, turn.promise]).then(() => {});
      last.set(remote, mine);
      try {
        if (before !== undefined) await inTime(before, signal);
        return await attachTarget({ board, address, connect: connectTcp, clock, signal }, work);
      } finally {
        turn.resolve();
        if (last.get(remote) === mine) last.delete(remote);
      }
    },
    host: readHostBoard,
  };
}

/** @throws {CancelError} when the signal aborts first */
async function inTime(work: Promise<void>, signal: AbortSignal): Promise<void> {
  if (signal.aborted) throw cancelError(signal);
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const abort = () => reject(cancelError(signal));
  signal.addEventListener("abort", abort, { once: true });
  work.then(resolve);
  try {
    await promise;
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

/** The configuration has taken it for a host and a port. */
function toAddress(remote: string): TcpAddress {
  const colon = remote.lastIndexOf(":");
  return { host: remote.slice(0, colon).replace(/^\[(.*)\]$/, "$1"), port: Number(remote.slice(colon + 1)) };
}

/** Returns a board of `[hardware.boards.<name>]`. @throws {ToolError} `unknown_board`, naming those there are */
export function configuredBoard(
  { hardware }: Pick<Config, "hardware">,
  name: string,
): Config["hardware"]["boards"][string] {
  const board = Object.hasOwn(hardware.boards, name) ? hardware.boards[name] : undefined;
  if (board !== undefined) return board;
  const names = Object.keys(hardware.boards);
  const known = names.length === 0
    ? "none is configured; a person adds one as [hardware.boards.<name>] with gdb_remote"
    : `the configured ones are ${names.map((known) => `"${known}"`).join(", ")}`;
  throw new ToolError("unknown_board", `Cannot use board "${name}": ${known}`);
}
