/**
 * The provider of a program, as the types of the package show it. They stand alone: declarations of schemas would show the inside of the
 * gateway, and a test compares them with the schemas.
 */

/** Content of a message: plain text, or a list of parts. */
export type ProgramContent =
  | string
  | readonly (
    | { readonly type: "text"; readonly text: string }
    /** `url` is http(s) or a data: URL */
    | { readonly type: "image_url"; readonly image_url: { readonly url: string; readonly detail?: string | undefined } }
    /** Any other part that the client sent */
    | { readonly type: string; readonly [field: string]: unknown }
  )[];

/** Picture of a tool result. Its bytes are in `pictures` of the request. */
export interface ProgramPicture {
  /** SHA-256 of the bytes, hexadecimal */
  readonly sha256: string;
  /** Media type of the bytes, such as `image/png` */
  readonly media_type: string;
  /** Number of bytes */
  readonly bytes: number;
  /** Pixels */
  readonly width: number;
  /** Pixels */
  readonly height: number;
}

/** Message of a conversation, tagged by `role`, in the shape of the chat-completions format. */
export type ProgramMessage =
  | {
    readonly role: "system" | "developer" | "user";
    readonly content: ProgramContent;
    readonly name?: string | undefined;
  }
  | {
    readonly role: "assistant";
    /** null when the model only called tools */
    readonly content: ProgramContent | null;
    readonly refusal?: string | null | undefined;
    readonly tool_calls?:
      | readonly {
        /** The provider's own `call_id`, where it made the call */
        readonly id: string;
        readonly type: "function";
        /** `arguments` is JSON as text, as the model wrote it */
        readonly function: { readonly name: string; readonly arguments: string };
      }[]
      | undefined;
    /** The `opaque` of earlier turns, by the name of the provider that gave it */
    readonly opaque?: Readonly<Record<string, unknown>> | undefined;
  }
  | {
    readonly role: "tool";
    readonly content: ProgramContent;
    readonly tool_call_id: string;
    /** True when the call failed */
    readonly is_error?: true | undefined;
    readonly pictures?: readonly ProgramPicture[] | undefined;
  };

/** Request for one turn. */
export interface ProgramProviderRequest {
  /** Name of the model as the provider lists it */
  readonly model: string;
  /** Whole conversation of the turn, the oldest message first */
  readonly messages: readonly ProgramMessage[];
  /** Tools that the model may call. `parameters` is the JSON Schema of the input */
  readonly tools: readonly {
    readonly name: string;
    readonly description: string;
    readonly parameters: Readonly<Record<string, unknown>> | undefined;
    readonly strict?: boolean;
  }[];
  /** Wish of the client which tools the model calls. An object names one tool */
  readonly toolChoice?: "auto" | "none" | "required" | { readonly name: string } | undefined;
  /** False when the model shall call one tool a turn at most. Default: the provider's */
  readonly parallelToolCalls?: boolean | undefined;
  /** Parameters of the chat-completions format, as the client sent them. Absent: the provider's default */
  readonly parameters: {
    readonly temperature?: number;
    readonly top_p?: number;
    readonly max_tokens?: number;
    readonly max_completion_tokens?: number;
    readonly stop?: string | readonly string[];
    readonly seed?: number;
    readonly presence_penalty?: number;
    readonly frequency_penalty?: number;
    readonly response_format?: Readonly<Record<string, unknown>>;
    readonly reasoning_effort?: string;
    readonly user?: string;
    readonly metadata?: Readonly<Record<string, string>>;
  };
  /** Bytes of pictures in tool results as base64, by SHA-256. undefined: the model is shown none */
  readonly pictures?: ReadonlyMap<string, string> | undefined;
}

/** Texts whose vectors are asked for. */
export interface ProgramEmbedRequest {
  /** Name of the embedding model, as the route names it */
  readonly model: string;
  /** Texts in the order of the vectors that are returned */
  readonly texts: readonly string[];
}

/** Event that a provider of a program yields. The last one is `finish`. */
export type ProgramProviderEvent =
  | { readonly type: "text_delta" | "reasoning_delta" | "refusal_delta"; readonly delta: string }
  /** A part of a tool call. `index` counts the calls of the turn from 0. A call's first part has its `call_id` and its `name` */
  | {
    readonly type: "tool_call_delta";
    readonly index: number;
    readonly call_id?: string | undefined;
    readonly name?: string | undefined;
    readonly arguments_delta: string;
  }
  /** A sentence for the reader of the run */
  | { readonly type: "notice"; readonly code: string; readonly message: string }
  | {
    readonly type: "finish";
    readonly finish_reason: "stop" | "length" | "tool_calls" | "content_filter";
    /** Tokens of the turn. Default: the gateway estimates them */
    readonly usage?: {
      readonly prompt_tokens: number;
      readonly completion_tokens: number;
      /** Default: the sum */
      readonly total_tokens?: number | undefined;
      readonly prompt_tokens_details?: Readonly<Record<string, unknown>> | undefined;
      readonly completion_tokens_details?: Readonly<Record<string, unknown>> | undefined;
    } | undefined;
    /** Model that answered. Default: the one that was asked */
    readonly model?: string | undefined;
    /** JSON value that comes back with this turn in the next request, such as a signature of the reasoning */
    readonly opaque?: unknown;
  };

/** Request of one turn or of a list to a provider of a program. */
export interface ProgramProviderCall {
  /**
   * Aborts when the run is cancelled, when its reader leaves and when the time is over. A provider that goes on is left behind: what it
   * yields later goes nowhere
   */
  readonly signal: AbortSignal;
  /** Id of the HTTP request that the turn belongs to. undefined when it belongs to none */
  readonly requestId?: string | undefined;
}

/** Model of a provider of a program: its name, or its name with the tokens of its context window. */
export type ProgramModel = string | {
  readonly id: string;
  /** Tokens of input and output together */
  readonly context_length?: number | undefined;
};

/** Provider of the program that mounts the gateway. */
export interface ProgramProvider {
  /**
   * Names of the models, 1 to 1,000. The first one answers for the provider's name alone. A function is asked at most once a minute, and the
   * provider then decides by itself about a name that is not listed
   */
  readonly models:
    | readonly ProgramModel[]
    | ((call: ProgramProviderCall) => readonly ProgramModel[] | Promise<readonly ProgramModel[]>);
  /**
   * Asks for one turn. Yields events, or arrays of events; the last one is `finish`. `request` is a copy. Throw a ProviderError to say how
   * the request failed: it decides about retries and about the client's status. Any other error is logged, and the client gets
   * `provider_error`
   */
  readonly stream: (
    request: ProgramProviderRequest,
    call: ProgramProviderCall,
  ) => AsyncIterable<ProgramProviderEvent | readonly ProgramProviderEvent[]>;
  /** Returns one vector for each text, in their order, for `[[embedding_routes]]` and `POST /v1/embeddings`. Default: the provider has no embeddings */
  readonly embed?: (
    request: ProgramEmbedRequest,
    call: ProgramProviderCall,
  ) => readonly (readonly number[] | Float32Array)[] | Promise<readonly (readonly number[] | Float32Array)[]>;
  /** True when the models see pictures in results of tools. Default false: they are told of them in words */
  readonly sees?: boolean;
  /** Milliseconds until the first event, and between two events, 1 to 3,600,000. A turn may be ten times as long without a word. Default 120,000 */
  readonly timeoutMs?: number;
  /** Further attempts before the first event, 0 to 10, after a ProviderError that is `retryable`. Default 2 */
  readonly maxRetries?: number;
}
