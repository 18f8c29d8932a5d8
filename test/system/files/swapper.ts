import { renameSync } from "node:fs";
import { join } from "node:path";
import { workerData } from "node:worker_threads";

/** An order to a swapper. */
export interface SwapOrder {
  readonly folder: string;
  /** The name that is swapped */
  readonly target: string;
  /** Names that take its place in turn */
  readonly candidates: readonly string[];
  /** Milliseconds each stays there */
  readonly pauseMs: number;
  /** The swapper ends when the first element is not 0 */
  readonly stop: Int32Array<SharedArrayBuffer>;
}

// Runs as a worker, so that it swaps in the middle of the reader's work. Its data is given by startSwapper
const { folder, target, candidates, pauseMs, stop } = workerData as SwapOrder;
let aside = 0;
while (Atomics.load(stop, 0) === 0) {
  for (const candidate of candidates) {
    if (!move(candidate, target)) {
      // A writer made something of that name meanwhile
      move(target, `aside_${aside++}`);
      continue;
    }
    Atomics.wait(stop, 0, 0, pauseMs);
    move(target, candidate);
  }
}

/** @returns false where a writer was faster */
function move(from: string, to: string): boolean {
  try {
    renameSync(join(folder, from), join(folder, to));
    return true;
  } catch {
    return false;
  }
}
