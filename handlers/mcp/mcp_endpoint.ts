import type { McpHttpHandler, McpRequestContext } from "@modelcontextprotocol/server";
import * as v from "valibot";
import type { Identity } from "../../lib/access/identity.ts";
import { withTimeout } from "../../lib/base/clock.ts";
import { refuse } from "../../lib/base/errors.ts";
import type { Services } from "../../lib/services.ts";
import { checkCertainty, checkScope, refuseWhileDraining } from "../door.ts";
import type { CallParts } from "./call_tool.ts";
import { abilitiesOf, missingCapabilities } from "./call_state.ts";
import { createMcpServer, type McpServerParts } from "./create_mcp_server.ts";
import { HeldRequests } from "./held_requests.ts";
import type { McpSdk } from "./mcp_errors.ts";
import { doorOf, methodOf } from "./mcp_methods.ts";
import { McpNotices } from "./mcp_notices.ts";
import { type McpDoor, type McpRequest, requestOf, toAuthInfo } from "./mcp_request.ts";
import { type McpSession, McpSessions } from "./mcp_sessions.ts";
import { type McpStream, McpStreams } from "./mcp_streams.ts";
import { refuseTaskStream } from "./offer_tasks.ts";
import { FoundTools } from "./offered_tools.ts";
import { RunTasks } from "./run_tasks.ts";

/** Loads the SDK. @throws {HttpError} 501 not_implemented where it is not installed */
async function loadSdk(): Promise<McpSdk> {
  try {
    return await import("@modelcontextprotocol/server");
  } catch (cause) {
    const reason = 'the optional package "@modelcontextprotocol/server" is not installed';
    throw refuse("not_implemented", `Cannot serve MCP: ${reason}; run "npm install @modelcontextprotocol/server"`, {
      cause,
    });
  }
}

/** Interval of comment lines that keep a silent stream open, in milliseconds. */
const KEEP_ALIVE_MS = 15_000;
/** Milliseconds at the end of a shutdown for replies to calls that have just ended. */
const REPLY_MS = 1_000;

/**
 * The MCP server of one gateway, behind `/mcp`, in both eras of the protocol by the SDK's own handlers: requests of 2026-07-28 stand alone,
 * those of 2025-11-25 and before belong to a session.
 * Source: docs/design/mcp.md "Server"
 */
export class McpEndpoint implements McpDoor {
  readonly #sdk: McpSdk;
  readonly #services: Services;
  readonly #streams: McpStreams;
  readonly #sessions: McpSessions;
  readonly #notices: McpNotices;
  readonly #held: HeldRequests;
  readonly #parts: McpServerParts;
  /** Handler of requests without a session */
  readonly #standalone: McpHttpHandler;
  /** Handler of calls without a session: their replies begin at once, so that the time of a request does not end a call */
  readonly #calls: McpHttpHandler;
  /** Requests whose replies are not whole */
  #atWork = 0;
  /** Resolves when none is left. Undefined before the end of a shutdown */
  #idle: PromiseWithResolvers<void> | undefined;

  /** Opens the endpoint at its first request. @throws {HttpError} 501 not_implemented without the SDK */
  static async open(services: Services): Promise<McpEndpoint> {
    return new McpEndpoint(await loadSdk(), services);
  }

  private constructor(sdk: McpSdk, services: Services) {
    this.#sdk = sdk;
    this.#services = services;
    this.#streams = new McpStreams(services);
    this.#sessions = new McpSessions(services);
    const states = createStates(sdk, services);
    this.#held = new HeldRequests({ ...services, sdk, states });
    const factory = ({ authInfo }: McpRequestContext) =>
      createMcpServer(
        this.#parts,
        requestOf({ http: { ...authInfo === undefined ? {} : { authInfo } } }).identity.scopes,
      );
    const handlerOptions = {
      legacy: "reject",
      keepAliveMs: KEEP_ALIVE_MS,
      onerror: (error: Error) => services.log.debug("A request of MCP was refused", { error }),
    } as const;
    this.#standalone = sdk.createMcpHandler(factory, handlerOptions);
    const { notify } = this.#standalone;
    const found = new FoundTools();
    this.#notices = new McpNotices({ sdk, services, sessions: this.#sessions, notify, found });
    this.#parts = {
      ...{ sdk, services, states, found, held: this.#held, watch: this.#notices.resources },
      tasks: new RunTasks({ sdk, services }),
    };
    this.#calls = sdk.createMcpHandler(factory, { ...handlerOptions, responseMode: "sse" });
    services.tokens.onRevoke((tokenId) => {
      this.#streams.closeToken(tokenId);
      this.#sessions.endToken(tokenId);
      this.#held.endToken(tokenId);
      found.forget(tokenId);
    });
    services.metrics.gaugeOf(
      "postern_mcp_sessions",
      "Open sessions of MCP clients",
      () => this.#sessions.list().length,
    );
    services.metrics.gaugeOf(
      "postern_mcp_held_requests",
      "Requests of MCP clients that wait for an answer of their client",
      () => this.#held.count(),
    );
  }

