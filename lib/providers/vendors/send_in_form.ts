import type { ProviderError } from "../../base/errors.ts";
import type { HttpExchange } from "../../system/net/http_exchange.ts";
import type { ProviderRequest } from "../provider.ts";
import { fitCallIds, leaveOutBlanks } from "./fit_messages.ts";
import type { CallIdName, LimitField, VendorForm, VendorForms } from "./vendor_forms.ts";

/** Requests of one model to one server. */
export interface FormedRequest {
  readonly forms: VendorForms;
  /** Name of the provider, under which messages keep what it gave */
  readonly provider: string;
  readonly request: ProviderRequest;
  /** Returns the JSON of a request in a form. The messages of the request have it already; `changed` names what that took, and gets what the rest takes */
  readonly build: (request: ProviderRequest, form: VendorForm, changed: string[]) => string;
  /** Sends it. `onRefusal` is called with a refusal of the server, and gives the reply in its place or throws it */
  readonly post: (body: string, onRefusal: (error: ProviderError) => Promise<HttpExchange>) => Promise<HttpExchange>;
}

/**
 * Sends a request in the form that is known for server and model. A refusal that names a form which the server does not take sends it
 * again in the other one, each form once and before the first byte; what led to a reply is kept. A request that is taken costs nothing.
 * @throws {ProviderError} the last refusal
 */
export function sendInForm(asked: FormedRequest): Promise<HttpExchange> {
  return send(asked, { form: asked.forms.of(asked.request.model), taught: NOTHING });
}

/** A try of a request. */
interface Try {
  readonly form: VendorForm;
  /** Lessons of the refusals before it */
  readonly taught: Partial<VendorForm>;
  readonly refused?: Refused;
}

function send(asked: FormedRequest, { form, taught, refused }: Try): Promise<HttpExchange> {
  const { forms, provider, request } = asked;
  const shown = request.pictures === undefined || form.sees ? request : { ...request, pictures: undefined };
  const filled = form.takesBlanks === false ? leaveOutBlanks(shown) : shown;
  const fitted = fitCallIds(filled, { provider, ids: form.callIds });
  const changed: string[] = [];
  if (filled !== shown) changed.push("messages[].content");
  if (fitted !== filled) changed.push("messages[].tool_calls[].id");
  const body = asked.build(fitted, form, changed);
  if (body === refused?.body) return Promise.reject(refused.error);
  return asked.post(body, async (error) => {
    const lesson = lessonOf(form, error, body);
    if (lesson === undefined || Object.keys(lesson).some((field) => field in taught)) throw error;
    const all = { ...taught, ...lesson };
    const reply = await send(asked, { form: { ...form, ...lesson }, taught: all, refused: { body, error } });
    forms.learn(request.model, all);
    return reply;
  });
}

/** Request that was refused: what is the same in another form is not sent again. */
interface Refused {
  readonly body: string;
  readonly error: ProviderError;
}

const NOTHING: Partial<VendorForm> = {};

/** Kind of refusal that teaches something. */
interface Lesson {
  /** Fields of the request that may be refused, as its JSON has them */
  readonly fields: (form: VendorForm) => readonly string[];
  /** Words that name them in a refusal. Default: the name of a field that was sent */
  readonly names?: RegExp;
  /** Tells whether the words refuse the field itself. Default: naming it does */
  readonly refuses?: (words: string) => boolean;
  readonly teaches: (form: VendorForm, words: string) => Partial<VendorForm>;
}

