import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { createCommandLookup } from "../../lib/system/process/command_lookup.ts";
import type { Containment } from "../../lib/system/process/containment.ts";

/** Machine on which bubblewrap does not work. Tests hand in their own. */
export interface SandboxMachine {
  readonly platform: string;
  /** Returns the absolute path of bubblewrap. Undefined: it is not installed */
  readonly findBubblewrap: () => Promise<string | undefined>;
  /** Returns the text of a file, without blanks around it. Empty where it cannot be read */
  readonly read: (path: string) => Promise<string>;
  /** Returns the names in a folder, none where it cannot be read */
  readonly list: (folder: string) => Promise<readonly string[]>;
}

/** Package managers by the `ID` or `ID_LIKE` of /etc/os-release. */
const INSTALLERS: readonly (readonly [system: RegExp, command: string])[] = [
  [/\b(?:debian|ubuntu)\b/, "sudo apt install"],
  [/\b(?:fedora|rhel|centos)\b/, "sudo dnf install"],
  [/\barch\b/, "sudo pacman -S"],
  [/\bsuse\b/, "sudo zypper install"],
  [/\balpine\b/, "sudo apk add"],
];

const PROFILES = "/etc/apparmor.d";
/** Profile of Ubuntu's package apparmor-profiles, which lies in PROFILES from 25.04 on */
const UBUNTU_PROFILE = "bwrap-userns-restrict";
/**
 * Returns what makes bubblewrap work on a machine, as a command or a sentence of one line. AppArmor takes no second profile for one path,
 * so that a profile is named only where none is there.
 * Source: https://documentation.ubuntu.com/release-notes/25.04 "AppArmor profile for bwrap"
 */
export async function sandboxCure(
  found: Exclude<Containment, { readonly kind: "bubblewrap" }>,
  machine: SandboxMachine = thisMachine(),
): Promise<string> {
  if (found.kind === "unanswered") return "postern doctor, once the machine has less to do";
  if (machine.platform !== "linux") {
    return "run Postern in a Linux container or virtual machine: nothing contains commands on this system";
  }
  const file = await machine.findBubblewrap();
  const isRestricted = await machine.read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") === "1";
  const steps = [
    ...file === undefined ? [await installing(machine)] : [],
    ...isRestricted ? await allowingByProfile(machine, file !== undefined) : [],
    ...await machine.read("/proc/sys/kernel/unprivileged_userns_clone") === "0"
      ? ["sudo sysctl -w kernel.unprivileged_userns_clone=1"]
      : [],
    ...await machine.read("/proc/sys/user/max_user_namespaces") === "0"
      ? ["sudo sysctl -w user.max_user_namespaces=15000"]
      : [],
  ];
  if (steps.length > 0) return `${steps.join(" && ")}, and restart the gateway`;
  return "allow user namespaces for this user, in a container by its security options, and restart the gateway";
}

async function installing({ read }: SandboxMachine): Promise<string> {
  const system = (await read("/etc/os-release")).split("\n").filter((line) => /^ID(?:_LIKE)?=/.test(line)).join(" ");
  const command = INSTALLERS.find(([name]) => name.test(system))?.[1];
  return command === undefined ? "install bubblewrap with your package manager" : `${command} bubblewrap`;
}

/** Returns the commands that let bubblewrap make user namespaces under AppArmor. @param isInstalled whether bubblewrap is there */
async function allowingByProfile({ read, list }: SandboxMachine, isInstalled: boolean): Promise<readonly string[]> {
  for (const name of await list(PROFILES)) {
    if (!(await read(join(PROFILES, name))).split("\n").some(beginsProfile)) continue;
    const isDisabled = (await list(join(PROFILES, "disable"))).includes(name);
    const enabling = isDisabled ? [`sudo rm ${PROFILES}/disable/${name}`] : [];
    return isInstalled || isDisabled ? [...enabling, `sudo apparmor_parser -r ${PROFILES}/${name}`] : [];
  }
  return [
    "sudo apt install apparmor-profiles",
    `sudo install -m 644 /usr/share/apparmor/extra-profiles/${UBUNTU_PROFILE} ${PROFILES}/`,
    `sudo apparmor_parser -r ${PROFILES}/${UBUNTU_PROFILE}`,
  ];
}

/** Tells whether a line of a file in PROFILES begins a profile for bubblewrap, with a name or by its path alone. */
function beginsProfile(line: string): boolean {
  const [first = "", ...rest] = line.replaceAll('"', "").trim().split(/\s+/);
  const attached = first === "profile" ? rest : [first];
  return line.trimEnd().endsWith("{") && attached.some((word) => word.endsWith("/bwrap"));
}

function thisMachine(): SandboxMachine {
  return {
    platform: process.platform,
    findBubblewrap: () => createCommandLookup().find("bwrap"),
    read: (path) => readFile(path, "utf8").then((text) => text.trim(), () => ""),
    list: async (folder) => {
      const entries = await readdir(folder, { withFileTypes: true }).catch(() => []);
      return entries.filter((entry) => entry.isFile() || entry.isSymbolicLink()).map(({ name }) => name).sort();
    },
  };
}
