import type { Prompt, Resource, ResourceTemplateType } from "@modelcontextprotocol/client";
import { CancelError, cancelError, unlessAborted } from "../../base/cancel.ts";
import type { Clock, Timer } from "../../base/clock.ts";
import type { RedactPart } from "../../base/redact.ts";
import type { Logger } from "../../base/telemetry/log.ts";
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
import { checkTools, type ListItem, type ListMethod } from "./read_lists.ts";
import { RestartPause, ServerDiary } from "./server_diary.ts";
import type { ServerFacts, ServerKnowledge } from "./server_record.ts";
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
  /** Knowledge of the server from earlier sessions. */
  readonly known: ServerKnowledge;
  /** Told of what is known now. */
  readonly onKnown: (known: ServerKnowledge) => Promise<void>;
}

/** A session on its way or at work. */
interface Lane {
  readonly opening: Promise<ServerSession>;
  readonly ending: AbortController;
  session: ServerSession | undefined;
  since: number | undefined;
}

/** Milliseconds without a request after which a session is closed. */
const IDLE_MS = 300_000;
/** Milliseconds that a session must last for the next one to begin at once. */
const STEADY_MS = 10_000;
/** Milliseconds that the era of a server counts: a server that was made new is found out then. */
const VERDICT_MS = 86_400_000;
/** Milliseconds that a list of tools counts at least: a server that allows none would cost a reading with each call. */
const MIN_TTL_MS = 1_000;
const NO_TOOLS: readonly McpToolDefinition[] = [];
const NO_FACTS: ServerFacts = {
  era: undefined,
  protocolVersion: undefined,
  server: undefined,
  capabilities: {},
  instructions: undefined,
};
/** Milliseconds for changes of a list to come together, so that a storm of them costs one reading. They double while it goes on. */
const SETTLE_MS = 250;
const MAX_SETTLE_MS = 30_000;
/** Tools that the log names when they are not offered. */
const MAX_NAMED = 10;

/** Connection to a configured server. Sessions come and go behind it. */
export class ServerConnection implements McpConnection {
  readonly name: string;
  readonly #options: ServerConnectionOptions;
  readonly #listeners = new Set<(event: McpEvent) => void>();
  readonly #diary: ServerDiary;
  readonly #pause: RestartPause;
  #lane: Lane | undefined;
  #known: ServerKnowledge;
  /** Prompts and resources that the server allows to be kept, and until when */
  readonly #kept = new Map<ListMethod, { readonly items: readonly unknown[]; readonly until: number }>();
  #hasFailed = false;
  #idle: Timer | undefined;
  #relisting: Timer | undefined;
  #settleMs = SETTLE_MS;
  /** Monotonic time of the last change that the server announced */
  #changedAt = -Infinity;
  #isClosed = false;
  /** Newest writing of what is known */
  #writing = Promise.resolve();

  constructor(options: ServerConnectionOptions) {
    this.name = options.name;
    this.#options = options;
    this.#known = options.known;
    this.#diary = new ServerDiary(options);
    this.#pause = new RestartPause(options.clock);
  }

  status(): McpStatus {
    return {
      name: this.name,
      transport: this.#options.settings.url === "" ? "stdio" : "http",
      state: this.#state(),
      ...this.#known.facts ?? NO_FACTS,
      lastError: this.#diary.lastError,
      since: this.#lane?.since,
      toolCount: this.tools().length,
      listedAt: this.#known.list?.at,
    };
  }

  tools(): readonly McpToolDefinition[] {
    return this.#known.list?.tools ?? NO_TOOLS;
  }

  async freshTools(signal: AbortSignal): Promise<readonly McpToolDefinition[]> {
    await this.#use(signal, (session) => this.#refresh(session, signal));
    return this.tools();
  }

  async prompts(signal: AbortSignal): Promise<readonly Prompt[]> {
    return await this.#list("prompts/list", signal);
  }

  async resources(signal: AbortSignal): Promise<readonly Resource[]> {
    return await this.#list("resources/list", signal);
  }

  async resourceTemplates(signal: AbortSignal): Promise<readonly ResourceTemplateType[]> {
    return await this.#list("resources/templates/list", signal);
  }

