import { hostname } from "node:os";
import process from "node:process";
import { createAccessServices } from "./access/access_services.ts";
import { type AutomationServices, createAutomationServices } from "./automation/automation_services.ts";
import type { Cluster } from "./cluster/join_cluster.ts";
import { canonicalDigest } from "./base/json.ts";
import { systemClock } from "./base/clock.ts";
import { type OpenedList, openInSteps } from "./base/opened_list.ts";
import { createSystemRandom } from "./base/random.ts";
import { createTelemetry } from "./base/telemetry/create_telemetry.ts";
import { createReloads, type Reloads } from "./config/create_reloads.ts";
import { allSecrets } from "./config/secrets.ts";
import { type Extensions, openExtensions } from "./extensions/open_extensions.ts";
import { createGuardServices } from "./guard/guard_services.ts";
import { createMemoryServices, type MemoryServices } from "./memory/memory_services.ts";
import { createEmbedder } from "./providers/embedder.ts";
import { createProviderServices, type ProviderServices } from "./providers/provider_services.ts";
import type { RunEventFeed } from "./runs/journal/run_event_feed.ts";
import { createStoredRuns } from "./runs/journal/stored_runs.ts";
import type { ClusterMember } from "./runs/supervisor/supervisor.ts";
import type { RunGuidance } from "./runs/supervisor/run_settings.ts";
import {
  createConversationServices,
  createLazySubAgents,
  createRevocation,
  createRuns,
  createWorkSeam,
} from "./runs/run_services.ts";
import { createDocuments } from "./storage/documents.ts";
import { openStore } from "./storage/open_store.ts";
import { readable } from "./storage/read_records.ts";
import type { Store } from "./storage/store.ts";
import { parseMarker, PROCESSES } from "./system/process/leftover_processes.ts";
import { createSystemServices } from "./system/system_services.ts";
import { createLazySecrets, createTools } from "./tools/create_tools.ts";
import type { DrainableExecutor } from "./tools/runtime/drainable_executor.ts";
import type { ToolSecrets } from "./tools/secrets/tool_secrets.ts";
import type { GatewayServices, GatewayState, ServicesOptions } from "./services.ts";

/**
 * Builds the services of one gateway and hands them to each other. Holds the data directory's lock until `close()`.
 *
 * A start that fails at any step leaves nothing open.
 * @throws {ConfigError} see `openStore`, and a provider that cannot be used
 */
export function createServices(options: ServicesOptions): Promise<GatewayServices> {
  return openInSteps(async (opened) => toServices(await startWings(options, opened)));
}

type Basics = Awaited<ReturnType<typeof createBasics>>;
type Foundations = Awaited<ReturnType<typeof startFoundations>>;
type Wings = Awaited<ReturnType<typeof startWings>>;

/** Starts the wings in the order of the list. Closing goes through `opened`, in the reverse order. */
async function startWings(options: ServicesOptions, opened: OpenedList) {
  const found = await startFoundations(await createBasics(options, opened));
  const { config, guard, access, system, work } = found;
  const { approvals, audit, taintedFiles } = guard;
  const { files, guardedFetch } = system;
  const scopesOf = (tokenId: string | null) => access.tokens.scopesOf(tokenId);
  const automation = createAutomationServices({
    ...{ ...found, ...work, approvals, files, guardedFetch, scopesOf, taintedFiles },
  });
  const secrets = createLazySecrets({ ...found, ...system, env: options.environment });
  const extensions = await openExtensions({ ...found, ...system, ...guard, audit: audit.append, secrets });
  const memory = createMemoryServices({
    ...found,
    redact: found.redactor.redact,
    isKept: config().storage.driver !== "memory",
    usedLogins: () => config().browser.logins,
    recordLogin: guard.recordLogin,
  });
  const calls = createGatewayTools(found, { automation, extensions, memory, secrets });
  const tools = calls.executor;
  const models = await createModels(found);
  if (models.live !== undefined) memory.vectors.start(createEmbedder({ ...found, providers: models.live.providers }));
  found.opened.own(memory.vectors, (vectors) => vectors.close());
  const feed = await openFeed(found);
  const runs = models.live && createRuns({
    ...found,
    ...models.live,
    ...{ approvals, tools, audit: audit.append, onEvents: feed?.take },
    guidance: () => guidanceOf(extensions),
    onRunEnd: createRunEnd(found),
  });
  work.join({ tools, runs });
  if (runs !== undefined) await automation.start({ recover: () => runs.recover(), opened });
  const conversations = createConversationServices({ ...found, runs });
  return { ...found, automation, extensions, memory, calls, models, feed, runs, conversations };
}

