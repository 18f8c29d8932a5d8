import { join } from "node:path";
import { createPairing, type Pairing } from "./access/pairing.ts";
import { createTickets, type Tickets } from "./access/tickets.ts";
import { createTokens } from "./access/tokens.ts";
import type { RecordAccess, Tokens } from "./access/identity.ts";
import type { Deliveries } from "./automation/channels/delivery_service.ts";
import { OPEN_DELIVERIES } from "./automation/channels/delivery_record.ts";
import type { ReplyTarget } from "./automation/channels/send_reply.ts";
import { SCHEDULES } from "./automation/cron/schedule_record.ts";
import type { Cron } from "./automation/cron/cron_service.ts";
import { OPEN_SOPS } from "./automation/sops/collections.ts";
import { canonicalDigest } from "./base/canonical_json.ts";
import { type Clock, systemClock } from "./base/clock.ts";
import { lazily, lazyService, lazyStartedService } from "./base/lazily.ts";
import { openInSteps } from "./base/opened_list.ts";
import { createSystemRandom, type Random } from "./base/random.ts";
import type { Caller } from "./base/records/caller.ts";
import { createRedactor } from "./base/redact.ts";
import { createLogger, type Logger, type LogSink } from "./base/telemetry/log.ts";
import { createRecentLog, type RecentLog } from "./base/telemetry/recent_log.ts";
import { createMetrics, type Metrics } from "./base/telemetry/metrics.ts";
import { observeProcess } from "./base/telemetry/process_metrics.ts";
import type { Config } from "./config/config.ts";
import { type ConfigStatus, createReloads, type Reloads } from "./config/create_reloads.ts";
import { resolvePath } from "./config/folders.ts";
import { knownSecrets, secretsOfFiles } from "./config/secrets.ts";
import type { Nodes } from "./extensions/nodes/nodes.ts";
import { APPROVAL_LIMITS, type Approvals, keepTidy } from "./guard/approvals.ts";
import { accessEvent } from "./guard/audit/audit_event.ts";
import { type Audit, createAudit } from "./guard/audit/audit.ts";
import { createApprovals } from "./guard/create_approvals.ts";
import { createMemory, type Memory } from "./memory/memory.ts";
import { createPlans } from "./memory/plans.ts";
import { createAgentProviders } from "./providers/agent_providers.ts";
import { createLiveProviders, type LiveProviders } from "./providers/live_providers.ts";
import { createOfflineProvider } from "./providers/offline/offline.ts";
import type { Providers } from "./providers/provider.ts";
import { loadProviderMemory, type ProviderMemory, type TrustedServer } from "./providers/discovery/provider_memory.ts";
import { createProviderMetrics } from "./providers/provider_metrics.ts";
import { createAgentOf } from "./runs/supervisor/agent_profile.ts";
import { askPerson } from "./runs/supervisor/create_approver.ts";
import { cancelRunsOf, createRunArchive, type RunArchive } from "./runs/journal/stored_runs.ts";
import {
  type ConversationArchive,
  createConversationArchive,
  keepConversations,
} from "./runs/conversations/stored_conversations.ts";
import type { RunSupervisor } from "./runs/run_request.ts";
import { createSupervisor } from "./runs/supervisor/supervisor.ts";
import { createDocuments } from "./storage/documents.ts";
import { KEY_BYTES, loadKeyFile } from "./storage/key_file.ts";
import { openStore } from "./storage/open_store.ts";
import { readable } from "./storage/read_records.ts";
import type { Store, Write } from "./storage/store.ts";
import { parseMarker, PROCESSES } from "./system/process/process_marker.ts";
import { createFiles } from "./system/files/create_files.ts";
import { isLoopbackName } from "./system/net/is_loopback_name.ts";
import { createExchangeQueues } from "./system/net/http_exchange.ts";
import { createProviderClients } from "./system/net/provider_client.ts";
import { createUrlPolicy } from "./system/net/url_policy.ts";
import { type CommandContainment, containmentOf } from "./system/process/containment.ts";
import { createCommandLookup } from "./system/process/create_command_lookup.ts";
import { createProcesses } from "./system/process/create_processes.ts";
import type { Aftermath } from "./system/process/prepare_command.ts";
import { createWorkers } from "./system/process/create_workers.ts";
import { BUILTIN_TOOLS } from "./tools/builtin.ts";
import { createDrainableExecutor } from "./tools/runtime/drainable_executor.ts";
import { createToolExecutor } from "./tools/runtime/create_tool_executor.ts";
import type { ToolExecutor } from "./tools/runtime/tool_executor.ts";

