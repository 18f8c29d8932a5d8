import type { ProviderSettings } from "../provider_settings.ts";

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
  /** Form of the ids of tool calls, see `fit_messages.ts` */
  readonly callIds: CallIdName;
  /** Place of instructions: as they were sent, or in one system message at the beginning, without the role `developer` */
  readonly instructions: "as_sent" | "one_system";
  /** True when the messages of user and assistant must take turns, behind one system message. Default false */
  readonly alternates?: boolean;
  /** True when `stream_options` is taken */
  readonly takesStreamOptions: boolean;
  /** True when `reasoning_content` is taken in messages of the history */
  readonly takesReasoning: boolean;
  /** True when each message of the assistant in the history must have `reasoning_content`. Default false */
  readonly wantsReasoning?: boolean;
  /** True when calls in the history must have Gemini's signature of a thought. Default false */
  readonly wantsSignatures?: boolean;
  /** False when `reasoning_effort` is refused: the model does not reason, or is not told how much. Default true */
  readonly takesEffort?: boolean;
  /** Sampling settings, `temperature` and `top_p`, that a request may have. Default: all, and a refusal is the client's */
  readonly sampling?: "all" | "one" | "none";
  /** Way in which Claude is told how long to think: a budget of tokens, or an effort */
  readonly thinking?: "budget" | "adaptive";
  /** False when a text of blanks alone is refused with the whole request, and blanks at the end of a last message of the assistant. Default true */
  readonly takesBlanks?: boolean;
  /** True once a local server has answered that is not known to show the model no tools. Default: it was not asked yet */
  readonly showsTools?: boolean;
  /** False when the last message may not be one of the assistant, whose reply would go on with it. Default true */
  readonly takesPrefill?: boolean;
  /** True when the model is shown pictures of tool results. Any other model is told of them in words */
  readonly sees: boolean;
}

/** Names of the field that bounds the tokens of the output. */
export type LimitField = "max_tokens" | "max_completion_tokens";
/** Forms of the ids of tool calls. */
export type CallIdName = "any" | "openai" | "anthropic" | "mistral" | "kimi";
/** Dialects of JSON Schema, see `schema_dialect.ts`. */
export type DialectName = "openai" | "anthropic" | "gemini" | "portable" | "portable_claude";

/** Server that requests go to. */
export interface VendorServer {
  /** Kind of the provider's settings, such as `openai` */
  readonly kind: string;
  /** Origin of the address, such as `https://api.openai.com` */
  readonly origin: string;
  /** Setting that says which models see. `auto`: those that are known by their names to see. Default `auto` */
  readonly vision?: ProviderSettings["vision"];
}

/** Names by which a vendor is known. */
interface Place {
  readonly kind?: string;
  /** Form of the host with its port */
  readonly host?: RegExp;
  /** Form of the model's name as the server knows it */
  readonly model?: RegExp;
  /** First version of Claude, as 407 for 4.7; a name without a version is older than all */
  readonly from?: number;
}

/** Row of the table: the vendor and where it differs from the rows before. */
export interface VendorRow extends Partial<VendorForm> {
  readonly vendor: string;
  /** Places where the row counts, each with all that it names: one of them is enough */
  readonly at: readonly Place[];
}

/** Forms of a server that no row knows: those of the widest use, which local servers take too. */
const OTHERS: VendorForm & VendorRow = {
  vendor: "all others",
  at: [{}],
  limit: "max_tokens",
  dialect: "portable",
  callIds: "any",
  // Templates of local models know no role `developer`, and often one system message only, at the beginning
  instructions: "one_system",
  takesStreamOptions: true,
  takesReasoning: true,
  sees: false,
};

/** Reasoning models of OpenAI, which refuse `max_tokens`. */
const OPENAI_REASONING = /(^|[/.])(o[1-9]|gpt-[5-9])/i;
const MISTRAL = /(^|[/:._-])(mistral|mixtral|codestral|devstral|ministral|magistral|mathstral|pixtral|voxtral)/i;
const AZURE = /\.(openai|cognitiveservices|services\.ai)\.azure\.com(:\d+)?$/;

