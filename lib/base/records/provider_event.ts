import type { FinishReason } from "./agent_event.ts";
import type { Usage } from "./usage.ts";

/**
 * Events of a provider. They come in arrays, one for each read from the network, which is never held back to be filled.
 * A stream without error ends with exactly one `finish`.
 */
export type ProviderEvent =
  | { readonly type: "text_delta"; readonly delta: string }
  | { readonly type: "reasoning_delta"; readonly delta: string }
  | { readonly type: "refusal_delta"; readonly delta: string }
  /**
   * `index` is the call's place in the turn; `call_id` and `name` stand in the call's first delta. `extra` has the vendor's own
   * fields of the call, those of its `function` under that name.
   */
  | {
    readonly type: "tool_call_delta";
    readonly index: number;
    readonly call_id?: string;
    readonly name?: string;
    readonly arguments_delta: string;
    readonly extra?: Fields;
  }
  /**
   * Fields of the reply that the gateway does not know, given when the call asks for them: of the whole reply, where they are new
   * or changed, and what came with this part for its choice and its message.
   */
  | {
    readonly type: "reply_fields";
    readonly reply?: Fields;
    readonly choice?: Fields;
    readonly message?: Fields;
    /** Name of the provider, where the message has parts that no other one may get */
    readonly provider?: string;
  }
  /** A quirk that was mended or could not be (lost tool call, broken arguments, empty reply): reported, not swallowed */
  | {
    readonly type: "notice";
    readonly code: string;
    readonly message: string;
    /** With codes `parameter_ignored` and `parameter_changed`: the request's parameter that is not honoured, or sent in another form */
    readonly param?: string | undefined;
    /** With code `history_trimmed`: messages that were left out or shortened */
    readonly count?: number | undefined;
    /** With code `provider_fallback`: the `provider/model` that answers in place of the one that was asked for */
    readonly model?: string | undefined;
  }
  | {
    readonly type: "finish";
    readonly finish_reason: FinishReason;
    /** undefined when the provider reported none: the agent estimates and marks it */
    readonly usage: Usage | undefined;
    /** The model that answered, as the upstream named it */
    readonly model?: string;
    /** Parts that must go back unchanged with the next request */
    readonly opaque?: unknown;
    /** Provider that `opaque` belongs to. Absent: the one that was asked */
    readonly provider?: string;
  };

type Fields = Readonly<Record<string, unknown>>;

/** An entry of GET /v1/models. `created` is seconds since the epoch, 0 when the provider says nothing. */
export interface ModelEntry {
  readonly id: string;
  readonly object: "model";
  readonly created: number;
  readonly owned_by: string;
  /** Tokens of input and output together, where the provider says */
  readonly context_length?: number | undefined;
  /** False when the model is shown no tools, since its chat template knows none. Absent where the provider does not say */
  readonly supports_tools?: boolean | undefined;
}
