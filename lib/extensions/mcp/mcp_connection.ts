import type {
  CreateMessageRequest,
  CreateMessageResult,
  ElicitRequest,
  ElicitResult,
  Progress,
  Prompt,
  RequestTypeMap,
  Resource,
  ResourceTemplateType,
  ResultTypeMap,
  ServerCapabilities,
} from "@modelcontextprotocol/client";
import type { JsonObject } from "../../base/json.ts";
import type { McpErrorCode } from "./mcp_error.ts";

/**
 * State of a server.
 *
 * - `disabled`: a person turned it off, or `allowed_servers` does not name it.
 * - `idle`: it has no session. The next request opens one.
 * - `starting`: a session is being opened.
 * - `ready`: it has a session.
 * - `failed`: the last session could not be opened, or broke. The next request tries again, after a pause that grows.
 */
export type McpState = "disabled" | "idle" | "starting" | "ready" | "failed";

/** Era of the protocol. `legacy`: 2025-11-25 and older, with `initialize`; `modern`: 2026-07-28, with `server/discover`. */
export type McpEra = "legacy" | "modern";

/** State of a server and the facts about it, as lists show them. Times are milliseconds since the epoch. */
export interface McpStatus {
  readonly name: string;
  readonly transport: "stdio" | "http";
  readonly state: McpState;
  /** Era and version that the newest session negotiated. Undefined before the first one */
  readonly era: McpEra | undefined;
  readonly protocolVersion: string | undefined;
  /** Name and version that the server gives itself: words of a stranger */
  readonly server: { readonly name: string; readonly version: string; readonly title?: string | undefined } | undefined;
  readonly capabilities: ServerCapabilities;
  /** The server's advice to models: words of a stranger */
  readonly instructions: string | undefined;
  readonly lastError: { readonly code: McpErrorCode; readonly message: string; readonly at: number } | undefined;
  /** Start of the session. Undefined without one */
  readonly since: number | undefined;
  readonly toolCount: number;
  /** Sentences about tools that the server lists and that are not offered, each with the reason: at most 11 */
  readonly leftOut: readonly string[];
  /** Time at which the list of tools was read. Undefined: never */
  readonly listedAt: number | undefined;
}

/** Claims of a server about one of its tools. What is absent counts as the worse. */
export interface McpToolHints {
  readonly readOnly: boolean;
  readonly destructive: boolean;
  readonly idempotent: boolean;
  readonly openWorld: boolean;
}

/** Tool as a server lists it: words of a stranger within bounds. */
export interface McpToolDefinition {
  readonly name: string;
  readonly title: string | undefined;
  readonly description: string;
  readonly inputSchema: JsonObject;
  readonly outputSchema: JsonObject | undefined;
  readonly hints: McpToolHints;
  /** SHA-256 over all that the server says of the tool, hexadecimal. Another digest is another tool */
  readonly digest: string;
}

/** Methods that a caller may ask a server. */
export type McpRequestMethod = "tools/call" | "prompts/get" | "resources/read" | "completion/complete";

/** Parameters of a method. */
export type McpParams<M extends McpRequestMethod> = RequestTypeMap[M]["params"];

/** Result of a method, checked by the schemas of the SDK. Its words are those of a stranger. */
export type McpResult<M extends McpRequestMethod> = ResultTypeMap[M];

/** Options of one request. */
export interface McpRequestOptions {
  readonly signal: AbortSignal;
  /** Milliseconds. Progress restarts the time, questions to a person stop it. Default: `timeout_secs` */
  readonly timeoutMs?: number | undefined;
  /** Receives the server's progress. */
  readonly onProgress?: ((progress: Progress) => void) | undefined;
  /** Answers a question of the server to the user. Default: it is declined */
  readonly onElicit?: ((params: ElicitRequest["params"], signal: AbortSignal) => Promise<ElicitResult>) | undefined;
  /** Answers a request of the server to a model, where `sampling = true`. Default: it is refused */
  readonly onSample?:
    | ((params: CreateMessageRequest["params"], signal: AbortSignal) => Promise<CreateMessageResult>)
    | undefined;
  /**
   * Run that the request belongs to. A server of the old era does not say which request a question belongs to: it is asked for one that runs
   * alone, or for several of one owner.
   */
  readonly owner?: string | undefined;
  /** Digest that the tool must still have. Default: any */
  readonly digest?: string | undefined;
}

/** Change that a connection tells its listeners. */
export type McpEvent =
  | { readonly type: "tools" | "prompts" | "resources" | "state" }
  | { readonly type: "resource_updated"; readonly uri: string };

/** A configured server: it outlives its sessions, which it opens at the first request and closes when nobody asks any more. */
export interface McpConnection {
  readonly name: string;
  /** Returns what the server is and does now. */
  status(): McpStatus;
  /** Returns the tools that are known, from the last session or an earlier gateway. The same array until they change. */
  tools(): readonly McpToolDefinition[];
  /** Returns the tools as the server has them now: reads them where what is known is no longer fresh. @throws {McpError} {CancelError} */
  freshTools(signal: AbortSignal): Promise<readonly McpToolDefinition[]>;
  /** Returns the prompts of the server. Empty for one without. @throws {McpError} {CancelError} */
  prompts(signal: AbortSignal): Promise<readonly Prompt[]>;
  /** Returns the resources of the server. Empty for one without. @throws {McpError} {CancelError} */
  resources(signal: AbortSignal): Promise<readonly Resource[]>;
  /** Returns the templates of resources of the server. Empty for one without. @throws {McpError} {CancelError} */
  resourceTemplates(signal: AbortSignal): Promise<readonly ResourceTemplateType[]>;
  /**
   * Asks the server, over a session that is opened where there is none. A request that did not reach the server, or that it refused since it
   * does not know the session any more, is made once more over a new one. For any other, `McpError.written` says whether the caller may repeat it.
   * @throws {McpError} {CancelError} when the signal aborts; the server is told
   */
  request<M extends McpRequestMethod>(
    method: M,
    params: McpParams<M>,
    options: McpRequestOptions,
  ): Promise<McpResult<M>>;
  /** Calls a function at each change. @returns a function that ends that */
  listen(onEvent: (event: McpEvent) => void): () => void;
  /** Returns the end of what the server wrote to its error output and its log, masked: at most 64 KiB. */
  logTail(): string;
  /** Opens a session now, after closing one that there is. @throws {McpError} {CancelError} */
  restart(signal: AbortSignal): Promise<void>;
  /**
   * Closes the session and forgets what was learned in it: with another account it is another server.
   * @param renew done before the next session begins
   */
  forget(renew: () => Promise<void>): Promise<void>;
  /** Closes the session and takes no further request. Repeating it does nothing */
  close(): Promise<void>;
}
