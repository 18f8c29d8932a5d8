import type { CommandContext } from "../command.ts";

/** A signal that the first Ctrl-C aborts; `stop` ends the listening. */
export function untilInterrupt({ io }: CommandContext): { readonly signal: AbortSignal; readonly stop: () => void } {
  const controller = new AbortController();
  return { signal: controller.signal, stop: io.onInterrupt(() => controller.abort()) };
}
