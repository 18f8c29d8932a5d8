import type { Server, WebStandardStreamableHTTPServerTransport } from "@modelcontextprotocol/server";
import type { Clock, Timer } from "../../lib/base/clock.ts";
import { refuse } from "../../lib/base/errors.ts";

/** A session of a client that speaks a revision of MCP with sessions, as 2025-11-25. */
export interface McpSession {
  readonly id: string;
  /** Token that opened the session: no other one finds it. null while pairing is off */
  readonly tokenId: string | null;
  readonly server: Server;
  readonly transport: WebStandardStreamableHTTPServerTransport;
  /** Streams that are open. A session with one is never idle */
  openStreams: number;
  /** Monotonic milliseconds */
  usedAt: number;
}

/** Bounds of sessions. */
export const SESSION_LIMITS = {
  /** Sessions of one token. One more ends the one that was idle for longest */
  perToken: 32,
  /** Sessions of all tokens. One more ends a session of the token that has most of them */
  all: 1024,
  /** Milliseconds without a request and without an open stream */
  idleMs: 30 * 60_000,
} as const;

const SWEEP_MS = 60_000;

/** The sessions of one gateway's `/mcp`. */
export class McpSessions {
  readonly #clock: Clock;
  readonly #open = new Map<string, McpSession>();
  #sweep: Timer | undefined = undefined;

  constructor({ clock }: { readonly clock: Clock }) {
    this.#clock = clock;
  }

  /** Adds a session, and makes room for it first: another token's sessions stay as long as its own are more. */
  add(session: McpSession): void {
    const own = this.#of(session.tokenId);
    if (own.length >= SESSION_LIMITS.perToken) this.#endOldest(own);
    else if (this.#open.size >= SESSION_LIMITS.all) this.#endOldest(this.#largest());
    this.#open.set(session.id, session);
    this.#sweep ??= this.#clock.every(SWEEP_MS, () => this.#endIdle());
  }

  /**
   * Finds a session of this token.
   * @throws {HttpError} 404 not_found for one that has ended, was never opened, or is another token's: the three look the same
   */
  find(id: string, tokenId: string | null): McpSession {
    const session = this.#open.get(id);
    if (session === undefined || session.tokenId !== tokenId) {
      throw refuse("not_found", 'Cannot find this session: it has ended; open a new one with "initialize"', {
        param: "mcp-session-id",
      });
    }
    session.usedAt = this.#clock.monotonic();
    return session;
  }

  /** Returns all open sessions. */
  list(): readonly McpSession[] {
    return [...this.#open.values()];
  }

  /** Ends a session with its streams and its calls. Does nothing for one that has ended. */
  end(session: McpSession): void {
    if (!this.#open.delete(session.id)) return;
    if (this.#open.size === 0) {
      this.#sweep?.clear();
      this.#sweep = undefined;
    }
    session.server.close().catch(() => {});
  }

  /** Ends the sessions of a token. */
  endToken(tokenId: string): void {
    for (const session of this.#of(tokenId)) this.end(session);
  }

  /** Ends the sessions without an open stream, for the start of a shutdown. */
  endIdle(): void {
    for (const session of this.list()) if (session.openStreams === 0) this.end(session);
  }

  /** Ends all sessions, for the end of a shutdown. */
  endAll(): void {
    for (const session of this.list()) this.end(session);
  }

  #endIdle(): void {
    const now = this.#clock.monotonic();
    for (const session of this.list()) {
      if (session.openStreams === 0 && now - session.usedAt >= SESSION_LIMITS.idleMs) this.end(session);
    }
  }

  #of(tokenId: string | null): readonly McpSession[] {
    return this.list().filter((session) => session.tokenId === tokenId);
  }

  /** Returns the sessions of the token that has most of them. */
  #largest(): readonly McpSession[] {
    const byToken = Map.groupBy(this.list(), ({ tokenId }) => tokenId);
    return [...byToken.values()].reduce((a, b) => (b.length > a.length ? b : a), []);
  }

  /** Ends the session that was not used for longest; one with an open stream only where all have one. */
  #endOldest(sessions: readonly McpSession[]): void {
    const idle = sessions.filter(({ openStreams }) => openStreams === 0);
    const [oldest] = (idle.length > 0 ? idle : sessions).toSorted((a, b) => a.usedAt - b.usedAt);
    if (oldest !== undefined) this.end(oldest);
  }
}
