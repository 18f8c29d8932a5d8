import process from "node:process";
import type { Clock } from "./clock.ts";
import type { Random } from "./random.ts";

/** The process that made it, and a random part */
const NAME = /^\.postern-(\d{1,10})-[0-9a-z]{24}\.tmp$/;

/** Names of files that are written beside the place they will have. */
export interface TemporaryNames {
  /** Not guessable, so that nobody else has or takes it */
  next(): string;
  /**
   * Whether a file of this name was left behind by a process that ended in the middle of a change.
   * @param modifiedMs when it was last written, milliseconds since the epoch
   */
  isLeftover(name: string, modifiedMs: number): boolean;
}

export function createTemporaryNames({ clock, random }: {
  readonly clock: Clock;
  readonly random: Random;
}): TemporaryNames {
  const startedAt = clock.now() - process.uptime() * 1000;
  return {
    next: () => `.postern-${process.pid}-${random.id("")}.tmp`,
    isLeftover(name, modifiedMs) {
      const match = NAME.exec(name);
      if (match === null) return false;
      const pid = Number(match[1]);
      // In a container the next process often has the number of the last one
      return pid === process.pid ? modifiedMs < startedAt : !isAlive(pid);
    },
  };
}

/** Whether a name is one of `TemporaryNames`, of any process. */
export function isTemporary(name: string): boolean {
  return NAME.test(name);
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // Anything but "no such process" says nothing about it
    return !(error instanceof Error && "code" in error && error.code === "ESRCH");
  }
}
