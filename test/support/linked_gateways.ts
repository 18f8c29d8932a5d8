import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { createScriptedProvider, createScriptedProviders, type Script } from "../../fixtures/scripted_provider.ts";
import { createRouter, type GatewayRouter } from "../../handlers/router.ts";
import { ROUTES } from "../../handlers/routes.ts";
import type { LogRecord } from "../../lib/base/telemetry/log.ts";
import { createServices } from "../../lib/gateway.ts";
import type { GatewayServices } from "../../lib/services.ts";
import type { Tool } from "../../lib/tools/runtime/tool.ts";
import { createSharedDatabase, type DatabaseLink, LEASE_MS, type SharedDatabase } from "./clustered.ts";
import { toConfig } from "./config_edits.ts";
import { withTemporaryFolder } from "./temporary_folder.ts";

/** Token of the cluster in tests. */
export const CLUSTER_TOKEN = "cluster-token-of-tests-0123456789abcdef";

/** A whole gateway over a shared database, without a socket. */
export interface LinkedGateway {
  readonly name: string;
  readonly services: GatewayServices;
  readonly router: GatewayRouter;
  readonly database: DatabaseLink;
  readonly log: readonly LogRecord[];
  readonly token: string;
  /** Sends a request with a token that has every scope */
  send(path: string, init?: RequestInit): Promise<Response>;
}

/** The network between gateways of one process: each has the address `https://<name>.test`. */
export class LinkNetwork {
  readonly #routers = new Map<string, GatewayRouter>();
  /** Requests of links, such as `GET name /path`, in order. */
  readonly requests: string[] = [];
  readonly open = new Set<string>();
  /** Receives each request of a link. What it returns is the answer. Default: the gateway of the address answers */
  intercept: (name: string, request: Request) => Promise<Response> | undefined = () => undefined;

  readonly fetch = async (request: Request): Promise<Response> => {
    const url = new URL(request.url);
    const name = url.hostname.replace(/\.test$/, "");
    this.requests.push(`${request.method} ${name} ${url.pathname}${url.search}`);
    const own = this.intercept(name, request);
    if (own !== undefined) return await own;
    const router = this.#routers.get(name);
    if (router === undefined) throw new TypeError("nobody listens there");
    return await router.fetch(request, { remoteAddress: "192.0.2.7" });
  };

  add(name: string, router: GatewayRouter): void {
    this.#routers.set(name, router);
  }

  /** Takes a gateway off the network. */
  remove(name: string): void {
    this.#routers.delete(name);
  }
}

/** Options of `startLinked`. */
export interface LinkedOptions {
  readonly name: string;
  readonly folder: string;
  readonly script?: Script;
  readonly network: LinkNetwork;
  /** False: the gateway gives the others no address. Default true */
  readonly advertises?: boolean;
  /** Undefined: it has no token. Default: that of the cluster */
  readonly token?: string | undefined;
  readonly config?: Readonly<Record<string, unknown>>;
  readonly environment?: Readonly<Record<string, string>>;
  /** Tools of the program around the gateway. Default: none */
  readonly tools?: readonly Tool[];
}

/** Starts a gateway of its own data directory, and of a workspace that all share, over a shared database. */
export async function startLinked(database: SharedDatabase, options: LinkedOptions): Promise<LinkedGateway> {
  const { name, network, script = [], advertises = true } = options;
  const token = "token" in options ? options.token : CLUSTER_TOKEN;
  const link = database.link();
  const { clock } = database;
  const folder = join(options.folder, name);
  const workspaceRoot = join(options.folder, "work");
  mkdirSync(workspaceRoot, { recursive: true });
  const log: LogRecord[] = [];
  const services = await createServices({
    config: toConfig({
      storage: { driver: "memory" },
      gateway: { rate_limit_max: 0, host: "0.0.0.0", allow_public_bind: true },
      cluster: {
        lease_secs: LEASE_MS / 1_000,
        workspace_id: "of-the-tests",
        ...(token === undefined ? {} : { token_env: "CLUSTER_TOKEN" }),
        ...(advertises ? { advertise_url: `https://${name}.test` } : {}),
      },
      ...options.config,
    }),
    folders: { dataDir: join(folder, "data"), workspaceRoot, home: folder },
    environment: { CLUSTER_TOKEN: token, POSTERN_TOKEN: `admin-${name}`, ...options.environment },
    additions: { tools: options.tools },
    about: { version: "0.0.0-test" },
    log: { sink: (record) => void log.push(record) },
    kit: { clock },
    cluster: { database: link, linkFetch: network.fetch },
    models: { providers: createScriptedProviders(createScriptedProvider(script, { clock })) },
  });
  const router = createRouter({ services, routes: ROUTES });
  network.add(name, router);
  return {
    name,
    services,
    router,
    database: link,
    log,
    token: `admin-${name}`,
    send: async (path, init = {}) =>
      await router.fetch(
        new Request(`https://${name}.test${path}`, {
          ...init,
          headers: { authorization: `Bearer admin-${name}`, ...init.headers },
        }),
        { remoteAddress: "192.0.2.8" },
      ),
  };
}