/** Starts what the other wings stand on, in the order of the list. */
async function startFoundations(basics: Basics) {
  const { options, log, config, redactor, environment } = basics;
  const store = options.database?.store ?? await openStore({ ...basics, storage: config().storage });
  const cluster = await openCluster(basics, store);
  const guard = await createGuardServices({
    ...basics,
    store,
    cluster: cluster?.ownership,
    redact: redactor.redact,
    trustDir: options.trustDir,
    program: options.hooks,
  });
  const access = await createAccessServices({
    ...basics,
    store,
    record: guard.recordAccess,
    envToken: environment("POSTERN_TOKEN"),
    controlToken: options.controlToken,
    pairingTtlSeconds: () => config().gateway.pairing_code_ttl_secs,
  });
  const marker = await loadMarker({ ...basics, store });
  if (cluster !== undefined) await watchPrograms(basics, { cluster, marker: marker.text });
  const system = await createSystemServices({
    ...basics,
    redact: redactor.part,
    marker,
    shell: () => config().security.shell,
    urlRules: () => config().url_access,
    proxy: () => ({ ...config().proxy, environment }),
    browserDomains: () => config().browser.allowed_domains,
    userAgent: `postern/${options.version}`,
    publicPaths: PUBLIC_PATHS,
    onTainted: ({ paths, taint, workspace }) => guard.taintedFiles.markWritten(paths, { taint, root: workspace }),
  });
  const work = createWorkSeam();
  access.tokens.onRevoke(createRevocation({ store, log, runs: work.runs }));
  const documents = createDocuments({ store });
  return { ...basics, store, cluster, documents, guard, access, system, work };
}

/** Joins the gateways that share the database. Undefined for a gateway alone, which loads nothing of clusters. */
async function openCluster({ options, config, clock, random, log, opened }: Basics, store: Store) {
  const database = options.database?.cluster;
  if (database === undefined) return undefined;
  const [{ joinCluster }, { ClusterRuns }] = await Promise.all([
    import("./cluster/join_cluster.ts"),
    import("./runs/supervisor/cluster_runs.ts"),
  ]);
  const cluster = await joinCluster({
    ...{ store, database, clock, random, log, opened },
    leaseMs: config().cluster.lease_secs * 1_000,
    about: { host: hostname(), pid: process.pid, version: options.version },
  });
  const toRuns: ClusterMember["toRuns"] = (parts) => new ClusterRuns({ ...parts, cluster });
  return { ...cluster, toRuns };
}

/** Has the programs of this gateway killed when its heartbeats stop, since others may go on with its runs then. */
async function watchPrograms(
  { options, log, opened }: Basics,
  { cluster, marker }: { readonly cluster: Pick<Cluster, "onBeat">; readonly marker: string },
): Promise<void> {
  const { startWatchdog } = await import("./system/process/watchdog.ts");
  const watchdog = opened.own(startWatchdog({ marker, env: options.environment, log }), (open) => open.stop());
  cluster.onBeat((leftMs) => watchdog.beat(leftMs));
}

