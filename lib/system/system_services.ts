import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { Clock } from "../base/clock.ts";
import { lazily, lazyService } from "../base/lazily.ts";
import type { OpenedList } from "../base/opened_list.ts";
import type { Random } from "../base/random.ts";
import type { RedactPart } from "../base/redact.ts";
import type { Logger } from "../base/telemetry/log.ts";
import { createDesktop, type Desktop } from "./desktop/desktop.ts";
import type { Files } from "./files/files.ts";
import type { FileLocks } from "./files/file_locks.ts";
import type { Browsers } from "./browser/browsers.ts";
import { createFiles } from "./files/create_files.ts";
import type { Git } from "./git/git.ts";
import type { GuardedFetch } from "./net/guarded_fetch.ts";
import { createOwnAddress, type OwnAddress } from "./net/address.ts";
import { chooseProxy, type ProxyChoice, type ProxySettings } from "./net/proxy_choice.ts";
import { createUrlPolicy, type UrlPolicy } from "./net/url_policy.ts";
import type { UrlRules } from "./net/url_rules.ts";
import { type CommandLookup, createCommandLookup } from "./process/command_lookup.ts";
import {
  type CommandContainment,
  containmentOf,
  type ContainmentSettings,
  requireSyntax,
} from "./process/containment.ts";
import { temporaryFolder } from "./process/leftover_processes.ts";
import { Processes, type ProcessesOptions } from "./process/processes.ts";
import { Workers } from "./process/workers.ts";
import type { Aftermath } from "./process/quarantine.ts";

/** Threads for documents at the same time: one may hold hundreds of megabytes. */
const MAX_WORKERS = 2;

/** Options of `createSystemServices`. */
export interface SystemServicesOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly redact: RedactPart;
  /** The user's home folder, absolute. */
  readonly home: string;
  /** Absolute path; quarantine and notes of commands lie in it. */
  readonly dataDir: string;
  /** Absolute paths that no tool may touch. */
  readonly ownPaths: readonly string[];
  /** Marker of the gateway's processes. `known`: an earlier gateway had it and may have left processes. */
  readonly marker: { readonly text: string; readonly known: boolean };
  /** The newest `[security.shell]`, as far as it is about containment. */
  readonly shell: () => ContainmentSettings;
  /** The newest `[url_access]`. */
  readonly urlRules: () => UrlRules;
  /** The newest `[proxy]`. */
  readonly proxy: () => ProxySettings;
  /** The newest `[browser] allowed_domains`. */
  readonly browserDomains: () => readonly string[];
  /** Returns a variable of the gateway's environment. */
  readonly environment: (name: string) => string | undefined;
  /** User agent of requests to the outside, for example `postern/0.2.0`. */
  readonly userAgent: string;
  /** Paths of the gateway that anyone may read. */
  readonly publicPaths: readonly string[];
  readonly opened: OpenedList;
  /** Locks of files that other gateways change too. Default: none do */
  readonly fileLocks?: FileLocks | undefined;
  /** Id of the gateway in a cluster. Default: the gateway is alone */
  readonly gateway?: string | undefined;
  /** Told of the files that a command with taint has written */
  readonly onTainted: ProcessesOptions["onTainted"];
}

/** Doors to the machine that the services of one gateway share. */
export interface SystemServices {
  readonly files: Files;
  readonly commands: CommandLookup;
  readonly processes: Processes;
  readonly workers: Workers;
  readonly git: Git;
  readonly desktop: Desktop;
  readonly urls: UrlPolicy;
  /** Browsers of runs; loaded at the first use. */
  readonly browsers: Omit<Browsers, "close">;
  readonly ownAddress: OwnAddress;
  /** Returns the guarded fetch; loads it at the first call. */
  readonly guardedFetch: () => Promise<GuardedFetch>;
  /** Returns the way that the guarded fetch takes to an address. */
  readonly proxyOf: (url: URL) => ProxyChoice;
  /** Returns how commands of tools are contained now; waits for the first look at the machine only. */
  readonly containment: () => Promise<CommandContainment>;
}

/** Creates the doors to the machine. Before that ends what the commands of an earlier gateway left. */
export async function createSystemServices(options: SystemServicesOptions): Promise<SystemServices> {
  const { clock, home, opened } = options;
  // Tools reach the temporary folders of MCP servers as little as the data directory
  const ownPaths = [...options.ownPaths, temporaryFolder(options.marker.text)];
  const commands = createCommandLookup();
  const ownAddress = createOwnAddress(options.publicPaths);
  const urls = createUrlPolicy({ own: ownAddress.gateway });
  const processes = opened.own(openProcesses({ ...options, ownPaths }, { commands, urls }), (open) => open.close());
  if (options.shell().sandbox === "off") options.log.info(containmentOf(options.shell(), undefined).text);
  if (options.shell().syntax === "contained") {
    requireSyntax(options.shell(), await processes.containment(options.shell()));
  }
  const workers = opened.own(new Workers({ maxWorkers: MAX_WORKERS, clock }), (open) => open.close());
  await endLeftovers(processes, options);
  return {
    files: createFiles({ clock, home, ownPaths, locks: options.fileLocks }),
    commands,
    processes,
    workers,
    git: lazyService(async () => {
      const { createGit } = await import("./git/create_git.ts");
      return createGit({ processes, home, ownPaths });
    }, ["open"]),
    desktop: createDesktop({ ...options, processes, commands, folder: screenFolder(options) }),
    urls,
    browsers: lazyBrowsers(options, { commands, urls }),
    ownAddress,
    guardedFetch: lazily(async () => {
      const { createGuardedFetch } = await import("./net/guarded_fetch.ts");
      const { proxy, userAgent } = options;
      return createGuardedFetch({ policy: urls, clock, userAgent, proxy });
    }),
    proxyOf: (url) => chooseProxy(options.proxy(), url),
    containment: () => processes.containment(options.shell()),
  };
}

