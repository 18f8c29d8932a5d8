import { cancelError } from "../../base/cancel.ts";
import { withTimeout } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { SEARCH_PATH } from "../process/command_lookup.ts";
import { startGroup } from "../process/process_group.ts";
import type { DesktopOptions, DesktopSession, SessionKind } from "./desktop.ts";

/** Programs with the words in front of the address, in the order in which they are looked for. */
const OPENERS: Readonly<Record<SessionKind, readonly (readonly [string, ...string[]])[]>> = {
  wayland: [["xdg-open"], ["gio", "open"]],
  x11: [["xdg-open"], ["gio", "open"]],
  macos: [["open"]],
};
/** Variables by which the opener finds the person's own browser and its settings. */
const CHOOSING = ["LANG", "XDG_CURRENT_DESKTOP", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_DATA_DIRS", "BROWSER"];
/** An opener that fails does so at once. One that runs on became the browser */
const OPEN_MS = 5_000;

/** Opens an address in the person's own browser, see `Desktop`. The browser is the person's: nothing ends it. */
export async function openUrl(
  url: string,
  session: DesktopSession,
  { commands, clock, environment, home, signal }: DesktopOptions & { readonly signal: AbortSignal },
): Promise<void> {
  const openers = OPENERS[session.kind];
  const found = await Promise.all(
    openers.map(async ([name, ...args]) => [await commands.find(name), ...args] as const),
  );
  const [file, ...args] = found.find(([path]) => path !== undefined) ?? [];
  if (file === undefined) {
    const names = openers.map(([name]) => name).join(", ");
    throw new ToolError("no_opener", `Cannot open the address: no program for it is installed, looked for ${names}`);
  }
  if (signal.aborted) throw cancelError(signal);
  const chosen = CHOOSING.map((name) => [name, environment(name) ?? ""] as const).filter(([, value]) => value !== "");
  const env = { ...Object.fromEntries(chosen), ...session.env, PATH: SEARCH_PATH.join(":"), HOME: home };
  const group = startGroup({ file, args: [...args.filter((word) => word !== undefined), url], cwd: home, env });
  for (const stream of [group.stdout, group.stderr]) stream.on("error", () => {}).resume();
  const exit = await withTimeout(group.exited, { ms: OPEN_MS, clock });
  if (exit === undefined || (exit.kind === "exit" && exit.code === 0)) return;
  const how = exit.kind === "exit" ? `status ${exit.code}` : exit.name;
  throw new ToolError("open_failed", `Cannot open the address: ${JSON.stringify(file)} ended with ${how}`);
}
