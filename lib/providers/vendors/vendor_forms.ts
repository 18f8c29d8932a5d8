/**
 * Forms in which one server takes requests for one model: the row of its vendor, changed by what refusals of that server have taught for
 * that model. Whoever builds a request asks this and knows no vendor by name.
 */
export interface VendorForm {
  /** Vendor, as the documentation names it */
  readonly vendor: string;
  /** Field that bounds the tokens of the output. Servers that know the other name alone ignore it, or refuse the request */
  readonly limit: LimitField;
  /** Dialect of JSON Schema in which tools are told */
  readonly dialect: DialectName;
  /** Form of the ids of tool calls, see `call_ids.ts` */
  readonly callIds: CallIdName;
  /** Place of instructions: as they were sent, or in one system message at the beginning, without the role `developer` */
  readonly instructions: "as_sent" | "one_system";
  /** True when `stream_options` is taken */
  readonly takesStreamOptions: boolean;
  /** True when `reasoning_content` is taken in messages of the history */
  readonly takesReasoning: boolean;
}

/** Names of the field that bounds the tokens of the output. */
export type LimitField = "max_tokens" | "max_completion_tokens";
/** Forms of the ids of tool calls. */
export type CallIdName = "any" | "openai" | "anthropic" | "mistral" | "kimi";
/** Dialects of JSON Schema, see `schema_dialect.ts`. */
export type DialectName = "openai" | "anthropic" | "gemini" | "portable" | "portable_claude";

/** Server that requests go to. */
export interface VendorServer {
  /** Kind of the provider's settings, as `openai` */
  readonly kind: string;
  /** Origin of the address, as `https://api.openai.com` */
  readonly origin: string;
}

/** Names by which a vendor is known. All that are given must hold. */
interface Place {
  readonly kind?: string;
  /** Form of the host with its port */
  readonly host?: RegExp;
  /** Form of the model's name as the server knows it */
  readonly model?: RegExp;
}

/** Row of the table. */
interface VendorRow extends Partial<VendorForm> {
  readonly vendor: string;
  /** Places where the row counts: one of them is enough */
  readonly at: readonly Place[];
}

/** Forms of a server that no row knows: those of the widest use, which local servers take too. */
const OTHERS: VendorForm = {
  vendor: "others",
  limit: "max_tokens",
  dialect: "portable",
  callIds: "any",
  // Templates of local models know no role `developer`, and often one system message only, at the beginning
  instructions: "one_system",
  takesStreamOptions: true,
  takesReasoning: true,
};

/** Reasoning models of OpenAI, which refuse `max_tokens`. */
const OPENAI_REASONING = /(^|[/.])(o[1-9]|gpt-[5-9])/i;
const MISTRAL = /(^|[/:._-])(mistral|mixtral|codestral|devstral|ministral|magistral|mathstral|pixtral|voxtral)/i;
const AZURE = /\.(openai|cognitiveservices|services\.ai)\.azure\.com(:\d+)?$/;

/** Vendors. The first row that counts is taken; what it does not say is said by OTHERS. */
const ROWS: readonly VendorRow[] = [
  // Source: https://docs.anthropic.com/en/api/messages
  { vendor: "Anthropic", at: [{ kind: "anthropic" }], dialect: "anthropic", callIds: "anthropic" },
  // Source: https://ai.google.dev/gemini-api/docs/openai
  {
    vendor: "Gemini",
    at: [{ host: /\.googleapis\.com(:\d+)?$/ }, { model: /(^|[/:])gemini/i }],
    dialect: "gemini",
  },
  // Source: https://platform.openai.com/docs/api-reference/chat/create
  {
    vendor: "OpenAI",
    at: [{ kind: "openai" }, { host: /^api\.openai\.com$/ }],
    limit: "max_completion_tokens",
    dialect: "openai",
    callIds: "openai",
    instructions: "as_sent",
  },
  // Source: https://learn.microsoft.com/azure/ai-foundry/openai/how-to/reasoning
  {
    vendor: "Azure, reasoning models",
    at: [{ host: AZURE, model: OPENAI_REASONING }],
    limit: "max_completion_tokens",
    dialect: "openai",
    callIds: "openai",
    instructions: "as_sent",
  },
  { vendor: "Azure", at: [{ host: AZURE }], callIds: "openai", instructions: "as_sent" },
  {
    vendor: "Claude behind another server",
    at: [{ model: /(^|[/.:])(claude|anthropic)/i }],
    dialect: "portable_claude",
    callIds: "anthropic",
  },
  // Source: https://docs.mistral.ai/capabilities/function_calling, and the templates of its models, which other servers use
  { vendor: "Mistral", at: [{ host: /^api\.mistral\.ai$/ }, { model: MISTRAL }], callIds: "mistral" },
  // Source: https://huggingface.co/moonshotai/Kimi-K2-Instruct/blob/main/docs/tool_call_guidance.md
  { vendor: "Kimi", at: [{ model: /(^|[/:._-])kimi/i }], callIds: "kimi" },
  { vendor: "OpenAI behind another server", at: [{ model: /^openai\/(?!gpt-oss)/i }], callIds: "openai" },
];

/** Models of one server whose forms are kept. The bound is there since names come from clients */
const MAX_KNOWN = 100;

/** Forms of one server by model, kept in memory as long as the provider is open: a reload that opens it anew forgets what was learnt. */
export class VendorForms {
  readonly #server: VendorServer;
  /** In the order of their first use, the newest last */
  readonly #known = new Map<string, VendorForm>();

  constructor(server: VendorServer) {
    this.#server = server;
  }

  /** Returns the form of a model. */
  of(model: string): VendorForm {
    return this.#known.get(model) ?? this.#keep(model, rowOf(this.#server, model));
  }

  /** Notes what the server has taught for a model. */
  learn(model: string, taught: Partial<VendorForm>): void {
    const form = { ...this.of(model), ...taught };
    this.#known.delete(model);
    this.#keep(model, form);
  }

  #keep(model: string, form: VendorForm): VendorForm {
    const [oldest] = this.#known.keys();
    if (this.#known.size >= MAX_KNOWN && oldest !== undefined) this.#known.delete(oldest);
    this.#known.set(model, form);
    return form;
  }
}

function rowOf({ kind, origin }: VendorServer, model: string): VendorForm {
  const host = origin.slice(origin.indexOf("//") + 2);
  const counts = (place: Place) =>
    (place.kind === undefined || place.kind === kind) && (place.host?.test(host) ?? true) &&
    (place.model?.test(model) ?? true);
  const row = ROWS.find(({ at }) => at.some(counts));
  if (row === undefined) return OTHERS;
  const { at: _, ...form } = row;
  return { ...OTHERS, ...form };
}
