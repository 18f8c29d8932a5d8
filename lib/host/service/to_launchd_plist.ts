import {
  RESTARTS,
  SERVICE_VARIABLE,
  type ServiceDescription,
  STOP_MARGIN_SECONDS,
  toServiceMark,
} from "./service_description.ts";

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
