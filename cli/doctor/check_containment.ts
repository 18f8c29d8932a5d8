import { readdir } from "node:fs/promises";
import { delimiter, isAbsolute, join } from "node:path";
import { systemClock } from "../../lib/base/clock.ts";
import { messageOf } from "../../lib/base/errors.ts";
import type { Config } from "../../lib/config/config.ts";
import { launchersIn } from "../../lib/guard/understood_commands.ts";
import { createFiles } from "../../lib/system/files/create_files.ts";
import { type Bounds, boundsText } from "../../lib/system/process/bounds.ts";
import {
  type Bubblewrap,
  type Containment,
  containmentOf,
  type ContainmentSettings,
} from "../../lib/system/process/containment.ts";
import { createCommandLookup } from "../../lib/system/process/command_lookup.ts";
import { requireUncontained } from "../../lib/system/browser/uncontained_browser.ts";
import { requiresSandbox } from "../../lib/tools/web/drive_browser.ts";
import { forbidsLinks, tryBubblewrap } from "../../lib/system/process/sandbox.ts";
import { CommandError } from "../command.ts";
import type { Preset } from "../presets.ts";
import { type Check, failure, type Finding, fine, type Installation, warning } from "./finding.ts";
import { sandboxCure } from "./sandbox_cure.ts";

/**
 * Checks which of two ways keeps the file tools in the workspace on this machine.
 * Source: docs/design/paths_and_commands.md "The promise of files"
 */
