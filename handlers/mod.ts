/**
 * The package, `postern`: a gateway to AI agents inside another server or program, with tools, providers, prompts and hooks of its own.
 * Source: docs/embedding.md
 * @module
 */
import { resolve } from "node:path";
import { type Clock, TEST_CLOCK } from "../lib/base/clock.ts";
import { ConfigError } from "../lib/base/errors.ts";
import { LOG_LEVELS } from "../lib/base/telemetry/log.ts";
import { withoutEnd } from "../lib/base/text.ts";
import { nextTick } from "../lib/base/tick.ts";
import { VERSION } from "../lib/base/version.ts";
import { requireFolder } from "../lib/config/folders.ts";
import type { GatewayConfig } from "../lib/config/gateway_config.ts";
import { toKeyText } from "../lib/config/toml.ts";
import { nearest } from "../lib/config/nearest.ts";
import { validateConfig } from "../lib/config/validate_config.ts";
import { createServices } from "../lib/gateway.ts";
import { requireThread } from "../lib/system/process/workers.ts";
import { BUILTIN_TOOLS } from "../lib/tools/builtin.ts";
import { readCacheDriver } from "../lib/storage/sealed_cache.ts";
import { SEARCH_WORKER } from "../lib/tools/files/search_job.ts";
import { warnOfIdleSettings } from "../lib/tools/idle_settings.ts";
import { toTools } from "../lib/tools/made_tool.ts";
import { type ProgramPrompt, type ProgramResource, toOffers } from "../lib/tools/program_offers.ts";
import type { ProgramTool } from "../lib/tools/program_tool.ts";
import { toOwnProviders } from "../lib/providers/own_providers.ts";
import type { ProgramProvider } from "../lib/providers/program_provider.ts";
import type {
  GatewayRuns,
  GatewayTools,
  ProgramMessageInput,
  ProgramRunEvent,
  ProgramRunOptions,
  ProgramStartedRun,
} from "../lib/runs/program_run.ts";
import type { ProgramApprovalHook } from "./define_approval.ts";
import { ProgramRuns } from "./program_runs.ts";
import type { SocketHooks } from "./node/node_handler.ts";
import { createNodeBodyReader, watchNodeClient } from "./node/node_body.ts";
import { isCleanPath } from "./request_context.ts";
import { createRouter } from "./router.ts";
import { ROUTES } from "./routes.ts";

export {
  type CodedError,
  ConfigError,
  type ConfigProblem,
  type ErrorType,
  HttpError,
  ProviderError,
  type ProviderErrorCode,
  ToolError,
} from "../lib/base/errors.ts";
export type { ResourceLink } from "../lib/tools/runtime/tool_content.ts";
export type { GatewayConfig } from "../lib/config/gateway_config.ts";
export type {
  ProgramContent,
  ProgramEmbedRequest,
  ProgramMessage,
  ProgramModel,
  ProgramPicture,
  ProgramProvider,
  ProgramProviderCall,
  ProgramProviderEvent,
  ProgramProviderRequest,
} from "../lib/providers/program_provider.ts";
export type {
  GatewayRuns,
  GatewayTools,
  ProgramApproval,
  ProgramApprovalFile,
  ProgramAsker,
  ProgramBoundState,
  ProgramCallResult,
  ProgramContainment,
  ProgramDescribedChange,
  ProgramElicitationAnswer,
  ProgramForm,
  ProgramFormChoice,
  ProgramFormField,
  ProgramMessageInput,
  ProgramRuleOffer,
  ProgramRun,
  ProgramRunEvent,
  ProgramRunInput,
  ProgramRunOptions,
  ProgramRunPicture,
  ProgramStartedRun,
  ProgramUsage,
  ProgramWrittenFile,
} from "../lib/runs/program_run.ts";
export {
  defineProgramTool as defineTool,
  type ProgramAccess,
  type ProgramTool,
  type ProgramToolCall,
  type ProgramToolDefinition,
} from "../lib/tools/program_tool.ts";
export type {
  ProgramJsonSchema,
  ProgramSchema,
  ProgramSchemaInput,
  ProgramSchemaOutput,
  ProgramSchemaResult,
} from "../lib/tools/program_schema.ts";
export type {
  ProgramCompletion,
  ProgramPrompt,
  ProgramPromptArgument,
  ProgramPromptCall,
  ProgramPromptMessage,
  ProgramResource,
} from "../lib/tools/program_offers.ts";
export type {
  ProgramAbility,
  ProgramQuestion,
  ProgramQuestionAnswer,
  ProgramQuestions,
  ProgramSampleRequest,
} from "../lib/tools/program_questions.ts";
export {
  type ProgramPart,
  programResult as toolResult,
  type ProgramToolResult,
  type ProgramToolResultOptions,
} from "../lib/tools/program_result.ts";
export { definePrompt, type ProgramPromptDefinition } from "../lib/tools/program_prompt.ts";
export {
  defineApproval,
  type ProgramAnswer,
  type ProgramApprovalDefinition,
  type ProgramApprovalHook,
} from "./define_approval.ts";
export { type AiSdkModel, fromAiSdk } from "../lib/providers/from_ai_sdk.ts";
export { type ClosableGateway, type FetchHandler, toFetchHandler } from "./fetch_handler.ts";
export {
  type MountableGateway,
  type NodeHandler,
  type NodeReplyMessage,
  type NodeRequestMessage,
  toNodeHandler,
  type UpgradedConnection,
} from "./node/node_handler.ts";