/** Ends gateways, each as a shutdown does. */
export async function stopLinked(database: SharedDatabase, gateways: readonly LinkedGateway[]): Promise<void> {
  for (const { services, router } of gateways) {
    router.connections.closeIdle();
    const drained = services.drain(0);
    await database.clock.advance(5_000);
    await drained;
    await router.connections.closeAll();
    await services.close();
  }
}

/** Gateways of one test. */
export interface LinkedCluster {
  readonly database: SharedDatabase;
  readonly network: LinkNetwork;
  /** Starts a gateway that the test stops at its end. */
  readonly start: (name: string, options?: Partial<LinkedOptions>) => Promise<LinkedGateway>;
  readonly pass: (ms: number) => Promise<void>;
  readonly passUntil: (holds: () => boolean, what: string) => Promise<void>;
}

/** Runs a test over a shared database, and stops its gateways afterwards. */
export async function withCluster(use: (cluster: LinkedCluster) => Promise<void>): Promise<void> {
  await withTemporaryFolder(async (folder) => {
    const database = createSharedDatabase();
    const network = new LinkNetwork();
    const started: LinkedGateway[] = [];
    const { clock } = database;
    try {
      await use({
        database,
        network,
        async start(name, options = {}) {
          const gateway = await startLinked(database, { name, folder, network, ...options });
          started.push(gateway);
          return gateway;
        },
        pass: (ms) => clock.advance(ms),
        async passUntil(holds, what) {
          for (let passed = 0; !holds(); passed += 50) {
            assert.ok(passed < 60_000, what);
            await clock.advance(50);
          }
        },
      });
    } finally {
      // A test that failed may leave the database down, and the gateways would wait for it
      database.isAway = false;
      for (const { database: link } of started) {
        link.isCut = false;
        link.onBatch = (_, make) => make();
      }
      await stopLinked(database, started.reverse());
    }
    assert.equal(clock.pending(), 0, "no timer is left");
  });
}

/** A stream of events that is read in the background. */
export class FollowedStream {
  text = "";
  status = 0;
  isEnded = false;
  readonly #leave = new AbortController();
  readonly ended: Promise<void>;

  constructor(reply: Promise<Response>) {
    this.ended = this.#read(reply);
  }

  /** Returns the stream without its comments. */
  get events(): string {
    return this.text.replaceAll(/^:.*\n\n/gm, "");
  }

  get comments(): readonly string[] {
    return this.text.match(/^:.*$/gm) ?? [];
  }

  leave(): void {
    this.#leave.abort();
  }

  async #read(reply: Promise<Response>): Promise<void> {
    const { status, body } = await reply;
    this.status = status;
    const reader = body?.getReader();
    this.#leave.signal.addEventListener("abort", () => void reader?.cancel());
    const decoder = new TextDecoder();
    for (let next = await reader?.read(); next?.done === false; next = await reader?.read()) {
      this.text += decoder.decode(next.value, { stream: true });
    }
    this.isEnded = true;
  }
}

/** Two turns with a call between them, each piece 100 ms after the one before. */
export const TALK = [
  {
    text: ["one ", "two ", "three "],
    chunkDelayMs: 100,
    toolCalls: [{ name: "no_such_tool", arguments: { a: "ü\n" } }],
  },
  { text: ["four ", "five ", "six"], chunkDelayMs: 100 },
] as const satisfies Script;
