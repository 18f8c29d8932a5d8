import type {
  CallToolResult,
  Client,
  CreateMessageRequest,
  CreateMessageResult,
  ElicitRequest,
  ElicitResult,
  RequestOptions,
  ServerCapabilities,
  Tool,
} from "@modelcontextprotocol/client";
import { cancelError } from "../../base/cancel.ts";
import type { Clock } from "../../base/clock.ts";
import type { McpClientSdk } from "./load_sdk.ts";
import type {
  McpEra,
  McpEvent,
  McpParams,
  McpRequestMethod,
  McpRequestOptions,
  McpResult,
  McpToolDefinition,
} from "./mcp_connection.ts";
import { foreignWords, McpError } from "./mcp_error.ts";
import { type ListItem, type ListMethod, type ReadList, readServerList } from "./read_lists.ts";
import { RequestDeadline } from "./request_deadline.ts";

/** Options of an ServerSession. */
export interface ServerSessionOptions {
  /** Name of the server in the configuration */
  readonly server: string;
  readonly sdk: McpClientSdk;
  readonly clock: Clock;
  /** Milliseconds that a request may take */
  readonly timeoutMs: number;
  /** Told of changes that the server announces. */
  readonly onEvent: (event: McpEvent) => void;
  /** Takes lines of the server's log. */
  readonly onLog: (line: string) => void;
  /** Returns the reason of the end as the rest of a sentence about the server. Undefined: nobody knows it */
  readonly fault: () => string | undefined;
}

/** Request that waits for its answer. */
interface OpenRequest {
  readonly options: McpRequestOptions;
  readonly deadline: RequestDeadline;
}

/** Time limits are ours, by the injected clock. The SDK's own never come first. */
const SDK_TIMEOUT_MS = 2_147_483_647;

/** Session with a server: a connected client of the SDK, whose answers are bounded in time. */
export class ServerSession {
  readonly #client: Client;
  readonly #options: ServerSessionOptions;
  readonly #open = new Set<OpenRequest>();

  constructor(client: Client, options: ServerSessionOptions) {
    this.#client = client;
    this.#options = options;
    this.#takeNotifications();
    this.#takeQuestions();
  }

  get era(): McpEra {
    return this.#client.getProtocolEra() ?? "legacy";
  }

  get protocolVersion(): string | undefined {
    return this.#client.getNegotiatedProtocolVersion();
  }

  get server(): ReturnType<Client["getServerVersion"]> {
    return this.#client.getServerVersion();
  }

  get capabilities(): ServerCapabilities {
    return this.#client.getServerCapabilities() ?? {};
  }

  get instructions(): string | undefined {
    return this.#client.getInstructions();
  }

  /** Requests without an answer. */
  get openCount(): number {
    return this.#open.size;
  }

