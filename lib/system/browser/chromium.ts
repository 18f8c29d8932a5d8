import { realpath } from "node:fs/promises";
import { dirname, isAbsolute } from "node:path";
import process from "node:process";
import { Buffer } from "node:buffer";
import { ToolError } from "../../base/errors.ts";
import type { BrowserDisplay } from "./browser_display.ts";
import { isWithin } from "../files/forbidden_paths.ts";
import type { CommandLookup } from "../process/command_lookup.ts";
import { type CommandLine, FIRST_GIVEN } from "../process/process_group.ts";

/** Names that Chromium and its relatives have as commands. */
const COMMANDS = [
  "chromium",
  "chromium-browser",
  "google-chrome",
  "google-chrome-stable",
  "chrome-headless-shell",
] as const;

/** Where macOS keeps them. */
const APPLICATIONS = [
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
  "/Applications/Chromium.app/Contents/MacOS/Chromium",
] as const;

/** Programs behind the wrapper scripts of distributions: a wrapper reads files that the browser is not shown. */
const PROGRAMS: Readonly<Record<string, readonly string[]>> = {
  chromium: ["/usr/lib/chromium/chromium", "/usr/lib64/chromium-browser/chromium-browser"],
  "chromium-browser": [
    "/usr/lib/chromium-browser/chromium-browser",
    "/usr/lib64/chromium-browser/chromium-browser",
    "/usr/lib/chromium/chromium",
  ],
  "google-chrome": ["/opt/google/chrome/chrome"],
  "google-chrome-stable": ["/opt/google/chrome/chrome"],
};

/**
 * Finds a Chromium on this machine; nothing is downloaded or run.
 * @param configured `[browser] executable`, absolute. Empty: looked for by its usual names
 * @returns absolute path of the program, links resolved
 * @throws {ToolError} `browser_not_found`, with what was looked for
 */
export async function findChromium(configured: string, commands: Pick<CommandLookup, "find">): Promise<string> {
  if (configured !== "") {
    const found = isAbsolute(configured) ? await realProgram([configured]) : undefined;
    if (found !== undefined) return await behindWrapper(found, configured);
    throw notFound(`[browser] executable names ${JSON.stringify(configured)}, and no program is there`);
  }
  for (const name of COMMANDS) {
    const path = await commands.find(name);
    const found = path === undefined ? undefined : await realProgram([...PROGRAMS[name] ?? [], path]);
    if (found !== undefined) return found;
  }
  const application = process.platform === "darwin" ? await realProgram(APPLICATIONS) : undefined;
  if (application !== undefined) return application;
  throw notFound(`no program ${COMMANDS.map((name) => `"${name}"`).join(", ")} is installed`);
}

function notFound(reason: string): ToolError {
  return new ToolError(
    "browser_not_found",
    `Cannot open the browser: ${reason}; install one, for example with "apt install chromium", or name one in [browser] executable`,
  );
}

/** Returns the program that a configured wrapper of a distribution starts, else what was found. */
async function behindWrapper(found: string, configured: string): Promise<string> {
  const name = configured.slice(configured.lastIndexOf("/") + 1);
  const isSystem = dirname(configured) === "/usr/bin";
  return (isSystem ? await realProgram(PROGRAMS[name] ?? []) : undefined) ?? found;
}