/** Threads for documents at once: one may hold hundreds of megabytes */
const MAX_WORKERS = 2;

/** `draining` once a shutdown began, `degraded` while storage, audit or log cannot be written, or damaged records are set aside. */
export type GatewayState = "ok" | "degraded" | "draining";

/** What the handlers work with: every service of the gateway, built once and handed in. */
export interface Services {
  readonly version: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly metrics: Metrics;
  /** The newest configuration; an immutable snapshot, so keep the reference for the length of one piece of work only */
  readonly config: () => Config;
  readonly configStatus: () => ConfigStatus;
  readonly store: Store;
  readonly tokens: Tokens;
  readonly pairing: Pairing;
  readonly tickets: Tickets;
  readonly audit: Audit;
  readonly approvals: Approvals;
  readonly tools: ToolExecutor;
  readonly cron: Cron;
  /** Replies of channels to their `reply_url` */
  readonly deliveries: Deliveries;
  readonly conversations: ConversationArchive;
  /** Records that the agent keeps between conversations */
  readonly memory: Memory;
  readonly recentLog: RecentLog;
  /** Other machines that offer their tools; undefined while `[gateway.node_control]` is off */
  readonly nodes: Nodes | undefined;
  /** Recorded runs, for reading where there is no agent */
  readonly runArchive: RunArchive;
  /** undefined without agent configuration (`kind = "none"` or --no-agent): 503 agent_unavailable */
  readonly agent: { readonly providers: Providers; readonly runs: RunSupervisor } | undefined;
  /** Milliseconds since the epoch */
  readonly startedAt: number;
  readonly workspaceRoot: string;
  /** Returns how commands of tools are contained now; waits for the first look at the machine alone. */
  readonly containment: () => Promise<CommandContainment>;
  /** The environment variable a configuration key names, as `secret_env`; undefined when it is not set */
  readonly environment: (name: string) => string | undefined;
  /** Trusts a model server of this machine, which is then looked for and used like one of the gateway's own user. @throws {HttpError} */
  readonly trustModelServer: (address: string, by: Pick<Caller, "via" | "tokenId">) => Promise<TrustedServer>;
  state(): GatewayState;
}

/** The services and their end. */
export interface GatewayServices extends Services {
  /** Told once a port of the gateway is open: what fetches from the outside refuses the gateway itself */
  listensOn(port: number): void;
  /** See Reloads. Runs keep what they began with, except what is allowed and what is on: that is always the newest */
  readonly reload: Reloads["reload"];
  /** From now on nothing new starts: `state()` says `draining` and handlers refuse work */
  beginDrain(): void;
  /** Waits for attached work up to `graceMs`, then cancels it with a final event; durable work is left for the next start */
  drain(graceMs: number): Promise<void>;
  /** Closes everything, in the reverse order of its start. Repeating it does nothing */
  close(): Promise<void>;
}

export interface ServicesOptions {
  /** That of the start */
  readonly config: Config;
  /** Absolute; made when it is missing */
  readonly dataDir: string;
  /** Absolute: the folder the agent works in */
  readonly workspaceRoot: string;
  /** Further paths that no tool may touch beside the data directory: configuration files. Absolute. Default: none */
  readonly ownPaths?: readonly string[];
  /** Folder of the list of configuration files that a person accepted, for the audit. Default: nothing of it is recorded */
  readonly trustDir?: string;
  /** The user's home folder */
  readonly home: string;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly version: string;
  /** false: no agent, as `kind = "none"`. Default true */
  readonly agent?: boolean;
  /** Token of the control file, for the command line on this machine */
  readonly controlToken?: string | undefined;
  readonly logSink: LogSink;
  /** false while log lines are lost. Default: they never are */
  readonly logHealthy?: () => boolean;
  /** Default: the system's */
  readonly clock?: Clock;
  /** Default: the system's */
  readonly random?: Random;
  /** Used in place of the configured providers: a model of one's own, or a script in tests */
  readonly providers?: Providers;
  /** Text of each command's `--help`, by its name, for the offline assistant. Default: it knows the README and `docs/` alone */
  readonly help?: () => Promise<ReadonlyMap<string, string>>;
  /** Origins where `kind = "auto"` looks for local model servers; false: nowhere. Default: the usual ports on loopback */
  readonly localServers?: readonly string[] | false;
}

