import type {
  Client,
  CreateMessageRequest,
  CreateMessageResult,
  ElicitRequest,
  ElicitResult,
  RequestOptions,
  ServerCapabilities,
  SubscriptionFilter,
  Tool,
} from "@modelcontextprotocol/client";
import { cancelError } from "../../base/cancel.ts";
import { Backoff, type Clock, withTimeout } from "../../base/clock.ts";
import { untilEffectMayBegin } from "../../base/effect_right.ts";
import { isRecord } from "../../base/json.ts";
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
import type { AfterProgram } from "../../system/process/workspace_watch.ts";
import { LEFT_OUT } from "./mend_reply.ts";
import { RequestDeadline } from "./request_deadline.ts";
import { sessionEnded, tooSlow, toSessionError } from "./session_error.ts";

/** Options of an ServerSession. */
export interface ServerSessionOptions {
  /** Name of the server in the configuration */
  readonly server: string;
  readonly sdk: McpClientSdk;
  readonly clock: Clock;
  /** Milliseconds that a request may take */
  readonly timeoutMs: number;
  /** Receives the changes that the server announces. */
  readonly onEvent: (event: McpEvent) => void;
  /** Takes lines of the server's log. */
  readonly onLog: (line: string) => void;
  /** Watches the workspace for what the server writes until `after`. Default: it runs elsewhere */
  readonly watch?: (() => Promise<AfterProgram>) | undefined;
  /** Returns the reason of the end as the rest of a sentence about the server. Undefined: nobody knows it */
  readonly fault: () => string | undefined;
}

/** Request that waits for its answer. */
interface OpenRequest {
  readonly options: McpRequestOptions;
  readonly deadline: RequestDeadline;
}

/** Time limit that the SDK is given, in ms, which never ends: Postern's own limits go by the injected clock. */
export const SDK_TIMEOUT_MS = 2_147_483_647;
/** Times that a server may want more before it answers, and questions that it may ask each time. */
const MAX_ROUNDS = 10;
const MAX_QUESTIONS = 16;
/** Milliseconds before a server is asked again that wants nothing but time. */
const STATE_PAUSE_MS = 250;
/** Milliseconds that the start of a session waits for the server's word that it tells its changes. */
const ACK_MS = 1_000;
/** Milliseconds for that word in all. */
const LISTEN_MS = 10_000;
/** Milliseconds before a server is asked again to tell its changes. They double up to the last. */
const PAUSES = { firstMs: 1_000, mostMs: 60_000 } as const;

/** Session with a server: a connected client of the SDK, whose answers are bounded in time. */
export class ServerSession {
  readonly #client: Client;
  readonly #options: ServerSessionOptions;
  readonly #open = new Set<OpenRequest>();
  readonly #ending = new AbortController();
  #tellsTools = false;

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

