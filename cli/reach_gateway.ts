import { isRecord } from "../lib/base/json.ts";
import type { Endpoint, ParamsOf, QueryOf, ReplyOf } from "../handlers/routes.ts";
import type { StatusReply } from "../lib/base/records/gateway_status.ts";
import { systemClock } from "../lib/base/clock.ts";
import { ConfigError } from "../lib/base/errors.ts";
import type { LoadedConfig } from "../lib/config/load_config.ts";
import type { GatewayServices } from "../lib/services.ts";
import { type ControlRecord, readControlFile } from "../lib/host/control_file.ts";
import type { Health } from "../lib/host/daemon/daemon_state.ts";
import {
  createGatewayClient,
  type GatewayClient,
  type GatewayReply,
  type GatewayRequest,
} from "../lib/system/net/gateway_client.ts";
import { type CommandContext, CommandError, EXIT } from "./command.ts";

/** Gateway that a command works with: the running one or, while nothing else uses the data directory, its services in this process. */
export interface ReachedGateway {
  /** Sends to a route. @returns the JSON that the route declares. @throws {CommandError} as `request` */
  readonly call: CallRoute;
  /** Sends a request. @returns the JSON of a successful reply. @throws {CommandError} the gateway refuses; with its sentence */
  request(request: GatewayRequest): Promise<unknown>;
  /** Sends a request and returns the body of a successful reply as it comes, for event streams. @throws {CommandError} as `request` */
  stream(request: GatewayRequest): Promise<AsyncIterable<Uint8Array>>;
  /** Client and record of the running gateway. Undefined when the services run in this process */
  readonly running: { readonly client: GatewayClient; readonly record: ControlRecord } | undefined;
  /** Services of this process. Undefined when a gateway is running */
  readonly services: GatewayServices | undefined;
  close(): Promise<void>;
}

/** Sends to a route of the gateway by its name, such as `GET /v1/tokens/:id`, and returns the JSON that the route declares. */
export type CallRoute = <Name extends Endpoint>(name: Name, ...sent: SentTo<Name>) => Promise<ReplyOf<Name>>;

type SentTo<Name extends Endpoint> = [ParamsOf<Name>] extends [never] ? [sent?: Sent<Name>]
  : [sent: Sent<Name> & { readonly params: Readonly<Record<ParamsOf<Name>, string>> }];

interface Sent<Name extends Endpoint> extends Omit<GatewayRequest, "method" | "path"> {
  readonly query?: QueryOf<Name>;
}

/** Options of `reachGateway`. */
export interface ReachOptions {
  /** True for a command that needs the agent and its providers. False: no local model server is looked for */
  readonly agent: boolean;
}

const PROBE_TIMEOUT_MS = 10_000;

/**
 * Reaches the gateway of the data directory (docs/design/access.md "One gateway for each data directory").
 * @throws {CommandError} a gateway holds the directory and does not answer on the loopback interface, or works in another folder
 * than --workspace names, or gateways with other data directories use the database
 */
export async function reachGateway(context: CommandContext, options: ReachOptions): Promise<ReachedGateway> {
  const loaded = await context.loadConfig();
  const record = await readControlFile(loaded.dataDir);
  if (record !== undefined && await probeGateway(record) !== "silent") return reachRunning(record, { context, loaded });
  if (loaded.config.storage.driver === "postgres") {
    await (await import("./cluster_database.ts")).requireNoCluster(context, loaded);
  }
  return await startHere(context, loaded, options);
}

/** Refuses a gateway that does not listen on the loopback interface: commands may use its control token there only. @throws {CommandError} */
export function requireControl({ address, token }: ControlRecord): void {
  if (token !== "") return;
  const reason = "commands reach a gateway over the loopback interface alone, where it does not listen";
  throw new CommandError(
    `Cannot work with the gateway at ${address}: ${reason}; set gateway.host to "0.0.0.0", or stop it first`,
  );
}

/** Returns the JSON of a successful reply. @throws {CommandError} the reply is an error; with its message */
export function expectSuccess({ status, body }: GatewayReply): unknown {
  if (status < 400) return body;
  const error = isRecord(body) ? body["error"] : undefined;
  const message = isRecord(error) ? error["message"] : undefined;
  throw new CommandError(typeof message === "string" ? message : `The gateway answered with status ${status}`);
}

/** Returns the function that calls routes by sending requests. `request`: returns the JSON of a successful reply */
export function callsBy(request: (request: GatewayRequest) => Promise<unknown>): CallRoute {
  return async <Name extends Endpoint>(name: Name, ...[sent]: SentTo<Name>) =>
    // Tests hold each route to the schema of its reply
    await request(toRequest(name, sent ?? {})) as ReplyOf<Name>;
}

/** Asks a route. @returns the JSON that it declares; undefined for a reply of another status than 200. @throws as GatewayClient.request */
export async function askRoute<Name extends Endpoint>(
  client: GatewayClient,
  name: Name,
  ...[sent]: SentTo<Name>
): Promise<ReplyOf<Name> | undefined> {
  const { status, body } = await client.request(toRequest(name, sent ?? {}));
  // See callsBy
  return status === 200 ? body as ReplyOf<Name> : undefined;
}

function toRequest(name: Endpoint, { params = {}, query = {}, ...rest }: AnySent): GatewayRequest {
  const [method, path] = name.split(" ") as [GatewayRequest["method"], string]; // a route's name is its method and its path
  const fields = Object.entries(query).flatMap(([field, value]) =>
    value === undefined ? [] : [`${field}=${encodeURIComponent(value)}`]
  );
  const filled = path.replace(/:(\w+)\+?/g, (_, param: string) => encodeURIComponent(params[param] ?? ""));
  return { ...rest, method, path: fields.length === 0 ? filled : `${filled}?${fields.join("&")}` };
}

