import { Buffer } from "node:buffer";
import type { Prompt, Resource, ResourceTemplateType } from "@modelcontextprotocol/client";
import { CancelError, cancelError, unlessAborted } from "../../base/cancel.ts";
import type { Clock, Timer } from "../../base/clock.ts";
import type { RedactPart } from "../../base/redact.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import { createOutputRing, type OutputRing } from "../../system/process/command_output.ts";
import type {
  McpConnection,
  McpEvent,
  McpParams,
  McpRequestMethod,
  McpRequestOptions,
  McpResult,
  McpState,
  McpStatus,
  McpToolDefinition,
} from "./mcp_connection.ts";
import { McpError } from "./mcp_error.ts";
import type { ServerSession } from "./server_session.ts";
import { openSession, type SessionServices } from "./open_session.ts";
import type { EraVerdict } from "./probe_program.ts";
import { checkTools } from "./read_lists.ts";
import type { McpServerSettings } from "./start_program.ts";

/** Options of a ServerConnection. */
export interface ServerConnectionOptions {
  readonly name: string;
  readonly settings: McpServerSettings;
  readonly services: SessionServices;
  readonly clock: Clock;
  readonly log: Logger;
  /** Masks secrets in what the server says of itself. */
  readonly redact: RedactPart;
}

/** A session on its way or at work. */
interface Lane {
  readonly opening: Promise<ServerSession>;
  readonly ending: AbortController;
  session: ServerSession | undefined;
  since: number | undefined;
}

/** Bytes of the error output and the log of a server that are kept. */
const MAX_TAIL_BYTES = 65_536;
/** Milliseconds without a request after which a session is closed. */
const IDLE_MS = 300_000;
/** Milliseconds before a server is started again that failed. They double up to the last. */
const FIRST_PAUSE_MS = 1_000;
const MAX_PAUSE_MS = 60_000;
/** Milliseconds after the loss of a session in which a second loss makes the next start wait. */
const LOSS_WINDOW_MS = 10_000;
/** Milliseconds for changes of a list to come together, so that a storm of them costs one reading. */
const SETTLE_MS = 250;

