import type { Prompt, Resource, ResourceTemplateType } from "@modelcontextprotocol/client";
import { CancelError, cancelError, unlessAborted } from "../../base/cancel.ts";
import type { Clock, Timer } from "../../base/clock.ts";
import { withoutEffectRight } from "../../base/effect_right.ts";
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
import { beforeRequest, McpError } from "./mcp_error.ts";
import type { ServerSession } from "./server_session.ts";
import { openSession, type SessionServices } from "./open_session.ts";
import type { EraVerdict } from "./probe_program.ts";
import type { ListItem, ListMethod } from "./read_lists.ts";
import { RestartPause, ServerDiary } from "./server_diary.ts";
import { connectionUnavailable, startPaused, startTooSlow, toolChanged } from "./session_error.ts";
import { ServerLists } from "./server_lists.ts";
import { NOTHING_KNOWN, type ServerFacts, type ServerKnowledge } from "./server_record.ts";
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
  /** Receives what is known now. */
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
const NO_FACTS: ServerFacts = {
  era: undefined,
  protocolVersion: undefined,
  server: undefined,
  capabilities: {},
  instructions: undefined,
};

/** Connection to a configured server. Sessions come and go behind it. */
export class ServerConnection implements McpConnection {
  readonly name: string;
  readonly #options: ServerConnectionOptions;
  readonly #listeners = new Set<(event: McpEvent) => void>();
  readonly #diary: ServerDiary;
  readonly #pause: RestartPause;
  readonly #lists: ServerLists;
  #lane: Lane | undefined;
  /** Sessions that their server may not know any more, each until its last request has ended */
  readonly #left = new Set<ServerSession>();
  #known: ServerKnowledge;
  #hasFailed = false;
  #idle: Timer | undefined;
  #isClosed = false;
  /** Closing of the sessions that were ended here */
  #ending = Promise.resolve();
  /** Newest writing of what is known */
  #writing = Promise.resolve();
  /** Work that the next session waits for */
  #renewing = Promise.resolve();

