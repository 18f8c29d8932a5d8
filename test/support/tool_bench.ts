import { dirname, join } from "node:path";
import { type Clock, systemClock } from "../../lib/base/clock.ts";
import { SCOPES } from "../../lib/base/records/caller.ts";
import { ToolError } from "../../lib/base/errors.ts";
import type { ReadableSkills } from "../../lib/tools/skills/skills.ts";
import { createRedactor, type Redactor } from "../../lib/base/redact.ts";
import { createLogger, type LogRecord, SILENT } from "../../lib/base/telemetry/log.ts";
import { createMetrics, type Metrics } from "../../lib/base/telemetry/metrics.ts";
import { type Config, defaultConfig } from "../../lib/config/config.ts";
import { loginEvent } from "../../lib/guard/audit/audit_event.ts";
import { type BrowserLogins, createBrowserLogins } from "../../lib/memory/browser_logins.ts";
import { createCookieJars } from "../../lib/memory/cookie_jars.ts";
import { Mailbox } from "../../lib/memory/mailbox.ts";
import { CronService } from "../../lib/automation/cron/cron_service.ts";
import { ProcedureService } from "../../lib/automation/sops/sop_service.ts";
import { StoredApprovals } from "../../lib/guard/stored_approvals.ts";
import { StoredTaintedFiles } from "../../lib/guard/tainted_files.ts";
import { Memory } from "../../lib/memory/memory.ts";
import { createCommandFolders } from "../../lib/memory/command_folders.ts";
import { Plans } from "../../lib/memory/plans.ts";
import { SubAgentService } from "../../lib/runs/sub_agents/sub_agent_service.ts";
import type { Store } from "../../lib/storage/store.ts";
import type { AuditAppend } from "../../lib/guard/audit/audit_chain.ts";
import { SharedCalls } from "../../lib/tools/runtime/shared_calls.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createDocuments } from "../../lib/storage/documents.ts";
import { createRecordCipher } from "../../lib/storage/record_cipher.ts";
import { ToolModules } from "../../lib/extensions/plugins/wasm/tool_modules.ts";
import type { McpServers } from "../../lib/extensions/mcp/mcp_servers.ts";
import { ServerReader } from "../../lib/extensions/mcp/server_reader.ts";
import { createFiles } from "../../lib/system/files/create_files.ts";
import { createDesktop } from "../../lib/system/desktop/desktop.ts";
import type { DesktopOptions } from "../../lib/system/desktop/desktop_session.ts";
import type { FilesVariant } from "../../lib/system/files/files.ts";
import { CheckedGit } from "../../lib/system/git/checked_git.ts";
import { createGuardedFetch, type GuardedFetch } from "../../lib/system/net/guarded_fetch.ts";
import { Relay } from "../../lib/system/net/relay.ts";
import { chooseProxy, type ProxySettings } from "../../lib/system/net/proxy_choice.ts";
import { createUrlPolicy, type UrlPolicy } from "../../lib/system/net/url_policy.ts";
import type { Bounds } from "../../lib/system/process/bounds.ts";
import { createCommandLookup } from "../../lib/system/process/command_lookup.ts";
import type { Processes } from "../../lib/system/process/processes.ts";
import { runOwnCommand } from "../../lib/system/process/own_command.ts";
import { Workers } from "../../lib/system/process/workers.ts";
import { createBoards } from "../../lib/hardware/boards.ts";
import { BUILTIN_TOOLS } from "../../lib/tools/builtin.ts";
import type { CallTaintOptions } from "../../lib/tools/runtime/call_taint.ts";
import { createToolExecutor, type ToolExecutorOptions } from "../../lib/tools/runtime/create_tool_executor.ts";
import { SecretStore } from "../../lib/tools/secrets/tool_secrets.ts";
import type { Tool, ToolServices } from "../../lib/tools/runtime/tool.ts";
import type { ToolCallOutcome, ToolExecutor } from "../../lib/tools/runtime/tool_executor.ts";
import { createFakeAudit, type FakeAudit } from "./fake_audit.ts";
import { createSeededRandom } from "./seeded_random.ts";
import { createWorkspaceProcesses } from "./workspace_processes.ts";
import { type CallChanges, toToolCall } from "./tool_call.ts";

const NO_BROWSERS: ToolServices["browsers"] = {
  use: () => Promise.reject(new TypeError("This test has no browser")),
  note: () => {},
  closeRun: () => Promise.resolve(false),
};