/** Returns the browsers, which are loaded when a run first asks for one, and closed with the gateway. */
function lazyBrowsers(
  { clock, random, dataDir, home, environment, marker, urlRules, browserDomains, proxy, opened }: SystemServicesOptions,
  { commands, urls }: Pick<SystemServices, "commands" | "urls">,
): SystemServices["browsers"] {
  const loaded = lazily(async () => {
    const [{ Browsers }, { removeLeftSockets }] = await Promise.all([
      import("./browser/browsers.ts"),
      import("./process/command_relay.ts"),
    ]);
    const folder = join(dataDir, "browsers");
    await removeLeftSockets(folder);
    return new Browsers({
      commands,
      clock,
      marker: marker.text,
      loadDriver: () => import("playwright-core"),
      session: { environment, home },
      network: { clock, random, proxy, policy: urls, rules: urlRules, allowedDomains: browserDomains, folder },
    });
  });
  opened.own(loaded, async ({ made }) => await (await made())?.close());
  return {
    ...lazyService(loaded, ["use"]),
    // Nothing is loaded by a look at a browser that nobody has opened
    note: (runId, action) => void loaded.made()?.then((made) => made?.note(runId, action)),
    view: async (runId) => await (await loaded.made())?.view(runId),
    closeRun: (runId) => loaded.made()?.then((made) => made?.closeRun(runId) ?? false) ?? WAS_CLOSED,
  };
}

/** Asked at the end of each run, so one promise serves all runs without a browser */
const WAS_CLOSED = Promise.resolve(false);

function openProcesses(
  options: SystemServicesOptions,
  { commands, urls }: Pick<SystemServices, "commands" | "urls">,
): Processes {
  const { clock, random, log, home, dataDir, ownPaths, marker, redact, shell, urlRules, proxy, onTainted } = options;
  return new Processes({
    commands,
    clock,
    home,
    ownPaths,
    marker: marker.text,
    gateway: options.gateway,
    redact,
    quarantine: join(dataDir, "quarantine"),
    notes: join(dataDir, "commands"),
    relays: {
      folder: join(dataDir, "relays"),
      allowlist: () => urlRules().domain_allowlist,
      async create(hosts) {
        const { createRelay } = await import("./net/relay.ts");
        return createRelay({
          policy: urls,
          rules: urlRules,
          requiresList: hosts === undefined,
          hosts,
          isOn: hosts === undefined ? () => shell().network === "allowlist" : undefined,
          clock,
          proxy,
          onProblem: ({ host, reason }) =>
            host === ""
              ? log.warn("The relay of a command failed", { reason })
              : log.info("The relay did not carry out a request of a command", { host }),
        });
      },
    },
    random,
    onTainted,
    onQuarantine: (found) =>
      log.warn(
        "A command made protected names, which were moved to quarantine, or could not be looked for",
        quarantineFields(found),
      ),
    onLook(found) {
      const { kind, text } = containmentOf(shell(), found);
      log[kind === "refused" ? "warn" : "info"](text);
    },
  });
}

function screenFolder({ dataDir }: Pick<SystemServicesOptions, "dataDir">): string {
  return join(dataDir, "screen");
}

/**
 * Kills the processes that an earlier gateway left and removes their pictures of the screen, then looks for the protected names that they
 * made.
 */
async function endLeftovers(
  processes: Processes,
  { log, marker, dataDir }: Pick<SystemServicesOptions, "log" | "marker" | "dataDir">,
): Promise<void> {
  if (marker.known) {
    const killed = await processes.killLeftovers();
    if (killed > 0) log.warn("Killed processes that an earlier gateway left", { count: killed });
  }
  await rm(screenFolder({ dataDir }), { recursive: true, force: true });
  const planted = await processes.lookAfterKill();
  if (planted.quarantined.length === 0 && !planted.unchecked) return;
  log.warn(
    "Protected names appeared since a command of an earlier gateway, which was killed with it: they were moved to quarantine, " +
      "or could not be looked for",
    quarantineFields(planted),
  );
}

function quarantineFields({ quarantined, unchecked }: Aftermath) {
  return { paths: quarantined.map(({ path, place }) => `${path} -> ${place ?? "not moved: remove it"}`), unchecked };
}
