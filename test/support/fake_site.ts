import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/** A request that a fake site got. */
export interface SeenRequest {
  readonly method: string;
  /** Path with its query */
  readonly path: string;
  readonly headers: IncomingMessage["headers"];
  readonly body: string;
}

/** Reply of a fake site. A function writes the reply by itself. */
export type SiteReply =
  | {
    readonly status?: number;
    readonly headers?: Readonly<Record<string, string>>;
    readonly body?: string | Uint8Array;
  }
  | ((response: ServerResponse) => void);

/** A server on 127.0.0.1 that notes each request. */
export interface FakeSite {
  /** As `http://127.0.0.1:40123` */
  readonly origin: string;
  readonly seen: readonly SeenRequest[];
}

/** Runs `use` with a server that answers each request by `answer`. The server is stopped afterwards, and open connections with it. */
export async function withSite(
  answer: (request: SeenRequest, count: number) => SiteReply,
  use: (site: FakeSite) => Promise<void>,
): Promise<void> {
  const seen: SeenRequest[] = [];
  const server = createServer((request, response) => {
    let body = "";
    request.on("data", (part) => (body += part));
    request.on("end", () => {
      const noted = { method: request.method ?? "", path: request.url ?? "", headers: request.headers, body };
      seen.push(noted);
      const reply = answer(noted, seen.length);
      if (typeof reply === "function") return reply(response);
      response.writeHead(reply.status ?? 200, reply.headers);
      response.end(reply.body ?? "");
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo; // it listens on a port
  try {
    await use({ origin: `http://127.0.0.1:${port}`, seen });
  } finally {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  }
}
