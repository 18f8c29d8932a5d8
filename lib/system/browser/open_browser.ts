import type { Browser, BrowserContext } from "playwright-core";
import { cancelError } from "../../base/cancel.ts";
import { type Clock, withTimeout } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { Poller } from "../../base/poller.ts";
import { type CommandLine, type ProcessGroup, startGroup } from "../process/process_group.ts";
import { BrowserDownloads, type DownloadPlace } from "./browser_downloads.ts";
import { GuardedTargets } from "./guarded_targets.ts";
import { memoryOf } from "./memory_of.ts";
import { OpeningWindows } from "./opening_windows.ts";
import { PipeTransport } from "./pipe_transport.ts";

/** Chromium with one context, which has no page yet. */
export interface OpenBrowser {
  readonly context: BrowserContext;
  readonly targets: GuardedTargets;
  readonly downloads: BrowserDownloads;
  readonly windows: OpeningWindows;
  /** Resolves when the browser has ended, with the reason in a sentence where Postern ended it. */
  readonly ended: Promise<string | undefined>;
  /** Kills the browser and waits for its end. Repeating it does nothing */
  close(): Promise<void>;
}

/** Command line and limits of a browser. */
export interface OpenBrowserOptions {
  readonly line: CommandLine;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  /** Loads the driver. @throws when it is not installed */
  readonly loadDriver: () => Promise<typeof import("playwright-core")>;
  /** True: pages are as large as their window, for a person who uses them. Default: VIEWPORT */
  readonly fitsWindow?: boolean | undefined;
  /** Checks the context before a page of the run is opened in it. Default: nothing is checked */
  readonly prove?: ((context: BrowserContext) => Promise<void>) | undefined;
  /** Where the browser puts downloads that a call asks for */
  readonly downloads: DownloadPlace;
}

/** A browser that starts beside others on a slow machine */
const START_TIMEOUT_MS = 30_000;
/** Characters of the browser's complaints that are kept for an error */
const MAX_COMPLAINTS = 4000;
/** Size of the window that pages see */
const VIEWPORT = { width: 1280, height: 800 };
/** Private memory of all processes of a browser */
const MAX_MEMORY_BYTES = 2_147_483_648;
const MEMORY_LOOK_MS = 2000;
/** A process that outlived its leader may hold the output open */
const CLOSE_MS = 2000;

/**
 * Starts a browser and connects to it.
 * @throws {ToolError} `browser_driver_missing`, `browser_not_started` @throws {CancelError} when the signal aborts
 */
export async function openBrowser(options: OpenBrowserOptions): Promise<OpenBrowser> {
  const { clock, signal, line } = options;
  const driver = await loadDriver(options);
  if (signal.aborted) throw cancelError(signal);
  const running = new RunningBrowser(startGroup(line), clock);
  const stop = () => running.kill();
  signal.addEventListener("abort", stop, { once: true });
  try {
    return await running.connect(driver, options);
  } catch (error) {
    await running.close();
    if (signal.aborted) throw cancelError(signal);
    throw running.notStarted(error);
  } finally {
    signal.removeEventListener("abort", stop);
  }
}

async function loadDriver({ loadDriver: load }: OpenBrowserOptions): Promise<typeof import("playwright-core")> {
  try {
    return await load();
  } catch (cause) {
    throw new ToolError(
      "browser_driver_missing",
      'Cannot open the browser: the optional package "playwright-core" is not installed; install it beside Postern, for example with "npm install -g playwright-core"',
      { cause },
    );
  }
}

class RunningBrowser {
  readonly #group: ProcessGroup;
  readonly #clock: Clock;
  readonly #over: Promise<void>;
  #complaints = "";
  #reason: string | undefined;

  constructor(group: ProcessGroup, clock: Clock) {
    this.#group = group;
    this.#clock = clock;
    this.#over = group.exited.then(() => {}, () => {});
    group.stdout.resume();
    group.stderr.on("data", (chunk: Uint8Array) => {
      this.#complaints = (this.#complaints + new TextDecoder().decode(chunk)).slice(-MAX_COMPLAINTS);
    });
    for (const stream of [group.stdout, group.stderr]) stream.on("error", () => {});
    this.#watchMemory();
  }

