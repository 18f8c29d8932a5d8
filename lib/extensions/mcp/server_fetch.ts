import type { FetchLike } from "@modelcontextprotocol/client";
import { ToolError } from "../../base/errors.ts";
import type { Config } from "../../config/config.ts";
import type { GuardedFetch, GuardedMethod, GuardedRequest } from "../../system/net/guarded_fetch.ts";
import type { BodySink } from "../../system/net/reply_body.ts";
import type { ToolSecrets } from "../../tools/secrets/tool_secrets.ts";
import { McpError } from "./mcp_error.ts";
import type { McpServerSettings } from "./start_program.ts";

/** Services that requests to a server by `url` need. */
export interface FetchServices {
  /** Returns the guarded fetch, which is loaded at the first call. */
  readonly guardedFetch: () => Promise<GuardedFetch>;
  /** Returns the newest configuration. */
  readonly config: () => Config;
  /** Fills secrets into `headers`. */
  readonly secrets: Pick<ToolSecrets, "fill">;
}

/** Beginning of a reply. */
type ReplyHead = Parameters<NonNullable<GuardedRequest["sink"]>>[0];

/** Bytes of one message. */
const MAX_MESSAGE_BYTES = 10 * 1_048_576;
/** Bytes of one stream of messages. Servers open another one then. */
const MAX_STREAM_BYTES = 256 * 1_048_576;
/** Milliseconds of one exchange: streams wait for what happens. Requests have their own limits. */
const EXCHANGE_MS = 86_400_000;
/** Exchanges with one server at the same time. */
const MAX_AT_ONCE = 64;
const METHODS: readonly string[] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"];
/** Errors of the network after which nothing can have reached the server. */
const UNSENT = /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|EADDRNOTAVAIL|ETIMEDOUT)$/;

/**
 * Makes the fetch of one server, over guarded fetch. The operator named the address, so it may be private. Every other address, as one
 * that a sign-in leads to, obeys `[url_access]`. `headers` go to the server's own origin alone. No redirect is followed: the reply says
 * where it leads.
 */
export function createServerFetch(
  { name, settings }: { readonly name: string; readonly settings: Pick<McpServerSettings, "url" | "headers"> },
  services: FetchServices,
): FetchLike {
  const home = new URL(settings.url).origin;
  let open = 0;
  return async (input, init = {}) => {
    const url = new URL(input);
    const method = init.method ?? "GET";
    if (!isGuarded(method)) throw new TypeError(`MCP needs no method "${method}"`);
    if (open >= MAX_AT_ONCE) throw unsent(name, `${MAX_AT_ONCE} requests to it are open already`);
    const signal = init.signal ?? new AbortController().signal;
    const isHome = url.origin === home;
    const given = Object.fromEntries(new Headers(init.headers ?? undefined));
    const child = { kind: "mcp", name } as const;
    const own = isHome ? lowerCase(await services.secrets.fill(settings.headers, { child, url, signal })) : {};
    const guardedFetch = await services.guardedFetch();
    const reply = Promise.withResolvers<Response>();
    open++;
    guardedFetch({
      method,
      url: url.href,
      headers: () => ({ ...own, ...given }),
      body: bodyOf(init.body),
      guard: { rules: services.config().url_access, fromConfig: isHome },
      redirects: "give_back",
      maxBytes: MAX_STREAM_BYTES,
      timeoutMs: EXCHANGE_MS,
      signal,
      sink: (head) => Promise.resolve(openResponse(head, { server: name, give: reply.resolve })),
    }).then(
      // A reply whose body went elsewhere is resolved already
      ({ status, headers }) => reply.resolve(responseOf({ status, headers }, null)),
      (error: unknown) => reply.reject(failureOf(name, error)),
    ).finally(() => open--);
    return await reply.promise;
  };
}

function isGuarded(method: string): method is GuardedMethod {
  return METHODS.includes(method);
}

function lowerCase(headers: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(headers).map(([key, value]) => [key.toLowerCase(), value]));
}

function bodyOf(body: unknown): string | undefined {
  if (body === undefined || body === null) return undefined;
  if (typeof body === "string") return body;
  if (body instanceof URLSearchParams) return body.toString();
  throw new TypeError("A request of MCP has a text as its body");
}

