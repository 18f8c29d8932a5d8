import { isRecord, type JsonSchema } from "../../base/json.ts";
import { lazily, lazilyEach } from "../../base/lazily.ts";
import type { ProviderEvent } from "../../base/records/provider_event.ts";
import {
  parameterChanged,
  type Provider,
  type ProviderCallOptions,
  type ProviderLayer,
  type ProviderRequest,
} from "../provider.ts";
import type { VendorForms } from "../vendors/vendor_forms.ts";
import type { FittedTools, SchemaCache } from "./fit_tools.ts";

/**
 * Makes the layer by which the tools of requests are told in the vendor's dialect of JSON Schema and under names that the vendor takes, and
 * calls come back under the tools' own names. A request whose tools every vendor takes goes to the provider as it is.
 */
export function withDialect(forms: VendorForms): ProviderLayer {
  const load = lazily(async () => {
    const [{ fitTools }, { DIALECTS }] = await Promise.all([
      import("./fit_tools.ts"),
      import("./schema_dialect.ts"),
    ]);
    const cache: SchemaCache = new WeakMap();
    return (request: ProviderRequest) => fitTools(request, DIALECTS[forms.of(request.model).dialect], cache);
  });
  return (provider) => ({
    stream(request, options) {
      const { tools, model } = request;
      const isPlain = hasPlainCalls(request) &&
        (tools.length === 0 || (forms.of(model).dialect !== "gemini" && arePlainTools(tools)));
      return isPlain ? provider.stream(request, options) : new FittedStream(provider, { request, options, load });
    },
  });
}

type Result = IteratorResult<readonly ProviderEvent[], undefined>;

/** Request of a stream, and the function that fits it. */
interface FittedStart {
  readonly request: ProviderRequest;
  readonly options: ProviderCallOptions;
  readonly load: () => Promise<(request: ProviderRequest) => FittedTools>;
}

/** Stream of a request that is fitted when the first event is asked for. A bare iterator: each level of generators costs time. */
class FittedStream implements AsyncIterableIterator<readonly ProviderEvent[], undefined> {
  #inner: AsyncIterator<readonly ProviderEvent[]> | undefined;
  #toOwn: FittedTools["toOwn"];
  /** Notices that go with the first events: before them the provider may still refuse */
  #notices: readonly ProviderEvent[] = [];
  readonly #provider: Provider;
  readonly #start: FittedStart;

  constructor(provider: Provider, start: FittedStart) {
    this.#provider = provider;
    this.#start = start;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async next(): Promise<Result> {
    const inner = this.#inner ??= await this.#open();
    const { done, value } = await inner.next();
    if (done === true) return { done, value: undefined };
    const told = this.#toOwn === undefined ? value : this.#toOwn(value);
    const notices = this.#notices;
    this.#notices = [];
    return { done: false, value: notices.length === 0 ? told : [...notices, ...told] };
  }

  async return(): Promise<Result> {
    await this.#inner?.return?.();
    return { done: true, value: undefined };
  }

  async #open(): Promise<AsyncIterator<readonly ProviderEvent[]>> {
    const { request, options, load } = this.#start;
    const fitted = (await load())(request);
    this.#toOwn = fitted.toOwn;
    if (options.givesFields === true) this.#notices = fitted.changed().map(parameterChanged);
    return this.#provider.stream(fitted.request, options)[Symbol.asyncIterator]();
  }
}

/** Form of names that all vendors take for tools. */
const TOOL_NAME = /^[a-zA-Z_][a-zA-Z0-9_-]{0,62}$/;
/** Form of names that all vendors take for fields. */
const FIELD_NAME = /^[a-zA-Z_][a-zA-Z0-9_.-]{0,63}$/;
/** Longest description that all vendors take for a tool, UTF-16 units. */
const MAX_DESCRIPTION = 1024;
/** Largest count that no server writes out too long. */
const MAX_COUNT = 256;
const MAX_NODES = 500;
const MAX_DEPTH = 6;
const TYPES = new Set(["string", "number", "integer", "boolean", "object", "array"]);

function hasPlainCalls({ messages, toolChoice }: ProviderRequest): boolean {
  return (typeof toolChoice !== "object" || TOOL_NAME.test(toolChoice.name)) &&
    messages.every((message) =>
      message.role !== "assistant" || message.tool_calls === undefined ||
      message.tool_calls.every((call) => TOOL_NAME.test(call.function.name))
    );
}

/** Tells whether all vendors take these tools as they are. Looked at once for a list, which most runs have in each turn. */
const arePlainTools = lazilyEach((tools: ProviderRequest["tools"]): boolean =>
  tools.every(({ name, description, parameters }) =>
    TOOL_NAME.test(name) && description.length <= MAX_DESCRIPTION &&
    (parameters === undefined || isPlainSchema(parameters))
  )
);

/** Tells whether all vendors take a schema as it is. False says only that the schema must be looked at closely. */
const isPlainSchema = lazilyEach((schema: JsonSchema): boolean =>
  schema["type"] === "object" && isRecord(schema["properties"]) && isPlainNode(schema, { left: MAX_NODES }, 0)
);

function isPlainNode(node: unknown, budget: { left: number }, depth: number): boolean {
  if (!isRecord(node) || typeof node["type"] !== "string" || !TYPES.has(node["type"])) return false;
  if (budget.left-- <= 0 || depth > MAX_DEPTH) return false;
  if (node["type"] === "array" && node["items"] === undefined) return false;
  return Object.entries(node).every(([keyword, value]) => {
    switch (keyword) {
      case "type":
        return true;
      case "title":
      case "description":
        return typeof value === "string" && value.length <= MAX_DESCRIPTION;
      case "properties":
        return isRecord(value) &&
          Object.entries(value).every(([name, field]) =>
            FIELD_NAME.test(name) && isPlainNode(field, budget, depth + 1)
          );
      case "items":
        return isPlainNode(value, budget, depth + 1);
      case "required":
        return Array.isArray(value) &&
          value.every((name) => isRecord(node["properties"]) && Object.hasOwn(node["properties"], name));
      case "additionalProperties":
        return value === false;
      case "enum":
        return Array.isArray(value) && value.length > 0 && value.length <= MAX_COUNT &&
          value.every((text) => typeof text === "string" && text !== "");
      case "default":
        return value === null || ["string", "number", "boolean"].includes(typeof value);
      case "minimum":
      case "maximum":
        return typeof value === "number";
      case "minLength":
      case "maxLength":
      case "minItems":
      case "maxItems":
        return typeof value === "number" && value <= MAX_COUNT;
      default:
        return false;
    }
  });
}
