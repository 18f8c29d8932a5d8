import type { Clock } from "../base/clock.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { ConversationArchive } from "./conversation_archive.ts";

const DAY_MS = 24 * 60 * 60 * 1000;

/**
 * Forgets, now and once a day, the conversations that nothing was added to for `[conversations] retention_days`; a failure is logged.
 * @param options.days 0: none is forgotten
 * @returns what ends it
 */
export function keepConversations(
  archive: ConversationArchive,
  { clock, log, days }: { readonly clock: Clock; readonly log: Logger; readonly days: () => number },
): () => void {
  const forget = async () => {
    if (days() === 0) return;
    try {
      const forgotten = await archive.forgetBefore(new Date(clock.now() - days() * DAY_MS).toISOString());
      if (forgotten > 0) log.info("Old conversations were forgotten", { conversations: forgotten });
    } catch (error) {
      log.error("Old conversations could not be forgotten", { error });
    }
  };
  void forget();
  const timer = clock.every(DAY_MS, () => void forget());
  return () => timer.clear();
}
