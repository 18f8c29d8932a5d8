import type { Clock } from "../../lib/base/clock.ts";
import { ConfigError } from "../../lib/base/errors.ts";
import { loadConfig } from "../../lib/config/load_config.ts";
import { readControlFile } from "../../lib/host/control_file.ts";
import type { Health } from "../../lib/host/daemon/daemon_state.ts";
import { readServiceFile } from "../../lib/host/service/service_file.ts";
import {
  type InitSystem,
  readServiceMark,
  type ServiceDescription,
  ServiceError,
  type ServiceManager,
  type UnitState,
} from "../../lib/host/service/service_manager.ts";
import type { CommandContext } from "../command.ts";
import { probeGateway } from "../reach_gateway.ts";
import { readGlobalFlags } from "../read_arguments.ts";
import { ownAddress } from "../serve/listen_address.ts";
import { printableLine, toDefinitions } from "../terminal/terminal_text.ts";
import { daemonLogPath } from "../../lib/host/daemon/log_file.ts";

/** Output of `service status --json`. */
export interface ServiceStatus {
  /** True: the unit runs and the port answers */
  readonly running: boolean;
  readonly init: InitSystem;
  readonly file: string;
  readonly installed: boolean;
  /** True: the service starts with the machine, or at login */
  readonly enabled: boolean;
  readonly unit: UnitState["active"];
  /** State in the words of the service manager */
  readonly unit_detail: string;
  /** Address that was asked. Null: nothing is installed, or its configuration cannot be used */
  readonly address: string | null;
  /** Health of the gateway at the address. `silent`: no gateway answers there */
  readonly health: Health | null;
  readonly log_file: string | null;
}

type AskContext = Pick<CommandContext, "loadOptions" | "say">;

/** Asks the service manager for the state of the unit, and the port for the health of the gateway. */
export async function readServiceStatus(context: AskContext, manager: ServiceManager): Promise<ServiceStatus> {
  const state = await manager.state();
  const text = await readServiceFile(manager.file) ?? "";
  const description = readServiceMark(text);
  const place = description === undefined ? undefined : await findGateway(context, description);
  const health = place === undefined ? null : await probeGateway(place);
  return {
    running: state.active === "running" && health !== null && health !== "silent",
    init: manager.init,
    file: manager.file,
    installed: state.installed,
    enabled: state.enabled,
    unit: state.active,
    unit_detail: state.detail,
    address: place?.address ?? null,
    health,
    log_file: serviceLogPath(text) ?? null,
  };
}

/** Returns the path of the log of a service, by the text of its service file. Undefined for a file that Postern did not write. */
export function serviceLogPath(text: string): string | undefined {
  const description = readServiceMark(text);
  return description === undefined ? undefined : daemonLogPath(description.directory);
}

/** Returns the status for people. */
export function serviceStatusText(status: ServiceStatus, columns?: number | undefined): string {
  const { running, installed, unit, health } = status;
  if (!installed) return `The service is not installed: there is no ${status.file}`;
  const heading = running
    ? "The service is running"
    : unit === "running"
    ? "The service is started but does not answer"
    : health !== null && health !== "silent"
    ? "The service does not run; another gateway answers in its place"
    : "The service does not run";
  const rows = [
    ["Unit", `${unit}: ${status.unit_detail}`],
    ["Starts", status.enabled ? "by itself" : "only when it is told to"],
    ["Address", status.address === null ? "unknown: see its configuration" : `${status.address}: ${health}`],
    ["File", status.file],
    ["Log", status.log_file ?? ""],
  ].map(([name = "", value = ""]) => [name, printableLine(value)] as const);
  return `${heading}\n\n${toDefinitions(rows, columns)}`;
}

/** Finds where the service listens: by its control file or, when only another user can read that, by its configuration. */
async function findGateway(
  context: AskContext,
  { command, directory }: ServiceDescription,
): Promise<{ readonly address: string; readonly token: string } | undefined> {
  const record = await readControlFile(directory);
  if (record !== undefined) return record;
  const { config, dataDir } = readGlobalFlags(command);
  const loaded = await loadConfig({ ...context.loadOptions, env: {}, flags: { config, dataDir } }).catch((error) => {
    if (!(error instanceof ConfigError)) throw error;
    // The configuration cannot be used, or this user may not read it
    context.say(error.message);
  });
  if (loaded === undefined) return undefined;
  return { address: ownAddress(loaded.config.gateway), token: "" };
}

const LOOK_MS = 200;
const LIMIT_MS = 60_000;
/** End of an address whose port the system chose. Only the service's own user can look that port up */
const CHOSEN_PORT = ":0/";

/**
 * Waits until a service that was just started answers at its port. Returns at once if the service manager itself waits for that.
 * @throws {ServiceError} the service failed, its configuration cannot be used, or nothing answered within a minute
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
    // OpenRC calls a service "stopped" that crashed too often. With launchd a stopped service may only wait for its next start
    if (unit === "failed" || (unit === "stopped" && manager.init === "openrc")) {
      throw refuse(`${manager.init} says ${unit_detail}`);
    }
    if (clock.monotonic() >= limit) throw refuse(`nothing answers at ${address} after ${LIMIT_MS / 1000} s`);
    await clock.sleep(LOOK_MS);
  }
}
