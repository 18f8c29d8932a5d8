import { createHash, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { type AddressInfo, createServer as createListener, type Socket } from "node:net";
import type { Duplex } from "node:stream";
import { CancelError } from "../../base/cancel.ts";
import type { Clock, Timer } from "../../base/clock.ts";
import { ToolError } from "../../base/errors.ts";
import { hostAndPort } from "./address.ts";
import { describeNetworkError, PinError } from "./network_error.ts";
import { connectPinned } from "./pinned_connection.ts";
import { chooseProxy, type ProxySettings } from "./proxy_choice.ts";
import { listenOnDeno, type UnixListener } from "./unix_listener.ts";
import {
  type Answer,
  answerRaw,
  answerResponse,
  MAX_HEAD_BYTES,
  NOT_TAKEN,
  unreadable,
  WRONG_PASSWORD,
} from "./relay_answers.ts";
import { forwardRequest, joinSockets, type PumpOptions } from "./relay_pump.ts";
import type { AllowedUrl, UrlPolicy } from "./url_policy.ts";
import { type AllowedHosts, allows, namesPort, type UrlRules } from "./url_rules.ts";

/** Request that the relay refused, or could not carry out. */
export interface RelayProblem {
  /** Host, with its port where that is not the usual one */
  readonly host: string;
  /** Whole sentence for the model, such as `Cannot reach "example.com": add "example.com" to [url_access] domain_allowlist to allow it` */
  readonly reason: string;
}

/** Bounds of one relay. */
export interface RelayLimits {
  /** Connections at once. Default 128 */
  readonly connections: number;
  /** Bytes of all requests and replies together. Default 1 GiB */
  readonly bytes: number;
  /** Milliseconds until the head of a request has come. Default 10 s */
  readonly headMs: number;
  /** Milliseconds for look-up and connection. Default 30 s */
  readonly connectMs: number;
  /** Milliseconds without a byte in either direction, after which a connection is ended. Default 2 minutes */
  readonly idleMs: number;
}

/** Policy and place of a relay. */
export interface RelayOptions {
  /** Knows the gateway's own address, which it refuses */
  readonly policy: Pick<UrlPolicy, "check">;
  /** `[url_access]` as it is now, asked at each request. `enforce_domain_allowlist` counts as true, see `requiresList` */
  readonly rules: () => UrlRules;
  /** False: `[url_access] domain_allowlist` counts only where it is enforced, and opens every port. Default true */
  readonly requiresList?: boolean | undefined;
  /** Hosts of the one program that uses the relay, beside what `[url_access]` allows. Default: it has no list of its own */
  readonly hosts?: AllowedHosts | undefined;
  /**
   * Tells whether `[security.shell] network` still gives commands a network, asked at each request and each piece that moves. Default: not
   * asked, since the relay is none of a command
   */
  readonly isOn?: (() => boolean) | undefined;
  /** Password of RELAY_USER that each request must give, by Basic authentication of a proxy. Default: none is needed */
  readonly password?: string | undefined;
  readonly clock: Clock;
  /** `[proxy]` as it is now. Default: none */
  readonly proxy?: (() => ProxySettings) | undefined;
  readonly limits?: Partial<RelayLimits> | undefined;
  /** Receives each new problem. Default: nobody does */
  readonly onProblem?: ((problem: RelayProblem) => void) | undefined;
}

/** Name that goes with the password of a relay. */
export const RELAY_USER = "postern";
/** Problems of one relay that are kept and told of. */
export const MAX_PROBLEMS = 20;

const DEFAULT_LIMITS: RelayLimits = {
  connections: 128,
  bytes: 1_073_741_824,
  headMs: 10_000,
  connectMs: 30_000,
  idleMs: 120_000,
};
/** Milliseconds until a listener that could take no connection tries again */
const PAUSE_MS = 250;
/** Ports that an entry without a port opens */
const USUAL_PORTS: readonly number[] = [80, 443];

/**
 * The only way out of a network namespace: an HTTP/1.1 proxy on a Unix socket, for programs that nobody trusts.
 *
 * Takes `CONNECT host:port` and requests in absolute form (`GET http://host/path`). Everything else is a 4xx whose body says why. Each
 * request is checked again: `[url_access] domain_allowlist` always counts, before the name is looked up, so that a look-up tells nobody
 * anything; then everything that UrlPolicy checks, on every address; then the gateway's own address. Ports other than 80 and 443 need
 * an entry that names the port. The connection goes to a checked address, through `[proxy]` where that is set. Bytes inside a tunnel
 * are not looked at. One connection carries one request; heads, connections, bytes and silence are bounded.
 * Source: docs/design/network.md "Relay"
 */
export class Relay {
  readonly #options: RelayOptions;
  readonly #limits: RelayLimits;
  readonly #server: Server;
  readonly #closing = new AbortController();
  /** Open connections, each with the timer of its head; undefined once that has come */
  readonly #connections = new Map<Duplex, Timer | undefined>();
  /** Open connections to servers. Each may outlive its client: what the client sent before it left still goes out */
  readonly #upstreams = new Set<Socket>();
  readonly #problems = new Map<string, RelayProblem>();
  #ownListener: UnixListener | undefined;
  #bytes = 0;
  #wasReached = false;

  constructor(options: RelayOptions) {
    this.#options = options;
    this.#limits = { ...DEFAULT_LIMITS, ...options.limits };
    // Other time limits of the server would be a second set
    const unlimited = { headersTimeout: 0, requestTimeout: 0, keepAliveTimeout: 0 };
    this.#server = createServer({ maxHeaderSize: MAX_HEAD_BYTES, ...unlimited });
    // Otherwise headers beyond the first 2,000 are dropped without a word
    this.#server.maxHeadersCount = 0;
    this.#server.on("connection", (socket) => this.#admit(socket));
    this.#server.on("request", (request, response) => void this.#forward(request, response));
    this.#server.on("connect", (request, client, head) => void this.#tunnel(request, client, head));
    this.#server.on("upgrade", (_request, client) => {
      answerRaw(client, { status: 501, text: "The relay switches no protocols: use CONNECT" });
    });
    this.#server.on("clientError", (error, client) => answerRaw(client, unreadable(error)));
  }

  /**
   * Listens on a Unix socket, once. Whoever reaches the socket may use the relay: the folder must be private.
   * @param path at most 107 bytes, as the system takes it; `/proc/self/fd/<folder>/<name>` is a short one
   * @throws the system's error when there can be no socket
   */
  async listen(path: string): Promise<void> {
    this.#ownListener = listenOnDeno(path, {
      onConnection: (connection) => void this.#server.emit("connection", connection),
      onError: (error) => this.#noteListenError(error),
      pause: () => this.#options.clock.sleep(PAUSE_MS, this.#closing.signal).catch(() => {}),
    });
    if (this.#ownListener !== undefined) return;
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    this.#server.once("error", reject);
    this.#server.listen(path, () => {
      this.#server.off("error", reject);
      this.#server.on("error", (error) => this.#noteListenError(error));
      resolve();
    });
    await promise;
  }

  /** Listens on a free port of 127.0.0.1, once. Every user of the machine reaches it: the relay must have a password. @returns the port */
  async listenOnLoopback(): Promise<number> {
    if (this.#options.password === undefined) throw new TypeError("A relay that everybody reaches needs a password");
    const listener = createListener({ allowHalfOpen: true }, (socket) => void this.#server.emit("connection", socket));
    this.#ownListener = { close: () => void listener.close() };
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    listener.once("error", reject);
    listener.listen(0, "127.0.0.1", () => {
      listener.off("error", reject);
      listener.on("error", (error) => this.#noteListenError(error));
      resolve();
    });
    await promise;
    // A listener at a port has such an address
    return (listener.address() as AddressInfo).port;
  }

  /** Tells whether anybody has connected yet. */
  wasReached(): boolean {
    return this.#wasReached;
  }

  /** Returns what the relay has not done, one problem for each host and port, at most MAX_PROBLEMS. */
  problems(): readonly RelayProblem[] {
    return [...this.#problems.values()];
  }

  /** Ends every connection, also where bytes still wait to go out. New ones are taken */
  cut(): void {
    for (const socket of [...this.#connections.keys(), ...this.#upstreams]) socket.destroy();
  }

  /** Ends every connection and stops listening. Repeating it does nothing */
  async close(): Promise<void> {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort(new CancelError("shutdown"));
    this.cut();
    if (this.#ownListener !== undefined) return this.#ownListener.close();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }

  #admit(socket: Duplex): void {
    this.#wasReached = true;
    if (this.#closing.signal.aborted) return void socket.destroy();
    const { connections, headMs } = this.#limits;
    if (this.#connections.size >= connections) {
      return answerRaw(socket, { status: 503, text: `The relay takes ${connections} connections at a time` });
    }
    const timer = this.#options.clock.after(headMs, () => socket.destroy());
    this.#connections.set(socket, timer);
    socket.once("close", () => {
      timer.clear();
      this.#connections.delete(socket);
    });
  }

  async #forward(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { socket: client, method = "", url: target = "" } = request;
    const refuse = (answer: Answer) => answerResponse(response, answer);
    response.on("error", () => {});
    if (!this.#startRequest(client, request)) return;
    if (!this.#isKnown(request)) return refuse(WRONG_PASSWORD);
    if (!/^http:\/\//i.test(target)) return refuse(NOT_TAKEN);
    const coding = request.headers["transfer-encoding"];
    if (coding !== undefined && coding.toLowerCase() !== "chunked") {
      return refuse({ status: 501, text: "The relay knows no transfer coding but chunked" });
    }
    const reached = await this.#reach(target, client);
    if ("status" in reached) return refuse(reached);
    const { upstream, url } = reached;
    forwardRequest(
      { request, response, upstream, url, method },
      { ...this.#pump(), onFailure: (error) => refuse(this.#problemOf(error, url)) },
    );
  }

  async #tunnel(request: IncomingMessage, client: Duplex, head: Uint8Array): Promise<void> {
    client.on("error", () => {});
    if (!this.#startRequest(client, request)) return void client.destroy();
    if (!this.#isKnown(request)) return answerRaw(client, WRONG_PASSWORD);
    const target = tunnelTarget(request.url ?? "");
    if (target === undefined) return answerRaw(client, NOT_TAKEN);
    const reached = await this.#reach(target, client);
    if ("status" in reached) return answerRaw(client, reached);
    const { upstream } = reached;
    client.write("HTTP/1.1 200 Connection established\r\n\r\n");
    if (head.length > 0) upstream.write(head);
    joinSockets(client, upstream, this.#pump());
  }

  /** Notes that the head of a request has come. @returns false for a connection that was not let in, or has had its request */
  #startRequest(client: Duplex, { rawHeaders, url = "" }: IncomingMessage): boolean {
    const timer = this.#connections.get(client);
    if (timer === undefined) return false;
    timer.clear();
    this.#connections.set(client, undefined);
    this.#count(url.length + rawHeaders.reduce((sum, text) => sum + text.length, 0));
    return true;
  }

  #isKnown({ headers }: IncomingMessage): boolean {
    const { password } = this.#options;
    if (password === undefined) return true;
    const wanted = `Basic ${Buffer.from(`${RELAY_USER}:${password}`).toString("base64")}`;
    return timingSafeEqual(digestOf(headers["proxy-authorization"] ?? ""), digestOf(wanted));
  }

  /** Opens a connection to what a request names, or says why there is none. @param client aborts the attempt when it closes */
  async #reach(target: string, client: Duplex): Promise<{ readonly upstream: Socket; readonly url: URL } | Answer> {
    const gone = new AbortController();
    const leave = () => gone.abort(new CancelError("client_gone"));
    client.once("close", leave);
    const timeout = this.#options.clock.timeoutSignal(this.#limits.connectMs);
    const signal = AbortSignal.any([timeout.signal, gone.signal, this.#closing.signal]);
    try {
      const { url, addresses, proxy } = await this.#check(target, signal);
      const upstream = await connectPinned({ url, addresses, proxy, signal });
      upstream.on("error", () => {});
      this.#upstreams.add(upstream);
      upstream.once("close", () => this.#upstreams.delete(upstream));
      if (!client.destroyed) return { upstream, url };
      upstream.destroy();
      return { status: 499, text: "The client is gone" };
    } catch (error) {
      return this.#problemOf(
        timeout.signal.aborted ? new PinError(`no connection within ${this.#limits.connectMs / 1000} s`) : error,
        URL.parse(target),
      );
    } finally {
      timeout.clear();
      client.off("close", leave);
    }
  }

  /** Returns the checked addresses of a request, and the way to them. @throws {ToolError} as UrlPolicy, and `relay_full` @throws {PinError} */
  async #check(target: string, signal: AbortSignal): Promise<AllowedUrl & { readonly proxy: string | undefined }> {
    const { policy, requiresList = true, hosts, isOn } = this.#options;
    if (isOn?.() === false) {
      const host = URL.parse(target)?.host.slice(0, 100) ?? "the address";
      const why = '[security.shell] network is "none" by now; set it to "allowlist" to allow it';
      throw new ToolError("url_not_allowed", `Cannot reach "${host}": ${why}`);
    }
    const asked = this.#options.rules();
    const rules: UrlRules = requiresList ? { ...asked, enforce_domain_allowlist: true } : asked;
    if (this.#bytes > this.#limits.bytes) {
      throw new ToolError(
        "relay_full",
        `Cannot reach anything more: the relay has moved ${this.#limits.bytes} bytes for this call`,
      );
    }
    const url = URL.parse(target);
    // A look-up would already tell the name to servers of whoever owns it
    if (url !== null && (requiresList || (hosts !== undefined && rules.enforce_domain_allowlist))) {
      requireListed(url, { entries: rules.domain_allowlist, key: "[url_access] domain_allowlist" });
    }
    if (url !== null && hosts !== undefined) requireListed(url, hosts);
    const way = url === null ? undefined : chooseProxy(this.#options.proxy?.(), url);
    // Without a method, so that the gateway's public paths are refused as well
    const checked = await policy.check(target, rules, { signal, isByProxy: way?.resolve === "proxy" });
    if (way?.problem !== undefined) throw new PinError(way.problem);
    return { ...checked, proxy: way?.proxy };
  }

  #pump(): PumpOptions {
    const { clock, isOn } = this.#options;
    const onBytes = (bytes: number) => isOn?.() === false ? this.cut() : this.#count(bytes);
    return { clock, idleMs: this.#limits.idleMs, onBytes };
  }

  #count(bytes: number): void {
    const wasFull = this.#bytes > this.#limits.bytes;
    this.#bytes += bytes;
    if (wasFull || this.#bytes <= this.#limits.bytes) return;
    this.#note({
      host: "",
      reason: `The relay ended every connection: it has moved ${this.#limits.bytes} bytes, as many as one call may`,
    });
    this.cut();
  }

  /** Notes why a request failed, and returns the answer to it. */
  #problemOf(error: unknown, url: URL | null): Answer {
    if (error instanceof CancelError) return { status: 502, text: "The relay was closed" };
    const host = (url?.host ?? "the address").slice(0, 100);
    if (error instanceof ToolError) {
      this.#note({ host, reason: error.message });
      return { status: STATUS_OF[error.code] ?? 403, text: error.message };
    }
    const why = error instanceof PinError ? error.message : describeNetworkError(error);
    const reason = `Cannot reach "${host}": ${why}`;
    this.#note({ host, reason });
    return { status: 502, text: reason };
  }

  /** Notes that no connection could be taken, as when the gateway has no free descriptors. */
  #noteListenError(error: unknown): void {
    const why = error instanceof Error ? error.message : String(error);
    this.#note({ host: "", reason: `Cannot reach anything for now: the relay could take no connection (${why})` });
  }

  #note(problem: RelayProblem): void {
    if (this.#problems.has(problem.host) || this.#problems.size >= MAX_PROBLEMS) return;
    this.#problems.set(problem.host, problem);
    this.#options.onProblem?.(problem);
  }
}

function digestOf(text: string): Uint8Array {
  return createHash("sha256").update(text).digest();
}

/** Statuses of refusals other than 403. */
const STATUS_OF: Readonly<Record<string, number>> = { url_invalid: 400, url_unresolved: 502 };

/** Returns the URL that `CONNECT host:port` stands for. Undefined for any other text. */
function tunnelTarget(authority: string): string | undefined {
  const port = /^(?:\[[0-9A-Fa-f:.]{2,64}\]|[A-Za-z0-9._-]{1,253}):(\d{1,5})$/.exec(authority)?.[1];
  if (port === undefined) return undefined;
  return `${port === "80" ? "http" : "https"}://${authority}`;
}

/** @throws {ToolError} `url_not_allowed` for a host or port that the allowlist does not open */
function requireListed(url: URL, { entries, key }: AllowedHosts): void {
  const { port } = hostAndPort(url);
  if (namesPort(entries, url)) return;
  const isUsual = USUAL_PORTS.includes(port);
  if (isUsual && allows(entries, url)) return;
  const wanted = isUsual ? url.hostname : `${url.hostname}:${port}`;
  const why = !isUsual && allows(entries, url) ? "an entry without a port opens 80 and 443 alone; " : "";
  throw new ToolError(
    "url_not_allowed",
    `Cannot reach "${url.host.slice(0, 100)}": ${why}add "${wanted.slice(0, 100)}" to ${key} to allow it`,
  );
}