/** A line of the gateway's log. Secrets are removed. */
export interface GatewayLogLine {
  /** Level of the line: `error`, `warn`, `info` or `debug` */
  readonly level: keyof GatewayLogger;
  /** Milliseconds since the epoch */
  readonly time: number;
  /** Sentence of the line, without the values that differ from line to line */
  readonly message: string;
  /** Values of the line by names in snake_case, such as `request_id` and `run_id` */
  readonly fields: Readonly<Record<string, unknown>>;
}

/** A logger with a function for each level, as consola, pino's wrappers and `console` have. */
export interface GatewayLogger {
  /** Receives lines for whoever looks for a fault, where `[logging] level` asks for them */
  readonly debug: (message: string, fields: GatewayLogLine["fields"]) => void;
  /** Receives lines of usual work, such as the access log */
  readonly info: (message: string, fields: GatewayLogLine["fields"]) => void;
  /** Receives lines of what a person should look at: the gateway goes on by itself */
  readonly warn: (message: string, fields: GatewayLogLine["fields"]) => void;
  /** Receives lines of failures */
  readonly error: (message: string, fields: GatewayLogLine["fields"]) => void;
}

/** Functions of the program that the gateway calls. What they throw goes to the log and breaks nothing. */
export interface GatewayHooks {
  /**
   * Receives each event of each run, once and in order, after it is on disk; the events of a run without a record, such as a plain
   * completion, come at its end. One event after the other: a promise is awaited for 5 s at most. Runs never wait. Where more than 32 MiB
   * of events wait, further ones are left out
   */
  readonly onRunEvent?: ((event: ProgramRunEvent, run: { readonly runId: string }) => unknown) | undefined;
  /**
   * Answers each approval, beside the people: the first answer counts, for this call alone. undefined leaves it to the people. An
   * approval of kind `elicitation` with a form is answered by an object with `content`. An error denies, with the reason in the record. While the promise waits, the approval does. `signal` aborts when it is settled
   */
  readonly onApproval?: ProgramApprovalHook | undefined;
}

/** Records in memory that gateways of one program share. They are gone with the process. */
export interface MemoryDatabase {
  /** Mark of the type. It exists in the types alone, so that no other object passes for one */
  readonly "~database": true;
}

/** Creates a database in memory for gateways of one program, as tests of a cluster use. */
export async function createMemoryDatabase(): Promise<MemoryDatabase> {
  const { ProcessDatabase } = await import("../lib/cluster/memory_database.ts");
  // The mark exists in the types alone
  return new ProcessDatabase() as unknown as MemoryDatabase;
}

