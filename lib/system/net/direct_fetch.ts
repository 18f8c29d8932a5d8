import type { Agent } from "undici";
import { lazily } from "../../base/lazily.ts";

/** A fetch that goes to the address it is given, by no proxy and after no redirect, over kept-alive connections. */
export interface DirectFetch {
  /** Sends a request. Rejects when nobody answers. */
  readonly fetch: (request: Request) => Promise<Response>;
  /** Ends all connections, also those in use. */
  close(): Promise<void>;
}

const CONNECT_TIMEOUT_MS = 5_000;

/** Creates a direct fetch; nothing is opened or loaded before the first request. Who waits for an answer bounds the wait. */
export function createDirectFetch(): DirectFetch {
  let agent: Agent | undefined;
  const loaded = lazily(() => import("undici"));
  return {
    async fetch(request) {
      const { Agent, fetch } = await loaded();
      agent ??= new Agent({ headersTimeout: 0, bodyTimeout: 0, connect: { timeout: CONNECT_TIMEOUT_MS } });
      const { method, signal, url } = request;
      const body = request.body === null ? null : await request.text();
      const headers = Object.fromEntries(request.headers);
      // The types of undici's own Response and of the runtime's differ in name alone
      return await fetch(url, {
        method,
        headers,
        body,
        signal,
        redirect: "manual",
        dispatcher: agent,
      }) as unknown as Response;
    },
    async close() {
      await agent?.destroy();
    },
  };
}