/** Changes to the default configuration, section by section. */
export interface ConfigChanges {
  readonly autonomy?: Partial<Config["autonomy"]>;
  readonly read_file?: Partial<Config["security"]["read_file"]>;
  readonly write_file?: Partial<Config["security"]["write_file"]>;
  readonly shell?: Partial<Config["security"]["shell"]>;
  readonly allowed_commands?: readonly string[];
  readonly process?: Partial<Config["security"]["process"]>;
  /** `[security] enable_git` */
  readonly enable_git?: boolean;
  readonly enable_composio?: boolean;
  readonly enable_pushover?: boolean;
  readonly git?: Partial<Config["security"]["git"]>;
  readonly url_access?: Partial<Config["url_access"]>;
  readonly browser?: Partial<Config["browser"]>;
  readonly http_request?: Partial<Config["http_request"]>;
  readonly secrets?: Config["secrets"];
  readonly web_fetch?: Partial<Config["web_fetch"]>;
  readonly web_search?: Partial<Config["web_search"]>;
  readonly cron?: Partial<Config["cron"]>;
  /** `[security.mcp]` */
  readonly mcp?: Partial<Config["security"]["mcp"]>;
  readonly hardware?: Config["hardware"];
  /** `[runtime.wasm]` */
  readonly wasm?: Omit<Partial<Config["runtime"]["wasm"]>, "security"> & {
    readonly security?: Partial<Config["runtime"]["wasm"]["security"]>;
  };
}

/** A real executor over the built-in tools, a workspace and a store in memory. */
export interface ToolBench {
  readonly executor: ToolExecutor;
  readonly metrics: Metrics;
  readonly redactor: Redactor;
  /** Audit of the calls */
  readonly audit: FakeAudit;
  readonly logged: readonly LogRecord[];
  readonly processes: Processes;
  /** Threads of WASM modules run on until they are closed, or 60 s */
  readonly wasmModules: ToolModules;
  readonly browserLogins: BrowserLogins;
  /** Calls with an input given as text, or as an object to be written as JSON; everything asked for is refused */
  call(name: string, input: unknown, more?: CallChanges): Promise<ToolCallOutcome>;
  /** From now on. @param base Default: the default configuration */
  configure(changes: ConfigChanges, base?: Config): void;
}

export interface ToolBenchOptions {
  /** Database of a cluster, with the audit that writes to it. Default: a store in memory, and an audit that needs none */
  readonly shared?: { readonly store: Store; readonly audit: AuditAppend };
  /** Tells whether a person trusts a content of a file that instructs agents. Default: nobody trusts any */
  readonly isTrustedFile?: CallTaintOptions["isTrustedFile"];
  /** Default: there are no skills */
  readonly skills?: ReadableSkills;
  readonly root: string;
  /** The gateway can write its own configuration. Default false */
  readonly writesConfig?: boolean;
  readonly config?: ConfigChanges;
  readonly tools?: readonly Tool[];
  /** Default: a policy of its own, with `lookup` */
  readonly urls?: UrlPolicy;
  /** Default: no browser can be opened */
  readonly browsers?: ToolServices["browsers"];
  /** Returns the MCP servers. Default: there are none */
  readonly mcp?: () => McpServers;
  /** Tools that come and go. Default: none */
  readonly foreign?: () => readonly Tool[];
  readonly clock?: Clock;
  readonly variant?: FilesVariant;
  readonly marker?: string;
  /** Bounds of contained programs. Default: those of this machine */
  readonly bounds?: Partial<Bounds>;
  readonly timeoutMs?: number;
  /** Returns a remembered answer. Default: none is remembered */
  readonly remembered?: ToolExecutorOptions["remembered"];
  /** Default: nobody halts a call */
  readonly halts?: ToolExecutorOptions["halts"];
  /** Where protected names go that appear while a command runs. Default: a folder beside the workspace */
  readonly quarantine?: string;
  /** Folder of the sockets of relays. Default: one beside the workspace */
  readonly relays?: string;
  /** Port of the gateway itself. Default: none is open */
  readonly ownPort?: number;
  /** The user's home folder. Default: one that is not there */
  readonly home?: string;
  /** All addresses of a host name. Default: the system's */
  readonly lookup?: (host: string) => Promise<readonly string[]>;
  /** `[proxy]` with its environment. Default: none */
  readonly proxy?: ProxySettings;
  /** Environment of the gateway, for keys that name a variable. Default: empty */
  readonly environment?: Readonly<Record<string, string>>;
  /** Folders that programs are looked for in, in place of the system's. */
  readonly searchPath?: readonly string[];
  /** Changes to the desktop. Default: Linux, and the real limits */
  readonly desktop?: Partial<Pick<DesktopOptions, "platform" | "limits" | "clock">>;
  /** Server of the test by the origin of a service that it stands for. Default: none */
  readonly standIns?: Readonly<Record<string, string>>;
}

