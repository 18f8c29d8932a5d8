import type { DesktopOptions, OpenedUrl, OpenUrlOptions, ScreenPicture } from "./desktop_session.ts";

/** Doors to the desktop session that the gateway runs in (docs/design/paths_and_commands.md "The desktop"). */
export interface Desktop {
  /**
   * Takes a picture of the screen with the first installed program that fits the session. Nothing of it stays on the disk.
   * @throws {ToolError} `no_display`, `no_screen_program`, `screen_failed`, `screen_too_large`, and those of `Processes.run`
   * @throws {CancelError} when the signal aborts; the program is killed
   */
  takeScreen(options: { readonly signal: AbortSignal }): Promise<ScreenPicture>;
  /**
   * Hands an address to the user's own browser. Nobody learns whether a page is shown.
   * @param url http or https, which the caller has found allowed, or a file of Postern's own
   * @throws {ToolError} `no_display`, `unsupported_platform`, `no_opener`, `opener_unsafe`, `open_failed`, `command_not_started`
   * @throws {CancelError} when the signal aborts before the opener has ended or was left to the user
   */
  openUrl(url: URL, options: OpenUrlOptions): Promise<OpenedUrl>;
}

/** Creates the doors to the desktop. Nothing is looked for before the first call. */
export function createDesktop(options: DesktopOptions): Desktop {
  return {
    async takeScreen({ signal }) {
      const { takeScreen } = await import("./take_screen.ts");
      const { sessionOf } = await import("./desktop_session.ts");
      return await takeScreen(sessionOf("take the screen", options), { ...options, signal });
    },
    async openUrl(url, given) {
      const { openUrl } = await import("./open_url.ts");
      const { sessionOf } = await import("./desktop_session.ts");
      return await openUrl(url, sessionOf("open the address", options), { ...options, ...given });
    },
  };
}