interface AnySent extends Omit<GatewayRequest, "method" | "path"> {
  readonly params?: Readonly<Record<string, string>> | undefined;
  readonly query?: Readonly<Record<string, string | number | boolean | undefined>>;
}

function reachRunning(
  record: ControlRecord,
  { context, loaded }: { readonly context: CommandContext; readonly loaded: LoadedConfig },
): ReachedGateway {
  requireControl(record);
  if (context.flags.workspace !== undefined && loaded.workspace !== record.workspace) {
    const wayOut = "stop it, leave --workspace out, or use another --data-dir";
    throw new CommandError(
      `Cannot work in "${loaded.workspace}": the running gateway works in "${record.workspace}"; ${wayOut}`,
    );
  }
  const client = createGatewayClient({ ...record, clock: systemClock });
  const request = async (request: GatewayRequest) => expectSuccess(await client.request(request));
  return {
    request,
    call: callsBy(request),
    async stream(request) {
      const { status, body } = await client.stream(request);
      if (status >= 400) expectSuccess({ status, body: parseBody(await textOf(body)) });
      return body;
    },
    running: { client, record },
    services: undefined,
    close: () => Promise.resolve(),
  };
}

async function startHere(
  context: CommandContext,
  loaded: LoadedConfig,
  { agent }: ReachOptions,
): Promise<ReachedGateway> {
  const [{ createRouter }, { ROUTES }, { randomControlToken, startServices }] = await Promise.all([
    import("../handlers/router.ts"),
    import("../handlers/routes.ts"),
    import("./serve/start_services.ts"),
  ]);
  const token = randomControlToken();
  const services = await startServices(context, { loaded, agent, controlToken: token, quiet: true }).catch((error) => {
    if (!(error instanceof ConfigError) || error.code !== "data_dir_locked") throw error;
    throw new CommandError(
      `Cannot use "${loaded.dataDir}": a node or another command uses it, or a gateway that does not answer; end it, or give --data-dir`,
    );
  });
  const router = createRouter({ services, routes: ROUTES });
  const send = async ({ method, path, body, raw, headers, signal }: GatewayRequest) => {
    const payload = raw === undefined ? body === undefined ? undefined : JSON.stringify(body) : Buffer.from(raw.bytes);
    const request = new Request(new URL(path, "http://127.0.0.1/"), {
      method,
      headers: {
        ...headers,
        authorization: `Bearer ${token}`,
        ...(payload === undefined ? {} : { "content-type": raw?.type ?? "application/json" }),
      },
      ...(payload === undefined ? {} : { body: payload }),
      ...(signal === undefined ? {} : { signal }),
    });
    return await router.fetch(request, { remoteAddress: "127.0.0.1" });
  };
  const request = async (request: GatewayRequest) => {
    const reply = await send(request);
    return expectSuccess({ status: reply.status, body: parseBody(await reply.text()) });
  };
  return {
    request,
    call: callsBy(request),
    async stream(request) {
      const reply = await send(request);
      if (!reply.ok) expectSuccess({ status: reply.status, body: parseBody(await reply.text()) });
      return reply.body ?? NOTHING;
    },
    running: undefined,
    services,
    async close() {
      // Work that is not finished goes on at the next start
      await services.drain(0);
      await services.close();
    },
  };
}

async function textOf(body: AsyncIterable<Uint8Array>): Promise<string> {
  return Buffer.concat(await Array.fromAsync(body)).toString("utf8");
}

function parseBody(text: string): unknown {
  return text === "" ? undefined : JSON.parse(text);
}

const NOTHING: AsyncIterable<Uint8Array> = { async *[Symbol.asyncIterator]() {} };

/** Reaches the gateway without an agent, does the work, and closes the connection. @returns exit code 0 */
export async function withGateway(
  context: CommandContext,
  work: (gateway: ReachedGateway) => Promise<void>,
): Promise<number> {
  const gateway = await reachGateway(context, { agent: false });
  try {
    await work(gateway);
    return EXIT.ok;
  } finally {
    await gateway.close();
  }
}

/** Waits until MCP servers that no gateway has asked yet have told their tools, or failed: services of this process ask them at their start. */
export async function learnTools({ services }: ReachedGateway, { say }: Pick<CommandContext, "say">): Promise<void> {
  const learning = services?.learningTools();
  if (learning === undefined || learning.names.length === 0) return;
  say(`Waiting for the tools of ${learning.names.join(", ")}`);
  await learning.over;
}

/** Asks a gateway on this machine for its health. `silent`: no gateway answers. Never throws. */
export async function probeGateway({ address, token }: Pick<ControlRecord, "address" | "token">): Promise<Health> {
  const client = createGatewayClient({ address, token, clock: systemClock, timeoutMs: PROBE_TIMEOUT_MS });
  const reply = await client.request({ method: "GET", path: "/health" }).catch(() => undefined);
  const said = isRecord(reply?.body) ? reply.body["status"] : undefined;
  if (said === "ok" || said === "degraded" || said === "draining") return said;
  // The rate limit counts probes too: a reply that says so is a reply
  return reply?.status === 429 ? "ok" : "silent";
}

/** Asks a gateway on this machine for its status. Undefined when it does not answer, or not on the loopback interface. Never throws. */
export async function readGatewayStatus(
  { address, token }: Pick<ControlRecord, "address" | "token">,
): Promise<StatusReply | undefined> {
  if (token === "") return undefined;
  const client = createGatewayClient({ address, token, clock: systemClock, timeoutMs: PROBE_TIMEOUT_MS });
  return await askRoute(client, "GET /v1/status").catch(() => undefined);
}
