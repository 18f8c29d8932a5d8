import type { Clock } from "../../lib/base/clock.ts";
import { ServiceError, type ServiceManager } from "../../lib/host/service/service_manager.ts";
import type { CommandContext } from "../command.ts";
import { readServiceStatus } from "./service_status.ts";

const LOOK_MS = 200;
const LIMIT_MS = 60_000;
/** Only the service's own user can look up a port that the system chose */
const CHOSEN_PORT = ":0/";

/**
 * Waits until a service that was just started answers at its port, where its manager does not wait for that.
 * @throws {ServiceError} it failed, its configuration cannot be used, or nothing answered within a minute
 */
export async function untilServiceAnswers(
  context: Pick<CommandContext, "loadOptions" | "say">,
  manager: ServiceManager,
  { verb, clock }: { readonly verb: "start" | "restart"; readonly clock: Clock },
): Promise<void> {
  if (manager.waits) return;
  const refuse = (reason: string) =>
    new ServiceError(`Cannot ${verb} the service: ${reason}; see postern service status`);
  const limit = clock.monotonic() + LIMIT_MS;
  for (;;) {
    const { running, health, address, unit, unit_detail } = await readServiceStatus(context, manager);
    if ((running && health !== "draining") || address?.endsWith(CHOSEN_PORT)) return;
    if (address === null) throw refuse("its configuration cannot be used");
    // A service that crashed too often is stopped, says OpenRC; with launchd it may merely wait for its turn
    if (unit === "failed" || (unit === "stopped" && manager.init === "openrc")) {
      throw refuse(`${manager.init} says ${unit_detail}`);
    }
    if (clock.monotonic() >= limit) throw refuse(`nothing answers at ${address} after ${LIMIT_MS / 1000} s`);
    await clock.sleep(LOOK_MS);
  }
}
