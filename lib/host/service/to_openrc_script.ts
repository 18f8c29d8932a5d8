import {
  RESTARTS,
  SERVICE_NAME,
  SERVICE_SUMMARY,
  SERVICE_VARIABLE,
  type ServiceDescription,
  STOP_MARGIN_SECONDS,
  toServiceMark,
} from "./service_description.ts";

/** User and group that the service runs as. */
export const OPENRC_USER = SERVICE_NAME;

/**
 * The text of an `openrc-run` script, supervised by supervise-daemon, which starts a crashed service again.
 *
 * Source: openrc-run(8), supervise-daemon(8); openrc evaluates these variables as words of a shell command, so each word is quoted
 * within them once more
 */
export function toOpenrcScript(description: ServiceDescription): string {
  const [program = "", ...options] = description.command;
  const { directory, graceSeconds } = description;
  return `#!/sbin/openrc-run
# shellcheck shell=sh disable=SC1003,SC2016,SC2034
# Written by postern service install, and again by the next one
# ${toServiceMark(description)}

name=${quote(SERVICE_NAME)}
description=${quote(SERVICE_SUMMARY)}

supervisor="supervise-daemon"
command=${quote(quote(program))}
command_args=${quote(options.map(quote).join(" "))}
command_user="${OPENRC_USER}:${OPENRC_USER}"
directory=${quote(quote(directory))}
umask="0077"
retry="SIGTERM/${graceSeconds + STOP_MARGIN_SECONDS}/SIGKILL/5"
respawn_delay="${RESTARTS.delaySeconds}"
respawn_max="${RESTARTS.most}"
respawn_period="${RESTARTS.withinSeconds}"

export ${SERVICE_VARIABLE}="openrc"
export HOME=${quote(directory)}

depend() {
\tuse net dns logger
\tafter bootmisc
}

start_pre() {
\tcheckpath --directory --mode 0700 --owner "$command_user" ${quote(directory)}
}
`;
}

function quote(word: string): string {
  if (/^[\w%+,./:=@-]+$/.test(word)) return word;
  return `'${word.replaceAll("'", "'\\''")}'`;
}
