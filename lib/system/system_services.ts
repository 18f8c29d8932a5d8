import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { Kit } from "../base/kit.ts";
import { lazily } from "../base/lazily.ts";
import { defineWing, type OpenedList } from "../base/opened_list.ts";
import type { RedactPart } from "../base/redact.ts";
import { createDesktop, type Desktop } from "./desktop/desktop.ts";
import type { FileLocks, Files } from "./files/files.ts";
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
import { Processes } from "./process/processes.ts";
import { Workers } from "./process/workers.ts";
import type { Aftermath } from "./process/quarantine.ts";
import type { TaintedWrites } from "./process/workspace_watch.ts";

/** Threads for documents at the same time: one may hold hundreds of megabytes. */
const MAX_WORKERS = 2;

/** Settings of the newest configuration that the doors to the machine follow. */
export interface SystemConfig {
  /** `[security.shell]`, as far as it is about containment */
  readonly security: { readonly shell: ContainmentSettings };
  readonly url_access: UrlRules;
  readonly proxy: Omit<ProxySettings, "environment">;
  readonly browser: { readonly allowed_domains: readonly string[] };
}

/** Needs of `systemWing`. */
export interface SystemNeeds {
  readonly kit: Kit;
  readonly config: () => SystemConfig;
  readonly program: { readonly about: { readonly version: string } };
  readonly telemetry: { readonly redactor: { readonly part: RedactPart } };
  readonly folders: {
    /** The user's home folder, absolute. */
    readonly home: string;
    /** Absolute path; quarantine and notes of commands lie in it. */
    readonly dataDir: string;
    /** Absolute paths that no tool may touch. */
    readonly ownPaths: readonly string[];
  };
  /** Marker of the gateway's processes. `known`: an earlier gateway had it and may have left processes. */
  readonly marker: { readonly text: string; readonly known: boolean };
  readonly guard: {
    /** Tell why all work is halted, as the end of a sentence */
    readonly halts: { onChange(listener: () => void): void; refusalOfRun(): string | undefined };
    readonly taintedFiles: {
      /** Receives the files that a command with taint has written */
      markWritten(
        paths: TaintedWrites["paths"],
        options: { readonly taint: TaintedWrites["taint"]; readonly root: string },
      ): Promise<void>;
    };
  };
  /** Id of the gateway, and locks of files that other gateways change too. Undefined: the gateway is alone */
  readonly cluster: { readonly id: string | undefined; readonly fileLocks: FileLocks | undefined };
}

/** Paths of the gateway that anyone may read. */
const PUBLIC_PATHS = ["/", "/health", "/health/live", "/metrics", "/openapi.json"];

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

/** Doors to the machine. */
export const systemWing = defineWing({ name: "system", start: startSystem });

/** Creates the doors to the machine. Before that ends what the commands of an earlier gateway left. */
async function startSystem(needs: SystemNeeds, opened: OpenedList): Promise<SystemServices> {
  const { kit: { clock, log, environment }, config, program, folders, marker, guard: { halts }, cluster } = needs;
  const { dataDir, home } = folders;
  // Tools reach the temporary folders of MCP servers as little as the data directory
  const ownPaths = [...folders.ownPaths, temporaryFolder(marker.text)];
  const commands = createCommandLookup();
  const ownAddress = createOwnAddress(PUBLIC_PATHS);
  const urls = createUrlPolicy({ own: ownAddress.gateway });
  const shell = () => config().security.shell;
  const proxy = proxyOf(needs);
  const processes = opened.own(openProcesses(needs, { ownPaths, commands, urls }), (open) => open.close());
  halts.onChange(() => processes.holdPrograms(halts.refusalOfRun()));
  if (shell().sandbox === "off") log.info(containmentOf(shell(), undefined).text);
  if (shell().syntax === "contained") requireSyntax(shell(), await processes.containment(shell()));
  const workers = opened.own(new Workers({ maxWorkers: MAX_WORKERS, clock }), (open) => open.close());
  await endLeftovers(processes, needs);
  const git = lazily(async () => {
    const { CheckedGit } = await import("./git/checked_git.ts");
    return new CheckedGit({ processes, home, ownPaths });
  });
  return {
    files: createFiles({ clock, home, ownPaths, locks: cluster.fileLocks }),
    commands,
    processes,
    workers,
    git: { open: async (...given) => await (await git()).open(...given) },
    desktop: createDesktop({ processes, commands, clock, environment, home, folder: screenFolder(dataDir) }),
    urls,
    browsers: lazyBrowsers(needs, { commands, urls, opened }),
    ownAddress,
    guardedFetch: lazily(async () => {
      const { createGuardedFetch } = await import("./net/guarded_fetch.ts");
      return createGuardedFetch({ policy: urls, clock, userAgent: `postern/${program.about.version}`, proxy });
    }),
    proxyOf: (url) => chooseProxy(proxy(), url),
    containment: () => processes.containment(shell()),
  };
}