/** Functions of a driver of unstorage that a cache needs. The type stands alone: unstorage's own brings those of the packages of all drivers. */
export interface GatewayCache {
  /** Returns the value of a key, or a promise of it; null where there is none */
  readonly getItem: (key: string) => unknown;
  /** Stores a value. A driver without it is refused */
  readonly setItem?: ((key: string, value: string, options: Readonly<Record<string, never>>) => unknown) | undefined;
}

/** Way of a gateway to the others of its cluster. */
export interface GatewayClusterOptions {
  /**
   * Sends a request to the gateway whose `[cluster] advertise_url` it begins with, as its `fetch` takes it. It must follow no redirect, and
   * rejects when nobody answers. Default: over the network
   */
  readonly fetch?: (request: Request) => Promise<Response>;
}

/** Options of `createGateway`. */
export interface GatewayOptions {
  /** Folder of the gateway's own data; made when missing. Each gateway needs a folder of its own */
  readonly dataDir: string;
  /** The folder the agent works in */
  readonly workspace: string;
  /** The tables and keys of `postern.toml` as an object. Default: every default */
  readonly config?: GatewayConfig;
  /** Path the gateway is mounted under, such as `/gateway`, the whole of it where mounts are nested. Default: the root */
  readonly basePath?: string;
  /** Environment variables, for the API keys the configuration names and for `POSTERN_TOKEN`. Default: none */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** Home folder, for paths that begin with `~`. Default: the data directory */
  readonly home?: string;
  /** false: no agent; its routes answer 503. Default true */
  readonly agent?: boolean;
  /**
   * Allows `kind = "auto"` to take a model server that it finds on this machine. Only one that runs as the gateway's own user,
   * root or a user of `provider.local_users` is taken. Default false: name a server in `config` instead
   */
  readonly localServers?: boolean;
  /** Tools of this program, made with defineTool, beside the built-in ones. They take the way of all calls. Default: none */
  readonly tools?: readonly ProgramTool[];
  /** Prompts of this program by their names, for clients of `/mcp`. Default: none */
  readonly prompts?: Readonly<Record<string, ProgramPrompt>>;
  /**
   * Resources of this program by their addresses, for clients of `/mcp`. `{name}` in an address stands for a part
   * without a slash: the resource is then a template. Default: none
   */
  readonly resources?: Readonly<Record<string, ProgramResource>>;
  /**
   * Providers of this program by their names, beside the configured ones. A request asks for `<name>/<model>`; with `kind = "auto"` the
   * first one is the default. Default: none
   */
  readonly providers?: Readonly<Record<string, ProgramProvider>>;
  /** Database that this gateway shares with others of the program, in place of `[storage]`. Default: as `[storage]` says */
  readonly database?: MemoryDatabase;
  /**
   * Driver of unstorage that keeps what may be lost: fetched pages, rules of robots, lists of models and the index of skills. Values are
   * sealed, so that others may have it too; the program disposes it. Default: where the records are
   */
  readonly cache?: GatewayCache;
  /** How the gateway reaches the others of its cluster. Default: over the network */
  readonly cluster?: GatewayClusterOptions;
  /** Functions that the gateway calls, once createGateway has resolved. Default: none */
  readonly hooks?: GatewayHooks;
  /** Receives the log, the access log in it. Default: nowhere */
  readonly onLog?: (line: GatewayLogLine) => void;
  /** Logger of the program, as consola or `console`: each line of the log goes to the function of its level. Default: nowhere */
  readonly logger?: GatewayLogger;
  /** The class replies are made of, as srvx's FastResponse. Default: the global one */
  readonly Response?: typeof globalThis.Response;
}

/** Facts about a request's connection that the server around the gateway knows and the request does not tell. */
export interface GatewayConnection {
  /**
   * Address of the peer, for limits, log and audit. With pairing off, only this machine is served: a request without an address is
   * refused with 401 `auth_required`
   */
  readonly remoteAddress?: string | undefined;
}

/** Parts of a request as `Request` takes them, and a body that is written as JSON. */
export interface GatewayRequestInit extends RequestInit {
  /** Value of the body, in place of `body`. The request is a POST of `application/json`, where `method` and `headers` do not say otherwise */
  readonly json?: unknown;
}