/**
 * Builds the services of one gateway and hands them to each other; holds the data directory's lock until `close()`.
 * @throws {ConfigError} a data directory in use (`data_dir_locked`), an unusable database, a driver that is not there
 */
export async function createServices(options: ServicesOptions): Promise<GatewayServices> {
  const { dataDir, workspaceRoot, home, environment, version } = options;
  const clock = options.clock ?? systemClock;
  const random = options.random ?? createSystemRandom();
  let running = options.config;
  const config = () => running;
  const logHealthy = options.logHealthy ?? (() => true);
  const redactor = createRedactor([
    ...knownSecrets(options.config, environment),
    ...await secretsOfFiles(options.config),
    options.controlToken ?? "",
  ]);
  const recentLog = createRecentLog();
  const log = createLogger({
    get level() {
      return running.logging.level;
    },
    now: clock.now,
    sink: (record) => {
      recentLog.add(record);
      options.logSink(record);
    },
    redact: redactor.redact,
  });
  const metrics = createMetrics();
  return await openInSteps(async (opened) => {
    opened.own(observeProcess(metrics, { clock, version }), (end) => end());
    const store = await openStore({ driver: config().storage.driver, dataDir, clock, log, opened });
    const audit = await createAudit({
      store,
      clock,
      log,
      redact: redactor.redact,
      enabled: () => config().security.audit.enabled,
      retentionDays: () => config().security.audit.retention_days,
    });
    opened.own(audit, (open) => open.close());
    const recordAccess: RecordAccess = (change, writes) => audit.append(accessEvent(change), writes);
    const noteTrust = async () => {
      if (options.trustDir === undefined) return;
      const { recordTrust } = await import("./guard/audit/record_trust.ts");
      await recordTrust({ store, audit: audit.append, log, trustDir: options.trustDir });
    };
    await noteTrust();
    const tokens = await createTokens({
      store,
      clock,
      random,
      envToken: environment["POSTERN_TOKEN"],
      controlToken: options.controlToken,
      record: recordAccess,
      log,
    });
    const approvals = createApprovals({ store, clock, random, log, metrics, audit: audit.append });
    opened.own(await keepTidy(approvals, { clock, log, days: () => config().runs.retention_days }), (end) => end());
    const ownPaths = [...new Set([dataDir, ...options.ownPaths ?? []])];
    const commands = createCommandLookup();
    const marker = await loadMarker({ store, random, dataDir });
    const processes = createProcesses({
      commands,
      clock,
      home,
      ownPaths,
      marker: marker.text,
      redact: redactor.part,
      quarantine: join(dataDir, "quarantine"),
      notes: join(dataDir, "commands"),
      random,
      onQuarantine: (found) =>
        log.warn(
          "A command made protected names, which were moved to quarantine, or could not be looked for",
          quarantineFields(found),
        ),
      onLook(found) {
        const { kind, text } = containmentOf(config().security.shell.sandbox, found);
        log[kind === "refused" ? "warn" : "info"](text);
      },
    });
    opened.own(processes, (open) => open.close());
    if (config().security.shell.sandbox === "off") log.info(containmentOf("off", undefined).text);
    const containment = () => processes.containment(config().security.shell.sandbox);
    const workers = createWorkers({ maxWorkers: MAX_WORKERS });
    opened.own(workers, (open) => open.close());
    if (marker.known) {
      const killed = await processes.killLeftovers();
      if (killed > 0) log.warn("Killed processes that an earlier gateway left", { count: killed });
    }
    const planted = await processes.lookAfterKill();
    if (planted.quarantined.length > 0 || planted.unchecked) {
      log.warn(
        "Protected names appeared since a command of an earlier gateway, which was killed with it: they were moved to quarantine, " +
          "or could not be looked for",
        quarantineFields(planted),
      );
    }
    let supervisor: RunSupervisor | undefined;
    tokens.onRevoke(async (tokenId) => {
      try {
        const cancelled = await cancelRunsOf(tokenId, { store, supervisor: () => supervisor });
        if (cancelled > 0) log.info("Runs of a token that was revoked are cancelled", { token_id: tokenId, cancelled });
      } catch (error) {
        log.error("Runs of a token that was revoked could not be cancelled", { token_id: tokenId, error });
      }
    });
    const cron = lazyStartedService(async () => {
      const { createCron } = await import("./automation/cron/cron_service.ts");
      return createCron({
        store,
        clock,
        random,
        log,
        settings: () => ({ ...config().cron, maxTasks: config().cron.max_tasks }),
        runs: () => supervisor,
        isLive: tokens.isLive,
        tools: () => tools,
      });
    }, {
      methods: ["add", "update", "remove", "pause", "resume", "list", "get", "page", "history", "run"],
      isNeeded: async () => config().cron.enabled && await store.count(SCHEDULES) > 0,
    });
    const files = createFiles({ clock, home, ownPaths });
    const hasOpenSops = async () => await store.count(OPEN_SOPS) > 0;
    const sops = lazyStartedService(async () => {
      const { createSops } = await import("./automation/sops/sop_service.ts");
      return createSops({
        store,
        clock,
        random,
        log,
        approvals,
        files,
        isLive: tokens.isLive,
        runs: () => supervisor,
        tools: () => tools,
        workspaceRoot,
        dataDir,
        settings: () => ({
          dirs: config().sops.dirs.map((path) => resolvePath(path, workspaceRoot, home)),
          approvalTimeoutMs: config().sops.approval_timeout_secs * 1000,
          forbiddenPaths: config().autonomy.forbidden_paths,
          retentionDays: config().runs.retention_days,
        }),
      });
    }, {
      methods: ["list", "execute", "status", "advance", "cancel", "approve", "stopCancelled"],
      isNeeded: hasOpenSops,
    });
    const git = lazyService(async () => {
      const { createGit } = await import("./system/git/create_git.ts");
      return createGit({ processes, home, ownPaths });
    }, ["open"]);
    const mailbox = lazyService(async () => {
      const [{ createMailbox }, { createRecordCipher }] = await Promise.all([
        import("./memory/mailbox.ts"),
        import("./storage/record_cipher.ts"),
      ]);
      const cipher = async () => createRecordCipher(await mailboxKey({ ...options, random }), random);
      return createMailbox({ store, clock, random, cipher });
    }, ["send", "receive", "list", "clear"]);
    const boards = lazyService(async () => {
      const { createBoards } = await import("./hardware/boards.ts");
      return createBoards({ config, clock });
    }, ["attach", "host"]);
    const subAgents = lazyService(async () => {
      const { createSubAgents } = await import("./runs/sub_agents/sub_agent_service.ts");
      return createSubAgents({
        store,
        clock,
        agents: () => config().agents,
        tools: () => tools,
        runs: () => supervisor,
      });
    }, ["spawn", "list", "status", "result", "message", "cancel", "delegate", "delegations"]);
    const urls = createUrlPolicy();
    let ownPort = 0;
    const deliveryService = lazyStartedService(async () => {
      const { createDeliveries } = await import("./automation/channels/delivery_service.ts");
      return createDeliveries({
        store,
        clock,
        random,
        log,
        metrics,
        runs: () => supervisor,
        fetch: lazily(async () => {
          const { createGuardedFetch } = await import("./system/net/guarded_fetch.ts");
          const own = () => (ownPort === 0 ? undefined : { port: ownPort, publicPaths: PUBLIC_PATHS });
          const proxy = () => config().proxy;
          return createGuardedFetch({ policy: urls, clock, own, userAgent: `postern/${version}`, proxy });
        }),
        targetOf: (name) => replyTarget(config().channels, name),
        rules: () => config().url_access,
        environment: (name) => environment[name],
        retentionDays: () => config().runs.retention_days,
      });
    }, {
      methods: ["promise", "watch", "page", "resolve"],
      isNeeded: async () => await store.count(OPEN_DELIVERIES) > 0,
    });
    const deliveries: Deliveries = {
      ...deliveryService,
      // A channel without a reply_url loads nothing
      promise: async (reply) =>
        replyTarget(config().channels, reply.channel) === undefined ? undefined : await deliveryService.promise(reply),
    };
    const nodes = await openNodes({ config, environment, clock, log, metrics, audit: audit.append });
    opened.own(nodes, (open) => open?.close());
    const memory = createMemory({ store, clock });
    const executor = createToolExecutor({
      tools: BUILTIN_TOOLS,
      foreign: nodes?.tools,
      services: {
        files,
        memory,
        plans: createPlans({ store, clock }),
        mailbox,
        commands,
        processes,
        workers,
        git,
        urls,
        schedules: cron,
        sops,
        subAgents,
        boards,
      },
      config,
      workspaceRoot,
      home,
      ownPaths,
      clock,
      log,
      metrics,
      remembered: approvals.remembered,
      redact: redactor.redact,
      audit: audit.append,
    });
    const calls = createDrainableExecutor(executor, { clock });
    const tools: ToolExecutor = calls.executor;
    const knownProviders = await loadProviderMemory({ store, log });
    const isOwn = (origin: string) => {
      const { hostname, port } = new URL(origin);
      return ownPort !== 0 && Number(port) === ownPort && isLoopbackName(hostname);
    };
    const agent = options.agent === false || config().provider.kind === "none" ? undefined : await startAgent({
      ...options,
      config,
      isOwn,
      clock,
      random,
      log,
      metrics,
      store,
      approvals,
      audit,
      tools,
      memory: knownProviders,
      addSecret: redactor.add,
    });
    if (agent !== undefined) {
      opened.own(agent, (open) => open.close());
      // After a drain nothing is left to stop; a start that failed half-way stops the runs that it has recovered
      opened.own(agent.runs, (runs) => runs.drain(0));
      for (const service of [deliveries, cron, sops]) opened.own(service, (open) => open.stop());
      // The tools of a run that goes on work with it too
      supervisor = agent.runs;
      if (await hasOpenSops()) await sops.stopCancelled();
      await agent.runs.recover();
      cron.start().catch((error) => log.error("Schedules could not be started", { error }));
      deliveries.start().catch((error) => log.error("Replies could not be gone on with", { error }));
      sops.start().catch((error) => log.error("Procedures could not be gone on with", { error }));
    }
    const conversations = createConversationArchive({ store, isAtWork: (id) => agent?.runs.worksIn(id) ?? false });
    opened.own(
      keepConversations(conversations, { clock, log, days: () => config().conversations.retention_days }),
      (end) => end(),
    );
    let draining = false;
    const reloads = createReloads({
      clock,
      log,
      running: config,
      record: ({ keys, needsRestart }) =>
        audit.append({ type: "config", action: "taken_over", keys, needs_restart: needsRestart }),
      async prepare(next, { always }) {
        await noteTrust();
        const secrets = [...knownSecrets(next, environment), ...await secretsOfFiles(next)];
        for (const secret of secrets) redactor.add(secret);
        const useProviders = await agent?.prepare(next, { always });
        const { warnOfIdleSettings } = await import("./tools/idle_settings.ts");
        return () => {
          const { cron: { enabled: fired } } = running;
          running = next;
          warnOfIdleSettings(next, log);
          useProviders?.();
          if (agent === undefined || draining || fired === next.cron.enabled) return;
          const changed = next.cron.enabled ? cron.start() : cron.stop();
          changed.catch((error) => log.error("Schedules could not be started or stopped", { error }));
        };
      },
    });
    return {
      version,
      clock,
      random,
      log,
      metrics,
      config,
      configStatus: reloads.status,
      reload: reloads.reload,
      store,
      tokens,
      pairing: createPairing({
        store,
        clock,
        random,
        tokens,
        record: recordAccess,
        ttlSeconds: () => config().gateway.pairing_code_ttl_secs,
      }),
      tickets: createTickets({ clock, random, tokens }),
      audit,
      approvals,
      tools,
      cron,
      deliveries,
      listensOn: (port) => void (ownPort = port),
      conversations,
      memory,
      recentLog,
      nodes,
      runArchive: createRunArchive({ store }),
      agent,
      startedAt: clock.now(),
      workspaceRoot,
      containment,
      environment: (name) => environment[name],
      async trustModelServer(address, by) {
        const { trustServer } = await import("./providers/discovery/server_owner.ts");
        const commit = ({ origin, uid }: TrustedServer) => (writes: readonly Write[]) =>
          audit.append({
            type: "trust",
            subject: "model_server",
            name: origin,
            sha256: null,
            uid,
            given_at: new Date(clock.now()).toISOString(),
            by: { via: by.via, token_id: by.tokenId },
          }, writes);
        const server = await trustServer(address, { memory: knownProviders, commit });
        log.warn(`The model server at ${server.origin} is trusted from now on`, { uid: server.uid });
        agent?.lookSoon();
        return server;
      },
      state() {
        if (draining) return "draining";
        const isWhole = store.unreadable.count() === 0;
        return store.healthy() && audit.healthy() && logHealthy() && isWhole ? "ok" : "degraded";
      },
      beginDrain() {
        draining = true;
      },
      async drain(graceMs) {
        draining = true;
        await cron.stop();
        await sops.stop();
        await Promise.all([agent?.runs.drain(graceMs), calls.drain(graceMs)]);
        await deliveries.stop();
        nodes?.close();
      },
      close: opened.close,
    };
  });
}

