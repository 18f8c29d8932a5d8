import { existsSync } from "node:fs";
import { join } from "node:path";
import type { ServiceDescription } from "./service_description.ts";

/** Name of the program that looks after services. */
export type InitSystem = "systemd" | "openrc" | "launchd";

/** State of the service, as the service manager gives it. */
export interface UnitState {
  readonly installed: boolean;
  /** True when the service starts by itself, at login or with the machine */
  readonly enabled: boolean;
  /** `failed`: it ended, and is not started again */
  readonly active: "running" | "starting" | "stopping" | "stopped" | "failed";
  /** The manager's own words, as `activating (auto-restart)` */
  readonly detail: string;
}

/** The service, by one service manager. Every command throws a ServiceError with the manager's own words when it is refused. */
export interface ServiceManager {
  readonly init: InitSystem;
  /** Absolute path of the service's file */
  readonly file: string;
  /** True when `start` and `restart` return only after the service has told that it works */
  readonly waits: boolean;
  /** @throws {ServiceError} this user may not change the service */
  requireRights(): void;
  /**
   * Writes the file, and has the service started with the machine, or at login; repeating it changes nothing.
   * @returns notes for the person: what else is due
   */
  install(description: ServiceDescription): Promise<readonly string[]>;
  /** Stops the service and removes all that `install` wrote, but no records and no configuration. @returns notes for the person */
  uninstall(): Promise<readonly string[]>;
  start(): Promise<void>;
  stop(): Promise<void>;
  restart(): Promise<void>;
  state(): Promise<UnitState>;
}

/** The service manager refused, or is not there; the message says the way out where there is one. */
export class ServiceError extends Error {
  override readonly name = "ServiceError";
}

/**
 * The service manager that runs on this machine.
 * @param options.root folder in which its file system begins. Default `/`
 * @returns undefined when there is none that is known, as in most containers
 * Source: sd_booted(3): /run/systemd/system; openrc's rc_sys: /run/openrc/softlevel
 */
export function detectInit(
  { platform, root = "/" }: { readonly platform: string; readonly root?: string },
): InitSystem | undefined {
  if (platform === "darwin") return "launchd";
  if (existsSync(join(root, "run/systemd/system"))) return "systemd";
  // The folder /run/openrc exists too where its programs are merely installed
  return existsSync(join(root, "run/openrc/softlevel")) ? "openrc" : undefined;
}