/** Gives the response to whoever waits for it, and returns the place that its body comes from. */
function openResponse(
  head: ReplyHead,
  { server, give }: { readonly server: string; readonly give: (response: Response) => void },
): BodySink {
  const controller = Promise.withResolvers<ReadableStreamDefaultController<Uint8Array>>();
  let wanted = Promise.withResolvers<void>();
  let isCancelled = false;
  const body = new ReadableStream<Uint8Array>({
    start: (opened) => controller.resolve(opened),
    pull: () => wanted.resolve(),
    cancel() {
      isCancelled = true;
      wanted.resolve();
    },
  });
  const bound = new MessageBound(isStream(head));
  give(responseOf(head, body));
  return {
    async write(bytes) {
      await wanted.promise;
      if (isCancelled) throw new Error("Nobody reads the reply any more");
      wanted = Promise.withResolvers();
      bound.take(bytes);
      (await controller.promise).enqueue(bytes.slice());
    },
    async close(outcome) {
      const opened = await controller.promise;
      if (isCancelled) return;
      if (outcome === "whole") opened.close();
      else if (bound.isOver) opened.error(new McpError("mcp_invalid", `${cannotUse(server)}: ${TOO_LONG}`, { server }));
      else opened.error(new McpError("mcp_lost", `${cannotUse(server)}: its reply broke off`, { server }));
    },
  };
}

const TOO_LONG = `it sent a message of more than ${MAX_MESSAGE_BYTES} bytes`;

function cannotUse(server: string): string {
  return `Cannot use the MCP server "${server}"`;
}

/** Bound of one message: the whole body, or what stands between two empty lines of a stream. */
class MessageBound {
  readonly #isStream: boolean;
  #bytes = 0;

  constructor(isStream: boolean) {
    this.#isStream = isStream;
  }

  get isOver(): boolean {
    return this.#bytes > MAX_MESSAGE_BYTES;
  }

  take(bytes: Uint8Array): void {
    const end = this.#isStream ? lastEnd(bytes) : -1;
    this.#bytes = end === -1 ? this.#bytes + bytes.length : bytes.length - end;
    if (this.isOver) throw new Error(TOO_LONG);
  }
}

/** Returns the place after the last empty line. */
function lastEnd(bytes: Uint8Array): number {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Math.max(...["\n\n", "\r\n\r\n", "\r\r"].map((end) => text.lastIndexOf(end)));
}

function isStream({ headers }: ReplyHead): boolean {
  return (headers["content-type"] ?? "").toLowerCase().startsWith("text/event-stream");
}

/** Headers of a body on its way, which is no longer as they say. */
const OF_THE_WAY = ["content-encoding", "content-length", "transfer-encoding", "set-cookie"];

function responseOf({ status, headers }: ReplyHead, body: ReadableStream<Uint8Array> | null): Response {
  const hasBody = status >= 200 && status !== 204 && status !== 205 && status !== 304;
  const kept = Object.entries(headers).filter(([key]) => !OF_THE_WAY.includes(key));
  // A status that no response may have is one that no client understands
  const shown = status >= 200 && status <= 599 ? status : 502;
  return new Response(hasBody ? body : null, { status: shown, headers: Object.fromEntries(kept) });
}

function failureOf(server: string, error: unknown): unknown {
  if (!(error instanceof ToolError)) return error;
  const written = error.code.startsWith("fetch_") && !codesOf(error.cause).every((code) => UNSENT.test(code));
  const message = `Cannot reach the MCP server "${server}": ${error.message}`;
  return new McpError(written ? "mcp_lost" : "mcp_unavailable", message, {
    server,
    cause: error,
    written,
    isStale: true,
  });
}

/** Returns the codes of a network error; one that no rule knows where it has none. */
function codesOf(error: unknown): readonly string[] {
  if (error instanceof AggregateError) return error.errors.flatMap(codesOf);
  return [error instanceof Error && "code" in error ? String(error.code) : "unknown"];
}

function unsent(server: string, reason: string): McpError {
  const message = `Cannot ask the MCP server "${server}": ${reason}`;
  return new McpError("mcp_unavailable", message, { server, written: false });
}
