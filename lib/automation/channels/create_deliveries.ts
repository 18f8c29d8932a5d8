import { lazily } from "../../base/lazily.ts";
import type { Deliveries } from "./deliveries.ts";
import { OPEN_DELIVERIES } from "./delivery_record.ts";
import type { DeliveryOptions } from "./delivery_service.ts";

/**
 * The deliveries of channels' replies. They are loaded when the first reply is promised; a gateway without a `reply_url` loads nothing.
 *
 * Call `start()` once runs are recovered, and `stop()` after they are drained.
 */
export function createDeliveries(options: DeliveryOptions): Deliveries {
  const load = lazily(async () => {
    const { createDeliveryService } = await import("./delivery_service.ts");
    return createDeliveryService(options);
  });
  return {
    async promise(reply) {
      return options.targetOf(reply.channel) === undefined ? undefined : await (await load()).promise(reply);
    },
    watch: async (runId) => await (await load()).watch(runId),
    page: async (query) => await (await load()).page(query),
    resolve: async (runId, action) => await (await load()).resolve(runId, action),
    async start() {
      if (await options.store.count(OPEN_DELIVERIES) > 0) await (await load()).start();
    },
    async stop() {
      await (await load.made())?.stop();
    },
  };
}