/** Returns a function that reads the newest `[proxy]`, with the variables that count beside it. */
function proxyOf({ config, kit: { environment } }: SystemNeeds): () => ProxySettings {
  return () => ({ ...config().proxy, environment });
}

/** Returns the browsers, which are loaded when a run first asks for one, and closed with the gateway. */
function lazyBrowsers(
  needs: SystemNeeds,
  { commands, urls, opened }: Pick<SystemServices, "commands" | "urls"> & { readonly opened: OpenedList },
): SystemServices["browsers"] {
  const { kit: { clock, random, environment }, config, folders: { dataDir, home }, marker } = needs;
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
      network: {
        ...{ clock, random, proxy: proxyOf(needs), policy: urls, folder },
        rules: () => config().url_access,
        allowedDomains: () => config().browser.allowed_domains,
      },
    });
  });
  opened.own(loaded, async ({ made }) => await (await made())?.close());
  return {
    use: async (...given) => await (await loaded()).use(...given),
    // Nothing is loaded by a look at a browser that nobody has opened
    note: (runId, action) => void loaded.made()?.then((made) => made?.note(runId, action)),
    view: async (runId) => await (await loaded.made())?.view(runId),
    closeAll: async () => await (await loaded.made())?.closeAll(),
    closeRun: (runId) => loaded.made()?.then((made) => made?.closeRun(runId) ?? false) ?? WAS_CLOSED,
  };
}

/** Promise for the end of each run, so that one serves all runs without a browser */
const WAS_CLOSED = Promise.resolve(false);

function openProcesses(
  needs: SystemNeeds,
  { ownPaths, commands, urls }: Pick<SystemServices, "commands" | "urls"> & { readonly ownPaths: readonly string[] },
): Processes {
  const { kit: { clock, random, log }, config, folders: { home, dataDir }, marker, telemetry, guard, cluster } = needs;
  const shell = () => config().security.shell;
  const urlRules = () => config().url_access;
  return new Processes({
    commands,
    clock,
    home,
    ownPaths,
    marker: marker.text,
    gateway: cluster.id,
    redact: telemetry.redactor.part,
    quarantine: {
      folder: join(dataDir, "quarantine"),
      onFound: (found) =>
        log.warn(
          "A command made protected names, which were moved to quarantine, or could not be looked for",
          quarantineFields(found),
        ),
    },
    notes: join(dataDir, "commands"),
    relays: {
      folder: join(dataDir, "relays"),
      allowlist: () => urlRules().domain_allowlist,
      async create(hosts) {
        const { Relay } = await import("./net/relay.ts");
        return new Relay({
          policy: urls,
          rules: urlRules,
          requiresList: hosts === undefined,
          hosts,
          isOn: hosts === undefined ? () => shell().network === "allowlist" : undefined,
          clock,
          proxy: proxyOf(needs),
          onProblem: ({ host, reason }) =>
            host === ""
              ? log.warn("The relay of a command failed", { reason })
              : log.info("The relay did not carry out a request of a command", { host }),
        });
      },
    },
    random,
    onTainted: ({ paths, taint, workspace }) => guard.taintedFiles.markWritten(paths, { taint, root: workspace }),
    onLook(found) {
      const { kind, text } = containmentOf(shell(), found);
      log[kind === "refused" ? "warn" : "info"](text);
    },
  });
}

function screenFolder(dataDir: string): string {
  return join(dataDir, "screen");
}

/**
 * Kills the processes that an earlier gateway left and removes their pictures of the screen, then looks for the protected names that they
 * made.
 */
async function endLeftovers(
  processes: Processes,
  { kit: { log }, marker, folders: { dataDir } }: SystemNeeds,
): Promise<void> {
  if (marker.known) {
    const killed = await processes.killLeftovers();
    if (killed > 0) log.warn("Killed processes that an earlier gateway left", { count: killed });
  }
  await rm(screenFolder(dataDir), { recursive: true, force: true });
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
