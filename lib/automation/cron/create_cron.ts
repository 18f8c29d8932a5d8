import { lazily } from "../../base/lazily.ts";
import type { Cron } from "./cron.ts";
import type { CronOptions } from "./cron_service.ts";
import { SCHEDULES } from "./schedule_record.ts";

/**
 * The schedules. They are loaded with their calendar when the first one is asked for; a gateway that has none loads nothing.
 *
 * Call `start()` once runs are recovered, and `stop()` before they are drained.
 */
export function createCron(options: CronOptions): Cron {
  let running = false;
  const load = lazily(async () => {
    const { createCronService } = await import("./cron_service.ts");
    const service = createCronService(options);
    if (running) await service.start();
    return service;
  });
  return {
    add: async (...given) => await (await load()).add(...given),
    update: async (...given) => await (await load()).update(...given),
    remove: async (...given) => await (await load()).remove(...given),
    pause: async (...given) => await (await load()).pause(...given),
    resume: async (...given) => await (await load()).resume(...given),
    list: async () => await (await load()).list(),
    get: async (...given) => await (await load()).get(...given),
    page: async (...given) => await (await load()).page(...given),
    history: async (...given) => await (await load()).history(...given),
    run: async (...given) => await (await load()).run(...given),
    async start() {
      running = true;
      if (!options.settings().enabled) return;
      const loaded = load.made();
      if (loaded !== undefined) await (await loaded).start();
      else if (await options.store.count(SCHEDULES) > 0) await load();
    },
    async stop() {
      running = false;
      await (await load.made())?.stop();
    },
  };
}