/** The WebSocket half of a gateway. */
export interface GatewayWebSocket {
  /** Give it to a crossws adapter or to its server plugin: it runs every check of a request before the upgrade */
  readonly resolve: (request: Request, connection?: GatewayConnection) => SocketHooks;
  /** Longest frame that the gateway takes, in bytes: `gateway.websocket.max_message_bytes`. Adapters have other limits by default */
  readonly maxMessageBytes: number;
}

/** A gateway inside another server. */
export interface Gateway {
  /** Path the gateway is mounted under, without a slash at its end; empty at the root */
  readonly basePath: string;
  /** Answers a request; never rejects */
  readonly fetch: (request: Request, connection?: GatewayConnection) => Promise<Response>;
  /**
   * Answers a request without a socket: takes a path within the gateway, with or without its query, and what `Request` takes.
   * The request comes from this machine and passes every check, its token included
   */
  readonly request: (path: string, init?: GatewayRequestInit) => Promise<Response>;
  /**
   * Starts a durable run without HTTP, with the rights of the program. A loop over what it gives reads the events, `textStream` the text, and
   * `await` gives the completed run
   * @throws {HttpError} when it is read: the run was refused, has failed or was cancelled
   */
  readonly run: (message: ProgramMessageInput, options?: ProgramRunOptions) => ProgramStartedRun;
  /** Calls tools without HTTP, with the rights of the program, through the policy of all calls */
  readonly tools: GatewayTools;
  /** Starts, reads and stops runs without HTTP, with the rights of the program: every scope */
  readonly runs: GatewayRuns;
  /** The WebSocket half, for servers that toNodeHandler does not serve */
  readonly websocket: GatewayWebSocket;
  /**
   * Tells clients of `/mcp` that subscribed to a resource of this program that it has changed. Takes the address of one resource, also of one
   * that a template stands for. Changes within 100 ms are told once.
   * @throws {TypeError} none of the program's resources has this address
   */
  readonly resourceChanged: (uri: string) => void;
  /** Returns a one-time code for POST /pair, such as `ABCD-EFGH`. An earlier code becomes void */
  readonly createPairingCode: () => Promise<string>;
  /** Stops the agent's work, waiting up to `shutdown_grace_secs`, and releases the data directory */
  readonly close: () => Promise<void>;
}

/** Every option of createGateway. A new option does not compile before it is named here. */
const OPTION_NAMES: Readonly<Record<keyof GatewayOptions, true>> = {
  dataDir: true,
  workspace: true,
  config: true,
  basePath: true,
  environment: true,
  home: true,
  agent: true,
  localServers: true,
  tools: true,
  prompts: true,
  resources: true,
  providers: true,
  database: true,
  cache: true,
  cluster: true,
  hooks: true,
  onLog: true,
  logger: true,
  Response: true,
};

/**
 * Creates a gateway to mount in any fetch-based server.
 *
 * The guards follow the configuration: with the default `gateway.host`, requests must name a loopback host or one of
 * `gateway.allowed_hosts`.
 * @throws {ConfigError} an unknown option, a bundle without the package's own files, a wrong basePath, a workspace that is absent or no folder, a wrong configuration, a data directory in use
 */
