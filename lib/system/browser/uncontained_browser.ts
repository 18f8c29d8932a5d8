import { mkdir, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { systemCodeOf, ToolError } from "../../base/errors.ts";
import type { Containment } from "../process/containment.ts";
import type { CommandLine } from "../process/process_group.ts";
import type { BrowserDisplay } from "./browser_display.ts";
import { chromiumFlags } from "./chromium.ts";

/** Folder of one uncontained browser, and its way out. */
export interface UncontainedPlace {
  /** Absolute path of a private folder, which goes with the browser */
  readonly folder: string;
  /** As `http://127.0.0.1:40123` */
  readonly proxy: string;
}

/** Settings of a new profile: a second lock beside the switches, as the managed policies of a contained browser. 2 is "never". */
const PREFERENCES = {
  net: { network_prediction_options: 2 },
  plugins: { always_open_pdf_externally: true },
  profile: {
    default_content_setting_values: { geolocation: 2, notifications: 2, media_stream_camera: 2, media_stream_mic: 2 },
  },
  webrtc: { ip_handling_policy: "disable_non_proxied_udp" },
} as const;

/**
 * Returns the command line of a Chromium without bubblewrap, with a new profile. Its own sandbox for pages stays on. It sees the machine as
 * the gateway's user does; what keeps pages from the network are its switches.
 */
export async function uncontainedLine(
  program: string,
  { place: { folder, proxy }, env, display }: {
    readonly place: UncontainedPlace;
    readonly env: Readonly<Record<string, string>>;
    /** Display that it shows a window on. Default: it shows none */
    readonly display?: BrowserDisplay | undefined;
  },
): Promise<CommandLine> {
  const profile = join(folder, "profile");
  const temporary = join(folder, "t");
  await mkdir(join(profile, "Default"), { recursive: true, mode: 0o700 });
  await mkdir(temporary, { mode: 0o700 });
  await writeFile(join(profile, "Default", "Preferences"), JSON.stringify(PREFERENCES));
  return {
    file: program,
    args: chromiumFlags({ proxy, profile, display }),
    cwd: folder,
    env: { ...env, ...display?.env, HOME: folder, TMPDIR: temporary, LANG: "C.UTF-8", PATH: "/usr/bin:/bin" },
    hasChannel: true,
  };
}

/**
 * Checks that a browser may run without bubblewrap as things are.
 * @param options.policies files of policies, and folders of such files. Default: those of this machine
 * @throws {ToolError} `browser_not_contained` where the operator requires the sandbox, where it may yet be found, for root, and where an
 * administrator's policies decide about the browser's network
 */
export async function requireUncontained(
  { kind, reason: why }: Exclude<Containment, { readonly kind: "bubblewrap" }>,
  { requiresSandbox, isRoot = process.getuid?.() === 0, policies = POLICY_PLACES }: {
    readonly requiresSandbox: boolean;
    readonly isRoot?: boolean;
    readonly policies?: readonly string[];
  },
): Promise<void> {
  if (requiresSandbox) {
    throw notContained(
      `the configuration requires the sandbox, and ${why}`,
      'install bubblewrap and allow user namespaces, or set sandbox = "auto" in [browser] and [security.shell]',
    );
  }
  if (kind === "unanswered") throw notContained(`it must run in the sandbox, and ${why}`, "try again");
  if (isRoot) {
    throw notContained(
      `${why}, and the gateway runs as root`,
      "install bubblewrap, or run the gateway as an ordinary user",
    );
  }
  for (const place of policies) {
    const found = await overriding(place);
    if (found === undefined) continue;
    throw notContained(
      `${why}, and a policy of the administrator (${found}) may lead the browser around the gateway`,
      "install bubblewrap and allow user namespaces",
    );
  }
}

/** Returns the refusal of a browser that cannot be kept to its way. */
export function notContained(reason: string, wayOut: string): ToolError {
  return new ToolError("browser_not_contained", `Cannot open the browser: ${reason}; ${wayOut}`);
}

/** Files, and folders of files, of policies that stand above the switches of a browser. Source: Chrome Enterprise, "policy locations" */
const POLICY_PLACES = [
  "/etc/chromium/policies/managed",
  "/etc/chromium-browser/policies/managed",
  "/etc/opt/chrome/policies/managed",
  "/etc/chromium/policies/enrollment",
  "/etc/opt/chrome/policies/enrollment",
  "/Library/Managed Preferences",
  "/Library/Google/Chrome",
] as const;

/** Policies about the network, extensions, which may set a proxy, and those that come from a server. */
const OVERRIDING = /Proxy|WebRtc|ExtensionInstallForcelist|ExtensionSettings|Enrollment/;
const MAX_POLICY_BYTES = 1_048_576;
const MAX_POLICY_FILES = 1000;

/** Returns the file of a place that has an overriding policy, or that cannot be read. Undefined for none. */
async function overriding(place: string): Promise<string | undefined> {
  const found = await stat(place).catch((error: unknown) => isMissing(error) ? undefined : "unreadable" as const);
  if (found === undefined) return undefined;
  if (found === "unreadable") return place;
  if (!found.isDirectory()) return await isOverriding(place) ? place : undefined;
  const names = await readdir(place).catch(() => undefined);
  if (names === undefined || names.length > MAX_POLICY_FILES) return place;
  for (const name of names) {
    const file = await overriding(join(place, name));
    if (file !== undefined) return file;
  }
  return undefined;
}

async function isOverriding(file: string): Promise<boolean> {
  try {
    if (OVERRIDING.test(file)) return true;
    const bytes = await readFile(file);
    // A property list may be binary: its keys are plain
    return bytes.length > MAX_POLICY_BYTES || OVERRIDING.test(bytes.toString("latin1"));
  } catch {
    return true;
  }
}

function isMissing(error: unknown): boolean {
  return ["ENOENT", "ENOTDIR"].includes(systemCodeOf(error) ?? "");
}