  async request<M extends McpRequestMethod>(
    method: M,
    params: McpParams<M>,
    options: McpRequestOptions,
  ): Promise<McpResult<M>> {
    return await this.#use(options.signal, async (session) => {
      const name = method === "tools/call" && "name" in params ? params.name : undefined;
      if (name !== undefined) await this.#refresh(session, options.signal);
      const tool = this.tools().find((known) => known.name === name);
      if (options.digest !== undefined && tool?.digest !== options.digest) throw this.#changed(String(name));
      return await session.request(method, params, { ...options, tool });
    });
  }

  listen(onEvent: (event: McpEvent) => void): () => void {
    this.#listeners.add(onEvent);
    return () => void this.#listeners.delete(onEvent);
  }

  logTail(): string {
    return this.#diary.tail();
  }

  async restart(signal: AbortSignal): Promise<void> {
    await this.#end(new CancelError("cancelled", `The MCP server "${this.name}" is restarted`));
    this.#pause.reset();
    await this.#session(signal);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#end(new CancelError("shutdown"));
    await this.#writing;
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
      throw this.#diary.noted(error);
    } finally {
      if (session.openCount === 0 && this.#lane?.session === session) this.#awaitIdle();
    }
  }

  /** Returns the session. Opens one where there is none. @throws {McpError} {CancelError} */
  async #session(signal: AbortSignal): Promise<ServerSession> {
    if (this.#isClosed) throw this.#unavailable("the gateway is closing it");
    this.#lane ??= this.#open();
    try {
      return await unlessAborted(this.#lane.opening, signal);
    } catch (error) {
      if (signal.aborted) throw cancelError(signal);
      throw error;
    }
  }

  #open(): Lane {
    const { leftMs } = this.#pause;
    if (leftMs > 0) throw this.#paused(leftMs);
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
    const { settings, clock } = this.#options;
    const limit = clock.timeoutSignal(settings.startup_timeout_secs * 1000);
    const signal = AbortSignal.any([lane.ending.signal, limit.signal]);
    try {
      const session = await this.#tryStart(lane, signal);
      lane.session = session;
      lane.since = clock.now();
      this.#began(session);
      return session;
    } catch (error) {
      if (lane.ending.signal.aborted) throw cancelError(lane.ending.signal);
      throw limit.signal.aborted ? this.#tooSlow(error) : error;
    } finally {
      limit.clear();
    }
  }

  /** Opens a session by the era that is known. One that fails may speak the other one by now. */
  async #tryStart(lane: Lane, signal: AbortSignal): Promise<ServerSession> {
    const { verdict: known } = this.#known;
    const isFresh = known !== undefined && known.at + VERDICT_MS > this.#options.clock.now();
    if (!isFresh) return await this.#openSession(lane, { verdict: undefined, at: this.#options.clock.now() }, signal);
    try {
      return await this.#openSession(lane, known, signal);
    } catch (error) {
      if (lane.ending.signal.aborted) throw error;
      this.#learn({ verdict: undefined });
      if (signal.aborted) throw error;
      return await this.#openSession(lane, { verdict: undefined, at: this.#options.clock.now() }, signal);
    }
  }

  async #openSession(
    lane: Lane,
    { verdict, at }: { readonly verdict: EraVerdict | undefined; readonly at: number },
    signal: AbortSignal,
  ): Promise<ServerSession> {
    const { name, settings, services, clock } = this.#options;
    this.#diary.begin();
    const { session, verdict: found } = await openSession({
      ...{ name, settings, services, clock, signal, verdict },
      onEvent: (event) => this.#onEvent(lane, event),
      onLog: (line) => this.#diary.write(line),
      onErrors: (chunk) => this.#diary.write(chunk),
      lastWords: () => this.#diary.lastWords(),
      onEnd: (reason) => this.#onEnd(lane, reason),
    });
    try {
      await this.#readTools(session, signal);
    } catch (error) {
      await session.close();
      throw error;
    }
    const { era, protocolVersion, server, capabilities, instructions } = session;
    const facts = { era, protocolVersion, server, capabilities, instructions };
    this.#learn({ verdict: { verdict: found, at }, facts });
    return session;
  }

  #began({ era }: ServerSession): void {
    this.#hasFailed = false;
    this.#diary.recovered();
    this.#options.log.info("An MCP server is ready", { server: this.name, era, tools: this.tools().length });
    this.#tell({ type: "state" });
    this.#awaitIdle();
  }

  /** Reads the tools again where they are older than the server allows. */
  async #refresh(session: ServerSession, signal: AbortSignal): Promise<void> {
    const { at, ttlMs } = this.#known.list ?? { at: 0, ttlMs: 0 };
    // A server that tells its changes says by 0 no more than that
    const maxMs = session.tellsTools && ttlMs === 0 ? Infinity : Math.max(ttlMs ?? Infinity, MIN_TTL_MS);
    if (this.#options.clock.now() >= at + maxMs) await this.#readTools(session, signal);
  }

  /** Reads a list that is kept as long as the server allows. */
  async #list<M extends ListMethod>(method: M, signal: AbortSignal): Promise<readonly ListItem<M>[]> {
    const kept = this.#kept.get(method);
    // The map has the items of each method under it
    if (kept !== undefined && this.#options.clock.now() < kept.until) return kept.items as readonly ListItem<M>[];
    return await this.#use(signal, async (session) => {
      const { items, ttlMs = 0 } = await session.list(method, signal);
      this.#kept.set(method, { items, until: this.#options.clock.now() + ttlMs });
      return items;
    });
  }

  async #readTools(session: ServerSession, signal: AbortSignal): Promise<void> {
    const { items, ttlMs } = await session.list("tools/list", signal);
    const { tools, refused } = checkTools(items);
    for (const reason of refused.slice(0, MAX_NAMED)) {
      this.#options.log.warn("A tool of an MCP server is not offered", { server: this.name, reason });
    }
    if (refused.length > MAX_NAMED) {
      const reason = `${refused.length - MAX_NAMED} more are left out`;
      this.#options.log.warn("Tools of an MCP server are not offered", { server: this.name, reason });
    }
    const known = this.tools();
    const isSame = tools.length === known.length &&
      tools.every(({ digest }, index) => digest === known[index]?.digest);
    this.#learn({ list: { tools: isSame ? known : tools, at: this.#options.clock.now(), ttlMs } });
    if (isSame) return;
    this.#tell({ type: "tools" });
  }

  #onEvent(lane: Lane, event: McpEvent): void {
    if (this.#lane !== lane) return;
    if (event.type === "prompts") this.#kept.delete("prompts/list");
    if (event.type === "resources") this.#forgetResources();
    if (event.type !== "tools") return this.#tell(event);
    this.#relisting ??= this.#options.clock.after(this.#nextSettleMs(), () => {
      this.#relisting = undefined;
      const { session, ending } = lane;
      if (session === undefined || this.#lane !== lane) return;
      this.#readTools(session, ending.signal).catch((error: unknown) => this.#diary.noted(error));
    });
  }

  /** Returns how long the next reading of the list waits: a server that announces changes without end is read ever less often. */
  #nextSettleMs(): number {
    const now = this.#options.clock.monotonic();
    const goesOn = now - this.#changedAt < this.#settleMs * 2 + SETTLE_MS;
    this.#settleMs = goesOn ? Math.min(this.#settleMs * 2, MAX_SETTLE_MS) : SETTLE_MS;
    this.#changedAt = now;
    return this.#settleMs;
  }

  #onEnd(lane: Lane, reason: string): void {
    // Before it is ready, and when it is closed here, somebody else says why
    if (this.#lane !== lane || lane.session === undefined) return;
    this.#lane = undefined;
    this.#idle?.clear();
    this.#kept.clear();
    this.#pauseNext(lane);
    const message = `The MCP server "${this.name}" is gone: ${reason}${this.#diary.lastWords()}`;
    this.#hasFailed = true;
    this.#diary.noted(new McpError("mcp_lost", message, { server: this.name }));
    this.#tell({ type: "state" });
  }

  #failed(lane: Lane, error: unknown): void {
    if (this.#lane === lane) this.#lane = undefined;
    if (error instanceof CancelError) return this.#tell({ type: "state" });
    this.#hasFailed = true;
    this.#pause.begin();
    this.#diary.note(error);
    this.#tell({ type: "state" });
  }

  /** A server that worked for a while may be started at once; one that dies each time may not. */
  #pauseNext({ since = 0 }: Lane): void {
    if (this.#options.clock.now() - since >= STEADY_MS) this.#pause.reset();
    else this.#pause.begin();
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
    this.#kept.clear();
    this.#relisting?.clear();
    this.#relisting = undefined;
    lane.ending.abort(reason);
    const session = await lane.opening.catch(() => undefined);
    await session?.close();
    this.#tell({ type: "state" });
  }

  #forgetResources(): void {
    this.#kept.delete("resources/list");
    this.#kept.delete("resources/templates/list");
  }

  #learn(news: Partial<ServerKnowledge>): void {
    this.#known = { ...this.#known, ...news };
    this.#writing = this.#options.onKnown(this.#known);
  }

  #tell(event: McpEvent): void {
    for (const listener of this.#listeners) listener(event);
  }

  #unavailable(reason: string): McpError {
    const message = `Cannot use the MCP server "${this.name}": ${reason}`;
    return new McpError("mcp_unavailable", message, { server: this.name, written: false });
  }

  #changed(tool: string): McpError {
    const message =
      `Cannot call "${tool}" of the MCP server "${this.name}": the server has changed the tool since; look at it again`;
    return new McpError("mcp_refused", message, { server: this.name, written: false });
  }

  #paused(waitMs: number): McpError {
    const reason = this.#diary.lastError?.message ?? "it failed";
    const message = `${reason}; it is tried again in ${Math.ceil(waitMs / 1000)} s`;
    return new McpError("mcp_unavailable", message, { server: this.name, written: false });
  }

  #tooSlow(cause: unknown): McpError {
    const { startup_timeout_secs: seconds } = this.#options.settings;
    const key = `[mcp.servers.${this.name}] startup_timeout_secs`;
    const message =
      `Cannot start the MCP server "${this.name}": it was not ready within ${seconds} s, as ${key} has it` +
      this.#diary.lastWords();
    return new McpError("mcp_unavailable", message, { server: this.name, cause, written: false });
  }
}
