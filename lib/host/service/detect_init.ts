import { existsSync } from "node:fs";
import { join } from "node:path";
import type { InitSystem } from "./service_manager.ts";

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
  // Its folder alone is there too where its programs are merely installed
  return existsSync(join(root, "run/openrc/softlevel")) ? "openrc" : undefined;
}
