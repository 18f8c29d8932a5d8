import { join } from "node:path";
import {
  RESTARTS,
  runOrFail,
  type RunProgram,
  SERVICE_VARIABLE,
  type ServiceDescription,
  type ServiceManager,
  STOP_MARGIN_SECONDS,
  toServiceMark,
  type UnitState,
} from "./service_manager.ts";
import { readServiceFile, removeServiceFile, writeServiceFile } from "./service_file.ts";

const MODE = 0o644;

/** An agent of the user's own launchd, on macOS: no root is needed. Source: launchctl(1) */
export function createLaunchdService({ home, run, uid }: {
  readonly home: string;
  readonly run: RunProgram;
  /** Number of the user whose agent it is */
  readonly uid: number;
}): ServiceManager {
  const file = join(home, "Library", "LaunchAgents", `${LAUNCHD_LABEL}.plist`);
  const domain = `gui/${uid}`;
  const target = `${domain}/${LAUNCHD_LABEL}`;
  const launchctl = (action: string, ...words: readonly string[]) => runOrFail(run, action, ["launchctl", ...words]);
  const isLoaded = async () => (await run("launchctl", ["print", target])).code === 0;
  const stop = async () => {
    if (await isLoaded()) await launchctl("stop the service", "bootout", target);
  };
  const start = async () => {
    if (await isLoaded()) await launchctl("start the service", "kickstart", target);
    else await launchctl("start the service", "bootstrap", domain, file);
  };
  return {
    init: "launchd",
    file,
    waits: false,
    requireRights: () => {},
    async install(description) {
      const changed = await writeServiceFile(file, toLaunchdPlist(description), MODE);
      await launchctl("install the service", "enable", target);
      return changed && await isLoaded() ? ["It still runs as it was installed before: postern service restart"] : [];
    },
    async uninstall() {
      await stop();
      await removeServiceFile(file);
      return [];
    },
    start,
    stop,
    async restart() {
      // A changed file is read when the agent is loaded
      await stop();
      await start();
    },
    async state() {
      const { code, stdout } = await run("launchctl", ["print", target]);
      const detail = /^\s*state = (.+)$/m.exec(stdout)?.[1] ?? (code === 0 ? "unknown" : "not loaded");
      const disabled = await run("launchctl", ["print-disabled", domain]);
      return {
        installed: await readServiceFile(file) !== undefined,
        enabled: !new RegExp(`"${LAUNCHD_LABEL}" => (true|disabled)`).test(disabled.stdout),
        active: ACTIVE[detail] ?? "stopped",
        detail,
      };
    },
  };
}

const ACTIVE: Readonly<Record<string, UnitState["active"]>> = { running: "running", "spawn scheduled": "starting" };

/** Name of the agent with launchd. */
export const LAUNCHD_LABEL = "dev.postern.postern";

/** The text of a launchd agent: starts at login, and again after a crash. Source: launchd.plist(5) */
export function toLaunchdPlist(description: ServiceDescription): string {
  const { command, directory, graceSeconds } = description;
  const words = command.map((word) => `    <string>${escape(word)}</string>`).join("\n");
  return `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<!-- ${toServiceMark(description)} -->
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>${LAUNCHD_LABEL}</string>
  <key>ProgramArguments</key>
  <array>
${words}
  </array>
  <key>WorkingDirectory</key>
  <string>${escape(directory)}</string>
  <key>EnvironmentVariables</key>
  <dict>
    <key>${SERVICE_VARIABLE}</key>
    <string>launchd</string>
  </dict>
  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <dict>
    <key>SuccessfulExit</key>
    <false/>
  </dict>
  <key>ThrottleInterval</key>
  <integer>${Math.ceil(RESTARTS.withinSeconds / RESTARTS.most)}</integer>
  <key>ExitTimeOut</key>
  <integer>${graceSeconds + STOP_MARGIN_SECONDS}</integer>
  <key>Umask</key>
  <integer>63</integer>
  <key>ProcessType</key>
  <string>Background</string>
</dict>
</plist>
`;
}

function escape(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}
