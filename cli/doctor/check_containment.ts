import { systemClock } from "../../lib/base/clock.ts";
import { launchersIn } from "../../lib/guard/launchers.ts";
import { createFiles } from "../../lib/system/files/create_files.ts";
import { createCommandLookup } from "../../lib/system/process/create_command_lookup.ts";
import { findContainment } from "../../lib/system/process/sandbox.ts";
import { type Check, failure, type Finding, fine, type Patient, warning } from "./finding.ts";

/** By which of its two ways the file tools stay in the workspace here (DESIGN.md section 8). */
export const filesCheck: Check = {
  name: "file safety",
  look({ context: { io }, loaded: { ownPaths } }) {
    const { variant } = createFiles({ clock: systemClock, home: io.home, ownPaths });
    if (variant === "handles") {
      return Promise.resolve(fine("file safety", "Paths are walked through open folder handles"));
    }
    const message = "Paths are checked before and after they are opened, since there are no folder handles here";
    return Promise.resolve(
      process.platform === "linux"
        ? warning("file safety", message, "mount /proc; on Deno, run with --allow-all")
        : fine("file safety", message),
    );
  },
};

/** Whether the commands that tools run are contained, and whether one of them can run any other. */
export const sandboxCheck: Check = {
  name: "sandbox",
  look: async (patient) => [await checkSandbox(patient), ...checkLaunchers(patient)],
};

const INSTALL = "apt install bubblewrap (or dnf, pacman)";

async function checkSandbox({ loaded: { config } }: Patient): Promise<Finding> {
  const { sandbox } = config.security.shell;
  if (sandbox === "off") {
    const message = 'Commands of tools are not contained: security.shell.sandbox is "off"';
    return warning("sandbox", message, "postern config set security.shell.sandbox auto");
  }
  const found = await findContainment(createCommandLookup(), systemClock);
  if (found.kind === "bubblewrap") return fine("sandbox", "Commands of tools are contained by bubblewrap");
  if (sandbox === "require") {
    const message = `Commands of tools are refused: security.shell.sandbox is "require", and ${found.reason}`;
    return failure("sandbox", message, INSTALL);
  }
  return warning("sandbox", `Commands of tools are not contained: ${found.reason}`, INSTALL);
}

function checkLaunchers({ loaded: { config: { security } } }: Patient): readonly Finding[] {
  const launchers = launchersIn([...new Set([...security.allowed_commands, ...security.process.allowed_commands])]);
  if (launchers.length === 0) return [];
  const message = `Allowed commands that can run any program: ${launchers.join(", ")}`;
  return [warning("sandbox", message, "take them out of security.allowed_commands")];
}