interface NodeParts extends Pick<ServicesOptions, "environment"> {
  readonly config: () => Config;
  readonly clock: Clock;
  readonly log: Logger;
  readonly metrics: Metrics;
  readonly audit: Audit["append"];
}

/** Loaded where node control is on alone. */
async function openNodes({ config, environment, ...parts }: NodeParts): Promise<Nodes | undefined> {
  const { websocket, node_control: settings } = config().gateway;
  if (!settings.enabled) return undefined;
  const { createNodes } = await import("./extensions/nodes/nodes.ts");
  return createNodes({
    ...parts,
    authToken: settings.auth_token || (environment[settings.auth_token_env] ?? ""),
    allowedIds: settings.allowed_node_ids,
    accessOf: (tool) => config().tools[tool]?.access || undefined,
    settings: {
      heartbeatMs: websocket.heartbeat_secs * 1000,
      silenceMs: websocket.pong_timeout_secs * 1000,
      maxFrameBytes: websocket.max_message_bytes,
    },
  });
}

/** Paths of the gateway that anyone may read */
const PUBLIC_PATHS = ["/", "/health", "/health/live", "/metrics", "/openapi.json"];

/** A conversation of a channel has the channel's name as its id, or as the first part of it before a colon. */
function isChannelConversation(channels: Config["channels"], id: string): boolean {
  const [name = ""] = id.split(":", 1);
  return name === "default" || Object.hasOwn(channels, name);
}