const NO_PROXY: ProxySettings = { http: "", https: "", no_proxy: [] };

export function createToolBench(options: ToolBenchOptions): ToolBench {
  const clock = options.clock ?? systemClock;
  const metrics = createMetrics();
  const redactor = createRedactor();
  const logged: LogRecord[] = [];
  const { shared } = options;
  const store = shared?.store ?? createMemoryStore();
  const random = createSeededRandom();
  const audit = createFakeAudit();
  const append = shared?.audit ?? audit.append;
  let config = changed(options.config ?? {});
  const commands = createCommandLookup(options.searchPath);
  const urls = options.urls ?? createUrlPolicy({
    ...(options.lookup === undefined ? {} : { lookup: options.lookup }),
    own: () => options.ownPort === undefined ? undefined : { port: options.ownPort, publicPaths: ["/health"] },
  });
  const environment = (name: string) => options.environment?.[name];
  const guarded = createGuardedFetch({
    policy: urls,
    clock,
    userAgent: "postern/test",
    proxy: () => options.proxy ?? NO_PROXY,
  });
  const fetch = withStandIns(guarded, options.standIns ?? {});
  const taintedFiles = new StoredTaintedFiles({
    ...{ store, clock, audit: append },
    workspace: shared && { id: "ws_1", isShared: false },
  });
  const processes = createWorkspaceProcesses(options.root, {
    commands,
    redact: redactor.part,
    relays: {
      folder: options.relays ?? join(dirname(options.root), "relays"),
      allowlist: () => config.url_access.domain_allowlist,
      create: (hosts) =>
        Promise.resolve(
          new Relay({
            policy: urls,
            rules: () => config.url_access,
            requiresList: hosts === undefined,
            hosts,
            clock: systemClock,
          }),
        ),
    },
    onTainted: ({ paths, taint, workspace }) => taintedFiles.markWritten(paths, { taint, root: workspace }),
    ...(options.quarantine === undefined ? {} : { quarantine: { folder: options.quarantine } }),
    ...(options.marker === undefined ? {} : { marker: options.marker }),
    ...(options.bounds === undefined ? {} : { bounds: options.bounds }),
  });
  const files = createFiles({
    clock: systemClock,
    home: "/home/nobody",
    ownPaths: [],
    ...(options.variant === undefined ? {} : { variant: options.variant }),
  });
  const log = createLogger({
    level: "debug",
    now: () => clock.now(),
    sink: (record) => void logged.push(record),
    redact: redactor.redact,
  });
  const workers = new Workers({ maxWorkers: 2, clock: systemClock });
  const wasmModules = new ToolModules({
    ...{ files, workers, taintedFiles, log, clock: systemClock },
    guardedFetch: () => Promise.resolve(fetch),
  });
  const browserLogins = createBrowserLogins({
    ...{ store, clock: systemClock, used: () => config.browser.logins },
    cipher: () => Promise.resolve(createRecordCipher(new Uint8Array(32), random)),
    async record(event, writes = []) {
      await audit.append(loginEvent(event));
      await store.batch(writes);
    },
  });
  const executor: ToolExecutor = createToolExecutor({
    tools: options.tools ?? BUILTIN_TOOLS,
    foreign: options.foreign,
    halts: options.halts,
    writesConfig: options.writesConfig,
    services: {
      files,
      memory: new Memory({ store, clock }),
      plans: new Plans({ store, clock }),
      commandFolders: createCommandFolders({ store }),
      subAgents: new SubAgentService({
        store,
        clock,
        agents: () => config.agents,
        tools: () => executor,
        runs: () => undefined,
      }),
      mailbox: new Mailbox({
        store,
        clock,
        random,
        cipher: () => Promise.resolve(createRecordCipher(random.bytes(32), random)),
      }),
      cookieJars: createCookieJars({
        store,
        cipher: () => Promise.resolve(createRecordCipher(random.bytes(32), random)),
      }),
      browserLogins,
      commands,
      processes,
      workers,
      desktop: createDesktop({
        ...{ processes, commands, environment, clock: systemClock, platform: "linux" },
        home: options.home ?? "/home/nobody",
        folder: join(dirname(options.root), "screen"),
        ...options.desktop,
      }),
      git: new CheckedGit({ processes, home: options.home ?? "/home/nobody", ownPaths: [] }),
      urls,
      browsers: options.browsers ?? NO_BROWSERS,
      guardedFetch: () => Promise.resolve(fetch),
      proxyOf: (url) => chooseProxy(options.proxy, url),
      environment,
      redactor,
      secrets: new SecretStore({
        config: () => config,
        clock,
        environment,
        guardedFetch: () => Promise.resolve(fetch),
        onSecret: redactor.add,
        onTokens: redactor.replace,
        run: (words, signal) =>
          runOwnCommand({ words, home: options.root, environment: options.environment ?? {}, commands, clock, signal }),
      }),
      documents: createDocuments({ store }),
      schedules: new CronService({
        store,
        clock,
        random: createSeededRandom(),
        log: SILENT,
        settings: () => ({ ...config.cron, maxTasks: config.cron.max_tasks }),
        runs: () => undefined,
        scopesOf: () => SCOPES,
        tools: () => executor,
      }),
      sops: new ProcedureService({
        kit: { clock, random, log: SILENT },
        store,
        approvals: new StoredApprovals({
          store,
          clock,
          random,
          log: SILENT,
          metrics: createMetrics(),
          audit: append,
        }),
        files,
        scopesOf: () => SCOPES,
        runs: () => undefined,
        tools: () => executor,
        workspaceRoot: options.root,
        dataDir: join(options.root, ".data"),
        settings: () => ({ dirs: [], approvalTimeoutMs: 1000, forbiddenPaths: [], retentionDays: 0 }),
      }),
      boards: createBoards({ config: () => config, clock }),
      wasmModules,
      mcpReader: new ServerReader(() => options.mcp?.(), (text) => text),
      skills: options.skills ?? { read: () => Promise.reject(new ToolError("skill_not_found", "No such skill")) },
    },
    config: () => config,
    taintedFiles,
    isTrustedFile: options.isTrustedFile,
    workspaceRoot: options.root,
    home: "/home/nobody",
    ownPaths: [],
    clock,
    log,
    metrics,
    redact: redactor.redact,
    audit: append,
    shared: shared && new SharedCalls({ clock, log, closing: new AbortController().signal }),
    ...(options.timeoutMs === undefined ? {} : { timeoutMs: options.timeoutMs }),
    ...(options.remembered === undefined ? {} : { remembered: options.remembered }),
  });
  let calls = 0;
  return {
    executor,
    metrics,
    redactor,
    audit,
    logged,
    processes,
    wasmModules,
    browserLogins,
    call: (name, input, more) =>
      executor.call(toToolCall(name, typeof input === "string" ? input : JSON.stringify(input), {
        callId: `call_${++calls}`,
        caller: { via: "agent", tokenId: null, scopes: SCOPES },
        ...more,
      })),
    configure(changes, base) {
      config = changed(changes, base);
    },
  };
}