/** Returns the services of started wings. */
function toServices(wings: Wings): GatewayServices {
  const { options, access, guard, system, automation, extensions, models, runs } = wings;
  const reloads = createConfigReloads(wings);
  return {
    version: options.version,
    clock: wings.clock,
    random: wings.random,
    log: wings.log,
    metrics: wings.metrics,
    recentLog: wings.recentLog,
    config: wings.config,
    configStatus: reloads.status,
    reload: reloads.reload,
    store: wings.store,
    ...access,
    audit: guard.audit,
    approvals: guard.approvals,
    taintedFiles: guard.taintedFiles,
    tools: wings.calls.executor,
    offers: options.offers ?? { prompts: new Map(), resources: [] },
    redactor: wings.redactor,
    cron: automation.cron,
    deliveries: automation.deliveries,
    listensOn: system.ownAddress.listensOn,
    conversations: wings.conversations,
    memory: wings.memory.memory,
    browserLogins: wings.memory.browserLogins,
    nodes: extensions.nodes,
    browserOf: (runId) => system.browsers.view(runId),
    plugins: extensions.plugins.load,
    mcpServers: extensions.mcpOperator,
    learningTools: () => extensions.mcp.now?.learning(),
    skills: extensions.skills.load,
    instructions: extensions.instructions.load,
    mcpSignIn: extensions.mcpSignIn,
    storedRuns: createStoredRuns({ store: wings.store }),
    agent: models.live && runs && { providers: models.live.providers, runs },
    startedAt: wings.clock.now(),
    workspaceRoot: options.workspaceRoot,
    containment: system.containment,
    environment: wings.environment,
    trustModelServer: (address, by) => models.trust(address, guard.recordServerTrust(by)),
    state: () => stateOf(wings),
    beginDrain: () => void (wings.current.draining = true),
    drain: (graceMs) => drain(wings, graceMs),
    close: wings.opened.close,
  };
}

/** Creates the parts that every wing may use. */
async function createBasics(options: ServicesOptions, opened: OpenedList) {
  const { version, dataDir, workspaceRoot, home } = options;
  const clock = options.clock ?? systemClock;
  // State of the gateway itself: the newest configuration, and whether a shutdown began
  const current = { config: options.config, draining: false };
  const telemetry = createTelemetry({
    clock,
    version,
    level: () => current.config.logging.level,
    sink: options.logSink,
    secrets: [...await allSecrets(options.config, options.environment), options.controlToken ?? ""],
    opened,
  });
  return {
    ...telemetry,
    options,
    current,
    clock,
    random: options.random ?? createSystemRandom(),
    config: () => current.config,
    environment: (name: string) => options.environment[name],
    dataDir,
    workspaceRoot,
    home,
    ownPaths: [...new Set([dataDir, ...options.ownPaths ?? []])],
    opened,
  };
}

/** Paths of the gateway that anyone may read. */
const PUBLIC_PATHS = ["/", "/health", "/health/live", "/metrics", "/openapi.json"];

/**
 * Returns the marker that this data directory's processes are known by, kept from the first start on. The folder's name is a part of it:
 * a copy of the folder has other processes.
 */
async function loadMarker({ store, random, dataDir }: Pick<Foundations, "store" | "random" | "dataDir">) {
  const place = canonicalDigest(dataDir).slice(0, 16);
  for (;;) {
    const stored = await store.get(PROCESSES, "marker");
    // Without the old marker, processes that an earlier gateway left are not found: the log names the damaged record
    const [found] = readable(store, PROCESSES, stored === undefined ? [] : [stored], parseMarker);
    if (found !== undefined) return { text: `${found.value}.${place}`, known: true };
    const marker = random.id("gateway_");
    // Another gateway of the cluster may write its own at the same moment: the first one counts for all
    const isWritten = await store.putIfVersion(PROCESSES, "marker", stored?.version ?? 0, { v: 1, marker });
    if (isWritten) return { text: `${marker}.${place}`, known: false };
  }
}

