import type { OpenedList } from "../base/opened_list.ts";
import type { Redactor } from "../base/redact.ts";
import type { Store } from "../storage/store.ts";
import type { AcceptedToolsOptions } from "./mcp/accepted_tools.ts";
import type { McpServers, McpServersOptions } from "./mcp/mcp_servers.ts";

/** Services that the servers are opened with. */
export interface LateMcpServersOptions
  extends Omit<McpServersOptions, "redact" | "disabled" | "known" | "accepted">, AcceptedToolsOptions {
  readonly store: Store;
  readonly redactor: Pick<Redactor, "part">;
  readonly opened: OpenedList;
}

/** MCP servers of the newest configuration. Their modules are loaded when the first server may be used. */
export class LateMcpServers {
  /** Servers that are there now. Undefined before the first one may be used */
  now: McpServers | undefined = undefined;
  readonly #options: LateMcpServersOptions;
  #last: Promise<void> = Promise.resolve();

  constructor(options: LateMcpServersOptions) {
    this.#options = options;
  }

  /** Opens the servers of the start, where some may be used. */
  async open(): Promise<void> {
    const { enabled, allowed_servers: allowed } = this.#options.config().security.mcp;
    if (enabled && allowed.length > 0) this.now = await this.#load();
  }

  /** Makes the servers those of the newest configuration, one change after the other. A failure is logged. */
  follow(): Promise<void> {
    return this.#last = this.#last.then(async () => {
      if (this.now === undefined) await this.open();
      else await this.now.follow();
    }).catch((error: unknown) => {
      this.#options.log.error("The MCP servers do not follow the configuration", { error });
    });
  }

  async #load(): Promise<McpServers> {
    const { redactor, opened, ...options } = this.#options;
    const [{ McpServers }, { KnownServers }, { openAcceptedTools }, { ServerSwitches }] = await Promise.all([
      import("./mcp/mcp_servers.ts"),
      import("./mcp/server_record.ts"),
      import("./mcp/accepted_tools.ts"),
      import("./mcp/server_switches.ts"),
    ]);
    const known = await KnownServers.read(options);
    const disabled = await new ServerSwitches(options).disabled();
    const accepted = await openAcceptedTools(options);
    const servers = new McpServers({ ...options, accepted, redact: redactor.part, disabled, known });
    return opened.own(servers, (open) => open.close());
  }
}