/** Sends requests to a service to the server of the test that stands for it. Redirects from there are judged as they are. */
function withStandIns(guarded: GuardedFetch, standIns: Readonly<Record<string, string>>): GuardedFetch {
  return (request) => {
    const asked = URL.parse(request.url);
    const origin = standIns[asked?.origin ?? ""];
    if (asked === null || origin === undefined) return guarded(request);
    const url = origin + asked.pathname + asked.search;
    const headers = (to: URL) => request.headers?.(to.origin === origin ? asked : to) ?? {};
    return guarded({ ...request, url, headers, guard: { ...request.guard, fromConfig: true } });
  };
}

function changed(changes: ConfigChanges, config = defaultConfig()): Config {
  const { autonomy, read_file, write_file, shell, allowed_commands, process, git, url_access } = changes;
  return {
    ...config,
    autonomy: { ...config.autonomy, ...autonomy },
    given: url_access === undefined ? config.given : [...config.given, "url_access"],
    url_access: { ...config.url_access, ...url_access },
    secrets: changes.secrets ?? config.secrets,
    runtime: {
      wasm: {
        ...{ ...config.runtime.wasm, ...changes.wasm },
        security: { ...config.runtime.wasm.security, ...changes.wasm?.security },
      },
    },
    http_request: { ...config.http_request, ...changes.http_request },
    web_fetch: { ...config.web_fetch, ...changes.web_fetch },
    browser: { ...config.browser, ...changes.browser },
    web_search: { ...config.web_search, ...changes.web_search },
    cron: { ...config.cron, ...changes.cron },
    hardware: changes.hardware ?? config.hardware,
    security: {
      ...config.security,
      enable_git: changes.enable_git ?? config.security.enable_git,
      enable_composio: changes.enable_composio ?? config.security.enable_composio,
      enable_pushover: changes.enable_pushover ?? config.security.enable_pushover,
      allowed_commands: [...allowed_commands ?? config.security.allowed_commands],
      read_file: { ...config.security.read_file, ...read_file },
      write_file: { ...config.security.write_file, ...write_file },
      shell: { ...config.security.shell, ...shell },
      process: { ...config.security.process, ...process },
      git: { ...config.security.git, ...git },
      mcp: { ...config.security.mcp, ...changes.mcp },
    },
  };
}
