import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import { launchersIn } from "../../lib/guard/launchers.ts";
import { createFiles } from "../../lib/system/files/create_files.ts";
import { containmentHere } from "./command_notes.ts";
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
  look: async (patient) => [
    await checkSandbox(patient),
    ...checkLaunchers(patient),
    ...await checkQuarantine(patient),
  ],
};

const INSTALL = "apt install bubblewrap (or dnf, pacman), and restart the gateway";

async function checkSandbox({ loaded: { config } }: Patient): Promise<Finding> {
  const { sandbox } = config.security.shell;
  const { kind, text } = await containmentHere(sandbox);
  switch (kind) {
    case "contained":
      return fine("sandbox", text);
    case "refused":
      return failure("sandbox", text, INSTALL);
    case "uncontained":
      return warning("sandbox", text, sandbox === "off" ? "postern config set security.shell.sandbox auto" : INSTALL);
  }
}

/** Warns about items that wait in quarantine for a person: a command made them under a protected name. */
async function checkQuarantine({ loaded: { dataDir } }: Patient): Promise<readonly Finding[]> {
  const folder = join(dataDir, "quarantine");
  const { length } = await readdir(folder).catch(() => []);
  if (length === 0) return [];
  const message =
    `Items in "${folder}": ${length}; each was made by a command, or by you while one ran, under a protected name`;
  return [warning("quarantine", message, "look at each, move back what is yours, and remove the rest")];
}

function checkLaunchers({ loaded: { config: { security } } }: Patient): readonly Finding[] {
  const launchers = launchersIn([...new Set([...security.allowed_commands, ...security.process.allowed_commands])]);
  if (launchers.length === 0) return [];
  const message = `Allowed commands that can run any program: ${launchers.join(", ")}`;
  return [warning("sandbox", message, "take them out of security.allowed_commands")];
}