  /** True while the server tells changes of its tools. */
  get tellsTools(): boolean {
    return this.#tellsTools;
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
    const written = await this.#options.watch?.();
    try {
      if (method === "tools/call") await untilEffectMayBegin(options.signal);
      // The SDK has checked the result against the schema of the method
      return await this.#within(options, (sdkOptions, open) => {
        const ask = (given: object) => this.#ask({ method, params: given, tool }, sdkOptions);
        return this.#answering(params, ask, open);
      }) as McpResult<M>;
    } finally {
      // A server that was stopped may have written before
      await written?.after();
    }
  }

  /** Asks a server of the new era to tell its changes, and again whenever that ends. Waits a moment for the first answer. */
  async subscribe(signal: AbortSignal): Promise<void> {
    const { tools, prompts, resources } = this.capabilities;
    const filter = {
      ...(tools?.listChanged === true ? { toolsListChanged: true } : {}),
      ...(prompts?.listChanged === true ? { promptsListChanged: true } : {}),
      ...(resources?.listChanged === true ? { resourcesListChanged: true } : {}),
    };
    if (this.era === "legacy" || Object.keys(filter).length === 0) return;
    const first = Promise.withResolvers<void>();
    void this.#listen(filter, first.resolve);
    await withTimeout(first.promise, { ms: ACK_MS, clock: this.#options.clock });
    if (signal.aborted) throw cancelError(signal);
  }

  /** Reads the pages of a list. Empty where the server has no such thing. @throws {McpError} {CancelError} */
  async list<M extends ListMethod>(method: M, signal: AbortSignal): Promise<ReadList<ListItem<M>>> {
    const { capabilities } = this;
    const has = method === "tools/list"
      ? capabilities.tools
      : method === "prompts/list"
      ? capabilities.prompts
      : capabilities.resources;
    if (has === undefined) return { items: [], leftOut: [], ttlMs: undefined };
    // As in #ask
    const ask = this.#client.request.bind(this.#client) as (
      request: object,
      options: RequestOptions,
    ) => Promise<Readonly<Record<string, unknown>>>;
    return await readServerList({
      method,
      leftOutOf: ({ _meta: meta }) => {
        const told = isRecord(meta) ? meta[LEFT_OUT] : undefined;
        return Array.isArray(told) ? told.filter((line) => typeof line === "string") : [];
      },
      ask: (params) => this.#within({ signal }, (sdkOptions) => ask({ method, params }, sdkOptions)),
    });
  }

  /** Ends the session, and the program or the connection behind it. */
  async close(): Promise<void> {
    this.ended();
    await this.#client.close();
  }

  /** Ends what the session does by itself: its connection is gone. */
  ended(): void {
    this.#ending.abort();
  }

  async #listen(filter: SubscriptionFilter, onFirst: () => void): Promise<void> {
    const { signal } = this.#ending;
    const { clock, onLog } = this.#options;
    for (const backoff = new Backoff(PAUSES); !signal.aborted;) {
      const limit = clock.timeoutSignal(LISTEN_MS);
      try {
        const opening = { signal: AbortSignal.any([signal, limit.signal]), timeout: SDK_TIMEOUT_MS };
        const { closed, honoredFilter } = await this.#client.listen(filter, opening);
        limit.clear();
        this.#tellsTools = honoredFilter.toolsListChanged === true;
        onFirst();
        const reason = await closed;
        this.#tellsTools = false;
        if (reason === "local") return;
      } catch (error) {
        if (!signal.aborted) onLog(foreignWords(`its changes are not told: ${String(error)}`));
        onFirst();
        // A server that does not know the method will not learn it
        if (error instanceof this.#options.sdk.ProtocolError) return;
      } finally {
        limit.clear();
      }
      await clock.sleep(backoff.next(), signal).catch(() => {});
      // A server tells no changes during the pause, so its tools are read again
      if (!signal.aborted) this.#options.onEvent({ type: "tools" });
    }
  }

  /** Asks once. The headers of a tool that has some go by its definition. */
  async #ask(
    { method, params, tool }: {
      readonly method: string;
      readonly params: object;
      readonly tool: McpToolDefinition | undefined;
    },
    options: RequestOptions,
  ): Promise<unknown> {
    if (method === "tools/call" && this.era === "modern" && tool !== undefined) {
      const { name, inputSchema } = tool;
      // Results are checked by whoever shows them: the SDK's check would compile a stranger's schema into code
      const toolDefinition = { name, inputSchema } as unknown as Tool;
      // The parameters are those of the method
      return await this.#client.callTool(params as McpParams<"tools/call">, { ...options, toolDefinition });
    }
    // The SDK's types cannot follow a method that is not known yet
    const ask = this.#client.request.bind(this.#client) as (
      request: object,
      options: RequestOptions,
    ) => Promise<unknown>;
    return await ask({ method, params }, options);
  }

  /** Asks until the answer is complete: a server of the new era may want more first. */
  async #answering(params: object, ask: (params: object) => Promise<unknown>, open: OpenRequest): Promise<unknown> {
    const { sdk, clock } = this.#options;
    let given = params;
    for (let round = 0;; round++) {
      this.#requireOpen();
      const result = await ask(given);
      if (!sdk.isInputRequiredResult(result)) return result;
      if (round === MAX_ROUNDS) throw this.#broken(`it wanted more than ${MAX_ROUNDS} times before it answered`);
      const { inputRequests = {}, requestState } = result;
      const questions = Object.entries(inputRequests);
      if (questions.length > MAX_QUESTIONS) throw this.#broken(`it asks more than ${MAX_QUESTIONS} things at once`);
      if (questions.length === 0) await clock.sleep(STATE_PAUSE_MS, open.options.signal);
      const inputResponses: Record<string, unknown> = {};
      for (const [key, question] of questions) inputResponses[key] = await this.#answer(question, open);
      given = {
        ...params,
        ...(questions.length === 0 ? {} : { inputResponses }),
        ...(requestState === undefined ? {} : { requestState }),
      };
      // An answer was given, so that the server starts over
      open.deadline.extend();
    }
  }

  async #answer(question: unknown, open: OpenRequest): Promise<ElicitResult> {
    const { isSpecType } = this.#options.sdk;
    if (!isSpecType.ElicitRequest(question)) throw this.#broken("it asks for something that Postern has not offered");
    return await this.#elicit(question.params, open.options.signal, open);
  }

  /** Refuses a request in a session that is over, for the reason of its end: the SDK knows none. @throws {McpError} */
  #requireOpen(): void {
    const { server, fault } = this.#options;
    if (this.#ending.signal.aborted) throw sessionEnded(server, fault());
  }

  #broken(reason: string): McpError {
    const { server } = this.#options;
    return new McpError("mcp_invalid", `Cannot use the MCP server "${server}": ${reason}`, { server });
  }

  /** Runs a request within its time. */
  async #within<T>(
    options: McpRequestOptions,
    ask: (options: RequestOptions, open: OpenRequest) => Promise<T>,
  ): Promise<T> {
    const { clock, timeoutMs } = this.#options;
    const { signal, onProgress } = options;
    if (signal.aborted) throw cancelError(signal);
    const deadline = new RequestDeadline({ clock, timeoutMs: options.timeoutMs ?? timeoutMs });
    const open: OpenRequest = { options, deadline };
    this.#open.add(open);
    try {
      this.#requireOpen();
      return await ask({
        signal: AbortSignal.any([signal, deadline.signal]),
        timeout: SDK_TIMEOUT_MS,
        allowInputRequired: true,
        onprogress: (progress) => {
          deadline.extend();
          onProgress?.(progress);
        },
      }, open);
    } catch (error) {
      if (signal.aborted) throw cancelError(signal);
      const { server } = this.#options;
      throw deadline.isOver
        ? tooSlow({ server, timeoutMs: deadline.timeoutMs }, error)
        : toSessionError(error, this.#options);
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
}
