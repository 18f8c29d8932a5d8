import { redactJson, type RedactPart } from "../../base/redact.ts";
import type { Counter, Family } from "../../base/telemetry/metrics.ts";
import type {
  McpConnection,
  McpEvent,
  McpParams,
  McpRequestMethod,
  McpRequestOptions,
  McpResult,
  McpStatus,
  McpToolDefinition,
} from "./mcp_connection.ts";
import { McpError } from "./mcp_error.ts";

/** Parts of a WatchedConnection. */
export interface WatchedConnectionOptions {
  /** Masks secrets in all that the server says. */
  readonly redact: RedactPart;
  /** Counts requests by server and outcome. Default: they are not counted */
  readonly calls?: Family<Counter> | undefined;
}

/** Connection whose server may send back what it was given: every word of it is masked, and each request is counted. */
export class WatchedConnection implements McpConnection {
  readonly #inner: McpConnection;
  readonly #options: WatchedConnectionOptions;
  /** Tools as the inner connection gave them last, and masked */
  #known: { readonly given: readonly McpToolDefinition[]; readonly masked: readonly McpToolDefinition[] } | undefined;

  constructor(inner: McpConnection, options: WatchedConnectionOptions) {
    this.#inner = inner;
    this.#options = options;
  }

  get name(): string {
    return this.#inner.name;
  }

  status(): McpStatus {
    return { ...this.#masked(this.#inner.status()), name: this.name };
  }

  tools(): readonly McpToolDefinition[] {
    return this.#maskedTools(this.#inner.tools());
  }

  async freshTools(signal: AbortSignal): Promise<readonly McpToolDefinition[]> {
    return this.#maskedTools(await this.#told(() => this.#inner.freshTools(signal)));
  }

  async prompts(signal: AbortSignal) {
    return this.#masked(await this.#told(() => this.#inner.prompts(signal)));
  }

  async resources(signal: AbortSignal) {
    return this.#masked(await this.#told(() => this.#inner.resources(signal)));
  }

  async resourceTemplates(signal: AbortSignal) {
    return this.#masked(await this.#told(() => this.#inner.resourceTemplates(signal)));
  }

  async request<M extends McpRequestMethod>(
    method: M,
    params: McpParams<M>,
    options: McpRequestOptions,
  ): Promise<McpResult<M>> {
    const { onProgress, onElicit, onSample } = options;
    const masking: McpRequestOptions = {
      ...options,
      ...(onProgress && { onProgress: (progress) => onProgress(this.#masked(progress)) }),
      ...(onElicit && { onElicit: (question, signal) => onElicit(this.#masked(question), signal) }),
      ...(onSample && { onSample: (asked, signal) => onSample(this.#masked(asked), signal) }),
    };
    try {
      const result = await this.#told(() => this.#inner.request(method, params, masking));
      this.#count("isError" in result && result.isError === true ? "tool_error" : "ok");
      return this.#masked(result);
    } catch (error) {
      this.#count(error instanceof McpError ? error.code : options.signal.aborted ? "cancelled" : "failed");
      throw error;
    }
  }

  listen(onEvent: (event: McpEvent) => void): () => void {
    return this.#inner.listen(onEvent);
  }

  logTail(): string {
    return this.#text(this.#inner.logTail());
  }

  restart(signal: AbortSignal): Promise<void> {
    return this.#told(() => this.#inner.restart(signal));
  }

  forget(renew: () => Promise<void>): Promise<void> {
    return this.#inner.forget(renew);
  }

  close(): Promise<void> {
    return this.#inner.close();
  }

  #count(outcome: string): void {
    this.#options.calls?.with(this.name, outcome).add();
  }

  /** Does work whose error says what the server said. */
  async #told<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      if (!(error instanceof McpError)) throw error;
      const message = this.#text(error.message);
      const data = this.#masked(error.data);
      const { code, server, written, isStale, protocolCode } = error;
      throw new McpError(code, message, { server, written, isStale, protocolCode, data, cause: error.cause });
    }
  }

  #maskedTools(given: readonly McpToolDefinition[]): readonly McpToolDefinition[] {
    if (this.#known?.given !== given) {
      // The name that a call needs and the digest stay: a masked one would be another tool
      const named = given.filter(({ name }) => this.#text(name) === name);
      const masked = named.map((tool) => ({ ...this.#masked(tool), name: tool.name, digest: tool.digest }));
      this.#known = { given, masked };
    }
    return this.#known.masked;
  }

  /** Masks every text in a value, which keeps its shape. */
  #masked<T>(value: T): T {
    return redactJson(value, (text) => this.#text(text));
  }

  #text(text: string): string {
    const bytes = new TextEncoder().encode(text);
    return new TextDecoder().decode(this.#options.redact.redact(bytes, { from: 0, to: bytes.length }));
  }
}
