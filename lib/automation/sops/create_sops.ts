import { lazily } from "../../base/lazily.ts";
import { OPEN_SOPS } from "./collections.ts";
import type { SopService, SopsOptions } from "./sop_service.ts";

/**
 * The procedures. They are loaded when the first one is asked for; a gateway without an open execution loads nothing.
 *
 * Call `stopCancelled()` before runs are recovered, `start()` after it, and `close()` before they are drained.
 */
export function createSops(options: SopsOptions): SopService {
  let isStarted = false;
  const load = lazily(async () => {
    const { createSopService } = await import("./sop_service.ts");
    const service = createSopService(options);
    if (isStarted) await service.start();
    return service;
  });
  return {
    list: async () => await (await load()).list(),
    execute: async (request) => await (await load()).execute(request),
    status: async (id) => await (await load()).status(id),
    advance: async (...given) => await (await load()).advance(...given),
    cancel: async (...given) => await (await load()).cancel(...given),
    approve: async (...given) => await (await load()).approve(...given),
    async stopCancelled() {
      if (await options.store.count(OPEN_SOPS) > 0) await (await load()).stopCancelled();
    },
    async start() {
      isStarted = true;
      const loaded = load.made();
      if (loaded !== undefined) await (await loaded).start();
      else if (await options.store.count(OPEN_SOPS) > 0) await load();
    },
    async close() {
      await (await load.made())?.close();
    },
  };
}
