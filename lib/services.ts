import type { ToolInfo } from "./base/records/tool_info.ts";
import type { LinkFetch } from "./cluster/gateway_links.ts";
import type { ClusterDatabase } from "./cluster/join_cluster.ts";
import type { SharedWindows } from "./access/shared_windows.ts";
import type { AccessServices } from "./access/access_services.ts";
import type { Webhooks } from "./automation/channels/webhooks.ts";
import type { AutomationServices } from "./automation/automation_services.ts";
import type { Clock } from "./base/clock.ts";
import type { Kit } from "./base/kit.ts";
import type { Random } from "./base/random.ts";
import type { KnownSecrets } from "./base/redact.ts";
import type { Actor } from "./base/records/caller.ts";
import type { HealthReply, StatusReply } from "./base/records/gateway_status.ts";
import type { Telemetry } from "./base/telemetry/create_telemetry.ts";
import type { LogSink } from "./base/telemetry/log.ts";
import type { Config } from "./config/config.ts";
import type { Coordination } from "./coordination.ts";
import type { Reloads } from "./config/create_reloads.ts";
import type { McpServers } from "./extensions/mcp/mcp_servers.ts";
import type { McpOperator } from "./extensions/mcp/mcp_operator.ts";
import type { Nodes } from "./extensions/nodes/nodes.ts";
import type { LateSignIn } from "./extensions/open_extensions.ts";
import type { PluginServices } from "./extensions/plugins/plugin_services.ts";
import type { WorkspaceInstructions } from "./extensions/instructions/workspace_instructions.ts";
import type { Skills } from "./extensions/skills/skills.ts";
import type { GuardServices } from "./guard/guard_services.ts";
import type { AskProgram } from "./guard/program_approver.ts";
import type { MemoryServices } from "./memory/memory_services.ts";
import type { OwnProviders } from "./providers/own_providers.ts";
import type { Providers } from "./providers/provider.ts";
import type { TrustedServer } from "./providers/discovery/provider_memory.ts";
import type { ClientCalls } from "./runs/client_calls.ts";
import type { StoredConversations } from "./runs/conversations/stored_conversations.ts";
import type { TellProgram } from "./runs/journal/run_event_feed.ts";
import type { StoredRuns } from "./runs/journal/stored_runs.ts";
import type { RunSupervisor } from "./runs/run_request.ts";
import type { RekeyProgress } from "./storage/rekey_records.ts";
import type { OpenedStore } from "./storage/open_store.ts";
import type { CacheDriver } from "./storage/sealed_cache.ts";
import type { Store } from "./storage/store.ts";
import type { BrowserView } from "./system/browser/browser_views.ts";
import type { SystemServices } from "./system/system_services.ts";
import type { Tool } from "./tools/runtime/tool.ts";
import type { createWrittenReader } from "./tools/create_tools.ts";
import type { ProgramOffers } from "./tools/program_offers.ts";
import type { ConfigWriter } from "./tools/turn_on_tool.ts";
import type { ToolExecutor } from "./tools/runtime/tool_executor.ts";

/** Database that gateways share: opened for this one, or given to it by the program. */
export type StorageSharing =
  | { readonly opened: NonNullable<OpenedStore["database"]> }
  | { readonly given: ClusterDatabase };

/** State of the gateway itself, which changes while it runs. */
export interface CurrentState {
  /** The newest configuration. */
  config: Config;
  /** Reason why the gateway takes no work any more, as the end of a sentence. Undefined: it does */
  draining: string | undefined;
  /** Listeners, each called once when somebody has drained the gateway. */
  readonly drainListeners: (() => void)[];
}

/** Files that clients sent, and the threads that read documents among them. */
export interface SentFiles extends Pick<MemoryServices, "uploads"> {
  readonly workers: Pick<SystemServices["workers"], "run">;
}

/** Facts that a gateway tells of itself. */
export interface OwnFacts {
  health(): HealthReply;
  status(): Promise<StatusReply>;
}

