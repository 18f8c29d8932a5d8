import type { Actor } from "../../base/records/caller.ts";
import { isDeepStrictEqual } from "node:util";
import type { Clock } from "../../base/clock.ts";
import type { RedactPart } from "../../base/redact.ts";
import type { Counter, Family, Metrics } from "../../base/telemetry/metrics.ts";
import type { Logger } from "../../base/telemetry/log.ts";
import type { Config } from "../../config/config.ts";
import type { Tool } from "../../tools/runtime/tool.ts";
import type { AcceptedTools, ToolChange } from "./accepted_tools.ts";
import type { McpConnection } from "./mcp_connection.ts";
import { mcpToolName } from "../../tools/mcp/mcp.ts";
import { createHeldTool } from "./held_tool.ts";
import { createMcpTool } from "./mcp_tool.ts";
import type { SessionServices } from "./open_session.ts";
import type { McpServerSettings } from "./start_program.ts";
import { ServerConnection } from "./server_connection.ts";
import { type KnownServers, NOTHING_KNOWN } from "./server_record.ts";
import { WatchedConnection } from "./watched_connection.ts";

/** Options of `McpServers`. */
export interface McpServersOptions extends SessionServices {
  readonly clock: Clock;
  readonly log: Logger;
  /** Masks secrets in what servers say of themselves. */
  readonly redact: RedactPart;
  /** Names of servers that a person turned off. Default: none */
  readonly disabled?: ReadonlySet<string>;
  /** Knowledge of earlier gateways about the servers. Default: nothing is known, and nothing is kept */
  readonly known?: KnownServers | undefined;
  /** Default: nothing is counted */
  readonly metrics?: Metrics | undefined;
  /** Tools that may be offered. Default: all that servers have */
  readonly accepted?: AcceptedTools | undefined;
}

/** Returns the names of the servers that may be used, in order. */
export function allowedServers({ mcp, security }: Config): readonly string[] {
  if (!security.mcp.enabled) return [];
  return [...new Set(security.mcp.allowed_servers)].filter((name) => Object.hasOwn(mcp.servers, name)).sort();
}

/** Returns the limits of a server. Those of a server that is gone are of no use: its session is closed. */
function limitsOf({ mcp }: Config, name: string): { readonly startupSecs: number; readonly callSecs: number } {
  const { startup_timeout_secs: startupSecs = 0, timeout_secs: callSecs = 0 } = mcp.servers[name] ?? {};
  return { startupSecs, callSecs };
}

/** MCP servers of one gateway: those of `[mcp.servers]` that `allowed_servers` names. */
export class McpServers {
  readonly #options: McpServersOptions;
  readonly #connections = new Map<string, McpConnection>();
  /** Settings that each connection began with */
  readonly #settings = new Map<string, McpServerSettings>();
  /** Names of servers that a person turned off */
  readonly #disabled: Set<string>;
  readonly #calls: Family<Counter> | undefined;
  /** Servers that are asked for their tools for the first time */
  readonly #learning = new Map<string, Promise<unknown>>();
  readonly #ending = new AbortController();
  /** Writing of the tools that were seen for the first time */
  #seeing: Promise<unknown> = Promise.resolve();
  /** All tools. Undefined after a change */
  #tools: readonly Tool[] | undefined;