  async answer(asked: McpRequest): Promise<Response> {
    this.#checkOpen();
    this.#checkDoor(asked);
    this.#streams.checkRoom(asked.identity.tokenId);
    const isOld = asked.http.method !== "POST" ||
      await this.#sdk.isLegacyRequest(this.#toRequest(asked), asked.body);
    this.#checkOpen();
    return isOld ? await this.#answerInSession(asked) : await this.#answerAlone(asked);
  }

  resourceChanged(uri: string): void {
    this.#notices.resources.changed(uri);
  }

  closeIdle(): void {
    this.#notices.stop();
    this.#streams.closeStanding();
    this.#sessions.endIdle();
    this.#held.endWaiting();
  }

  async closeAll(): Promise<void> {
    if (this.#atWork > 0) {
      this.#idle ??= Promise.withResolvers();
      await withTimeout(this.#idle.promise, { ms: REPLY_MS, clock: this.#services.clock });
    }
    this.#sessions.endAll();
    await Promise.allSettled([this.#standalone.close(), this.#calls.close()]);
  }

  /** Refuses a request once a shutdown has begun, which may happen in each of its waits. @throws {HttpError} 503 shutting_down */
  #checkOpen(): void {
    refuseWhileDraining(this.#services, "serve MCP");
  }

  /** @throws {HttpError} 400 invalid_request, 403 insufficient_scope */
  #checkDoor({ body, identity }: McpRequest): void {
    if (Array.isArray(body)) {
      throw refuse("invalid_request", "Cannot take a batch of messages: send each message in a request of its own");
    }
    const method = methodOf(body);
    const door = method === undefined ? undefined : doorOf(method);
    if (door === undefined) return;
    checkScope(door, identity, `use the method "${method}"`);
    checkCertainty(door, identity, this.#services);
  }

  /** Answers a request of a revision without sessions. */
  async #answerAlone(asked: McpRequest): Promise<Response> {
    const method = methodOf(asked.body);
    const isStanding = method === "subscriptions/listen";
    const refusal = isStanding ? refuseTaskStream(this.#sdk, asked.body) : undefined;
    if (refusal !== undefined) return refusal;
    // A client that cannot answer a tool's questions gets a status of HTTP, so its reply does not begin at once
    const isCall = method === "tools/call" && !this.#lacksCapability(asked.body);
    const handler = isCall ? this.#calls : this.#standalone;
    const leaving = new AbortController();
    const leave = () => leaving.abort();
    asked.signal.addEventListener("abort", leave, { once: true });
    const { identity } = asked;
    const body = isStanding ? this.#notices.permitted(asked.body, identity) : asked.body;
    const unlisten = isStanding ? this.#notices.listenTo(body, identity) : undefined;
    this.#atWork++;
    const onOver = () => {
      asked.signal.removeEventListener("abort", leave);
      unlisten?.();
      this.#replied();
    };
    try {
      const reply = await handler.fetch(this.#toRequest(asked, leaving.signal), {
        authInfo: toAuthInfo(asked),
        parsedBody: body,
      });
      return this.#guard(reply, { tokenId: identity.tokenId, isStanding, onGone: leave, onOver });
    } catch (error) {
      onOver();
      throw error;
    }
  }

  /** Tells whether a call is of a tool that asks what its client does not answer. */
  #lacksCapability(body: unknown): boolean {
    const { success, output } = v.safeParse(CALL, body);
    if (!success) return false;
    const { name, _meta: { [CAPABILITIES]: capabilities } } = output.params;
    const needs = this.#services.tools.get(name)?.client_needs;
    return needs !== undefined && missingCapabilities(needs, abilitiesOf(capabilities)) !== undefined;
  }

  async #answerInSession(asked: McpRequest): Promise<Response> {
    const session = await this.#sessionOf(asked);
    this.#checkOpen();
    const isStanding = asked.http.method === "GET";
    const cancel = () => cancelRequest(session, asked.body);
    asked.signal.addEventListener("abort", cancel, { once: true });
    session.openStreams++;
    this.#atWork++;
    const onOver = () => {
      session.openStreams--;
      session.usedAt = this.#services.clock.monotonic();
      asked.signal.removeEventListener("abort", cancel);
      unlisten?.();
      this.#replied();
    };
    const unlisten = isStanding ? this.#notices.listen(asked.identity) : undefined;
    try {
      const reply = await session.transport.handleRequest(this.#toRequest(asked), {
        authInfo: toAuthInfo(asked),
        ...(asked.body === undefined ? {} : { parsedBody: asked.body }),
      });
      endCancelled(session, asked.body);
      const { tokenId } = asked.identity;
      return this.#guard(reply, { tokenId, isStanding, onGone: cancel, onOver });
    } catch (error) {
      onOver();
      throw error;
    }
  }

  /** Returns the session of a request; `initialize` opens one. @throws {HttpError} 400 invalid_request, 404 not_found, 405 */
  async #sessionOf({ http, body, identity }: McpRequest): Promise<McpSession> {
    const id = http.headers.get("mcp-session-id");
    if (id !== null) return this.#sessions.find(id, identity.tokenId);
    if (methodOf(body) === "initialize") return await this.#openSession(identity);
    if (http.method !== "POST") {
      throw refuse(
        "method_not_allowed",
        "Cannot use this method without a session: send the header Mcp-Session-Id",
        {
          headers: { allow: "POST" },
        },
      );
    }
    throw refuse("invalid_request", 'Cannot take this message without a session: send "initialize" first', {
      param: "mcp-session-id",
    });
  }

  async #openSession({ tokenId, scopes }: Identity): Promise<McpSession> {
    const id = this.#services.random.id("mcp_");
    const transport = new this.#sdk.WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: () => id,
      keepAliveMs: KEEP_ALIVE_MS,
      onsessionclosed: () => this.#sessions.end(session),
    });
    const server = createMcpServer(this.#parts, scopes);
    const usedAt = this.#services.clock.monotonic();
    const session: McpSession = { id, tokenId, server, transport, openStreams: 0, usedAt };
    await server.connect(transport);
    this.#checkOpen();
    this.#sessions.add(session);
    return session;
  }

  /** Guards the stream of a reply. A stream of notifications ends at once when a shutdown has begun meanwhile. */
  #guard(reply: Response, stream: McpStream): Response {
    const guarded = this.#streams.guard(reply, stream);
    if (this.#services.isDraining()) this.#streams.closeStanding();
    return guarded;
  }

  #replied(): void {
    if (--this.#atWork === 0) this.#idle?.resolve();
  }

  /** Returns the request as the SDK reads it, without its body and without the client's token. */
  #toRequest({ http }: McpRequest, signal?: AbortSignal): Request {
    const headers = new Headers(http.headers);
    headers.delete("authorization");
    headers.delete("x-api-key");
    return new Request(http.url, { method: http.method, headers, ...(signal === undefined ? {} : { signal }) });
  }
}

