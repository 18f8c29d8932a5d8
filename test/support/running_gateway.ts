import { join } from "node:path";
import { serveGateway } from "../../cli/serve/serve_gateway.ts";
import { ROUTES } from "../../handlers/routes.ts";
import {
  createScriptedProvider,
  createScriptedProviders,
  type Script,
  type ScriptedProvider,
} from "../../fixtures/scripted_provider.ts";
import type { Clock } from "../../lib/base/clock.ts";
import type { LogRecord } from "../../lib/base/telemetry/log.ts";
import { VERSION } from "../../lib/base/version.ts";
import type { Config } from "../../lib/config/config.ts";
import { validateConfig } from "../../lib/config/validate_config.ts";
import type { Connections } from "../../handlers/connections.ts";
import { createServices } from "../../lib/gateway.ts";
import type { GatewayServices, ProgramCluster, ServicesOptions } from "../../lib/services.ts";
import { type ChatClient, openGatewayChat } from "./chat_client.ts";
import { createReplyCheck } from "./described_reply.ts";
import { callGateway, type CallInit, methodOf } from "./gateway_call.ts";
import { openRawSocket, type RawSocket, type RawSocketOptions } from "./raw_socket.ts";
import { withTemporaryFolder } from "./temporary_folder.ts";
import { withWorkspace, type Workspace } from "./workspace.ts";

/** A gateway on 127.0.0.1, on a free port, with a workspace and a data directory of its own. */
export interface RunningGateway {
  /** Without a slash at the end */
  readonly url: string;
  /** An admin token */
  readonly token: string;
  readonly port: number;
  readonly services: GatewayServices;
  readonly connections: Connections;
  readonly workspace: Workspace;
  readonly dataDir: string;
  /** Requests that the model got; empty when the configured providers are used */
  readonly provider: ScriptedProvider;
  readonly log: readonly LogRecord[];
  /** fetch with the token; a body that is no string is sent as JSON. The reply must be as /openapi.json describes it */
  call(path: string, init?: CallInit): Promise<Response>;
  /** Opens `/ws/chat`, by default with the admin token; what is still open in the end is closed. @throws {HandshakeRefused} for a refusal */
  chat(token?: string): Promise<ChatClient>;
  /** Opens a TCP connection to the port; what is still open in the end is destroyed */
  rawSocket(options?: RawSocketOptions): Promise<RawSocket>;
  /** Ends the server as a signal would */
  drain(graceMs: number): Promise<void>;
}

export interface RunningGatewayOptions {
  /** Tables and keys of postern.toml */
  readonly config?: Readonly<Record<string, unknown>>;
  /** Answers of the model; undefined: the configured providers, `offline` unless the config says otherwise */
  readonly script?: Script;
  /** True when the model of the script is shown pictures. Default false */
  readonly sees?: boolean;
  /** Files of the workspace */
  readonly files?: Readonly<Record<string, string>>;
  readonly environment?: Readonly<Record<string, string>>;
  readonly agent?: boolean;
  /** Default: the system's */
  readonly clock?: Clock;
  /** Writer of its configuration. Default: it cannot write it */
  readonly configWriter?: ServicesOptions["configWriter"];
  /** Origins where `kind = "auto"` looks for local servers. Default: none, beside OLLAMA_HOST */
  readonly localServers?: readonly string[] | false;
  /** Absolute; kept afterwards. Default: a fresh one */
  readonly dataDir?: string;
  /** Folder that stays afterwards. Default: a fresh one with `files` */
  readonly workspace?: Workspace;
  /** Database that it shares with other gateways. Default: it is alone */
  readonly database?: ProgramCluster["database"];
}

const checkReply = createReplyCheck(ROUTES);
const TOKEN = "test-token-of-the-environment-0123456789";

/** The configuration of these tables. @throws {Error} with every finding */
export function configOf(tables: Readonly<Record<string, unknown>>): Config {
  const result = validateConfig([tables]);
  if ("findings" in result) throw new Error(JSON.stringify(result.findings));
  return result.config;
}

/** Runs `use` with a gateway that is drained, closed and removed afterwards. */
export async function withRunningGateway(
  options: RunningGatewayOptions,
  use: (gateway: RunningGateway) => Promise<void>,
): Promise<void> {
  const within = (work: (workspace: Workspace) => Promise<void>) =>
    options.workspace === undefined ? withWorkspace(options.files ?? {}, work) : work(options.workspace);
  await within((workspace) =>
    withTemporaryFolder(async (folder) => {
      const dataDir = options.dataDir ?? join(folder, "data");
      const log: LogRecord[] = [];
      const provider = createScriptedProvider(options.script ?? [], { sees: options.sees });
      const services = await createServices({
        config: configOf({ provider: { kind: "offline" }, ...options.config }),
        folders: { dataDir, workspaceRoot: workspace.root, home: folder },
        environment: { POSTERN_TOKEN: TOKEN, ...options.environment },
        about: { version: VERSION },
        log: { sink: (record) => void log.push(record) },
        configWriter: options.configWriter,
        kit: options.clock && { clock: options.clock },
        cluster: { database: options.database },
        models: {
          agent: options.agent,
          localServers: options.localServers ?? [],
          providers: options.script && createScriptedProviders(provider),
        },
      });
      const server = await serveGateway({ services, host: "127.0.0.1", port: 0 });
      const url = server.url.replace(/\/$/, "");
      const sockets: (() => void)[] = [];
      try {
        await use({
          url,
          token: TOKEN,
          port: server.port,
          services,
          connections: server.connections,
          workspace,
          dataDir,
          provider,
          log,
          async call(path, init = {}) {
            const reply = await callGateway({ url, token: TOKEN }, path, init);
            await checkReply(methodOf(init), path, reply);
            return reply;
          },
          async chat(token = TOKEN) {
            const client = await openGatewayChat({ url, token });
            sockets.push(() => client.socket.terminate());
            return client;
          },
          async rawSocket(options) {
            const raw = await openRawSocket(server.port, options);
            sockets.push(raw.destroy);
            return raw;
          },
          drain: (graceMs) => server.drain(graceMs),
        });
      } finally {
        for (const close of sockets) close();
        await server.drain(0);
        await services.close();
      }
    })
  );
}
