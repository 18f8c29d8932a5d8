import { refuse } from "../../base/errors.ts";
import { createKeyedMutex } from "../../base/keyed_queues.ts";
import type { Actor } from "../../base/records/caller.ts";
import { forgetRecords, keptRecords, type KeptRecordsOptions } from "./kept_records.ts";
import type { McpConnection } from "./mcp_connection.ts";
import { McpError } from "./mcp_error.ts";
import type { McpSignIn, SignInState } from "./oauth/sign_in.ts";
import type { McpServers } from "./mcp_servers.ts";
import type { KeptMcpRecord, McpServerInfo } from "../../base/records/extension_views.ts";
import { toServerInfo } from "./server_info.ts";
import type { ServerSwitches } from "./server_switches.ts";

/** Options of `McpOperator`. */
export interface McpOperatorOptions extends KeptRecordsOptions {
  /** Returns the servers of now. Undefined while the configuration lets none run */
  readonly servers: () => McpServers | undefined;
  readonly switches: ServerSwitches;
  /** Sign-ins of people to servers by `url`. */
  readonly signIn: Pick<McpSignIn, "state">;
}

/** MCP servers as the operator sees and changes them. */
export class McpOperator {
  readonly #options: McpOperatorOptions;
  readonly #disabled: Set<string>;
  readonly #oneAtATime = createKeyedMutex();

  /** @param disabled servers that are switched off now */
  constructor(options: McpOperatorOptions, disabled: ReadonlySet<string>) {
    this.#options = options;
    this.#disabled = new Set(disabled);
  }

  /** Returns all configured servers by name, those that may not run too. */
  async list(): Promise<readonly McpServerInfo[]> {
    const { mcp } = this.#options.config();
    return await Promise.all(Object.keys(mcp.servers).sort().map((name) => this.#infoOf(name)));
  }

  /** @throws {HttpError} `not_found` */
  async get(name: string): Promise<McpServerInfo> {
    this.#require(name);
    return await this.#infoOf(name);
  }

  /**
   * Lets a server run that somebody turned off. It is kept over restarts of the gateway.
   * @throws {HttpError} `not_found`; `conflict` for a server that the configuration does not allow, with the key that does
   */
  enable(name: string, by: Actor): Promise<McpServerInfo> {
    return this.#change(name, async () => {
      const way = this.#wayAllowed(name);
      if (way !== undefined) throw refuse("conflict", `Cannot enable the MCP server "${name}": ${way}`);
      if (!this.#disabled.has(name)) return;
      await this.#options.switches.set(name, "enabled", by);
      this.#disabled.delete(name);
      await this.#options.servers()?.setEnabled(name, true);
    });
  }

  /** Ends a server and keeps it from being started. @throws {HttpError} `not_found` */
  disable(name: string, by: Actor): Promise<McpServerInfo> {
    return this.#change(name, async () => {
      if (this.#disabled.has(name)) return;
      await this.#options.switches.set(name, "disabled", by);
      this.#disabled.add(name);
      await this.#options.servers()?.setEnabled(name, false);
    });
  }

  /** Opens a session with a server that has none. A start that fails is in the answer. @throws {HttpError} `not_found` */
  async start(name: string, signal: AbortSignal): Promise<McpServerInfo> {
    this.#require(name);
    await this.#connection(name)?.freshTools(signal).catch(ignoreFailure);
    return await this.#infoOf(name);
  }

  /**
   * Offers tools that have changed, or are new, by the digests of their definitions.
   * @throws {HttpError} `not_found`; `conflict` for a server that is off, and for a tool that has changed since
   */
  accept(
    name: string,
    { digests, by }: { readonly digests: readonly string[]; readonly by: Actor },
  ): Promise<McpServerInfo> {
    return this.#change(name, async () => {
      if (this.#connection(name) === undefined) {
        throw refuse("conflict", `Cannot accept tools of the MCP server "${name}": it is off; ${this.#wayOn(name)}`);
      }
      await this.#options.servers()?.accept(name, digests, by);
    });
  }

  /** Starts a server again. A start that fails is in the answer. @throws {HttpError} `not_found`, `conflict` for a server that is off */
  restart(
    name: string,
    { by, signal }: { readonly by: Actor; readonly signal: AbortSignal },
  ): Promise<McpServerInfo> {
    return this.#change(name, async () => {
      const connection = this.#connection(name);
      if (connection === undefined) {
        throw refuse("conflict", `Cannot restart the MCP server "${name}": it is off; ${this.#wayOn(name)}`);
      }
      await this.#options.switches.noteRestart(name, by);
      await connection.restart(signal).catch(ignoreFailure);
    });
  }

  /** Returns the servers that left the configuration and of which something is kept. */
  async kept(): Promise<readonly KeptMcpRecord[]> {
    return await keptRecords(this.#options);
  }

  /** Forgets a server that left the configuration. @throws {HttpError} `not_found`; `conflict` for one that the configuration has */
  async forget(name: string, by: Actor): Promise<void> {
    await this.#oneAtATime(name, async () => {
      await forgetRecords(name, by, this.#options);
      this.#disabled.delete(name);
      this.#options.servers()?.forgotten(name);
    });
  }

  async #change(name: string, work: () => Promise<void>): Promise<McpServerInfo> {
    this.#require(name);
    return await this.#oneAtATime(name, async () => {
      await work();
      return await this.#infoOf(name);
    });
  }

  async #infoOf(name: string): Promise<McpServerInfo> {
    const { config, signIn: signIns } = this.#options;
    // A program has no sign-in, and the module of sign-ins is not loaded for it
    const isRemote = config().mcp.servers[name]?.url !== "";
    const signIn: SignInState = isRemote ? await signIns.state(name) : { state: "none" };
    const connection = this.#connection(name);
    const reason = connection === undefined ? `it is off; ${this.#wayOn(name)}` : null;
    const changes = connection === undefined ? [] : this.#options.servers()?.changes(name) ?? [];
    return toServerInfo(name, { config: config(), connection, changes, reason, signIn });
  }

  #connection(name: string): McpConnection | undefined {
    return this.#options.servers()?.get(name);
  }

  /** Returns the edit or command that turns a server on. */
  #wayOn(name: string): string {
    const way = this.#wayAllowed(name);
    if (way !== undefined) return way;
    if (this.#disabled.has(name)) return `run postern mcp enable ${name}`;
    return "it comes with the configuration that is being taken over; look again";
  }

  /** Returns the edit that lets a server run. Undefined where the configuration does. */
  #wayAllowed(name: string): string | undefined {
    const { security: { mcp } } = this.#options.config();
    if (!mcp.enabled) return "set [security.mcp] enabled = true to allow MCP servers";
    if (!mcp.allowed_servers.includes(name)) return `add "${name}" to [security.mcp] allowed_servers to allow it`;
    return undefined;
  }

  #require(name: string): void {
    if (Object.hasOwn(this.#options.config().mcp.servers, name)) return;
    const reason = `there is no [mcp.servers.${name}]`;
    throw refuse("not_found", `Cannot find the MCP server ${JSON.stringify(name.slice(0, 64))}: ${reason}`);
  }
}

/** Leaves a failure of a server to its state, which says it. */
function ignoreFailure(error: unknown): void {
  if (!(error instanceof McpError)) throw error;
}