/** Connection to a configured server. Sessions come and go behind it. */
export class ServerConnection implements McpConnection {
  readonly name: string;
  readonly #options: ServerConnectionOptions;
  readonly #listeners = new Set<(event: McpEvent) => void>();
  readonly #tail: OutputRing;
  #lane: Lane | undefined;
  #verdict: EraVerdict | undefined;
  #tools: readonly McpToolDefinition[] = [];
  #listedAt: number | undefined;
  #about: Pick<McpStatus, "era" | "protocolVersion" | "server" | "capabilities" | "instructions"> = {
    era: undefined,
    protocolVersion: undefined,
    server: undefined,
    capabilities: {},
    instructions: undefined,
  };
  #lastError: McpStatus["lastError"];
  #hasFailed = false;
  #pauseMs = 0;
  /** Monotonic time at which a session was last lost */
  #lostAt = -Infinity;
  /** Monotonic time before which no session is opened */
  #pausedUntil = 0;
  #idle: Timer | undefined;
  #relisting: Timer | undefined;
  #isClosed = false;

  constructor(options: ServerConnectionOptions) {
    this.name = options.name;
    this.#options = options;
    this.#tail = createOutputRing(MAX_TAIL_BYTES, options.redact);
  }

  status(): McpStatus {
    return {
      name: this.name,
      transport: this.#options.settings.url === "" ? "stdio" : "http",
      state: this.#state(),
      ...this.#about,
      lastError: this.#lastError,
      since: this.#lane?.since,
      toolCount: this.#tools.length,
      listedAt: this.#listedAt,
    };
  }

  tools(): readonly McpToolDefinition[] {
    return this.#tools;
  }

  async freshTools(signal: AbortSignal): Promise<readonly McpToolDefinition[]> {
    await this.#session(signal);
    return this.#tools;
  }

  async prompts(signal: AbortSignal): Promise<readonly Prompt[]> {
    return await this.#use(signal, async (session) => (await session.list("prompts/list", signal)).items);
  }

  async resources(signal: AbortSignal): Promise<readonly Resource[]> {
    return await this.#use(signal, async (session) => (await session.list("resources/list", signal)).items);
  }

  async resourceTemplates(signal: AbortSignal): Promise<readonly ResourceTemplateType[]> {
    return await this.#use(signal, async (session) => (await session.list("resources/templates/list", signal)).items);
  }

  async request<M extends McpRequestMethod>(
    method: M,
    params: McpParams<M>,
    options: McpRequestOptions,
  ): Promise<McpResult<M>> {
    return await this.#use(options.signal, (session) => {
      const name = method === "tools/call" && "name" in params ? params.name : undefined;
      const tool = this.#tools.find((known) => known.name === name);
      if (options.digest !== undefined && tool?.digest !== options.digest) throw this.#changed(String(name));
      return session.request(method, params, { ...options, tool });
    });
  }

  listen(onEvent: (event: McpEvent) => void): () => void {
    this.#listeners.add(onEvent);
    return () => void this.#listeners.delete(onEvent);
  }

  logTail(): string {
    return this.#tail.read(0, MAX_TAIL_BYTES).text;
  }

  async restart(signal: AbortSignal): Promise<void> {
    await this.#end(new CancelError("cancelled", `The MCP server "${this.name}" is restarted`));
    this.#pauseMs = 0;
    this.#pausedUntil = 0;
    await this.#session(signal);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#end(new CancelError("shutdown"));
  }

  #state(): McpState {
    if (this.#lane?.session !== undefined) return "ready";
    if (this.#lane !== undefined) return "starting";
    return this.#hasFailed ? "failed" : "idle";
  }

  /** Runs work on a session, and closes the session some time after the last. */
  async #use<T>(signal: AbortSignal, work: (session: ServerSession) => Promise<T>): Promise<T> {
    const session = await this.#session(signal);
    this.#idle?.clear();
    try {
      return await work(session);
    } catch (error) {
      throw this.#noted(error);
    } finally {
      if (session.openCount === 0) this.#awaitIdle();
    }
  }

  /** Returns the session. Opens one where there is none. @throws {McpError} {CancelError} */
  async #session(signal: AbortSignal): Promise<ServerSession> {
    if (this.#isClosed) throw this.#closed();
    this.#lane ??= this.#open();
    try {
      return await unlessAborted(this.#lane.opening, signal);
    } catch (error) {
      if (signal.aborted) throw cancelError(signal);
      throw error;
    }
  }

  #open(): Lane {
    const { clock } = this.#options;
    const waitMs = this.#pausedUntil - clock.monotonic();
    if (waitMs > 0) throw this.#paused(waitMs);
    const ending = new AbortController();
    const lane: Lane = {
      ending,
      session: undefined,
      since: undefined,
      opening: Promise.resolve().then(() => this.#start(lane)),
    };
    this.#lane = lane;
    lane.opening.catch((error: unknown) => this.#failed(lane, error));
    this.#tell({ type: "state" });
    return lane;
  }

  async #start(lane: Lane): Promise<ServerSession> {
    const { name, settings, services, clock } = this.#options;
    const limit = clock.timeoutSignal(settings.startup_timeout_secs * 1000);
    const signal = AbortSignal.any([lane.ending.signal, limit.signal]);
    let session: ServerSession | undefined;
    try {
      const opened = await openSession({
        ...{ name, settings, services, clock, signal },
        verdict: this.#verdict,
        onEvent: (event) => this.#onEvent(lane, event),
        onLog: (line) => this.#write(`${line}\n`),
        onErrors: (chunk) => this.#write(chunk),
        lastWords: () => this.#lastWords(),
        onEnd: (reason) => this.#onEnd(lane, reason),
      });
      ({ session } = opened);
      await this.#readTools(session, signal);
      this.#verdict = opened.verdict;
      lane.session = session;
      lane.since = clock.now();
      this.#began(session);
      return session;
    } catch (error) {
      await session?.close();
      if (lane.ending.signal.aborted) throw cancelError(lane.ending.signal);
      throw limit.signal.aborted ? this.#tooSlow(error) : error;
    } finally {
      limit.clear();
    }
  }

  #began(session: ServerSession): void {
    const { era, protocolVersion, server, capabilities, instructions } = session;
    this.#about = { era, protocolVersion, server, capabilities, instructions };
    this.#hasFailed = false;
    this.#lastError = undefined;
    this.#pauseMs = 0;
    this.#options.log.info("An MCP server is ready", { server: this.name, era, tools: this.#tools.length });
    this.#tell({ type: "state" });
    this.#awaitIdle();
  }

  async #readTools(session: ServerSession, signal: AbortSignal): Promise<void> {
    const { items } = await session.list("tools/list", signal);
    const { tools, refused } = checkTools(items);
    for (const reason of refused) {
      this.#options.log.warn("A tool of an MCP server is not offered", { server: this.name, reason });
    }
    this.#listedAt = this.#options.clock.now();
    const isSame = tools.length === this.#tools.length &&
      tools.every(({ digest }, index) => digest === this.#tools[index]?.digest);
    if (isSame) return;
    this.#tools = tools;
    this.#tell({ type: "tools" });
  }

  #onEvent(lane: Lane, event: McpEvent): void {
    if (this.#lane !== lane) return;
    if (event.type !== "tools") return this.#tell(event);
    this.#relisting ??= this.#options.clock.after(SETTLE_MS, () => {
      this.#relisting = undefined;
      const { session, ending } = lane;
      if (session === undefined || this.#lane !== lane) return;
      this.#readTools(session, ending.signal).catch((error: unknown) => this.#noted(error));
    });
  }

  #onEnd(lane: Lane, reason: string): void {
    // Before it is ready, and when it is closed here, somebody else says why
    if (this.#lane !== lane || lane.session === undefined) return;
    this.#lane = undefined;
    this.#idle?.clear();
    // The call that was cut off may be made once more at once. A server that ends again and again has to wait
    const now = this.#options.clock.monotonic();
    if (now - this.#lostAt < LOSS_WINDOW_MS) this.#pauseBeforeNext();
    this.#lostAt = now;
    const error = new McpError("mcp_lost", `The MCP server "${this.name}" is gone: ${reason}${this.#lastWords()}`, {
      server: this.name,
    });
    this.#hasFailed = true;
    this.#noted(error);
    this.#tell({ type: "state" });
  }

  #failed(lane: Lane, error: unknown): void {
    if (this.#lane === lane) this.#lane = undefined;
    if (error instanceof CancelError) return this.#tell({ type: "state" });
    this.#hasFailed = true;
    this.#pauseBeforeNext();
    this.#noted(error);
    this.#tell({ type: "state" });
  }

  #pauseBeforeNext(): void {
    this.#pauseMs = this.#pauseMs === 0 ? FIRST_PAUSE_MS : Math.min(this.#pauseMs * 2, MAX_PAUSE_MS);
    this.#pausedUntil = this.#options.clock.monotonic() + this.#pauseMs;
  }

  #awaitIdle(): void {
    this.#idle?.clear();
    this.#idle = this.#options.clock.after(IDLE_MS, () => void this.#end(new CancelError("cancelled")));
  }

  async #end(reason: CancelError): Promise<void> {
    const lane = this.#lane;
    if (lane === undefined) return;
    this.#lane = undefined;
    this.#idle?.clear();
    this.#relisting?.clear();
    this.#relisting = undefined;
    lane.ending.abort(reason);
    const session = await lane.opening.catch(() => undefined);
    await session?.close();
    this.#tell({ type: "state" });
  }

  #write(words: Uint8Array | string): void {
    this.#tail.write(typeof words === "string" ? Buffer.from(words) : words);
  }

  #tell(event: McpEvent): void {
    for (const listener of this.#listeners) listener(event);
  }

  /** Keeps an error for the status and the log. @returns the error */
  #noted(error: unknown): unknown {
    if (!(error instanceof McpError) || error.code === "mcp_refused") return error;
    const { clock, log } = this.#options;
    this.#lastError = { code: error.code, message: error.message, at: clock.now() };
    log.warn("An MCP server has failed", { server: this.name, code: error.code, reason: error.message });
    return error;
  }

  #lastWords(): string {
    const words = this.logTail().trim().slice(-1_000);
    return words === "" ? "; it wrote no error output" : `; the end of its error output: ${words}`;
  }

  #closed(): McpError {
    const message = `Cannot use the MCP server "${this.name}": the gateway is closing it`;
    return new McpError("mcp_unavailable", message, { server: this.name, written: false });
  }

  #changed(tool: string): McpError {
    const message =
      `Cannot call "${tool}" of the MCP server "${this.name}": the server has changed the tool since; look at it again`;
    return new McpError("mcp_refused", message, { server: this.name, written: false });
  }

  #paused(waitMs: number): McpError {
    const reason = this.#lastError?.message ?? "it failed";
    const message = `${reason}; it is tried again in ${Math.ceil(waitMs / 1000)} s`;
    return new McpError("mcp_unavailable", message, { server: this.name, written: false });
  }

  #tooSlow(cause: unknown): McpError {
    const { startup_timeout_secs: seconds } = this.#options.settings;
    const key = `[mcp.servers.${this.name}] startup_timeout_secs`;
    const message =
      `Cannot start the MCP server "${this.name}": it was not ready within ${seconds} s, as ${key} has it` +
      this.#lastWords();
    return new McpError("mcp_unavailable", message, { server: this.name, cause, written: false });
  }
}