/** Every service of the gateway, built once and handed to the handlers. */
export interface Services
  extends
    AccessServices,
    Pick<AutomationServices, "cron" | "deliveries">,
    Pick<GuardServices, "audit" | "answerLinks" | "approvals" | "halts" | "taintedFiles">,
    Pick<MemoryServices, "memory" | "browserLogins" | "uploads">,
    Pick<SystemServices, "containment">,
    Pick<Telemetry, "log" | "metrics" | "recentLog"> {
  readonly version: string;
  /** Words that start this program where its reader is, such as `npx postern` */
  readonly programName: string;
  readonly clock: Clock;
  readonly random: Random;
  /** Returns the newest configuration, an immutable snapshot. Keep the reference for the length of one piece of work only. */
  readonly config: () => Config;
  readonly store: Store;
  readonly tools: ToolExecutor;
  /** See readWritten in read_written.ts. */
  readonly readWritten: ReturnType<typeof createWrittenReader>;
  /** Tool calls of clients; loaded at the first call. */
  readonly calls: () => Promise<ClientCalls>;
  /** Turns a tool on for good, as a person says. Undefined for an unknown one. @throws {HttpError} 409 `conflict` */
  readonly turnOnTool: (name: string, by: Actor) => Promise<ToolInfo | undefined>;
  /** Prompts and resources of the program that mounts the gateway. */
  readonly offers: ProgramOffers;
  readonly redactor: KnownSecrets;
  /** Messages of channels that come by webhook; loaded at the first one. */
  readonly webhooks: () => Promise<Webhooks>;
  readonly conversations: StoredConversations;
  /** Other machines that offer their tools. Undefined while `[gateway.node_control]` is off. */
  readonly nodes: Nodes | undefined;
  /** Returns the browser of a run as people see it who watch. Undefined where the run has used none since the start. */
  readonly browserOf: (runId: string) => Promise<BrowserView | undefined>;
  /** Plugins and their registry; loaded at the first call where no plugin was found at the start. */
  readonly plugins: () => Promise<PluginServices>;
  /** Skills; loaded at the first call. */
  readonly skills: () => Promise<Pick<Skills, keyof Skills>>;
  /** MCP servers as the operator sees and changes them; loaded at the first call. */
  readonly mcpServers: () => Promise<McpOperator>;
  /** Instructions of the workspace; loaded at the first call. */
  readonly instructions: () => Promise<WorkspaceInstructions>;
  /** Sign-ins of people to MCP servers by `url` */
  readonly mcpSignIn: LateSignIn;
  /** Recorded runs, for reading where there is no agent. */
  readonly storedRuns: StoredRuns;
  /** Models and runs. Undefined without an agent (`kind = "none"` or --no-agent): requests get 503 `agent_unavailable`. */
  readonly agent: {
    readonly providers: Providers;
    readonly runs: RunSupervisor;
    /** Files that messages may name. Default: none */
    readonly files?: SentFiles | undefined;
  } | undefined;
  /** Time of the start, in ms since the epoch. */
  readonly startedAt: number;
  /** Absolute path of the folder that the agent works in. */
  readonly workspaceRoot: string;
  /** Returns the environment variable that a configuration key such as `secret_env` names. Undefined when it is not set. */
  readonly environment: (name: string) => string | undefined;
  /** Re-encrypts records with the key that the configuration says, some with each call. @throws {HttpError} 409 `conflict` */
  readonly rekey: (by: Actor) => Promise<RekeyProgress>;
  /** Trusts a model server of this machine. The gateway then looks for it and uses it like a server of its own user. @throws {HttpError} */
  readonly trustModelServer: (address: string, by: Actor) => Promise<TrustedServer>;
  /** Facts that health and status say. */
  readonly facts: OwnFacts;
  /** Tells whether the gateway is `draining`, without a look at the rest. */
  isDraining(): boolean;
  /**
   * Returns why the gateway is draining, degraded by its cluster, or claims no run that needs its workspace, as the end of a sentence.
   * Undefined for anything else.
   */
  stateReason(): string | undefined;
  /** Calls a function when the gateway lets go of its work because somebody drained it. The gateway still answers then. */
  onDrain(listener: () => void): void;
  /** Windows of requests that the gateways of a cluster share. Undefined for a gateway alone. */
  readonly sharedWindows: SharedWindows | undefined;
  /** This gateway among those of its database. */
  readonly cluster: Pick<Coordination, "id" | "lease" | "links" | "shown" | "advertiseUrl" | "ownership">;
}

/** Services together with the ways to reload, drain and close them. */
export interface GatewayServices extends Services {
  /** Returns the MCP servers that are being asked for their tools for the first time. Undefined where no server may be used. */
  readonly learningTools: () => ReturnType<McpServers["learning"]> | undefined;
  /** Takes the port of the gateway once it is open. Fetches of tools and replies then refuse the gateway itself. */
  listensOn(port: number): void;
  /** See Reloads. A run keeps the settings that it began with, but the newest configuration decides what it is allowed. */
  readonly reload: Reloads["reload"];
  /** Lets nothing new start: the gateway is `draining`, and handlers refuse work. */
  beginDrain(): void;
  /** Waits up to `graceMs` for attached work, then cancels it with a final event. Leaves durable work for the next start. */
  drain(graceMs: number): Promise<void>;
  /** Closes everything, in the reverse order of its start. Repeating it does nothing. */
  close(): Promise<void>;
}

