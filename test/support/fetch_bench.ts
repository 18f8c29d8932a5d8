import assert from "node:assert/strict";
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createServer, type IncomingMessage, type RequestListener } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { after } from "node:test";
import { getCACertificates, setDefaultCACertificates } from "node:tls";
import { type Clock, systemClock } from "../../lib/base/clock.ts";
import { ToolError } from "../../lib/base/errors.ts";
import type { OwnGateway } from "../../lib/system/net/address.ts";
import { createGuardedFetch, type GuardedRequest, type UrlGuard } from "../../lib/system/net/guarded_fetch.ts";
import type { ProxySettings } from "../../lib/system/net/proxy_choice.ts";
import { createUrlPolicy } from "../../lib/system/net/url_policy.ts";
import type { UrlRules } from "../../lib/system/net/url_rules.ts";
import { withTemporaryFolder } from "./temporary_folder.ts";

/** `[url_access]` as it is by default. */
export const STRICT: UrlRules = {
  block_private_ip: true,
  allow_loopback: false,
  public_ranges: [],
  enforce_domain_allowlist: false,
  domain_allowlist: [],
  domain_blocklist: [],
};
/** Rules that allow the servers of a test. */
export const LOCAL: UrlRules = { ...STRICT, allow_loopback: true };

/** Server of a test with the requests that it got. */
export interface Site {
  readonly port: number;
  readonly origin: string;
  readonly seen: {
    readonly method: string;
    readonly path: string;
    readonly headers: IncomingMessage["headers"];
    body: string;
  }[];
}

/** Place and kind of a server. Default: plain HTTP on a free port of 127.0.0.1 */
export interface SitePlace {
  readonly host?: string;
  readonly port?: number;
  readonly tls?: KeyPair;
}

/** In PEM. */
export interface KeyPair {
  readonly key: string;
  readonly cert: string;
}

/** Reason to skip a test that needs a certificate; false where none is. */
export const skipTls = spawnSync("openssl", ["version"]).error === undefined ? false : "openssl makes the certificate";

/** Runs `use` with a certificate for `secure.test`, which this process accepts meanwhile. */
export function withCertificate(use: (pair: KeyPair) => Promise<void>): Promise<void> {
  return withTemporaryFolder(async (folder) => {
    const [key, cert] = [join(folder, "key"), join(folder, "cert")];
    const subject = ["-subj", "/CN=secure.test", "-addext", "subjectAltName=DNS:secure.test"];
    const keyType = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    const args = ["req", "-x509", ...keyType, "-days", "2", ...subject, "-keyout", key, "-out", cert];
    execFileSync("openssl", args, { stdio: "ignore" });
    const pair = { key: readFileSync(key, "utf8"), cert: readFileSync(cert, "utf8") };
    const before = getCACertificates();
    setDefaultCACertificates([...before, pair.cert]);
    try {
      await use(pair);
    } finally {
      setDefaultCACertificates(before);
    }
  });
}

/** Parts of a guarded fetch that a test chooses. */
export interface FetchSetUp {
  readonly proxy?: ProxySettings;
  /** Addresses of each name, one list for each look-up; the last one is repeated */
  readonly names?: Readonly<Record<string, readonly (readonly string[])[]>>;
  readonly own?: OwnGateway;
  /** Default: the system's */
  readonly clock?: Clock;
}

/** Changes of a request that a test makes: a part of its guard leaves the rest as it is. */
export type FetchChanges = Partial<Omit<GuardedRequest, "guard">> & { readonly guard?: Partial<UrlGuard> };

/** Creates a guarded fetch with names of its own, and short forms of its use. */
export function fetchSetUp({ names = {}, own, proxy, clock = systemClock }: FetchSetUp = {}) {
  const lookups: string[] = [];
  const policy = createUrlPolicy({
    own: () => own,
    lookup(host) {
      const turn = lookups.filter((name) => name === host).length;
      lookups.push(host);
      const lists = names[host] ?? [];
      return Promise.resolve(lists[Math.min(turn, lists.length - 1)] ?? []);
    },
  });
  const guarded = createGuardedFetch({
    policy,
    clock,
    userAgent: "postern/test",
    proxy: proxy && (() => proxy),
  });
  const get = (url: string, { guard, ...changes }: FetchChanges = {}) =>
    guarded({
      method: "GET",
      url,
      guard: { rules: LOCAL, ...guard },
      maxBytes: 100_000,
      timeoutMs: 30_000,
      signal: new AbortController().signal,
      ...changes,
    });
  /** Returns the error that a request ends with. */
  const failure = async (url: string, changes: FetchChanges = {}): Promise<ToolError> => {
    const error = await get(url, changes).then(() => undefined, (thrown) => thrown);
    assert.ok(error instanceof ToolError, String(error));
    assert.match(error.message, /^Cannot .*[^.]$/);
    return error;
  };
  const refusal = async (url: string, changes: FetchChanges = {}) => (await failure(url, changes)).code;
  return { guarded, get, failure, refusal, lookups };
}

/** Starts servers for the tests of a file and stops them after its last test. Called once, at the top of the file. */
export function fetchSites() {
  const servers: Server[] = [];
  const sockets = new Set<Socket>();
  after(() => {
    for (const server of servers) server.close();
    for (const socket of sockets) socket.destroy();
  });
  /** Listens, and returns the port. */
  const open = async (server: Server, { host = "127.0.0.1", port = 0 }: SitePlace = {}): Promise<number> => {
    servers.push(server);
    server.on("connection", (socket) => {
      sockets.add(socket);
      socket.on("close", () => sockets.delete(socket));
      socket.on("error", () => {});
    });
    await new Promise<void>((resolve) => server.listen(port, host, resolve));
    return (server.address() as AddressInfo).port; // it listens on a port
  };
  return {
    open,
    /** Starts a server that answers by a listener, on a loopback address. */
    async site(listener: RequestListener, place: SitePlace = {}): Promise<Site> {
      const seen: Site["seen"] = [];
      const answer: RequestListener = (request, response) => {
        const entry = { method: request.method ?? "", path: request.url ?? "", headers: request.headers, body: "" };
        seen.push(entry);
        request.on("data", (part) => (entry.body += part));
        request.on("end", () => listener(request, response));
      };
      const server = place.tls === undefined ? createServer(answer) : createTlsServer(place.tls, answer);
      const port = await open(server, place);
      return { port, origin: `http://${place.host ?? "127.0.0.1"}:${port}`, seen };
    },
    /** Starts a server that is given each connection once the head of its request is there. */
    async rawSite(
      answer: (socket: Socket, head: string) => void,
    ): Promise<{ readonly port: number; readonly origin: string }> {
      const port = await open(createTcpServer((socket) => {
        let head = "";
        const read = (part: Uint8Array) => {
          head += Buffer.from(part).toString("latin1");
          if (!head.includes("\r\n\r\n")) return;
          socket.off("data", read);
          socket.resume();
          answer(socket, head);
        };
        socket.on("data", read);
      }));
      return { port, origin: `http://127.0.0.1:${port}` };
    },
  };
}

/** Returns a body as text. */
export const textOf = (body: Uint8Array) => Buffer.from(body).toString();