  /** Makes one request. @throws {McpError} {CancelError} */
  async request<M extends McpRequestMethod>(
    method: M,
    params: McpParams<M>,
    { tool, ...options }: McpRequestOptions & { readonly tool?: McpToolDefinition | undefined },
  ): Promise<McpResult<M>> {
    return await this.#within(options, async (sdkOptions) => {
      // The headers of a tool that has some go by its definition
      if (method === "tools/call" && this.era === "modern" && tool !== undefined) {
        return await this.#callTool(params as McpParams<"tools/call">, tool, sdkOptions) as McpResult<M>;
      }
      // The SDK's types cannot follow a method that is not known yet
      const ask = this.#client.request.bind(this.#client) as (
        request: object,
        options: RequestOptions,
      ) => Promise<unknown>;
      return await ask({ method, params }, sdkOptions) as McpResult<M>;
    });
  }

  /** Reads all the pages of a list. Empty where the server has no such thing. @throws {McpError} {CancelError} */
  async list<M extends ListMethod>(method: M, signal: AbortSignal): Promise<ReadList<ListItem<M>>> {
    const { capabilities } = this;
    const has = method === "tools/list"
      ? capabilities.tools
      : method === "prompts/list"
      ? capabilities.prompts
      : capabilities.resources;
    if (has === undefined) return { items: [], ttlMs: undefined };
    const ask = this.#client.request.bind(this.#client) as (
      request: object,
      options: RequestOptions,
    ) => Promise<Readonly<Record<string, unknown>>>;
    return await readServerList({
      server: this.#options.server,
      method,
      ask: (params) => this.#within({ signal }, (sdkOptions) => ask({ method, params }, sdkOptions)),
    });
  }

  /** Ends the session, and the program or the connection behind it. */
  async close(): Promise<void> {
    await this.#client.close();
  }

  async #callTool(
    params: McpParams<"tools/call">,
    { name, inputSchema }: McpToolDefinition,
    options: RequestOptions,
  ): Promise<CallToolResult> {
    // Results are checked by whoever shows them: the SDK's check would compile a stranger's schema into code
    const toolDefinition = { name, inputSchema } as unknown as Tool;
    return await this.#client.callTool(params, { ...options, toolDefinition });
  }

  /** Runs a request within its time. */
  async #within<T>(options: McpRequestOptions, ask: (options: RequestOptions) => Promise<T>): Promise<T> {
    const { clock, timeoutMs } = this.#options;
    const { signal, onProgress } = options;
    if (signal.aborted) throw cancelError(signal);
    const deadline = new RequestDeadline({ clock, timeoutMs: options.timeoutMs ?? timeoutMs });
    const open: OpenRequest = { options, deadline };
    this.#open.add(open);
    try {
      return await ask({
        signal: AbortSignal.any([signal, deadline.signal]),
        timeout: SDK_TIMEOUT_MS,
        onprogress: (progress) => {
          deadline.extend();
          onProgress?.(progress);
        },
      });
    } catch (error) {
      if (signal.aborted) throw cancelError(signal);
      throw deadline.isOver ? this.#tooSlow(deadline, error) : this.#toMcpError(error);
    } finally {
      deadline.clear();
      this.#open.delete(open);
    }
  }

  #takeNotifications(): void {
    const { onEvent, onLog } = this.#options;
    const client = this.#client;
    client.setNotificationHandler("notifications/tools/list_changed", () => onEvent({ type: "tools" }));
    client.setNotificationHandler("notifications/prompts/list_changed", () => onEvent({ type: "prompts" }));
    client.setNotificationHandler("notifications/resources/list_changed", () => onEvent({ type: "resources" }));
    client.setNotificationHandler(
      "notifications/resources/updated",
      ({ params: { uri } }) => onEvent({ type: "resource_updated", uri }),
    );
    client.setNotificationHandler("notifications/message", ({ params: { level, logger, data } }) => {
      const words = typeof data === "string" ? data : JSON.stringify(data) ?? "";
      onLog(foreignWords(`${level}${logger === undefined ? "" : ` ${logger}`}: ${words}`));
    });
  }

  #takeQuestions(): void {
    this.#client.setRequestHandler(
      "elicitation/create",
      async ({ params }, { mcpReq: { signal } }) => await this.#elicit(params, signal, this.#asking()),
    );
  }

  /** Lets the server ask the model. Only before the connection. */
  allowSampling(): void {
    this.#client.registerCapabilities({ sampling: {} });
    this.#client.setRequestHandler(
      "sampling/createMessage",
      async ({ params }, { mcpReq: { signal } }) => await this.#sample(params, signal, this.#asking()),
    );
  }

  /** Returns the request that a question belongs to: the only one, or the first of several of one owner. Undefined: nobody knows it */
  #asking(): OpenRequest | undefined {
    const [first, ...others] = this.#open;
    const { owner } = first?.options ?? {};
    if (others.length === 0) return first;
    return owner !== undefined && others.every(({ options }) => options.owner === owner) ? first : undefined;
  }

  async #elicit(
    params: ElicitRequest["params"],
    signal: AbortSignal,
    asking: OpenRequest | undefined,
  ): Promise<ElicitResult> {
    if (asking?.options.onElicit === undefined) return { action: "decline" };
    const resume = asking.deadline.pause();
    try {
      return await asking.options.onElicit(params, AbortSignal.any([signal, asking.options.signal]));
    } finally {
      resume();
    }
  }

  async #sample(
    params: CreateMessageRequest["params"],
    signal: AbortSignal,
    asking: OpenRequest | undefined,
  ): Promise<CreateMessageResult> {
    if (asking?.options.onSample === undefined) throw new Error("Nobody lets this server ask a model for this request");
    const resume = asking.deadline.pause();
    try {
      return await asking.options.onSample(params, AbortSignal.any([signal, asking.options.signal]));
    } finally {
      resume();
    }
  }

  #tooSlow({ timeoutMs }: RequestDeadline, cause: unknown): McpError {
    const { server } = this.#options;
    const key = `[mcp.servers.${server}] timeout_secs`;
    const reason = `the MCP server "${server}" gave no answer within ${timeoutMs / 1000} s; ${key} sets the time`;
    return new McpError("mcp_timeout", `Cannot wait longer: ${reason}`, { server, cause });
  }

  #toMcpError(error: unknown): Error {
    const { server, sdk, fault } = this.#options;
    if (error instanceof McpError) return error;
    const fail = (code: McpError["code"], reason: string, more: object = {}) =>
      new McpError(code, `Cannot use the MCP server "${server}": ${reason}`, { server, cause: error, ...more });
    if (error instanceof sdk.ProtocolError) {
      const { code: protocolCode, data } = error;
      return fail("mcp_refused", `it refuses the request: ${foreignWords(error.message)}`, { protocolCode, data });
    }
    const message = foreignWords(error instanceof Error ? error.message : String(error));
    if (!(error instanceof sdk.SdkError)) return fail("mcp_invalid", message);
    switch (error.code) {
      case sdk.SdkErrorCode.ConnectionClosed:
      case sdk.SdkErrorCode.SendFailed:
        return fail("mcp_lost", `${fault() ?? "its session ended"} before it answered`);
      case sdk.SdkErrorCode.NotConnected:
        return fail("mcp_lost", fault() ?? "its session has ended", { written: false });
      case sdk.SdkErrorCode.CapabilityNotSupported:
      case sdk.SdkErrorCode.MethodNotSupportedByProtocolVersion:
        return fail("mcp_refused", message, { written: false });
      default:
        return fail("mcp_invalid", message);
    }
  }
}
