import { Backoff, type Clock, type Timer } from "../../base/clock.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { McpEvent, McpToolDefinition } from "./mcp_connection.ts";
import { checkTools, type ListItem, type ListMethod } from "./read_lists.ts";
import type { ServerKnowledge } from "./server_record.ts";
import type { ServerSession } from "./server_session.ts";

/** Tools of a server with the time that they were read. */
type ToolList = NonNullable<ServerKnowledge["list"]>;

/** Options of `ServerLists`. */
export interface ServerListsOptions {
  /** Name of the server */
  readonly name: string;
  readonly clock: Clock;
  readonly log: Logger;
  /** Tools that are known from earlier sessions. */
  readonly list: ToolList | undefined;
  /** Receives each reading. @param isSame no tool has changed since an earlier one */
  readonly onTools: (list: ToolList, isSame: boolean) => void;
}

/** Milliseconds that a list of tools counts at least: a server that allows none would cost a reading with each call. */
const MIN_TTL_MS = 1_000;
/** Milliseconds for changes of a list to come together, so that a storm of them costs one reading. They double while it goes on. */
const SETTLE = { firstMs: 250, mostMs: 30_000 } as const;
/** Tools that are named when they are not offered. */
const MAX_NAMED = 10;
const NO_TOOLS: readonly McpToolDefinition[] = [];

/** Returns the first sentences about what is left out, and how many there are beside them. The last one may be about the whole list. */
function named(leftOut: readonly string[]): readonly string[] {
  if (leftOut.length <= MAX_NAMED) return leftOut;
  const last = leftOut.slice(-1);
  return [...leftOut.slice(0, MAX_NAMED - 1), ...last, `${leftOut.length - MAX_NAMED} more are left out`];
}

/** Tools, prompts and resources of a server, each kept as long as the server allows. */
export class ServerLists {
  readonly #options: ServerListsOptions;
  #tools: ToolList | undefined;
  /** Prompts and resources that the server allows to be kept, and until when */
  readonly #kept = new Map<ListMethod, { readonly items: readonly unknown[]; readonly until: number }>();
  #relisting: Timer | undefined;
  readonly #settle = new Backoff(SETTLE);
  #settleMs: number = SETTLE.firstMs;
  /** Monotonic time of the last change that the server announced */
  #changedAt = -Infinity;

  constructor(options: ServerListsOptions) {
    this.#options = options;
    this.#tools = options.list;
  }

  /** Tools as they were read last, in this session or an earlier one. */
  get tools(): readonly McpToolDefinition[] {
    return this.#tools?.tools ?? NO_TOOLS;
  }

  /** Reads the tools again where they are older than the server allows. */
  async refresh(session: ServerSession, signal: AbortSignal): Promise<void> {
    const { at, ttlMs } = this.#tools ?? { at: 0, ttlMs: 0 };
    // A server that tells its changes says by 0 no more than that
    const maxMs = session.tellsTools && ttlMs === 0 ? Infinity : Math.max(ttlMs ?? Infinity, MIN_TTL_MS);
    if (this.#options.clock.now() >= at + maxMs) await this.readTools(session, signal);
  }

  /** Reads the tools, and logs those that are not offered. */
  async readTools(session: ServerSession, signal: AbortSignal): Promise<void> {
    const { name, log, clock, onTools } = this.#options;
    const { items, leftOut: broken, ttlMs } = await session.list("tools/list", signal);
    const { tools, refused } = checkTools(items);
    const leftOut = named([...broken, ...refused]);
    for (const reason of leftOut) log.warn("A tool of an MCP server is not offered", { server: name, reason });
    const known = this.tools;
    const isSame = this.#tools !== undefined && tools.length === known.length &&
      tools.every(({ digest }, index) => digest === known[index]?.digest);
    this.#tools = { tools: isSame ? known : tools, leftOut, at: clock.now(), ttlMs };
    onTools(this.#tools, isSame);
  }

  /** Returns a list that the server still allows to be kept. Undefined where it is to be read. */
  kept<M extends ListMethod>(method: M): readonly ListItem<M>[] | undefined {
    const kept = this.#kept.get(method);
    if (kept === undefined || this.#options.clock.now() >= kept.until) return undefined;
    // The map has the items of each method under it
    return kept.items as readonly ListItem<M>[];
  }

  /** Reads a list, and keeps it as long as the server allows. */
  async read<M extends ListMethod>(
    session: ServerSession,
    method: M,
    signal: AbortSignal,
  ): Promise<readonly ListItem<M>[]> {
    const { items, leftOut, ttlMs = 0 } = await session.list(method, signal);
    const { name, log } = this.#options;
    for (const reason of named(leftOut)) {
      log.warn(`Not all of ${method} of an MCP server is shown`, { server: name, reason });
    }
    this.#kept.set(method, { items, until: this.#options.clock.now() + ttlMs });
    return items;
  }

  /** Drops the lists that an event says have changed. */
  forget({ type }: McpEvent): void {
    if (type === "prompts") this.#kept.delete("prompts/list");
    if (type !== "resources") return;
    this.#kept.delete("resources/list");
    this.#kept.delete("resources/templates/list");
  }

  /** Drops the tools too: they are those of another account. */
  forgetTools(): void {
    this.#tools = undefined;
  }

  /** Reads the tools some time after the server announced a change. One reading waits at a time. */
  readLater(read: () => Promise<void>): void {
    this.#relisting ??= this.#options.clock.after(this.#nextSettleMs(), () => {
      this.#relisting = undefined;
      void read();
    });
  }

  /** Drops all lists but the tools, and gives up the reading that waits: a session has ended. */
  clear(): void {
    this.#kept.clear();
    this.#relisting?.clear();
    this.#relisting = undefined;
  }

  /** Returns how long the next reading of the list waits: a server that announces changes without end is read ever less often. */
  #nextSettleMs(): number {
    const now = this.#options.clock.monotonic();
    if (now - this.#changedAt >= this.#settleMs * 2 + SETTLE.firstMs) this.#settle.reset();
    this.#changedAt = now;
    return this.#settleMs = this.#settle.next();
  }
}
