import type { ConnectOverCDPTransport } from "playwright-core";
import { ToolError } from "../../base/errors.ts";

/** Request of a page, a frame or a worker that waits for a word on it. */
export interface PausedRequest {
  readonly requestId: string;
  /** The request whose answer redirected to this one */
  readonly redirectedRequestId?: string;
  readonly request: {
    readonly url: string;
    readonly headers: Readonly<Record<string, string>>;
    readonly postData?: string;
    readonly hasPostData?: boolean;
  };
}

/** Says whether a request may go on. */
export type RequestGuard = (paused: PausedRequest) => boolean;

/** Message of the DevTools protocol. */
interface DevToolsMessage {
  readonly id?: number;
  readonly method?: string;
  readonly sessionId?: string;
  readonly params?: Readonly<Record<string, unknown>>;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly code?: number; readonly message?: string };
}

/** Target of the browser as the protocol describes it. */
interface TargetInfo {
  readonly targetId: string;
  readonly type: string;
}

/** Session of the driver with a target, and the guard of its requests. Undefined: it has none yet */
interface TargetSession {
  readonly sessionId: string;
  readonly info: TargetInfo;
  guarded: Promise<void> | undefined;
}

/** Targets whose requests can be guarded. All others, as shared workers, are closed while a guard is set. */
const GUARDED_TYPES: readonly string[] = ["page", "iframe", "worker", "service_worker"];
/** Targets that send no requests of their own */
const SILENT_TYPES: readonly string[] = ["browser", "tab"];
/** First id of this class's own commands: the driver counts its own from 1 */
const FIRST_ID = 1_000_000_000;
const ATTACH = { autoAttach: true, waitForDebuggerOnStart: true, flatten: true } as const;
const FETCH = { patterns: [{ urlPattern: "*", requestStage: "Request" }] } as const;
/** Code of an error about a session that has ended meanwhile */
const NO_SESSION = -32001;

/**
 * Stands between the driver and the browser, and guards the requests of every page, frame and worker from one moment on.
 *
 * The driver attaches to each new target before its first line runs, and lets it go on with `Runtime.runIfWaitingForDebugger`. While a guard
 * is set, that command waits until the target's requests are guarded. A target that cannot be guarded, such as a shared worker, is closed.
 * DevTools does not pause WebSockets and `rel=prefetch`: `NarrowedWay` is there for them.
 */
export class GuardedTargets implements ConnectOverCDPTransport {
  onmessage?: (message: object) => void;
  onclose?: (reason?: string) => void;
  readonly #inner: ConnectOverCDPTransport;
  /** Sessions that the driver was given by attaching by itself, by their ids */
  readonly #sessions = new Map<string, TargetSession>();
  /** Targets that the driver asked to attach to, which it uses for other things */
  readonly #asked = new Map<string, number>();
  readonly #replies = new Map<number, (message: DevToolsMessage) => void>();
  #lastId = FIRST_ID;
  #guard: RequestGuard | undefined;

