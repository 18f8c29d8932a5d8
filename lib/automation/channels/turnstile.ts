import { cancelError } from "../../base/cancel.ts";

/** Lets a few at a time do something, by name; the others wait in their order. Names are kept: they are meant to be few. */
export interface Turnstile {
  /** @throws {CancelError} when the signal aborts before its turn; whatever `work` throws */
  pass<T>(name: string, signal: AbortSignal, work: () => Promise<T>): Promise<T>;
}

/** @param max how many of one name may work at once */
export function createTurnstile(max: number): Turnstile {
  const lanes = new Map<string, { inside: number; readonly waiting: Set<() => void> }>();
  return {
    async pass(name, signal, work) {
      const lane = lanes.get(name) ?? { inside: 0, waiting: new Set() };
      lanes.set(name, lane);
      if (lane.inside >= max) await turn(lane.waiting, signal);
      else lane.inside++;
      try {
        if (signal.aborted) throw cancelError(signal);
        return await work();
      } finally {
        // The place goes to whoever waits longest: nobody who comes between its waking and its entering gets it too
        const [next] = lane.waiting;
        if (next === undefined) lane.inside--;
        else next();
      }
    },
  };
}

function turn(waiting: Set<() => void>, signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.reject(cancelError(signal));
  return new Promise((resolve, reject) => {
    const end = () => {
      signal.removeEventListener("abort", abort);
      waiting.delete(end);
      resolve();
    };
    const abort = () => {
      waiting.delete(end);
      reject(cancelError(signal));
    };
    waiting.add(end);
    signal.addEventListener("abort", abort, { once: true });
  });
}
