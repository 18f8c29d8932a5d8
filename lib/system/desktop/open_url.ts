import { realpath } from "node:fs/promises";
import { isAbsolute, join } from "node:path";
import { ToolError } from "../../base/errors.ts";
import { isWithin } from "../files/forbidden_paths.ts";
import { handOver } from "../process/hand_over.ts";
import type { DesktopOptions, DesktopSession, OpenedUrl, OpenUrlOptions } from "./desktop_session.ts";

/** Variables that openers and browsers use to find the session, the user's settings and the user's choice of a browser. */
const USERS = [
  ...["HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "BROWSER", "DESKTOP_SESSION", "KDE_FULL_SESSION"],
  ...["KDE_SESSION_VERSION", "XDG_CURRENT_DESKTOP", "XDG_SESSION_DESKTOP", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS"],
  ...["XDG_DATA_HOME", "XDG_DATA_DIRS", "XDG_CACHE_HOME", "XDG_STATE_HOME"],
];
/** Longer than an opener takes to hand an address on. One that runs on has become the browser itself */
const WAIT_MS = 5000;
/** Meaning of exit codes. Source: xdg-open(1) "EXIT CODES" */
const XDG_CODES: Readonly<Record<number, string>> = {
  3: ": it found no program for web addresses",
  4: ": the program for web addresses failed",
};

type Options = DesktopOptions & OpenUrlOptions;

/** Opens an address in the user's browser, see `Desktop`. */
export async function openUrl(url: URL, session: DesktopSession, options: Options): Promise<OpenedUrl> {
  await requireUsersOwn(options);
  const { program, file, args } = await findOpener(plainText(url), session, options);
  const { environment, clock, signal } = options;
  const given = USERS.map((name) => [name, environment(name) ?? ""] as const).filter(([, value]) => value !== "");
  const env = { ...Object.fromEntries(given), ...session.env };
  const end = await handOver({ file, args, env, waitMs: WAIT_MS, clock, signal });
  switch (end.kind) {
    case "running":
      return { program, isRunning: true };
    case "signal":
      throw new ToolError("open_failed", `Cannot open the address: ${program} was killed by ${end.name}`);
    case "exit": {
      if (end.code === 0) return { program, isRunning: false };
      const meaning = program === "xdg-open" ? XDG_CODES[end.code] ?? "" : "";
      throw new ToolError("open_failed", `Cannot open the address: ${program} ended with status ${end.code}${meaning}`);
    }
  }
}

interface Opener {
  readonly program: string;
  readonly file: string;
  readonly args: readonly string[];
}

async function findOpener(address: string, { kind }: DesktopSession, { commands }: Options): Promise<Opener> {
  const openers = kind === "macos" ? [{ program: "open", args: [address] }] : [
    { program: "xdg-open", args: [address] },
    { program: "gio", args: ["open", address] },
    // Source: XDG Desktop Portal, org.freedesktop.portal.OpenURI
    { program: "gdbus", args: [...PORTAL, "''", variantText(address), "{}"] },
  ];
  for (const opener of openers) {
    const file = await commands.find(opener.program);
    if (file !== undefined) return { ...opener, file };
  }
  const names = openers.map(({ program }) => program).join(", ");
  throw new ToolError("no_opener", `Cannot open the address: no program for it is installed, looked for ${names}`);
}

const PORTAL = [
  ...["call", "--session", "--timeout", "4", "--dest", "org.freedesktop.portal.Desktop"],
  ...["--object-path", "/org/freedesktop/portal/desktop", "--method", "org.freedesktop.portal.OpenURI.OpenURI"],
];

/** Returns a text as GVariant writes it: gdbus would read escapes in it, and find another address than the checked one. */
function variantText(text: string): string {
  return `'${text.replace(/[\\']/g, "\\$&")}'`;
}

/** Returns an address without the characters that RFC 3986 does not have. They mean something to shells, and an opener may be a script. */
function plainText({ href }: URL): string {
  return href.replace(/[^A-Za-z0-9\-._~:/?#[\]@!$&'()*+,;=%]/g, encodeURIComponent);
}

/**
 * Refuses an opening where tools of the agent could have changed which program opens addresses: that program would run outside of the
 * sandbox. @throws {ToolError} `opener_unsafe`
 */
async function requireUsersOwn({ writable, environment, home }: Options): Promise<void> {
  const [own, reached] = await Promise.all([realPaths(decidingPlaces(home, environment)), realPaths(writable)]);
  const found = own.find((place) => reached.some((folder) => isWithin(place, folder)));
  if (found === undefined) return;
  throw new ToolError(
    "opener_unsafe",
    `Cannot open the address: tools may write to "${found}", which decides what program opens it, and that runs without a sandbox; ` +
      "give --workspace and [security.write_file] allowed_root folders below your home",
  );
}

/** Returns the absolute paths of files and folders that decide which program opens an address. */
function decidingPlaces(home: string, environment: Options["environment"]): readonly string[] {
  const valueOf = (name: string, missing = "") => environment(name) || missing;
  const listOf = (name: string) => valueOf(name).split(":");
  const data = valueOf("XDG_DATA_HOME", join(home, ".local/share"));
  const places = [
    ...[home, valueOf("HOME"), valueOf("XDG_CONFIG_HOME", join(home, ".config")), data, join(data, "applications")],
    ...[...listOf("XDG_CONFIG_DIRS"), ...listOf("XDG_DATA_DIRS")],
    // Each is a command, with or without arguments
    ...listOf("BROWSER").map((command) => command.split(" ")[0] ?? ""),
  ];
  return places.filter((place) => isAbsolute(place));
}

/** @returns each path with its links resolved, as it is where nothing is there */
function realPaths(paths: readonly string[]): Promise<readonly string[]> {
  return Promise.all(paths.map((path) => realpath(path).catch(() => path)));
}