function replyTarget(channels: Config["channels"], name: string): ReplyTarget | undefined {
  const channel = Object.hasOwn(channels, name) ? channels[name] : undefined;
  if (channel === undefined || channel.reply_url === "") return undefined;
  return { url: channel.reply_url, secretEnv: channel.secret_env };
}

/** What the mailboxes are encrypted with; those in memory need no key that lasts. */
function mailboxKey(
  { config, dataDir, random }: Pick<ServicesOptions, "config" | "dataDir"> & { readonly random: Random },
): Promise<Uint8Array> {
  if (config.storage.driver === "memory") return Promise.resolve(random.bytes(KEY_BYTES));
  return loadKeyFile(join(dataDir, "agents_ipc.key"), random);
}

function quarantineFields({ quarantined, unchecked }: Aftermath) {
  return { paths: quarantined.map(({ path, place }) => `${path} -> ${place ?? "not moved: remove it"}`), unchecked };
}

/**
 * What this data directory's processes are known by, kept from the first start on. The folder's name is a part of it: a copy of
 * the folder has other processes.
 */
async function loadMarker(
  { store, random, dataDir }: { readonly store: Store; readonly random: Random; readonly dataDir: string },
): Promise<{ readonly text: string; readonly known: boolean }> {
  const place = canonicalDigest(dataDir).slice(0, 16);
  const stored = await store.get(PROCESSES, "marker");
  // Without the old one, processes that an earlier gateway left are not found: the log names the damaged record
  const [found] = readable(store, PROCESSES, stored === undefined ? [] : [stored], parseMarker);
  const marker = found?.value ?? random.id("gateway_");
  if (found === undefined) {
    await store.batch([{ op: "put", collection: PROCESSES, key: "marker", body: { v: 1, marker } }]);
  }
  return { text: `${marker}.${place}`, known: found !== undefined };
}