export async function createGateway(options: GatewayOptions): Promise<Gateway> {
  checkOptions(options);
  await requireThread(SEARCH_WORKER);
  const basePath = readBasePath(options.basePath);
  const tools = toTools(options.tools ?? [], (name) => BUILTIN_TOOLS.some((tool) => tool.name === name));
  const offers = toOffers(options);
  const dataDir = resolve(options.dataDir);
  const workspaceRoot = resolve(options.workspace);
  await requireFolder(workspaceRoot, "name another in the option workspace");
  const validation = validateConfig([{ ...options.config }], Object.keys(options.providers ?? {}));
  if ("findings" in validation) {
    const messages = validation.findings.map(({ path, reason }) => `Cannot use "${toKeyText(path)}": ${reason}`);
    throw new ConfigError("config_invalid", messages.join("\n"));
  }
  const { config } = validation;
  const hooks = toHooks(options.hooks ?? {});
  const linkFetch = readLinkFetch(options.cluster ?? {});
  const cache = options.cache === undefined ? undefined : readCacheDriver(options.cache);
  const { promise: ready, resolve: begin } = Promise.withResolvers<void>();
  const ownProviders = toOwnProviders(options.providers ?? {}, Object.keys(config.providers));
  const services = await createServices({
    config,
    folders: { dataDir, workspaceRoot, home: options.home ?? dataDir },
    about: { version: VERSION },
    log: { sink: toLogSink(options) },
    kit: testKitOf(options),
    environment: options.environment ?? {},
    cluster: {
      linkFetch,
      database: options.database === undefined ? undefined : await readDatabase(options.database, config),
    },
    models: { agent: options.agent ?? true, localServers: options.localServers === true ? undefined : false },
    additions: { tools, offers, ownProviders, hooks: { ...hooks, ready }, cache },
  });
  warnOfIdleSettings(config, { ...services, isShared: services.cluster.shown !== undefined });
  const router = createRouter({
    services,
    routes: ROUTES,
    basePath,
    readBody: createNodeBodyReader(),
    watchClient: watchNodeClient,
    ...(options.Response === undefined ? {} : { Response: options.Response }),
  });
  // The program has its gateway in the next tick
  void nextTick().then(begin);
  const runs = new ProgramRuns({ services, followers: router.connections.followers });
  return {
    basePath,
    fetch: async (request, connection) => await router.fetch(request, connection),
    async request(path, init) {
      if (!path.startsWith("/")) throw new TypeError(`Cannot request ${JSON.stringify(path)}: a path begins with "/"`);
      const request = new Request(`http://127.0.0.1${basePath}${path}`, toRequestInit(init));
      return await router.fetch(request, { remoteAddress: "127.0.0.1" });
    },
    run: (message, options) => runs.run(message, options),
    tools: { call: runs.call },
    runs: { start: runs.start, follow: runs.follow, get: runs.get, cancel: runs.cancel },
    websocket: {
      resolve: (request, connection) => router.resolveWebSocket(request, connection),
      maxMessageBytes: config.gateway.websocket.max_message_bytes,
    },
    resourceChanged(uri) {
      if (!offers.resources.some(({ match }) => match(uri) !== undefined)) {
        throw new TypeError(
          `Cannot tell of a change of ${JSON.stringify(uri)}: no resource of the program has this address`,
        );
      }
      void router.connections.mcp.made()?.then((mcp) => mcp.resourceChanged(uri), () => {});
    },
    createPairingCode: async () => (await services.pairing.createCode()).code,
    async close() {
      runs.close();
      router.connections.closeIdle();
      await services.drain(config.gateway.shutdown_grace_secs * 1000);
      await router.connections.closeAll();
      await services.close();
    },
  };
}

/** Returns the way of the log to the program. @throws {ConfigError} `logger_invalid` */
function toLogSink({ onLog, logger }: GatewayOptions): (line: GatewayLogLine) => void {
  const missing = logger && LOG_LEVELS.find((level) => typeof logger[level] !== "function");
  if (missing !== undefined) {
    const reason = `it has no function "${missing}"; a logger has ${LOG_LEVELS.join(", ")}`;
    throw new ConfigError("logger_invalid", `Cannot use the option "logger": ${reason}`, { key: "logger" });
  }
  return (line) => {
    onLog?.(line);
    logger?.[line.level](line.message, line.fields);
  };
}

/** Returns the clock that the testing kit gave beside the options. */
function testKitOf(options: GatewayOptions): { readonly clock?: Clock } {
  const { [TEST_CLOCK]: clock } = options as { readonly [TEST_CLOCK]?: Clock }; // only the kit can name the key
  return clock === undefined ? {} : { clock };
}

/** Returns what `Request` takes. @throws {TypeError} `json` beside `body` */
function toRequestInit({ json, ...init }: GatewayRequestInit = {}): RequestInit {
  if (json === undefined) return init;
  if (init.body !== undefined) throw new TypeError('Cannot request with both "json" and "body": give one of them');
  const headers = new Headers(init.headers);
  if (!headers.has("content-type")) headers.set("content-type", "application/json");
  return { method: "POST", ...init, headers, body: JSON.stringify(json) };
}