export const filesCheck: Check = {
  name: "file safety",
  run({ context: { io }, loaded: { ownPaths } }) {
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

/** Checks that the commands of tools are contained, that none of them can run any other program, and that no item waits in quarantine. */
export const sandboxCheck: Check = {
  name: "sandbox",
  run: async (installation) => [
    ...await checkSandbox(installation),
    ...await checkBrowser(installation),
    ...checkLaunchers(installation),
    ...await checkQuarantine(installation),
  ],
};

async function checkSandbox({ context: { io }, loaded: { config } }: Installation): Promise<readonly Finding[]> {
  const found = await foundHere(config.security.shell);
  const { kind, text } = containmentOf(config.security.shell, found);
  switch (kind) {
    case "contained":
      return [
        fine("sandbox", text),
        boundsFinding(found?.kind === "bubblewrap" ? found.bounds : undefined),
        ...config.security.enable_git && found?.kind === "bubblewrap" ? await linksFindings(found) : [],
        ...config.security.shell.syntax === "contained" ? await programFindings(io.env["PATH"] ?? "") : [],
      ];
    case "refused":
      return [failure("sandbox", text, await cureOf(found))];
    case "uncontained":
      return [warning("sandbox", text, await cureOf(found))];
  }
}

/** Returns what lets commands be contained. @param found undefined with `sandbox = "off"` */
async function cureOf(found: Containment | undefined): Promise<string> {
  return found === undefined || found.kind === "bubblewrap"
    ? "postern config set security.shell.sandbox auto"
    : await sandboxCure(found);
}

/** Programs of everyday work that version managers, as nvm, pyenv or rustup, keep in the home folder */
const MANAGED = ["node", "npm", "python3", "cargo", "go", "ruby", "java"];

/** Warns of programs that a person has and contained commands have not. @param path the person's PATH */
export async function programFindings(path: string): Promise<readonly Finding[]> {
  const [theirs, own] = [
    createCommandLookup(path.split(delimiter).filter((folder) => isAbsolute(folder))),
    createCommandLookup(),
  ];
  const hidden: string[] = [];
  for (const name of MANAGED) {
    if (await own.find(name) === undefined && await theirs.find(name) !== undefined) hidden.push(name);
  }
  if (hidden.length === 0) return [];
  const message = `Commands in the sandbox do not see ${hidden.join(", ")}: yours is outside of /usr`;
  return [warning("programs", message, `install ${hidden.join(", ")} for the whole system, such as with apt`)];
}

/** Warns where git cannot be kept from links. Takes at most 10 s */
export async function linksFindings(bubblewrap: Bubblewrap): Promise<readonly Finding[]> {
  const { signal } = new AbortController();
  if (await forbidsLinks(bubblewrap, { clock: systemClock, signal })) return [];
  const message =
    "git may follow a link that a contained program makes beside it, since this machine cannot forbid links";
  return [warning("git", message, "use Linux 5.10 and util-linux 2.38 or later, where bubblewrap works inside itself")];
}

/** Says what contained programs may take of the machine. @param bounds undefined: there are none */
export function boundsFinding(bounds: Bounds | undefined): Finding {
  if (bounds === undefined) {
    const message =
      "Contained programs have no bounds on processes and files, since prlimit is not there or does not work";
    return warning("bounds", message, "apt install util-linux (or dnf, pacman), and restart the gateway");
  }
  return bounds.processes === undefined
    ? warning("bounds", boundsText(bounds), "run the gateway as a user of its own, on Linux 5.14 or later")
    : fine("bounds", boundsText(bounds));
}

async function checkBrowser({ loaded: { config } }: Installation): Promise<readonly Finding[]> {
  if (!config.browser.enabled) return [];
  return [await browserFinding(await tryBubblewrapHere(), config)];
}

/** Says how the browser is contained. @param found result of a look for bubblewrap */
export async function browserFinding(
  found: Containment,
  config: Pick<Config, "browser" | "security">,
): Promise<Finding> {
  if (found.kind === "bubblewrap") {
    const contained = "Pages run in bubblewrap, without your files and your network";
    if (config.browser.headless) return fine("browser", contained);
    const window =
      "its window reaches your display, so a page that breaks out of the browser may see the screen and keys";
    return warning("browser", `${contained}, but ${window}`, "postern config set browser.headless true");
  }
  try {
    await requireUncontained(found, { requiresSandbox: requiresSandbox(config) });
  } catch (error) {
    return failure("browser", messageOf(error), await sandboxCure(found));
  }
  const why = `since ${found.reason}: the browser's own switches alone keep them from this machine and your network`;
  const message =
    `Pages are contained in the weaker way, ${why}, and a page that breaks out of the browser has your files`;
  return warning("browser", message, await sandboxCure(found));
}

/** Warns about items that wait in quarantine for a person: a command made them under a protected name. */
async function checkQuarantine({ loaded: { dataDir } }: Installation): Promise<readonly Finding[]> {
  const folder = join(dataDir, "quarantine");
  const { length } = await readdir(folder).catch(() => []);
  if (length === 0) return [];
  const message =
    `Items in "${folder}": ${length}; each was made by a command, or by you while one ran, under a protected name`;
  return [warning("quarantine", message, "look at each, move back what is yours, and remove the rest")];
}

function checkLaunchers({ loaded: { config: { security } } }: Installation): readonly Finding[] {
  const launchers = launchersIn([...new Set([...security.allowed_commands, ...security.process.allowed_commands])]);
  if (launchers.length === 0) return [];
  const message = `Allowed commands that can run any program: ${launchers.join(", ")}`;
  return [warning("sandbox", message, "take them out of security.allowed_commands")];
}

/** Returns notes on commands that tools run: how they are contained here, and which allowed command can run any program. */
export async function commandNotes({ security }: Config): Promise<readonly string[]> {
  const allowed = [...new Set([...security.allowed_commands, ...security.process.allowed_commands])];
  const launchers = launchersIn(allowed);
  const warning = launchers.length === 0
    ? []
    : [`Allowed commands that can run any program: ${launchers.join(", ")}; remove them from allowed_commands`];
  const { text } = containmentOf(security.shell, await foundHere(security.shell));
  return [`Sandbox: ${text}`, ...warning];
}

/** Looks for bubblewrap as a gateway that starts now on this machine would. Takes at most 10 s. @returns undefined with `off`, which needs none */
async function foundHere({ sandbox }: ContainmentSettings): Promise<Containment | undefined> {
  return sandbox === "off" ? undefined : await tryBubblewrapHere();
}

/** Looks for bubblewrap on this machine, and tries it. Takes at most 10 s. */
export async function tryBubblewrapHere(): Promise<Containment> {
  const { signal } = new AbortController();
  return await tryBubblewrap({ commands: createCommandLookup(), clock: systemClock, signal });
}

/** Refuses the preset that needs the sandbox where nothing contains commands. @throws {CommandError} with the cure */
export async function requireSandboxFor(preset: Preset, look = tryBubblewrapHere): Promise<void> {
  if (preset !== "code") return;
  const found = await look();
  if (found.kind === "bubblewrap") return;
  throw new CommandError(
    `Cannot use the preset code here: its commands run in the sandbox alone, and ${found.reason}; ${await sandboxCure(
      found,
    )}`,
  );
}
