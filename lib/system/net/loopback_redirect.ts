import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** Listener on 127.0.0.1 for the one redirect that ends a sign-in. */
export interface LoopbackRedirect {
  /** Address that the browser is led back to, such as `http://127.0.0.1:4711/callback` */
  readonly uri: string;
  /** Resolves with the query of the redirect that has this state. Everything else is refused, and ends nothing. */
  answer(state: string): Promise<URLSearchParams>;
  /** Closes the port. Repeating it does nothing */
  close(): Promise<void>;
}

const PATH = "/callback";
const MAX_URL = 16_384;
const HEADERS = {
  "content-type": "text/html; charset=utf-8",
  "cache-control": "no-store",
  "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
  connection: "close",
};

/**
 * Opens a port of 127.0.0.1 for one sign-in (RFC 8252 section 7.3). It takes GET on its own path, for its own name alone, so that a page
 * of another name cannot reach it, and only the first answer with the right state counts.
 * @param port 0: a free one @throws the system's error for a port that is in use
 */
export async function openLoopbackRedirect(port = 0): Promise<LoopbackRedirect> {
  const found = Promise.withResolvers<URLSearchParams>();
  let wanted: string | undefined;
  let own = "";
  const server = createServer({ maxHeaderSize: 32_768, requestTimeout: 10_000 }, (request, response) => {
    const query = queryOf(request, own);
    if (query === undefined) return reply(response, 404, "There is nothing here.");
    if (wanted === undefined || query.get("state") !== wanted || query.getAll("state").length !== 1) {
      return reply(response, 400, "This answer belongs to no sign-in that waits here.");
    }
    // An answer counts once
    wanted = undefined;
    const text = query.has("error") ? "The sign-in was refused." : "The answer has arrived.";
    reply(response, 200, `${text} You can close this window; the terminal says how it ended.`);
    found.resolve(query);
  });
  await listen(server, port);
  // A server that listens on a port has such an address
  own = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  let closing: Promise<void> | undefined;
  return {
    uri: `http://${own}${PATH}`,
    answer(state) {
      wanted = state;
      return found.promise;
    },
    close: () => closing ??= close(server),
  };
}

/** @returns undefined for a request that is not the redirect's */
function queryOf({ method, url = "", headers }: IncomingMessage, own: string): URLSearchParams | undefined {
  if (method !== "GET" || headers.host !== own || url.length > MAX_URL) return undefined;
  const parsed = URL.parse(url, `http://${own}`);
  return parsed?.pathname === PATH && parsed.host === own ? parsed.searchParams : undefined;
}

function reply(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, HEADERS).end(
    `<!doctype html><meta charset="utf-8"><title>Postern</title><p>${text}</p>\n`,
  );
}

function listen(server: Server, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", resolve);
  });
}

function close(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeIdleConnections();
  });
}
