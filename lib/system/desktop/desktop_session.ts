import { join } from "node:path";
import process from "node:process";
import type { Clock } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import type { CommandLookup } from "../process/command_lookup.ts";
import type { Processes } from "../process/processes.ts";

/** Picture of the whole screen. */
export interface ScreenPicture {
  /** File as the program wrote it. Nobody has looked at it */
  readonly bytes: Uint8Array;
  /** Name of the program. */
  readonly program: string;
}

/** Signal of one opening, and what the agent may change. */
export interface OpenUrlOptions {
  readonly signal: AbortSignal;
  /** Absolute paths of folders that tools write to. None may hold the files that decide which program opens an address */
  readonly writable: readonly string[];
}

/** Program that was asked to open an address. */
export interface OpenedUrl {
  readonly program: string;
  /** True when the program runs on, as a browser does that it has become. */
  readonly isRunning: boolean;
}

/** Options of `createDesktop`. */
export interface DesktopOptions {
  readonly processes: Pick<Processes, "run">;
  readonly commands: Pick<CommandLookup, "find">;
  readonly clock: Clock;
  /** Returns a variable of the gateway's environment. */
  readonly environment: (name: string) => string | undefined;
  /** The user's home folder, absolute. */
  readonly home: string;
  /** Absolute path of a folder that no tool reaches, for pictures while they are taken. Made with the first one */
  readonly folder: string;
  /** Default: that of this process */
  readonly platform?: string;
  readonly limits?: ScreenLimits;
}

/** Bounds of one program that takes the screen. */
export interface ScreenLimits {
  readonly timeoutMs: number;
  /** Bytes of the picture. */
  readonly maxBytes: number;
}

/** Kind of the session that a gateway runs in. */
export type SessionKind = "wayland" | "x11" | "macos";

/** A desktop session, with the variables that a program needs to reach it. */
export interface DesktopSession {
  readonly kind: SessionKind;
  readonly env: Readonly<Record<string, string>>;
}

const REACHING = ["DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "XAUTHORITY", "DBUS_SESSION_BUS_ADDRESS"];

/** Finds the desktop session. @param action end of the sentence "Cannot ..." @throws {ToolError} `no_display`, `unsupported_platform` */
export function sessionOf(
  action: string,
  { environment, home, platform = process.platform }: Pick<DesktopOptions, "environment" | "home" | "platform">,
): DesktopSession {
  if (platform === "darwin") return { kind: "macos", env: {} };
  if (platform === "win32") {
    throw new ToolError("unsupported_platform", `Cannot ${action}: this does not work on Windows, use Linux or macOS`);
  }
  const given = REACHING.map((name) => [name, environment(name) ?? ""] as const).filter(([, value]) => value !== "");
  const env: Record<string, string> = Object.fromEntries(given);
  if (env["WAYLAND_DISPLAY"] === undefined && env["DISPLAY"] === undefined) {
    throw new ToolError(
      "no_display",
      `Cannot ${action}: the gateway has no display, since neither WAYLAND_DISPLAY nor DISPLAY is set in its environment; ` +
        "start it inside the desktop session",
    );
  }
  const kind = env["WAYLAND_DISPLAY"] === undefined ? "x11" : "wayland";
  // Qt decides by the type, and X programs look for the key in a home that they do not get
  return { kind, env: { XAUTHORITY: join(home, ".Xauthority"), ...env, XDG_SESSION_TYPE: kind } };
}