/** Functions of the program that mounts the gateway. */
export interface ProgramHooks {
  /** Resolves when the program has its gateway. Nothing is called before. */
  readonly ready: Promise<void>;
  /** Receives each run event. Default: nobody does */
  readonly onRunEvent?: TellProgram | undefined;
  /** Function that is asked about each approval. Default: people alone are */
  readonly onApproval?: AskProgram | undefined;
}

/** Folders that the program gives a gateway. */
export interface ProgramFolders {
  /** Absolute path of the data directory, which is made when it is missing. */
  readonly dataDir: string;
  /** Absolute path of the folder that the agent works in. */
  readonly workspaceRoot: string;
  /** The user's home folder. */
  readonly home: string;
  /** Absolute paths of configuration files. No tool may touch them, as it may not touch the data directory. Default: none */
  readonly ownPaths?: readonly string[] | undefined;
  /** Folder of the list of configuration files that a person accepted, for the audit. Default: no acceptance is recorded */
  readonly trustDir?: string | undefined;
}

/** Words of the program about itself. */
export interface ProgramAbout {
  readonly version: string;
  /** Words that start this program where its reader is. Default `postern` */
  readonly programName?: string | undefined;
  /** Returns the `--help` text of each command by its name, for the offline assistant. Default: it knows README and `docs/` only */
  readonly help?: (() => Promise<ReadonlyMap<string, string>>) | undefined;
}

/** Log of the program. */
export interface ProgramLog {
  readonly sink: LogSink;
  /** Returns false while log lines are lost. Default: always true */
  readonly isHealthy?: (() => boolean) | undefined;
}

/** Ways of a gateway to those that share its records. */
export interface ProgramCluster {
  /** Database that this gateway shares with others. Default: as `[storage]` says */
  readonly database?: { readonly store: Store; readonly cluster: ClusterDatabase } | undefined;
  /** Way to the other gateways of a cluster. Default: over the network */
  readonly linkFetch?: LinkFetch | undefined;
}

/** Models that the program allows, beside what the configuration says. */
export interface ProgramModels {
  /** False: the gateway has no agent, as with `kind = "none"`. Default true */
  readonly agent?: boolean | undefined;
  /** Providers to use in place of the configured ones, for example a script in tests. Default: the configured ones */
  readonly providers?: Providers | undefined;
  /** Origins where `kind = "auto"` looks for local model servers. False: nowhere. Default: the usual ports on loopback */
  readonly localServers?: readonly string[] | false | undefined;
}

/** Parts of the program that mounts a gateway, beside the built-in ones. */
export interface ProgramAdditions {
  /** Default: none */
  readonly tools?: readonly Tool[] | undefined;
  /** Prompts and resources. Default: none */
  readonly offers?: ProgramOffers | undefined;
  /** Default: none */
  readonly ownProviders?: OwnProviders | undefined;
  /** Functions that the gateway calls. Default: none */
  readonly hooks?: ProgramHooks | undefined;
  /** Keeps cached values in place of the store. Default: the store */
  readonly cache?: CacheDriver | undefined;
}

/** Parts of a gateway that its program chooses. */
export interface ServicesOptions {
  /** Configuration of the start. */
  readonly config: Config;
  /** Writer of the configuration file. Default: the configuration is not the gateway's to write */
  readonly configWriter?: ConfigWriter | undefined;
  readonly folders: ProgramFolders;
  readonly about: ProgramAbout;
  readonly log: ProgramLog;
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Token of the control file, for the command line on this machine. */
  readonly controlToken?: string | undefined;
  /** Aborts when the start is given up: no wait for the database goes on, and nothing stays open. Default: it never does */
  readonly signal?: AbortSignal | undefined;
  /** Clock and randomness. Default: the system's */
  readonly kit?: Partial<Pick<Kit, "clock" | "random">> | undefined;
  /** Default: as the configuration says */
  readonly cluster?: ProgramCluster | undefined;
  /** Default: as the configuration says */
  readonly models?: ProgramModels | undefined;
  /** Default: none */
  readonly additions?: ProgramAdditions | undefined;
}
