import { existsSync } from "node:fs";
import process from "node:process";
import { type Browser, chromium, type Page } from "playwright-core";

const PLACES = [
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];
/** Chromium without windows: the same engine, and a page of its own costs a quarter of the time. */
const HEADLESS_SHELLS = ["/usr/lib/chromium/chromium-headless-shell", "/usr/bin/chrome-headless-shell"];
const FLAGS = [
  "--no-sandbox",
  "--disable-gpu",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];

/** Milliseconds that a page may take for one step, and a browser for its start: longer than anything takes on a slow host. */
export const PATIENCE_MS = 60_000;

/** Path of a Chromium on this machine (`CHROMIUM` in the environment goes first), undefined when there is none. */
export function findChromium(): string | undefined {
  return [process.env["CHROMIUM"] ?? "", ...PLACES].find((path) => path !== "" && existsSync(path));
}

/** `[browser] executable` of a test for which any Chromium will do: the headless shell, or empty where none is installed. */
export const ANY_CHROMIUM: string = HEADLESS_SHELLS.find((path) => existsSync(path)) ?? "";

/** `skip` of a browser test: false, or the reason that is printed. */
export const NO_CHROMIUM: string | false = findChromium() === undefined
  ? "no Chromium was found: install one, or name it in CHROMIUM"
  : false;

/**
 * `skip` of a test of the page alone, against a fake gateway: Chromium runs the page the same whatever runtime serves it, so that Node's
 * run is enough. Journeys look at the page of a real gateway on both runtimes.
 */
export const NO_PAGE_TEST: string | false = process.versions.deno === undefined
  ? NO_CHROMIUM
  : "the page is the same on every runtime, and the tests on Node look at it";

/** A headless browser with a fresh profile, which goes when it is closed. It is the headless shell where that is installed. */
export function launchPageBrowser(): Promise<Browser> {
  return launch(process.env["CHROMIUM"] ?? (ANY_CHROMIUM || findChromium()));
}

/** The browser that people use, headless, with a fresh profile which goes when it is closed. */
export function launchChromium(): Promise<Browser> {
  return launch(findChromium());
}

function launch(executablePath: string | undefined): Promise<Browser> {
  if (executablePath === undefined) throw new TypeError("No Chromium was found");
  return chromium.launch({ executablePath, headless: true, args: FLAGS, timeout: PATIENCE_MS });
}

/**
 * Moves the installed clock of a dashboard page on until the page has polled. A poll is timed only when the reply before it was read, which
 * may come after the clock was moved.
 */
export async function pollOnce(page: Page): Promise<void> {
  let polled = false;
  const health = page.waitForResponse(/\/health$/).then(() => polled = true);
  while (!polled) await page.clock.runFor(3000);
  await health;
}
