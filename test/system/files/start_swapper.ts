import { Worker } from "node:worker_threads";
import type { SwapOrder } from "./swapper.ts";

/** Swaps names in a thread of its own until it is stopped; `stop` resolves when it has ended. */
export function startSwapper(order: Omit<SwapOrder, "stop">): { stop(): Promise<void> } {
  const stop = new Int32Array(new SharedArrayBuffer(4));
  const worker = new Worker(new URL("./swapper.ts", import.meta.url), { workerData: { ...order, stop } });
  const ended = new Promise<void>((resolve, reject) => {
    worker.once("exit", () => resolve());
    worker.once("error", reject);
  });
  return {
    async stop() {
      Atomics.store(stop, 0, 1);
      Atomics.notify(stop, 0);
      await ended;
    },
  };
}