/** Vendors. Each row that counts is laid over those before it. docs/http.md tells clients of all of them. */
export const VENDOR_ROWS: readonly VendorRow[] = [
  OTHERS,
  {
    vendor: "Claude behind another server",
    at: [{ model: /(^|[/.:])(claude|anthropic)/i }],
    dialect: "portable_claude",
    callIds: "anthropic",
    takesBlanks: false,
  },
  { vendor: "OpenAI behind another server", at: [{ model: /^openai\/(?!gpt-oss)/i }], callIds: "openai" },
  // Source: https://openrouter.ai/docs/client-sdks/python/components/chatmessages
  {
    vendor: "OpenRouter",
    at: [{ kind: "openrouter" }, { host: /^openrouter\.ai$/ }],
    instructions: "as_sent",
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
  { vendor: "Azure", at: [{ host: AZURE }], callIds: "openai", instructions: "as_sent" },
  // Source: https://learn.microsoft.com/azure/ai-foundry/openai/how-to/reasoning
  {
    vendor: "Azure, reasoning models",
    at: [{ host: AZURE, model: OPENAI_REASONING }],
    limit: "max_completion_tokens",
    dialect: "openai",
  },
  // Source: https://ai.google.dev/gemini-api/docs/openai
  {
    vendor: "Gemini",
    at: [{ host: /\.googleapis\.com(:\d+)?$/ }, { model: /(^|[/:])gemini/i }],
    dialect: "gemini",
  },
  // Source: https://docs.mistral.ai/capabilities/function_calling, and the templates of its models, which other servers use
  { vendor: "Mistral", at: [{ host: /^api\.mistral\.ai$/ }, { model: MISTRAL }], callIds: "mistral" },
  // Source: https://huggingface.co/moonshotai/Kimi-K2-Instruct/blob/main/docs/tool_call_guidance.md
  { vendor: "Kimi", at: [{ model: /(^|[/:._-])kimi/i }], callIds: "kimi" },
  // Source: https://docs.anthropic.com/en/api/messages
  {
    vendor: "Anthropic",
    at: [{ kind: "anthropic" }],
    dialect: "anthropic",
    callIds: "anthropic",
    takesBlanks: false,
    sampling: "all",
    thinking: "budget",
  },
  // Source: https://platform.claude.com/docs/en/about-claude/models/migration-guide
  { vendor: "Anthropic from 4.1", at: [{ kind: "anthropic", from: 401 }], sampling: "one" },
  { vendor: "Anthropic from 4.6", at: [{ kind: "anthropic", from: 406 }], takesPrefill: false },
  {
    vendor: "Anthropic from 4.7",
    at: [{ kind: "anthropic", from: 407 }],
    sampling: "none",
    thinking: "adaptive",
  },
];

/** Models of one server whose forms are kept. The bound is there since names come from clients */
const MAX_KNOWN = 100;

/** Forms of one server by model, kept in memory as long as the provider is open: a reload opens another one, which has learnt nothing. */
export class VendorForms {
  readonly #server: VendorServer;
  /** In the order of their first use, the newest last */
  readonly #known = new Map<string, VendorForm>();

  constructor(server: VendorServer) {
    this.#server = server;
  }

  /** Returns the form of a model. */
  of(model: string): VendorForm {
    return this.#known.get(model) ??
      this.#keep(model, { ...rowOf(this.#server, model), sees: sees(this.#server, model) });
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
    (place.model?.test(model) ?? true) && (place.from === undefined || claudeVersion(model) >= place.from);
  return VENDOR_ROWS.reduce<VendorForm>((form, { at, ...row }) => at.some(counts) ? { ...form, ...row } : form, OTHERS);
}

/** Returns the version in a name of Claude, as 407 of `claude-opus-4-7`; 0 without one. A date is none. */
function claudeVersion(model: string): number {
  const [, major = 0, minor = 0] = /claude-(?:[a-z]{1,20}-){0,4}(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)/i.exec(model) ?? [];
  return Number(major) * 100 + Number(minor);
}

/** Families of models that see, by the maker's own names (platform.openai.com, docs.anthropic.com, ai.google.dev). */
const OPENAI = /^(?:chatgpt-4o|gpt-4o|gpt-4\.[15]|gpt-4-turbo|gpt-5|o1(?!-mini|-preview)|o3(?!-mini)|o4-mini)/;
const OPENAI_BLIND = /audio|realtime|search|transcribe|tts/;
const ANTHROPIC = /^claude-(?!2|instant|v\d)/;
const GOOGLE = /^gemini-/;

/** Tells whether a model sees. `auto` knows the models of OpenAI and Anthropic, and of these and Google at OpenRouter; all others do not. */
function sees({ kind, vision = "auto" }: VendorServer, model: string): boolean {
  if (vision !== "auto") return vision === "on";
  switch (kind) {
    case "openai":
      return isSeeingOpenAi(model);
    case "anthropic":
      return ANTHROPIC.test(model);
    case "openrouter": {
      const [maker, name = ""] = model.split("/");
      if (maker === "openai") return isSeeingOpenAi(name);
      return (maker === "anthropic" && ANTHROPIC.test(name)) || (maker === "google" && GOOGLE.test(name));
    }
    default:
      return false;
  }
}

function isSeeingOpenAi(model: string): boolean {
  return OPENAI.test(model) && !OPENAI_BLIND.test(model);
}