  constructor(options: ServerConnectionOptions) {
    this.name = options.name;
    this.#options = options;
    this.#known = options.known;
    this.#diary = new ServerDiary(options);
    this.#pause = new RestartPause(options.clock);
    this.#lists = new ServerLists({
      ...options,
      list: options.known.list,
      onTools: (list, isSame) => {
        this.#learn({ list });
        if (!isSame) this.#tell({ type: "tools" });
      },
    });
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
      leftOut: this.#known.list?.leftOut ?? [],
      listedAt: this.#known.list?.at,
    };
  }

  tools(): readonly McpToolDefinition[] {
    return this.#lists.tools;
  }

  async freshTools(signal: AbortSignal): Promise<readonly McpToolDefinition[]> {
    await this.#use(signal, (session) => this.#lists.refresh(session, signal));
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
      if (options.digest !== undefined && tool?.digest !== options.digest) throw toolChanged(this.name, String(name));
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

  async forget(renew: () => Promise<void>): Promise<void> {
    const ended = this.#end(new CancelError("cancelled", `The account at the MCP server "${this.name}" has changed`));
    // The session belongs to the earlier account until it is closed, and so does all that it teaches
    this.#renewing = ended.then(async () => {
      this.#pause.reset();
      this.#hasFailed = false;
      this.#known = NOTHING_KNOWN;
      this.#lists.forgetTools();
      await renew();
    });
    await this.#renewing;
    this.#tell({ type: "tools" });
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    await this.#end(new CancelError("shutdown"));
    await this.#renewing;
    await this.#writing;
  }

  #state(): McpState {
    if (this.#lane?.session !== undefined) return "ready";
    if (this.#lane !== undefined) return "starting";
    return this.#hasFailed ? "failed" : "idle";
  }

  /**
   * Runs work on a session, and closes the session some time after the last. Work that the server did not do is done once more over another
   * session where this one had worked before: a server that was restarted does not know it any more.
   */
  async #use<T>(signal: AbortSignal, work: (session: ServerSession) => Promise<T>): Promise<T> {
    for (let isRepeat = false;; isRepeat = true) {
      const hasWorked = this.#lane?.session !== undefined;
      const session = await this.#session(signal);
      this.#idle?.clear();
      try {
        return await work(session);
      } catch (error) {
        this.#diary.noted(error);
        if (!(error instanceof McpError)) throw error;
        if (error.isStale) this.#leave(session, error);
        const isLost = error.code === "mcp_lost" || (error.isStale && hasWorked);
        if (isRepeat || error.written || !isLost) throw error;
        this.#options.log.info("An MCP request is made once more", { server: this.name, reason: error.message });
      } finally {
        if (session.openCount === 0) this.#rest(session);
      }
    }
  }

  /** Takes a session out of use that the server may not know any more. Its other requests may still be answered. */
  #leave(session: ServerSession, error: McpError): void {
    if (this.#lane?.session !== session) return;
    this.#dropLane();
    this.#left.add(session);
    this.#hasFailed = true;
    this.#diary.note(error);
    this.#tell({ type: "state" });
  }

  /** Waits before it closes a session that nobody uses now, and closes one at once that was left. */
  #rest(session: ServerSession): void {
    if (this.#lane?.session === session) return this.#awaitIdle();
    if (this.#left.delete(session)) this.#ending = Promise.allSettled([this.#ending, session.close()]).then(() => {});
  }

  /** Returns the session. Opens one where there is none. @throws {McpError} {CancelError} */
  async #session(signal: AbortSignal): Promise<ServerSession> {
    if (this.#isClosed) throw connectionUnavailable(this.name, "the gateway is closing it");
    this.#lane ??= this.#open();
    try {
      return await unlessAborted(this.#lane.opening, signal);
    } catch (error) {
      if (signal.aborted) throw cancelError(signal);
      throw beforeRequest(error);
    }
  }

  async #refresh(session: ServerSession, signal: AbortSignal): Promise<void> {
    try {
      await this.#lists.refresh(session, signal);
    } catch (error) {
      throw beforeRequest(error);
    }
  }

  #open(): Lane {
    const { leftMs } = this.#pause;
    if (leftMs > 0) throw startPaused(this.name, { waitMs: leftMs, lastError: this.#diary.lastError?.message });
    const ending = new AbortController();
    const lane: Lane = {
      ending,
      session: undefined,
      since: undefined,
      opening: this.#renewing.then(() => withoutEffectRight(() => this.#start(lane))),
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
      // A session that was ended meanwhile is closed by what ended it
      if (this.#lane === lane) this.#began(session);
      return session;
    } catch (error) {
      if (lane.ending.signal.aborted) throw cancelError(lane.ending.signal);
      if (!limit.signal.aborted) throw error;
      const lastWords = this.#diary.lastWords();
      throw startTooSlow(this.name, { seconds: settings.startup_timeout_secs, lastWords, cause: error });
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
      await this.#lists.readTools(session, signal);
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

  /** Returns a list that is kept, or reads it. */
  async #list<M extends ListMethod>(method: M, signal: AbortSignal): Promise<readonly ListItem<M>[]> {
    return this.#lists.kept(method) ?? await this.#use(signal, (session) => this.#lists.read(session, method, signal));
  }

  #onEvent(lane: Lane, event: McpEvent): void {
    if (this.#lane !== lane) return;
    this.#lists.forget(event);
    if (event.type !== "tools") return this.#tell(event);
    this.#lists.readLater(async () => {
      const { session, ending } = lane;
      if (session === undefined || this.#lane !== lane) return;
      await this.#lists.readTools(session, ending.signal).catch((error: unknown) => this.#diary.noted(error));
    });
  }

  #onEnd(lane: Lane, reason: string): void {
    // Before it is ready, and when it is closed here, somebody else says why
    if (this.#lane !== lane || lane.session === undefined) return;
    this.#dropLane();
    // A server that worked for a while may be started at once; one that dies each time may not
    if (this.#options.clock.now() - (lane.since ?? 0) >= STEADY_MS) this.#pause.reset();
    else this.#pause.begin();
    const message = `The MCP server "${this.name}" is gone: ${reason}${this.#diary.lastWords()}`;
    this.#hasFailed = true;
    this.#diary.noted(new McpError("mcp_lost", message, { server: this.name }));
    this.#tell({ type: "state" });
  }

  #failed(lane: Lane, error: unknown): void {
    if (this.#lane === lane) this.#dropLane();
    if (error instanceof CancelError) return this.#tell({ type: "state" });
    this.#hasFailed = true;
    this.#pause.begin();
    this.#diary.note(error);
    this.#tell({ type: "state" });
  }

  /** Forgets the lane, with the timers and lists that belong to it. */
  #dropLane(): void {
    this.#lane = undefined;
    this.#idle?.clear();
    this.#lists.clear();
  }

  #awaitIdle(): void {
    this.#idle?.clear();
    this.#idle = this.#options.clock.after(IDLE_MS, () => void this.#end(new CancelError("cancelled")));
  }

  /** Ends the session, where there is one. Resolves when this one and those that were ended before are closed. */
  #end(reason: CancelError): Promise<void> {
    for (const session of this.#left) this.#rest(session);
    const lane = this.#lane;
    if (lane === undefined) return this.#ending;
    this.#dropLane();
    lane.ending.abort(reason);
    const closed = lane.opening.then((session) => session.close(), () => {});
    // A session that could not be closed fails its own end, and none after it
    const before = this.#ending.catch(() => {});
    return this.#ending = Promise.all([before, closed]).then(() => this.#tell({ type: "state" }));
  }

  #learn(news: Partial<ServerKnowledge>): void {
    this.#known = { ...this.#known, ...news };
    this.#writing = this.#options.onKnown(this.#known);
  }

  #tell(event: McpEvent): void {
    for (const listener of this.#listeners) listener(event);
  }
}