/** Refuses unknown options: a misspelt one would be ignored in silence, and the thing it should forbid would be allowed. @throws {ConfigError} `unknown_option`, `missing_option` */
function checkOptions(options: unknown): void {
  if (typeof options !== "object" || options === null) {
    throw new ConfigError("missing_option", "Cannot create a gateway without options: give dataDir and workspace");
  }
  refuseUnknown(options, Object.keys(OPTION_NAMES), "the option");
  for (const name of ["dataDir", "workspace"] as const) {
    // Callers in JavaScript may leave out required options
    const path = (options as Partial<GatewayOptions>)[name];
    if (typeof path === "string" && path !== "") continue;
    throw new ConfigError("missing_option", `Cannot create a gateway without "${name}": give the path of a folder`, {
      key: name,
    });
  }
}

/** Returns the base path without a slash at its end. @throws {ConfigError} `base_path_invalid`: no request could ever match it */
function readBasePath(given: unknown = ""): string {
  const path = typeof given === "string" ? withoutEnd(given, "/") : undefined;
  if (path === "" || (path !== undefined && isCleanPath(path) && !/[?#%]/.test(path))) return path;
  throw new ConfigError(
    "base_path_invalid",
    `Cannot mount the gateway under ${JSON.stringify(given)}: basePath begins with "/" and is plain, such as "/agent"`,
  );
}

/** Returns the way to the other gateways. @throws {ConfigError} `unknown_option`, `link_invalid` */
function readLinkFetch(given: unknown): GatewayClusterOptions["fetch"] {
  if (typeof given !== "object" || given === null) {
    throw new ConfigError("link_invalid", 'Cannot use the option "cluster": give an object', { key: "cluster" });
  }
  refuseUnknown(given, ["fetch"], "the cluster option");
  const { fetch } = given as GatewayClusterOptions; // callers in JavaScript may give anything
  if (fetch === undefined || typeof fetch === "function") return fetch;
  throw new ConfigError("link_invalid", 'Cannot use "cluster.fetch": give a function', { key: "cluster" });
}

/** Returns the database that the program gave. @throws {ConfigError} `database_invalid` */
async function readDatabase(given: MemoryDatabase, { storage }: { readonly storage: { readonly driver: string } }) {
  if (storage.driver === "postgres") {
    const reason = 'storage.driver is "postgres" too; keep one of the two';
    throw new ConfigError("database_invalid", `Cannot use the option "database": ${reason}`, { key: "database" });
  }
  const { ProcessDatabase } = await import("../lib/cluster/memory_database.ts");
  return ProcessDatabase.of(given);
}

const HOOK_NAMES: Readonly<Record<keyof GatewayHooks, true>> = { onRunEvent: true, onApproval: true };

/** Returns the hooks, checked. @throws {ConfigError} `unknown_option`, `hook_invalid` */
function toHooks(given: unknown): GatewayHooks {
  if (typeof given !== "object" || given === null) {
    throw new ConfigError("hook_invalid", 'Cannot use the option "hooks": it must be an object of functions');
  }
  refuseUnknown(given, Object.keys(HOOK_NAMES), "the hook");
  for (const [name, hook] of Object.entries(given)) {
    if (hook === undefined || typeof hook === "function") continue;
    throw new ConfigError("hook_invalid", `Cannot use the hook "${name}": it must be a function`);
  }
  // The names and the kind of each value were checked; what a hook takes and gives is its own
  return { ...given };
}

/** @throws {ConfigError} `unknown_option` */
function refuseUnknown(given: object, known: readonly string[], what: string): void {
  const unknown = Object.keys(given).filter((name) => !known.includes(name));
  if (unknown.length === 0) return;
  const named = unknown.map((name) => {
    const meant = nearest(name, known);
    return meant === undefined ? `"${name}"` : `"${name}" (did you mean "${meant}"?)`;
  });
  const message = `Cannot create a gateway with ${what} ${named.join(", ")}: the ${what.slice(4)}s are ${
    known.join(", ")
  }`;
  throw new ConfigError("unknown_option", message);
}
