import type { Socket } from "node:net";
import type { buildConnector, Dispatcher } from "undici";
import type { Clock } from "../../base/clock.ts";
import { ProviderError } from "../../base/errors.ts";
import { lazily } from "../../base/lazily.ts";
import {
  createExchangeQueues,
  type ExchangeQueues,
  type HttpExchange,
  type ProviderHttpRequest,
  startExchange,
} from "./http_exchange.ts";
import { ForeignServerError } from "./network_error.ts";
import { chooseProxy, type ProxySettings } from "./proxy_choice.ts";

/** HTTP to one origin over kept-alive connections. */
export interface ProviderClient {
  /** As `https://api.openai.com` */
  readonly origin: string;
  /**
   * Sends and waits for the reply's head, or for all of it. Redirects are an error, never followed.
   * @throws {ProviderError} `provider_error` (refused, reset, unknown host, redirect), `provider_timeout`; {CancelError} on abort
   */
  send(request: ProviderHttpRequest): Promise<HttpExchange>;
  /** Ends all connections, also those in use */
  close(): Promise<void>;
}

/** Origin of a provider, and the check of who listens there. */
export interface ProviderClientOptions {
  /** Name of the provider, for errors */
  readonly provider: string;
  readonly origin: string;
  /**
   * Tells who listens, before and after each new connection: whoever listens must be the same at both times, by what this gives. A rejection ends
   * the connection before anything is sent. Such a client never goes through a proxy. Default: whoever answers
   */
  readonly admit?: (() => Promise<string>) | undefined;
}

/** Makes the client of an origin; nothing is opened or loaded before the first request. */
export type ProviderClientFactory = (options: ProviderClientOptions) => ProviderClient;

/** Idle connections are dropped well before common servers drop them, so that no request meets a dying one. Milliseconds */
const KEEP_ALIVE_MS = 4_000;
const CONNECT_TIMEOUT_MS = 30_000;
/** A reply's head above this is refused (undici's own default is the same) */
const MAX_HEADER_BYTES = 16_384;

/**
 * Clients over undici, one pool of connections per origin, through a proxy where `[proxy]` or the environment names one (never for
 * loopback). The proxy looks names up.
 * Source: docs/design/dependencies.md "Packages in use"; docs/design/network.md "Provider clients"
 */
export function createProviderClients(
  { clock, proxy, queues = createExchangeQueues() }: {
    readonly clock: Clock;
    readonly proxy?: ProxySettings | undefined;
    /** Queues that all clients of a gateway share. Default: queues of this factory alone */
    readonly queues?: ExchangeQueues | undefined;
  },
): ProviderClientFactory {
  return ({ provider, origin, admit }) => {
    const context = { provider, origin, clock, queues };
    let dispatcher: Promise<Dispatcher> | undefined;
    let ready: Dispatcher | undefined;
    let closed = false;
    const open = async () => {
      const way = admit === undefined ? chooseProxy(proxy, new URL(origin)) : undefined;
      if (way?.problem !== undefined) {
        throw new ProviderError("provider_error", `Cannot reach "${provider}": ${way.problem}`, { provider });
      }
      const opened = await createDispatcher(origin, way?.proxy, admit);
      if (closed) await opened.destroy();
      return ready = opened;
    };
    return {
      origin,
      send(request) {
        // Without an await once it is open: each costs a turn of the queue
        if (ready !== undefined) return startExchange(ready, request, context);
        return (dispatcher ??= open()).then((opened) => startExchange(opened, request, context));
      },
      async close() {
        closed = true;
        await (await dispatcher?.catch(() => undefined))?.destroy();
      },
    };
  };
}

type Undici = typeof import("undici");

/** The parts of undici that connect: the whole of it takes four times as long to load, and five times the memory. */
const undici = lazily(async () => {
  const [Pool, buildConnector] = await Promise.all([
    // @ts-ignore: undici declares the types of its main entry alone
    partOf<"Pool">(import("undici/lib/dispatcher/pool.js")),
    // @ts-ignore: as above
    partOf<"buildConnector">(import("undici/lib/core/connect.js")),
  ]);
  return { Pool, buildConnector };
});
// @ts-ignore: as above
const undiciProxy = lazily(() => partOf<"ProxyAgent">(import("undici/lib/dispatcher/proxy-agent.js")));

async function partOf<Name extends keyof Undici>(part: Promise<{ readonly default: unknown }>): Promise<Undici[Name]> {
  // The main entry exports what the part's file does
  return (await part).default as Undici[Name];
}

/** Loads the HTTP client, 15 ms, ahead of the first request. Never rejects: where it cannot be loaded, the first request says so. */
export async function loadHttpClient(): Promise<void> {
  await undici().catch(() => {});
}

async function createDispatcher(
  origin: string,
  proxy: string | undefined,
  admit: ProviderClientOptions["admit"],
): Promise<Dispatcher> {
  const { Pool, buildConnector } = await undici();
  // Time limits are kept by the exchange and its clock, so undici's own are off
  const options = {
    connections: null,
    pipelining: 1,
    headersTimeout: 0,
    bodyTimeout: 0,
    keepAliveTimeout: KEEP_ALIVE_MS,
    maxHeaderSize: MAX_HEADER_BYTES,
    connect: admit === undefined
      ? { timeout: CONNECT_TIMEOUT_MS }
      : admitted(buildConnector({ timeout: CONNECT_TIMEOUT_MS }), admit),
  };
  if (proxy === undefined) return new Pool(origin, options);
  const ProxyAgent = await undiciProxy();
  return new ProxyAgent({ ...options, uri: proxy });
}

/** Connects only while the same, accepted sockets listen: what they send and are sent is theirs. */
function admitted(
  connect: buildConnector.connector,
  admit: NonNullable<ProviderClientOptions["admit"]>,
): buildConnector.connector {
  return (options, callback) => {
    const refuse = (error: unknown) => callback(error as Error, null); // what admit throws is an Error
    const check = async (before: string, socket: Socket) => {
      // Nobody else hears of a failure until the socket is handed on
      let lost: Error | undefined;
      const onError = (error: Error) => void (lost = error);
      socket.on("error", onError);
      try {
        if (await admit() !== before) throw new ForeignServerError("another server took its place");
        if (socket.destroyed) throw lost ?? new ForeignServerError("it closed the connection at once");
      } catch (error) {
        socket.destroy();
        return refuse(error);
      }
      socket.off("error", onError);
      callback(null, socket);
    };
    // With an error there is no socket
    admit().then(
      (before) => connect(options, (error, socket) => error !== null ? refuse(error) : void check(before, socket)),
      refuse,
    );
  };
}