/** Words for a field that a server does not know, or no longer takes. */
const UNKNOWN_FIELD =
  /un(supported|recogni[sz]ed|known|expected)|(not|n't|no longer) (supported?|permitted|allowed|accepted|available)|extra|instead|deprecated|removed/i;
/** Words for a value that a server does not take in a field that it knows. */
const BAD_VALUE =
  /too (large|big|high|small|low)|at (most|least)|maximum|minimum|exceed|(greater|less|larger) than|between|[<>]=? ?\d/i;
/** Words for a field that a server does not find in a message. */
const ASKS_FOR = /missing|must (include|be (passed|provided|included))|required/i;
const BOTH = /cannot both|only one/i;
/** Words for an effort that a model does not have, where it takes others. */
const OTHER_EFFORTS = /(unsupported|invalid) value|supported values|must be one of|expected one of/i;

const refusesField = (words: string) => UNKNOWN_FIELD.test(words) && !BAD_VALUE.test(words);

const LESSONS: readonly Lesson[] = [
  {
    fields: () => ["stream_options"],
    names: /stream_options|include_usage/,
    teaches: () => ({ takesStreamOptions: false }),
  },
  {
    fields: () => ["reasoning_content"],
    // Templates of gpt-oss take no content beside it in a message with calls
    names: /reasoning_content|both content and thinking/,
    // DeepSeek and Moonshot say so when it is missing, Groq and Mistral when it is there
    refuses: (words) => !ASKS_FOR.test(words),
    teaches: () => ({ takesReasoning: false }),
  },
  {
    fields: ({ wantsReasoning }) => wantsReasoning === true ? [] : ["role"],
    names: /reasoning_content/,
    refuses: (words) => ASKS_FOR.test(words),
    teaches: () => ({ takesReasoning: true, wantsReasoning: true }),
  },
  {
    fields: ({ wantsSignatures }) => wantsSignatures === true ? [] : ["tool_calls"],
    names: /thought_?signature/i,
    refuses: (words) => ASKS_FOR.test(words),
    teaches: () => ({ wantsSignatures: true }),
  },
  {
    fields: ({ limit }) => [limit],
    refuses: refusesField,
    teaches: ({ limit }) => ({ limit: OTHER_LIMIT[limit] }),
  },
  {
    fields: ({ takesEffort }) => takesEffort === false ? [] : ["reasoning_effort"],
    // Ollama has no thinking for a model without it
    names: /reasoning_effort|does not support thinking/,
    refuses: (words) => words.includes("support thinking") || (refusesField(words) && !OTHER_EFFORTS.test(words)),
    teaches: () => ({ takesEffort: false }),
  },
  {
    fields: ({ instructions }) => instructions === "as_sent" ? ["role"] : [],
    names: /developer|system message/i,
    refuses: (words) => /role|unknown variant|expected tags|beginning/i.test(words),
    teaches: () => ({ instructions: "one_system" }),
  },
  {
    fields: ({ alternates }) => alternates === true ? [] : ["role"],
    // Templates of models, Bedrock, and Mistral
    names: /roles? must alternate|must alternate between|system message must be|unexpected role .{1,20} after role/i,
    teaches: () => ({ alternates: true }),
  },
  {
    fields: () => ["tool_calls"],
    names: /tool[ _]?(calls?|use)\S{0,40}[ ._]ids?\b|toolUseId/i,
    refuses: (words) => idsIn(words) !== undefined,
    teaches: (form, words) => ({ callIds: idsIn(words) ?? form.callIds }),
  },
  {
    fields: ({ takesBlanks }) => takesBlanks === false ? [] : ["content"],
    names: /non-whitespace|trailing whitespace|non-?empty|(not|cannot) be empty|is not empty/i,
    refuses: (words) => /content|text/i.test(words),
    teaches: () => ({ takesBlanks: false }),
  },
  {
    fields: ({ thinking }) => thinking === undefined ? [] : ["thinking"],
    names: /thinking\.|adaptive/,
    refuses: refusesField,
    teaches: ({ thinking }) => ({ thinking: thinking === "adaptive" ? "budget" : "adaptive" }),
  },
  {
    fields: ({ sampling }) => sampling === undefined ? [] : ["temperature", "top_p"],
    refuses: (words) => BOTH.test(words) || refusesField(words),
    teaches: (_, words) => ({ sampling: BOTH.test(words) ? "one" : "none" }),
  },
];

/** Returns the form of ids that a refusal of one asks for. */
function idsIn(words: string): CallIdName | undefined {
  if (/length (of )?9\b/.test(words)) return "mistral";
  if (/length (of )?40\b/.test(words)) return "openai";
  return words.includes("a-zA-Z0-9_-") ? "anthropic" : undefined;
}

const OTHER_LIMIT: Readonly<Record<LimitField, LimitField>> = {
  max_tokens: "max_completion_tokens",
  max_completion_tokens: "max_tokens",
};

/** Returns the other form that a refusal asks for; undefined for a refusal of anything else, or of what was not sent. */
function lessonOf(form: VendorForm, error: ProviderError, body: string): Partial<VendorForm> | undefined {
  const isRefusal = error.code === "provider_rejected" || (error.status === 500 && !error.retryable);
  if (!isRefusal) return undefined;
  const words = `${error.param ?? ""} ${error.message}`;
  const lesson = LESSONS.find(({ fields, names, refuses }) =>
    fields(form).some((name) => (names?.test(words) ?? words.includes(name)) && body.includes(`"${name}":`)) &&
    (refuses?.(words) ?? true)
  );
  return lesson?.teaches(form, words);
}
