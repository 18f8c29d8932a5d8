import {
  HOPELESS_EXIT_CODES,
  RESTARTS,
  SERVICE_SUMMARY,
  SERVICE_VARIABLE,
  type ServiceDescription,
  STOP_MARGIN_SECONDS,
  toServiceMark,
} from "./service_description.ts";

/** Told alive twice in this time, or it is restarted. */
const WATCHDOG_SECONDS = 60;
/** A first start may have to move a large database to a new version. */
const START_SECONDS = 300;

/**
 * The text of a systemd user unit. It hardens only what a user's manager can without a mount namespace, and what tools can live
 * with: no MemoryDenyWriteExecute, since JavaScript and WebAssembly are compiled; no RestrictNamespaces, since bubblewrap makes them.
 * Each program that tools run stays within the unit (`KillMode=control-group`); one that eats all memory ends alone (`OOMPolicy`).
 *
 * Source: systemd.unit(5), systemd.service(5) "Command lines": `:` before the program keeps `$` as it is; `%` is doubled everywhere
 */
export function toSystemdUnit(description: ServiceDescription): string {
  const { directory, graceSeconds } = description;
  // systemd takes no program with these in its path, and env starts any
  const command = /["'\\]/.test(description.command[0] ?? "")
    ? ["/usr/bin/env", ...description.command]
    : description.command;
  return `# Written by postern service install, and again by the next one
# ${toServiceMark(description)}
[Unit]
Description=${SERVICE_SUMMARY}
StartLimitIntervalSec=${RESTARTS.withinSeconds}
StartLimitBurst=${RESTARTS.most}

[Service]
Type=notify
NotifyAccess=all
ExecStart=:${command.map(quote).join(" ")}
ExecReload=kill -HUP $MAINPID
WorkingDirectory=${percent(directory)}
Environment=${SERVICE_VARIABLE}=systemd
Restart=on-failure
RestartSec=${RESTARTS.delaySeconds}
RestartPreventExitStatus=${HOPELESS_EXIT_CODES.join(" ")}
TimeoutStartSec=${START_SECONDS}
TimeoutStopSec=${graceSeconds + STOP_MARGIN_SECONDS}
WatchdogSec=${WATCHDOG_SECONDS}
KillMode=control-group
OOMPolicy=continue
UMask=0077
LimitCORE=0
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallArchitectures=native

[Install]
WantedBy=default.target
`;
}

function quote(word: string): string {
  return `"${percent(word).replaceAll("\\", "\\\\").replaceAll('"', '\\"')}"`;
}

/** `%h` and its like would be put in. */
function percent(text: string): string {
  return text.replaceAll("%", "%%");
}
