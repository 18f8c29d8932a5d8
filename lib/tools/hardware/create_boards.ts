import { cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import type { Config } from "../../config/config.ts";
import { readHostBoard } from "../../system/machine/read_host_board.ts";
import { connectTcp, type TcpAddress } from "../../system/net/connect_tcp.ts";
import { attachTarget } from "./attach_target.ts";
import type { Boards } from "./boards.ts";
import { configuredBoard } from "./configured_board.ts";

export interface BoardsOptions {
  /** The newest configuration: the addresses are the operator's word, never the model's */
  readonly config: () => Pick<Config, "hardware">;
  readonly clock: Clock;
}

export function createBoards({ config, clock }: BoardsOptions): Boards {
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
