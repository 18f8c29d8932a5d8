import { stat } from "node:fs/promises";
import { basename, isAbsolute, join } from "node:path";
import { ToolError } from "../../base/errors.ts";
import { type DesktopOptions, sessionOf } from "../desktop/desktop_session.ts";

/** Display of the user's desktop session, for a browser with a window. */
export interface BrowserDisplay {
  /** Switches of the browser, in place of those that hide its window */
  readonly flags: readonly string[];
  /** Variables of a browser without a sandbox */
  readonly env: Readonly<Record<string, string>>;
  /** Ways of a browser in the sandbox, which sees the socket of the display and its key, and nothing else of the session */
  readonly inside: { readonly mounts: readonly string[]; readonly env: Readonly<Record<string, string>> };
}

const ACTION = "open the browser with a window";
/** Places inside the sandbox. */
const XAUTHORITY = "/tmp/xauthority";
const RUNTIME = "/tmp/wayland";
/** A display of this machine, such as `:0` or `unix:1.0` */
const LOCAL_DISPLAY = /^(?:unix)?:(\d{1,5})(?:\.\d+)?$/;

/**
 * Finds the display that a browser shows its window on.
 * @throws {ToolError} `no_display`: there is none, or it is one of another machine, which the sandbox does not reach
 */
export async function findDisplay(
  options: Pick<DesktopOptions, "environment" | "home" | "platform">,
): Promise<BrowserDisplay> {
  const { kind, env } = sessionOf(ACTION, options);
  switch (kind) {
    case "macos":
      return { flags: [], env: {}, inside: { mounts: [], env: {} } };
    case "wayland":
      return waylandDisplay(env);
    case "x11":
      return await xDisplay(env);
  }
}

function waylandDisplay(env: Readonly<Record<string, string>>): BrowserDisplay {
  const { WAYLAND_DISPLAY: name = "", XDG_RUNTIME_DIR: folder = "" } = env;
  if (!isAbsolute(name) && folder === "") {
    throw noDisplay("XDG_RUNTIME_DIR is not set, where WAYLAND_DISPLAY has its socket");
  }
  const socket = isAbsolute(name) ? name : join(folder, name);
  const inside = basename(socket);
  return {
    flags: ["--ozone-platform=wayland"],
    env: { WAYLAND_DISPLAY: socket, XDG_RUNTIME_DIR: folder },
    inside: {
      mounts: ["--ro-bind", socket, join(RUNTIME, inside)],
      env: { WAYLAND_DISPLAY: inside, XDG_RUNTIME_DIR: RUNTIME },
    },
  };
}

async function xDisplay(
  { DISPLAY = "", XAUTHORITY: key = "" }: Readonly<Record<string, string>>,
): Promise<BrowserDisplay> {
  const number = LOCAL_DISPLAY.exec(DISPLAY)?.[1];
  if (number === undefined) {
    throw noDisplay(`DISPLAY is ${JSON.stringify(DISPLAY.slice(0, 100))}, which is no display of this machine`);
  }
  const socket = `/tmp/.X11-unix/X${number}`;
  const hasKey = await stat(key).then((found) => found.isFile(), () => false);
  return {
    flags: ["--ozone-platform=x11"],
    env: { DISPLAY, ...(hasKey ? { XAUTHORITY: key } : {}) },
    inside: {
      mounts: ["--ro-bind", socket, socket, ...(hasKey ? ["--ro-bind", key, XAUTHORITY] : [])],
      env: { DISPLAY, ...(hasKey ? { XAUTHORITY } : {}) },
    },
  };
}

function noDisplay(reason: string): ToolError {
  const wayOut = "start the gateway inside the desktop session, or set [browser] headless = true";
  return new ToolError("no_display", `Cannot ${ACTION}: ${reason}; ${wayOut}`);
}
