import assert from "node:assert/strict";
import { systemClock } from "../../lib/base/clock.ts";

/** Turns of the event loop before it looks less often: what happens in this process takes no longer */
const EAGER_TURNS = 100;
/** Looks at other processes and the disk that follow each other closely: a second of them */
const CLOSE_TURNS = 50;
const CLOSE_PAUSE_MS = 20;
/** Between the looks after that: all of them in a minute together stay below the requests that a token may make in one */
const PAUSE_MS = 200;
/** Longer than anything takes on a slow host, shorter than the patience of those who wait for the tests */
const LIMIT_MS = 60_000;

/**
 * Waits until `holds` does, while other work goes on: this process's at first, then other processes' and the disk's.
 * @param what what is waited for, for the message; a function where that is known only in the end
 * @throws {AssertionError} after 60 s
 */
export async function until(
  holds: () => boolean | Promise<boolean>,
  what: string | (() => string) = "it never came to pass",
): Promise<void> {
  const limit = systemClock.monotonic() + LIMIT_MS;
  for (let turn = 0; !await holds(); turn++) {
    if (systemClock.monotonic() >= limit) assert.fail(typeof what === "string" ? what : what());
    if (turn < EAGER_TURNS) await new Promise((resolve) => setImmediate(resolve));
    else await systemClock.sleep(turn < EAGER_TURNS + CLOSE_TURNS ? CLOSE_PAUSE_MS : PAUSE_MS);
  }
}
