import { createRecordKeys } from "../../lib/storage/record_keys.ts";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { type Clock, systemClock } from "../../lib/base/clock.ts";
import { createRedactor, type Redactor } from "../../lib/base/redact.ts";
import type { LogRecord } from "../../lib/base/telemetry/log.ts";
import type { Config } from "../../lib/config/config.ts";
import type { AcceptedTools } from "../../lib/extensions/mcp/accepted_tools.ts";
import type { McpConnection } from "../../lib/extensions/mcp/mcp_connection.ts";
import { McpServers } from "../../lib/extensions/mcp/mcp_servers.ts";
import { McpSignIn } from "../../lib/extensions/mcp/oauth/sign_in.ts";
import { createSystemRandom } from "../../lib/base/random.ts";
import { SecretStore } from "../../lib/tools/secrets/tool_secrets.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createGuardedFetch } from "../../lib/system/net/guarded_fetch.ts";
import { createUrlPolicy } from "../../lib/system/net/url_policy.ts";
import { KnownServers } from "../../lib/extensions/mcp/server_record.ts";
import type { Processes } from "../../lib/system/process/processes.ts";
import { createFakeAudit } from "./fake_audit.ts";
import { createFakeServices } from "./fake_services.ts";
import { removeFolder } from "./remove_folder.ts";
import { configOf } from "./running_gateway.ts";
import { PROJECT_ROOT } from "./source_files.ts";
import { createToolBench } from "./tool_bench.ts";

/** MCP servers over the programs of a test. */
export interface McpBench {
  readonly servers: McpServers;
  /** Returns the connection to a server of the test. */
  readonly server: (name?: string) => McpConnection;
  readonly logged: readonly LogRecord[];
  readonly redactor: Redactor;
  readonly dataDir: string;
  readonly folder: string;
  readonly processes: Processes;
  /** Sign-ins of people, joined to the servers as in a gateway. */
  readonly signIn: McpSignIn;
  /** Returns the lines that the fixture noted in the file of its behaviour. */
  notes(): readonly string[];
  /** Ends the servers and creates others on the same data directory. */
  restart(): Promise<McpServers>;
  config: Config;
}

/** Behaviour of `fixtures/mcp/server.mjs`. */
export type FixtureBehaviour = Readonly<Record<string, unknown>>;

/** Returns `[mcp.servers.<name>]` of the fixture. */
export function fixtureServer(behaviour: FixtureBehaviour = {}): Readonly<Record<string, unknown>> {
  return { command: "node", args: [join(PROJECT_ROOT, "fixtures/mcp/server.mjs"), JSON.stringify(behaviour)] };
}

/** Returns the configuration in which these servers may be used. */
export function mcpConfig(
  servers: Readonly<Record<string, Readonly<Record<string, unknown>>>>,
): Readonly<Record<string, unknown>> {
  return { security: { mcp: { enabled: true, allowed_servers: Object.keys(servers) } }, mcp: { servers } };
}

/** Signal that never aborts. */
export const NEVER: AbortSignal = new AbortController().signal;

/** Makes the file of the description of `echo`, which a behaviour names as `state`. */
function stateOf(given: FixtureBehaviour, folder: string): FixtureBehaviour {
  if (typeof given["state"] !== "string") return {};
  const state = join(folder, given["state"]);
  writeFileSync(state, "Gives its text back");
  return { state };
}

/** Runs `use` with servers by name: tables of `[mcp.servers.<name>]`, or one behaviour of the fixture under the name "one". Ends them. */
export async function withMcp(
  given: FixtureBehaviour | { readonly servers: Readonly<Record<string, Readonly<Record<string, unknown>>>> },
  use: (bench: McpBench) => Promise<void>,
  { clock = systemClock, settings = {}, accepted, config: more = {}, environment = {}, dataDir: chosen }: {
    readonly clock?: Clock;
    /** Further tables of the configuration */
    readonly config?: Readonly<Record<string, unknown>>;
    /** Further variables of the gateway's environment */
    readonly environment?: Readonly<Record<string, string>>;
    /** Accepted tools, or what returns those of the next servers. Default: every tool is offered */
    readonly accepted?: AcceptedTools | (() => AcceptedTools);
    /** Absolute path of the data directory. Default: a folder of the bench */
    readonly dataDir?: string;
    /** Further keys of the server "one" */
    readonly settings?: Readonly<Record<string, unknown>>;
  } = {},
): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "postern-mcp-"));
  const [dataDir, workspaceRoot] = [chosen ?? join(folder, "data"), join(folder, "workspace")];
  mkdirSync(dataDir, { recursive: true });
  mkdirSync(workspaceRoot);
  const log = join(folder, "notes");
  const servers = "servers" in given
    ? given.servers as Readonly<Record<string, Readonly<Record<string, unknown>>>>
    : { one: { ...fixtureServer({ log, ...given, ...stateOf(given, folder) }), ...settings } };
  const { processes } = createToolBench({ root: workspaceRoot });
  const userAgent = "postern/test";
  const guardedFetch = createGuardedFetch({ policy: createUrlPolicy(), clock: systemClock, userAgent });
  const { log: logger, logged } = createFakeServices();
  const redactor = createRedactor();
  const store = createMemoryStore();
  const base = {
    clock,
    config: () => bench.config,
    environment: (name: string) => environment[name] ?? process.env[name],
    guardedFetch: () => Promise.resolve(guardedFetch),
    onSecret: redactor.add,
    onTokens: redactor.replace,
  };
  const run = () => Promise.reject(new Error("No secret of this bench is a command"));
  const shared = { ...base, store, dataDir, log: logger, secrets: new SecretStore({ ...base, run }) };
  const keys = createRecordKeys({
    ...{ store, dataDir, isKept: true, isShared: false, random: createSystemRandom() },
    settings: { key_env: "", old_key_env: "" },
    environment: () => undefined,
  });
  const signIn = new McpSignIn({
    ...shared,
    random: createSystemRandom(),
    cipher: () => keys.cipher("mcp_credentials.key"),
    audit: createFakeAudit(store).append,
    onAccount: (server) => void state.servers?.accountChanged(server),
  });
  const create = async () => {
    return new McpServers({
      ...{ ...shared, processes, workspaceRoot, signIn },
      known: await KnownServers.read({ ...shared, signIn }),
      home: folder,
      redact: redactor.part,
      accepted: typeof accepted === "function" ? accepted() : accepted,
    });
  };
  const state: { servers: McpServers | undefined } = { servers: undefined };
  const bench: McpBench = {
    get servers() {
      if (state.servers === undefined) throw new TypeError("The servers are created below");
      return state.servers;
    },
    server(name = "one") {
      const found = bench.servers.get(name);
      if (found === undefined) throw new TypeError(`No server "${name}"`);
      return found;
    },
    ...{ logged, redactor, dataDir, folder, processes, signIn },
    // A server that starts has noted nothing yet
    notes: () => existsSync(log) ? readFileSync(log, "utf8").split("\n").filter((line) => line !== "") : [],
    async restart() {
      await state.servers?.close();
      return state.servers = await create();
    },
    config: configOf({ ...mcpConfig(servers), ...more }),
  };
  try {
    await bench.restart();
    await use(bench);
  } finally {
    await state.servers?.close();
    signIn.close();
    await processes.close();
    await removeFolder(folder);
  }
}