  async connect(
    { chromium }: typeof import("playwright-core"),
    { fitsWindow = false, downloads: place, prove = () => Promise.resolve() }: OpenBrowserOptions,
  ): Promise<OpenBrowser> {
    const { channel, exited } = this.#group;
    if (channel === undefined) throw await exited.then(() => new Error("it has no pipes"), (error: unknown) => error);
    const targets = new GuardedTargets(new PipeTransport(channel, () => this.kill()));
    const connecting = chromium.connectOverCDP(targets, { timeout: START_TIMEOUT_MS });
    const browser = await this.#unlessEnded(connecting);
    const context = await this.#unlessEnded(newContext(browser, fitsWindow));
    await this.#unlessEnded(prove(context));
    const watched = await this.#unlessEnded(watch(browser, place));
    return {
      ...{ context, targets },
      ...watched,
      ended: this.#over.then(() => this.#reason),
      close: () => this.close(),
    };
  }

  kill(reason?: string): void {
    this.#reason ??= reason;
    this.#group.kill();
  }

  async close(): Promise<void> {
    this.kill();
    await this.#over;
    await withTimeout(this.#group.closed, { ms: CLOSE_MS, clock: this.#clock });
    this.#group.stdout.destroy();
    this.#group.stderr.destroy();
    this.#group.channel?.input.destroy();
    this.#group.channel?.output.destroy();
  }

  notStarted(error: unknown): ToolError {
    if (error instanceof ToolError) return error;
    const lines = this.#complaints.split("\n").filter((line) => line !== "" && !/dbus|\/dbus\//.test(line));
    const said = lines.at(-1) ?? (error instanceof Error ? error.message.split("\n")[0] ?? "" : "");
    return new ToolError("browser_not_started", `Cannot open the browser: it did not start (${said.slice(0, 300)})`, {
      cause: error,
    });
  }

  async #unlessEnded<T>(work: Promise<T>): Promise<T> {
    const ended = this.#over.then(() => {
      throw new Error("it ended at once");
    });
    ended.catch(() => {});
    work.catch(() => {});
    return await Promise.race([work, ended]);
  }

  #watchMemory(): void {
    const { pid } = this.#group;
    if (pid === undefined) return;
    const poller = new Poller(async () => {
      if (await memoryOf(pid) <= MAX_MEMORY_BYTES) return;
      this.kill(`the browser was closed, since it held more than ${MAX_MEMORY_BYTES / 1_073_741_824} GB of memory`);
    });
    poller.start(this.#clock, MEMORY_LOOK_MS);
    void this.#over.then(() => poller.stop());
  }
}

/** A context is a profile of its own that nobody else shares, without files, permissions and downloads. */
async function newContext(browser: Browser, fitsWindow: boolean) {
  const context = await browser.newContext({ acceptDownloads: false, viewport: fitsWindow ? null : VIEWPORT });
  await context.grantPermissions([]);
  // Whatever page the browser itself began with is not the run's
  await Promise.all(
    browser.contexts().filter((other) => other !== context).flatMap((other) =>
      other.pages().map((page) => page.close().catch(() => {}))
    ),
  );
  return context;
}

/** Watches the downloads and windows of the one context that was made. */
async function watch(browser: Browser, place: DownloadPlace) {
  const session = await browser.newBrowserCDPSession();
  const { browserContextIds } = await session.send("Target.getBrowserContexts");
  const contextId = browserContextIds.at(-1);
  if (contextId === undefined) throw new Error("it has no context");
  const downloads = new BrowserDownloads({ browser, session, contextId }, place);
  const windows = new OpeningWindows(session, contextId);
  await downloads.refuse();
  await session.send("Target.setDiscoverTargets", { discover: true });
  return { downloads, windows };
}
