import { stat } from "node:fs/promises";
import type { Clock } from "../../base/clock.ts";

/** How often a folder that is not there is looked for. */
const LOOK_MS = 1_000;

/** Tells whether one of these folders is there now. @param paths absolute */
export async function isAnyFolder(paths: readonly string[]): Promise<boolean> {
  const found = await Promise.all(paths.map((path) => stat(path).then((info) => info.isDirectory(), () => false)));
  return found.includes(true);
}

/**
 * Calls back once when one of these folders appears: looks each second, which costs less than a watch of the folder around it.
 * @param paths absolute
 * @returns ends it
 */
export function awaitFolder(
  paths: readonly string[],
  { clock, onAppear }: { readonly clock: Clock; readonly onAppear: () => void },
): () => void {
  // No poller: a start would load it for this look alone, and two looks at a time call back once as well
  const timer = clock.every(LOOK_MS, () => {
    void isAnyFolder(paths).then((isThere) => {
      if (!isThere || isEnded) return;
      end();
      onAppear();
    });
  });
  let isEnded = false;
  const end = () => {
    isEnded = true;
    timer.clear();
  };
  return end;
}