async function realProgram(paths: readonly string[]): Promise<string | undefined> {
  for (const path of paths) {
    const found = await realpath(path).catch(() => undefined);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** Programs, network and environment of a browser. */
export interface ChromiumOptions {
  /** Absolute path, links resolved */
  readonly program: string;
  readonly bubblewrap: string;
  /** Marker of the gateway's processes, as NAME=value of the environment */
  readonly env: Readonly<Record<string, string>>;
  /** Ways of the contained network. */
  readonly network: ContainedNetwork;
  /** Bytes of one download */
  readonly maxDownloadBytes: number;
  /** Display that it shows a window on. Default: it shows none */
  readonly display?: BrowserDisplay | undefined;
}

/** The one way from a contained browser to the outside. */
export interface ContainedNetwork {
  /** Options of bubblewrap that show the browser what the way needs */
  readonly mounts: readonly string[];
  /** Program and arguments in front of the browser's, which keep the way open while the browser runs */
  readonly launcher: readonly string[];
  /** As `http://127.0.0.1:3128`, inside */
  readonly proxy: string;
}

/** Folder of downloads, as the browser sees it. */
export const DOWNLOADS = "/tmp/downloads";

const MIB = 1_048_576;
/** Room of the downloads beyond one: for what comes until a longer one is stopped */
const DOWNLOAD_SLACK_BYTES = 64 * MIB;
/** Bytes of the browser's profile and of its shared memory, which are both in memory */
const MAX_PROFILE_BYTES = 256 * MIB;
const MAX_SHARED_BYTES = 512 * MIB;
/** The channel's pipes stand before the given files, where Chromium expects them */
const CHANNEL_PIPES = 2;
/** Id of the browser's user inside: Chromium refuses to run as root */
const USER_ID = "1000";

/** Paths that are shown read-only where they exist: programs, libraries, fonts and certificates. No home, no workspace, no address of a name server. */
const FOLDERS = [
  "/usr",
  "/bin",
  "/sbin",
  "/lib",
  "/lib32",
  "/lib64",
  "/etc/alternatives",
  "/etc/ld.so.cache",
  "/etc/ld.so.conf",
  "/etc/ld.so.conf.d",
  "/etc/fonts",
  "/etc/ssl/certs",
  "/etc/pki/tls/certs",
  "/etc/pki/ca-trust/extracted",
] as const;

/**
 * Returns the command line of a contained Chromium.
 *
 * The browser has a network of its own without any way out but the proxy, process ids of its own which end with it, and sees no file
 * of a user. Its own sandbox for pages stays on: bubblewrap gives it an ordinary user, as root it would refuse to run. It is spoken
 * to through a pipe, so there is no port that others could reach.
 */
export function chromiumLine(
  { program, bubblewrap, env, network, maxDownloadBytes, display }: ChromiumOptions,
): CommandLine {
  const folder = dirname(program);
  const policies = Buffer.from(JSON.stringify(POLICIES));
  const isShown = FOLDERS.some((shown) => isWithin(folder, shown));
  return {
    file: bubblewrap,
    args: [
      "--die-with-parent",
      "--unshare-all",
      ...["--unshare-user", "--uid", USER_ID, "--gid", USER_ID, "--cap-drop", "ALL"],
      ...FOLDERS.flatMap((path) => ["--ro-bind-try", path, path]),
      ...(isShown ? [] : ["--ro-bind", folder, folder]),
      ...POLICY_FILES.flatMap((path, index) => ["--ro-bind-data", String(FIRST_GIVEN + CHANNEL_PIPES + index), path]),
      ...["--proc", "/proc", "--dev", "/dev"],
      ...["--size", String(MAX_PROFILE_BYTES), "--tmpfs", "/tmp"],
      ...["--size", String(maxDownloadBytes + DOWNLOAD_SLACK_BYTES), "--tmpfs", DOWNLOADS],
      ...["--size", String(MAX_SHARED_BYTES), "--tmpfs", "/dev/shm"],
      ...network.mounts,
      ...display?.inside.mounts ?? [],
      ...["--chdir", "/tmp", "--"],
      ...network.launcher,
      program,
      ...chromiumFlags({ proxy: network.proxy, profile: "/tmp/profile", display }),
    ],
    cwd: "/",
    env: { ...env, ...display?.inside.env, HOME: "/tmp", LANG: "C.UTF-8", PATH: "/usr/bin:/bin" },
    given: POLICY_FILES.map(() => policies),
    hasChannel: true,
  };
}

/** Where Chromium and Chrome read what an administrator decided. */
const POLICY_FILES = [
  "/etc/chromium/policies/managed/postern.json",
  "/etc/opt/chrome/policies/managed/postern.json",
] as const;

/**
 * Decisions of an administrator that no page can change: a second lock beside what the tool refuses itself. 2 is "never". A PDF is a
 * download, since no tool can read the browser's view of it.
 * Source: Chrome Enterprise policy list
 */
const POLICIES = {
  URLBlocklist: ["file://*", "chrome://*", "chrome-untrusted://*", "devtools://*", "view-source:*", "ftp://*"],
  AlwaysOpenPdfExternally: true,
  WebRtcIPHandling: "disable_non_proxied_udp",
  QuicAllowed: false,
  NetworkPredictionOptions: 2,
  DnsOverHttpsMode: "off",
  BackgroundModeEnabled: false,
  ComponentUpdatesEnabled: false,
  AutofillAddressEnabled: false,
  AutofillCreditCardEnabled: false,
  BrowserNetworkTimeQueriesEnabled: false,
  CloudPrintProxyEnabled: false,
  DomainReliabilityAllowed: false,
  AlternateErrorPagesEnabled: false,
  UrlKeyedAnonymizedDataCollectionEnabled: false,
  PasswordManagerEnabled: false,
  SafeBrowsingProtectionLevel: 0,
  SearchSuggestEnabled: false,
  SpellCheckServiceEnabled: false,
  TranslateEnabled: false,
  MetricsReportingEnabled: false,
  DefaultGeolocationSetting: 2,
  DefaultNotificationsSetting: 2,
  DefaultClipboardSetting: 2,
  DefaultSensorsSetting: 2,
  DefaultSerialGuardSetting: 2,
  DefaultWebBluetoothGuardSetting: 2,
  DefaultWebHidGuardSetting: 2,
  DefaultWebUsbGuardSetting: 2,
  DefaultLocalFontsSetting: 2,
  DefaultWindowManagementSetting: 2,
  DefaultFileSystemReadGuardSetting: 2,
  DefaultFileSystemWriteGuardSetting: 2,
  AudioCaptureAllowed: false,
  VideoCaptureAllowed: false,
  ScreenCaptureAllowed: false,
} as const;

/** Features that send requests of the browser's own, or that change how a page behaves under automation. */
const DISABLED_FEATURES = [
  "AimEnabled",
  "AutofillServerCommunication",
  "AvoidCorsURLLoaderRestartOnRedirect",
  "CertificateTransparencyComponentUpdater",
  "DestroyProfileOnBrowserClose",
  "DialMediaRouteProvider",
  "GlobalMediaControls",
  "HttpsUpgrades",
  "LensOverlay",
  "MediaRouter",
  "NetworkTimeServiceQuerying",
  "OptimizationHints",
  "PaintHolding",
  "PreconnectToSearch",
  "ThirdPartyStoragePartitioning",
  "Translate",
] as const;

/** Returns the switches of the browser. Those for automation are the ones that playwright-core starts its own browsers with. */
export function chromiumFlags(
  { proxy, profile, display }: {
    readonly proxy: string;
    readonly profile: string;
    readonly display?: BrowserDisplay | undefined;
  },
): readonly string[] {
  return [
    ...display?.flags ?? ["--headless", "--hide-scrollbars"],
    "--mute-audio",
    "--remote-debugging-pipe",
    `--user-data-dir=${profile}`,
    `--proxy-server=${proxy}`,
    // Addresses of this machine go through the proxy too
    "--proxy-bypass-list=<-loopback>",
    // The headless shell heeds the second alone
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-quic",
    "--dns-prefetch-disable",
    `--disable-features=${DISABLED_FEATURES.join(",")}`,
    "--enable-features=CDPScreenshotNewSurface,SkipListAccountsWithoutGaiaCookies",
    "--allow-pre-commit-input",
    "--disable-back-forward-cache",
    "--disable-background-networking",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-breakpad",
    "--disable-client-side-phishing-detection",
    "--disable-component-extensions-with-background-pages",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-field-trial-config",
    "--disable-gpu",
    "--disable-hang-monitor",
    "--disable-prompt-on-repost",
    "--disable-renderer-backgrounding",
    "--disable-search-engine-choice-screen",
    "--disable-sync",
    "--force-color-profile=srgb",
    "--js-flags=--max-old-space-size=1024",
    "--metrics-recording-only",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-pings",
    "--no-service-autorun",
    "--no-startup-window",
    "--password-store=basic",
    "--renderer-process-limit=8",
    "--use-mock-keychain",
  ];
}