interface AgentParts extends Omit<ServicesOptions, "config"> {
  readonly config: () => Config;
  /** Whether an origin is this gateway */
  readonly isOwn: (origin: string) => boolean;
  readonly clock: Clock;
  readonly random: Random;
  readonly log: Logger;
  readonly metrics: Metrics;
  readonly store: Store;
  readonly approvals: Approvals;
  readonly audit: Audit;
  readonly tools: ToolExecutor;
  readonly memory: ProviderMemory;
  readonly addSecret: (secret: string) => void;
}

type StartedAgent = NonNullable<Services["agent"]> & {
  /** See LiveProviders */
  lookSoon(): void;
  /** See LiveProviders; also those of the configured agents */
  prepare(config: Config, options: { readonly always: boolean }): Promise<() => void>;
  close(): Promise<void>;
};

async function startAgent(parts: AgentParts): Promise<StartedAgent> {
  const { config, clock, random, log, metrics, store, approvals, audit, tools } = parts;
  const observer = createProviderMetrics(metrics);
  const env = parts.environment;
  const onSecret = parts.addSecret;
  const { memory } = parts;
  const rememberAgents = async ({ agents }: Config) => {
    if (Object.values(agents).some(({ provider }) => provider !== "")) await memory.remember();
  };
  await rememberAgents(config());
  const queues = createExchangeQueues();
  const providers: LiveProviders = await createLiveProviders({
    config: config(),
    fixed: parts.providers,
    env,
    offline: createOfflineProvider({
      now: clock.now,
      help: parts.help,
      hasModel: () => providers.inUse.name !== "offline",
    }),
    netOf: (proxy) => createProviderClients({ clock, proxy, queues }),
    isOwn: parts.isOwn,
    localOrigins: parts.localServers,
    observer,
    documents: createDocuments({ store }),
    memory,
    onSecret,
    clock,
    random,
    log,
    metrics,
  });
  const agents = createAgentProviders({
    providers,
    env,
    net: providers.net,
    onSecret,
    observer,
    clock,
    random,
    log,
  });
  const runs = createSupervisor({
    store,
    clock,
    random,
    log,
    metrics,
    providers,
    tools,
    agent() {
      const { agent, budget } = config();
      return {
        systemPrompt: agent.system_prompt,
        tools: agent.tools,
        maxIterations: agent.max_iterations,
        maxToolCalls: agent.max_tool_calls,
        parallelTools: agent.parallel_tools,
        contextWindowTokens: agent.context_window_tokens,
        tokensPerRun: budget.tokens_per_run,
      };
    },
    agentOf: createAgentOf({ agents: () => config().agents, providers: agents }),
    limits() {
      const { runs } = config();
      return {
        maxConcurrent: runs.max_concurrent,
        maxQueued: runs.max_queued,
        maxPerConversation: runs.max_per_conversation,
      };
    },
    tokensPerDay: () => config().budget.tokens_per_day,
    retentionDays: () => config().runs.retention_days,
    pendingQuestions: async () =>
      (await approvals.list({ status: "pending", limit: APPROVAL_LIMITS.pending })).approvals,
    withdraw: approvals.cancel,
    isChannelConversation: (id) => isChannelConversation(config().channels, id),
    audit: audit.append,
    approverOf: askPerson({
      approvals,
      timeoutMs: () => ({
        attached: config().autonomy.approval_timeout_secs * 1000,
        durable: config().runs.approval_timeout_secs * 1000,
      }),
    }),
  });
  return {
    providers,
    runs,
    lookSoon: providers.lookSoon,
    async prepare(next, { always }) {
      await rememberAgents(next);
      const useProviders = always || providers.differs(next) ? await providers.prepare(next) : () => {};
      return () => {
        useProviders();
        agents.renew();
      };
    },
    async close() {
      await agents.close();
      await providers.close();
    },
  };
}
