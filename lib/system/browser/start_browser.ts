import type { BrowserContext } from "playwright-core";
import type { Clock } from "../../base/clock.ts";
import type { DesktopOptions } from "../desktop/desktop_session.ts";
import type { CommandLookup } from "../process/command_lookup.ts";
import { createContainmentFinder } from "../process/containment.ts";
import { MARKER_VARIABLE } from "../process/leftover_processes.ts";
import { tryBubblewrap } from "../process/sandbox.ts";
import { type BrowserDisplay, findDisplay } from "./browser_display.ts";
import { type BrowserNetworkOptions, openBrowserNetwork } from "./browser_network.ts";
import { chromiumLine, findChromium } from "./chromium.ts";
import { type OpenBrowser, openBrowser } from "./open_browser.ts";
import { requireUncontained, uncontainedLine } from "./uncontained_browser.ts";
import { openUncontainedNetwork } from "./uncontained_network.ts";

/** Browser that was started with its way to the network, which ends with it. */
export interface StartedBrowser extends OpenBrowser {
  /** Returns sentences about requests that were refused since the last call */
  readonly problems: () => readonly string[];
  /** Ends every connection of the browser, and lets new ones reach only what a function allows. */
  readonly narrow: (mayReach: (url: URL) => boolean) => void;
}

/** Properties of a browser that is to be started. */
export interface NewBrowser {
  readonly signal: AbortSignal;
  /** `[browser] executable` */
  readonly executable: string;
  /** True: opens no browser without bubblewrap */
  readonly requiresSandbox: boolean;
  /** `[browser] max_download_bytes` */
  readonly maxDownloadBytes: number;
  /** True: shows its window. Default false */
  readonly isVisible?: boolean;
  /** True: pages are as large as their window. Default false */
  readonly fitsWindow?: boolean;
}

/** Services that browsers need. */
export interface BrowserStarterOptions {
  readonly commands: CommandLookup;
  readonly clock: Clock;
  /** Marker of the gateway's processes: what a killed gateway leaves is found by it */
  readonly marker: string;
  /** Loads playwright-core. @throws when it is not installed */
  readonly loadDriver: () => Promise<typeof import("playwright-core")>;
  /** Environment of the gateway and the user's home, for the display of a browser with a window */
  readonly session: Pick<DesktopOptions, "environment" | "home">;
  /** The way to the outside that each browser gets */
  readonly network: BrowserNetworkOptions;
  /** Ends the look at the machine */
  readonly signal: AbortSignal;
}

/** Starts browsers, in bubblewrap where that works. */
export interface BrowserStarter {
  /**
   * Starts a browser.
   * @throws {ToolError} `browser_not_contained`, `browser_not_found`, `browser_driver_missing`, `browser_not_started`, `no_display`
   * @throws {CancelError} when the signal aborts
   */
  start(request: NewBrowser): Promise<StartedBrowser>;
}

/** Creates a starter, which looks at the machine once. */
export function createBrowserStarter(options: BrowserStarterOptions): BrowserStarter {
  const { commands, clock, loadDriver, session } = options;
  const finder = createContainmentFinder(options, tryBubblewrap);
  return {
    async start(request) {
      const found = await finder.find();
      if (found.kind !== "bubblewrap") await requireUncontained(found, request);
      const program = await findChromium(request.executable, commands);
      const display = request.isVisible === true ? await findDisplay(session) : undefined;
      const bubblewrap = found.kind === "bubblewrap" ? found.file : undefined;
      const { network, line, prove } = await openWay(program, { bubblewrap, display, request, options });
      try {
        const { fitsWindow, signal } = request;
        const { downloads } = network;
        const browser = await openBrowser({
          ...{ clock, loadDriver, downloads, prove, signal, fitsWindow },
          line: await line(),
        });
        return {
          ...browser,
          narrow: (mayReach) => network.narrow(mayReach),
          problems: () => network.newProblems().map(({ reason }) => reason),
          async close() {
            await browser.close();
            await network.close();
          },
        };
      } catch (error) {
        await network.close();
        throw error;
      }
    },
  };
}

/** Opens the way of a browser. @param given.bubblewrap undefined: there is none */
async function openWay(
  program: string,
  { bubblewrap, display, request: { maxDownloadBytes }, options: { marker, network: options } }: {
    readonly bubblewrap: string | undefined;
    readonly display: BrowserDisplay | undefined;
    readonly request: NewBrowser;
    readonly options: BrowserStarterOptions;
  },
) {
  const env = { [MARKER_VARIABLE]: marker };
  if (bubblewrap !== undefined) {
    const network = await openBrowserNetwork(options);
    const line = () => Promise.resolve(chromiumLine({ program, bubblewrap, network, maxDownloadBytes, env, display }));
    return { network, line, prove: undefined };
  }
  const network = await openUncontainedNetwork(options);
  const line = () => uncontainedLine(program, { place: network, env, display });
  return { network, line, prove: (context: BrowserContext) => network.prove(context) };
}