  /**
   * Creates the connections by the configuration of the start. The tools of a server that was asked before are those that it had then. One that
   * nobody has asked is started, and nothing waits for it.
   */
  constructor(options: McpServersOptions) {
    this.#options = options;
    this.#calls = options.metrics?.counter("postern_mcp_calls_total", "Requests to MCP servers", ["server", "outcome"]);
    const ready = () => this.list().filter((connection) => connection.status().state === "ready").length;
    options.metrics?.gaugeOf("postern_mcp_connections", "Sessions with MCP servers that are open", ready);
    this.#disabled = new Set(options.disabled);
    for (const name of this.#wanted()) this.#begin(name);
  }

  /** Returns the connections by name. */
  list(): readonly McpConnection[] {
    return [...this.#connections.values()].sort((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** Returns one. Undefined: there is none of this name that may be used */
  get(name: string): McpConnection | undefined {
    return this.#connections.get(name);
  }

  /** Returns the tools of all servers, for the registry; those that are held back are off. The same array until they change. */
  tools(): readonly Tool[] {
    return this.#tools ??= this.list().flatMap((connection) => this.#toolsOf(connection));
  }

  /** Returns the servers that are being asked for their tools for the first time, and a promise that resolves when they have answered or failed. */
  learning(): { readonly names: readonly string[]; readonly over: Promise<void> } {
    const over = Promise.all(this.#learning.values()).then(() => {});
    return { names: [...this.#learning.keys()].sort(), over };
  }

  /** Begins or ends the connection to a server that the configuration allows, as a person turned it on or off. */
  async setEnabled(name: string, isEnabled: boolean): Promise<void> {
    if (!isEnabled) {
      this.#disabled.add(name);
      return await this.#end(name);
    }
    this.#disabled.delete(name);
    if (!this.#connections.has(name) && this.#wanted().includes(name)) this.#begin(name);
  }

  /** Drops what is in memory of a server that left the configuration and was forgotten. */
  forgotten(name: string): void {
    this.#disabled.delete(name);
    this.#options.accepted?.forgotten(name);
    this.#options.known?.forgotten(name);
  }

  /** Ends servers that the newest configuration does not allow, or has other settings for, and begins those that it allows. */
  async follow(): Promise<void> {
    const { servers } = this.#options.config().mcp;
    const kept = this.#wanted().filter((name) => isDeepStrictEqual(this.#settings.get(name), servers[name]));
    const ended = [...this.#connections.keys()].filter((name) => !kept.includes(name));
    for (const server of ended) this.#options.log.info("An MCP server ends: the configuration has changed", { server });
    await Promise.all(ended.map((name) => this.#end(name)));
    for (const name of this.#wanted()) {
      if (this.#connections.has(name)) continue;
      await this.#options.known?.refresh(name);
      // A person may have turned it on, or off, meanwhile
      if (!this.#connections.has(name) && this.#wanted().includes(name)) this.#begin(name);
    }
  }

  /** Returns the tools of a server that are not offered until a person accepts them. Empty for a server that there is not */
  changes(name: string): readonly ToolChange[] {
    return this.#options.accepted?.changes(name, this.get(name)?.tools() ?? []) ?? [];
  }

  /**
   * Accepts tools of a server that a person has seen, by the digests of `changes`.
   * @throws {HttpError} 409 conflict when a tool has changed since
   */
  async accept(name: string, digests: readonly string[], by: Actor): Promise<void> {
    await this.#options.accepted?.accept(name, { tools: this.get(name)?.tools() ?? [], digests, by });
    this.#tools = undefined;
  }

  /** Forgets what another account at a server taught, and asks the server again. Does nothing for a server that may not be used. */
  async accountChanged(name: string): Promise<void> {
    const connection = this.#connections.get(name);
    await connection?.forget(async () => await this.#options.known?.forget(name));
    // The connection keeps and logs its error
    await connection?.freshTools(this.#ending.signal).catch(() => {});
  }

  /** Ends every session. Repeating it does nothing */
  async close(): Promise<void> {
    this.#ending.abort();
    await Promise.all([...this.#connections.values()].map((connection) => connection.close()));
    await this.#seeing;
  }

  /** Returns the servers that the newest configuration allows and nobody turned off. */
  #wanted(): readonly string[] {
    return allowedServers(this.#options.config()).filter((name) => !this.#disabled.has(name));
  }

  async #end(name: string): Promise<void> {
    const connection = this.#connections.get(name);
    this.#connections.delete(name);
    this.#settings.delete(name);
    this.#tools = undefined;
    await connection?.close();
  }

  #begin(name: string): void {
    const settings = this.#options.config().mcp.servers[name];
    if (settings === undefined || this.#ending.signal.aborted) return;
    if (settings.url === "" && settings.sandbox === "off") {
      this.#options.log.info("An MCP server runs with your rights and the network", {
        server: name,
        reason: `[mcp.servers.${name}] sandbox is "off"`,
      });
    }
    const { known } = this.#options;
    const inner = new ServerConnection({
      ...{ ...this.#options, name, settings, services: this.#options },
      known: known?.of(name) ?? NOTHING_KNOWN,
      onKnown: (now) => known?.write(name, now) ?? Promise.resolve(),
    });
    const connection = new WatchedConnection(inner, { ...this.#options, calls: this.#calls });
    this.#connections.set(name, connection);
    this.#settings.set(name, settings);
    this.#tools = undefined;
    connection.listen(({ type }) => {
      if (type !== "tools") return;
      this.#tools = undefined;
      this.#see(connection);
      const waiting = [...this.#held(connection) ?? []].map(([tool, state]) => `${tool} (${state})`);
      if (waiting.length === 0) return;
      this.#options.log.warn("Tools of an MCP server are not offered until somebody accepts them", {
        server: connection.name,
        tools: waiting,
        way: `postern mcp changes ${connection.name}`,
      });
    });
    // A list of an earlier gateway, which may have ended before it was recorded as accepted
    this.#see(connection);
    if (connection.status().listedAt !== undefined) return;
    // The connection keeps and logs its error
    const asked = connection.freshTools(this.#ending.signal).catch(() => {});
    this.#learning.set(name, asked.finally(() => this.#learning.delete(name)));
  }

  /** Accepts the tools of a server as its first list has them. Nothing before a list was read. */
  #see(connection: McpConnection): void {
    if (connection.status().listedAt === undefined) return;
    const seen = this.#options.accepted?.see(connection.name, connection.tools());
    this.#seeing = Promise.all([this.#seeing, seen]);
  }

  #held(connection: McpConnection): ReadonlyMap<string, ToolChange["state"]> | undefined {
    return this.#options.accepted?.held(connection.name, connection.tools());
  }

  /** Returns the tools of a server: those that are held back are off. */
  #toolsOf(connection: McpConnection): readonly Tool[] {
    const tools = connection.tools();
    const held = this.#held(connection);
    return tools.map((definition) => {
      const name = mcpToolName(connection.name, definition.name);
      const access = () => this.#options.config().tools[name]?.access || "network";
      const state = held?.get(definition.name);
      if (state !== undefined) return createHeldTool({ name, server: connection.name, definition, state, access });
      const limits = () => limitsOf(this.#options.config(), connection.name);
      const sampling = () => this.#options.config().mcp.servers[connection.name]?.sampling === true;
      const repeatsLost = () => this.#options.config().security.mcp.retry_lost_calls === "always";
      return createMcpTool({ name, connection, definition, access, limits, sampling, repeatsLost });
    });
  }
}