function createGatewayTools(
  found: Foundations,
  { automation, extensions, memory, secrets }: {
    readonly automation: AutomationServices;
    readonly extensions: Extensions;
    readonly memory: MemoryServices;
    readonly secrets: ToolSecrets;
  },
): DrainableExecutor {
  const { documents, guard, system, work, redactor, environment } = found;
  const { files, commands, processes, workers, git, desktop, urls, browsers, guardedFetch, proxyOf } = system;
  const subAgents = createLazySubAgents({ ...found, tools: work.tools, runs: work.runs });
  const { cron: schedules, sops } = automation;
  return createTools({
    ...found,
    own: found.options.tools,
    foreign: extensions.tools,
    services: {
      ...{
        files,
        commands,
        processes,
        workers,
        git,
        desktop,
        urls,
        browsers,
        guardedFetch,
        proxyOf,
        environment,
        documents,
        secrets,
      },
      ...{ ...memory, schedules, sops, subAgents, wasmModules: extensions.wasmModules },
      mcpReader: extensions.mcpReader,
      skills: { read: async (name, path) => await (await extensions.skills.load()).read(name, path) },
    },
    remembered: (...call) => guard.approvals.remembered(...call),
    taintedFiles: guard.taintedFiles,
    isTrustedFile: async (path) => await (await extensions.instructions.load()).isTrusted(path),
    redact: redactor.redact,
    audit: guard.audit.append,
  });
}

/** Returns the texts that a run begins with. */
async function guidanceOf({ skills, instructions }: Extensions): Promise<RunGuidance> {
  const [{ prompt, isAny }, told] = await Promise.all([skills.offer(), instructions.offer()]);
  return { instructions: told, skills: prompt, hasSkills: isAny };
}

/** Returns a function that closes what a run had open. */
function createRunEnd({ system, log }: Foundations): (runId: string) => void {
  return (runId) => {
    system.browsers.closeRun(runId).catch((error: unknown) => {
      log.error("The browser of a run could not be closed", { run_id: runId, error });
    });
  };
}

/** Opens the feed of run events to the program, where it wants them. */
async function openFeed({ options, clock, log }: Foundations): Promise<RunEventFeed | undefined> {
  const { onRunEvent: tell, ready } = options.hooks ?? {};
  if (tell === undefined || ready === undefined) return undefined;
  const { RunEventFeed } = await import("./runs/journal/run_event_feed.ts");
  return new RunEventFeed({ tell, ready, clock, log });
}

function createModels(found: Foundations): Promise<ProviderServices> {
  const { options, config, system, redactor } = found;
  return createProviderServices({
    ...found,
    hasAgent: options.agent !== false && config().provider.kind !== "none",
    env: options.environment,
    onSecret: redactor.add,
    isOwn: system.ownAddress.isOwn,
    fixed: options.providers,
    own: options.ownProviders,
    help: options.help,
    localOrigins: options.localServers,
  });
}

function createConfigReloads({ current, clock, log, config, options, ...wings }: Wings): Reloads {
  const { guard, redactor, models, runs, automation, calls, extensions } = wings;
  return createReloads({
    clock,
    log,
    running: config,
    record: ({ keys, needsRestart }) =>
      guard.audit.append({ type: "config", action: "taken_over", keys, needs_restart: needsRestart }),
    async prepare(next, { always }) {
      await guard.recordTrust();
      for (const secret of await allSecrets(next, options.environment)) redactor.add(secret);
      const useProviders = await models.live?.prepare(next, { always });
      const { warnOfIdleSettings } = await import("./tools/idle_settings.ts");
      return () => {
        const before = current.config;
        current.config = next;
        warnOfIdleSettings(next, { log, tools: calls.executor });
        useProviders?.();
        if (!current.draining) void extensions.mcp.follow();
        if (runs === undefined || current.draining || before.cron.enabled === next.cron.enabled) return;
        automation.switchCron(next.cron.enabled);
      };
    },
  });
}

function stateOf({ current, store, guard, options }: Wings): GatewayState {
  if (current.draining) return "draining";
  const isWhole = store.unreadable.count() === 0;
  const isLogged = options.logHealthy?.() ?? true;
  return store.healthy() && guard.audit.healthy() && isLogged && isWhole ? "ok" : "degraded";
}

/** Time for the program to take the last events of runs. */
const FEED_MS = 2_000;

async function drain({ current, automation, runs, calls, extensions, feed }: Wings, graceMs: number): Promise<void> {
  current.draining = true;
  await automation.cron.stop();
  await automation.sops.stop();
  await Promise.all([runs?.drain(graceMs), calls.drain(graceMs)]);
  await automation.deliveries.stop();
  extensions.nodes?.close();
  await feed?.close(FEED_MS);
}