/** Key of the capabilities that a client declares with each request. Source: MCP 2026-07-28 */
const CAPABILITIES = "io.modelcontextprotocol/clientCapabilities";
const capability = v.optional(v.record(v.string(), v.unknown()));

/** The part of `tools/call` that says what is called, and what its client answers. */
const CALL = v.object({
  params: v.object({
    name: v.string(),
    _meta: v.object({
      [CAPABILITIES]: v.object({ elicitation: capability, sampling: capability, roots: capability }),
    }),
  }),
});

/** Time that the state of a waiting call counts, in seconds. */
const STATE_SECONDS = 86_400;

/** Returns the seal of states that clients keep. Its key ends with the gateway: a call that is made again finds its approval again. */
function createStates(sdk: McpSdk, { random }: Services): CallParts["states"] {
  return sdk.createRequestStateCodec({
    key: random.bytes(32),
    ttlSeconds: STATE_SECONDS,
    bind: ({ mcpReq, http }) => `${mcpReq.method}\0${http?.authInfo?.clientId ?? ""}`,
  });
}

/** Ends the stream of a request that the client has cancelled: it gets no answer any more. */
function endCancelled({ transport }: McpSession, body: unknown): void {
  const { output, success } = v.safeParse(CANCELLED, body);
  if (success) transport.closeSSEStream(output.params.requestId);
}

const CANCELLED = v.object({
  method: v.literal("notifications/cancelled"),
  params: v.object({ requestId: v.union([v.string(), v.number()]) }),
});

/** Cancels the call of a client that has gone: in a session, nothing else tells the SDK. */
function cancelRequest({ transport }: McpSession, body: unknown): void {
  if (typeof body !== "object" || body === null || !("id" in body) || methodOf(body) === undefined) return;
  const { id } = body;
  if (typeof id !== "string" && typeof id !== "number") return;
  transport.onmessage?.({
    jsonrpc: "2.0",
    method: "notifications/cancelled",
    params: { requestId: id, reason: "The client has gone" },
  });
}