  constructor(inner: ConnectOverCDPTransport) {
    this.#inner = inner;
    inner.onmessage = (message) => this.#take(message);
    inner.onclose = (reason) => {
      for (const reply of this.#replies.values()) reply({ error: { code: NO_SESSION } });
      this.#replies.clear();
      this.onclose?.(reason);
    };
  }

  send(message: object): void {
    const { method, sessionId, params = {} }: DevToolsMessage = message;
    if (method === "Target.attachToTarget") {
      const target = String(params["targetId"]);
      this.#asked.set(target, (this.#asked.get(target) ?? 0) + 1);
    }
    const held = this.#heldBy(method, method === "Target.detachFromTarget" ? params["sessionId"] : sessionId);
    if (held === undefined) this.#inner.send(message);
    else void held.then(() => this.#inner.send(message));
  }

  close(): void {
    this.#inner.close();
  }

  /**
   * Guards all requests from now on, those of what is open already and those of what opens later.
   * @throws {ToolError} `secret_refused` where a target that is open cannot be guarded
   */
  async guard(guard: RequestGuard): Promise<void> {
    this.#guard = guard;
    await Promise.all([...this.#sessions.values()].map((session) => this.#guarded(session)));
    const { result } = await this.#command("Target.getTargets", {});
    // As the protocol gives it
    const infos = (result?.["targetInfos"] ?? []) as readonly TargetInfo[];
    const known = new Set([...this.#sessions.values()].map(({ info }) => info.targetId));
    for (const { targetId, type } of infos) {
      if (SILENT_TYPES.includes(type) || known.has(targetId)) continue;
      const { result: closed } = await this.#command("Target.closeTarget", { targetId });
      if (closed?.["success"] === true) continue;
      throw new ToolError(
        "secret_refused",
        `Cannot fill a secret: the browser has a ${type} whose requests nobody sees`,
      );
    }
  }

  /** Returns what a command of the driver must wait for. Undefined: nothing. */
  #heldBy(method: string | undefined, sessionId: unknown): Promise<unknown> | undefined {
    if (this.#guard === undefined) return undefined;
    if (method !== "Runtime.runIfWaitingForDebugger" && method !== "Target.detachFromTarget") return undefined;
    const session = this.#sessions.get(String(sessionId));
    if (session === undefined) return undefined;
    const { targetId } = session.info;
    const same = [...this.#sessions.values()].filter(({ info }) => info.targetId === targetId);
    return Promise.all(same.map((one) => this.#guarded(one)));
  }

  #take(message: DevToolsMessage): void {
    const { id, method, sessionId = "", params = {} } = message;
    if (id !== undefined && this.#replies.has(id)) {
      this.#replies.get(id)?.(message);
      this.#replies.delete(id);
      return;
    }
    if (method === "Target.attachedToTarget" && this.#attached(params)) return;
    if (method === "Target.detachedFromTarget") this.#sessions.delete(String(params["sessionId"]));
    if (method === "Fetch.requestPaused" && this.#sessions.get(sessionId)?.guarded !== undefined) {
      // The protocol gives the event these fields
      return this.#decide(sessionId, params as unknown as PausedRequest);
    }
    this.onmessage?.(message);
  }

  /** Notes a session that the driver gets. @returns true where the driver is not told of it */
  #attached(params: Readonly<Record<string, unknown>>): boolean {
    const info = params["targetInfo"] as TargetInfo; // as the protocol gives it
    const asked = this.#asked.get(info.targetId) ?? 0;
    if (asked > 0) {
      if (asked === 1) this.#asked.delete(info.targetId);
      else this.#asked.set(info.targetId, asked - 1);
      return false;
    }
    if (SILENT_TYPES.includes(info.type)) return false;
    if (!GUARDED_TYPES.includes(info.type)) {
      if (this.#guard === undefined) return false;
      void this.#command("Target.closeTarget", { targetId: info.targetId });
      return true;
    }
    const session: TargetSession = { sessionId: String(params["sessionId"]), info, guarded: undefined };
    this.#sessions.set(session.sessionId, session);
    if (this.#guard !== undefined) void this.#guarded(session);
    return false;
  }

  /** Guards the requests of a target, once. A target that cannot be guarded is closed. */
  #guarded(session: TargetSession): Promise<void> {
    return session.guarded ??= this.#set(session);
  }

  async #set({ sessionId, info: { targetId, type } }: TargetSession): Promise<void> {
    const { error } = type === "worker"
      // Requests of a page's workers are those of the page; workers that a worker starts are attached to before they run
      ? await this.#command("Target.setAutoAttach", ATTACH, sessionId)
      : await this.#command("Fetch.enable", FETCH, sessionId);
    if (error !== undefined && error.code !== NO_SESSION) await this.#command("Target.closeTarget", { targetId });
  }

  #decide(sessionId: string, paused: PausedRequest): void {
    const { requestId, redirectedRequestId: before } = paused;
    // Ids of requests are those of one session
    const idOf = (id: string) => `${sessionId} ${id}`;
    const named = {
      ...paused,
      requestId: idOf(requestId),
      ...(before === undefined ? {} : { redirectedRequestId: idOf(before) }),
    };
    void (this.#guard?.(named) === false
      ? this.#command("Fetch.failRequest", { requestId, errorReason: "BlockedByClient" }, sessionId)
      : this.#command("Fetch.continueRequest", { requestId }, sessionId));
  }

  /** Sends a command of this class. Resolves with an error where there is no session any more. */
  #command(method: string, params: object, sessionId?: string): Promise<DevToolsMessage> {
    const id = ++this.#lastId;
    const { promise, resolve } = Promise.withResolvers<DevToolsMessage>();
    this.#replies.set(id, resolve);
    this.#inner.send({ id, method, params, ...(sessionId === undefined ? {} : { sessionId }) });
    return promise;
  }
}
