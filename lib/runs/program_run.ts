import type { ProgramMessage } from "../providers/program_provider.ts";

/**
 * Runs and approvals as the types of the package show them, in the JSON form of the routes. They stand alone, as in
 * lib/providers/program_provider.ts; a test compares them with the schemas.
 */

/** Tokens of one turn or of a whole run. */
export interface ProgramUsage {
  readonly prompt_tokens: number;
  readonly completion_tokens: number;
  readonly total_tokens: number;
  readonly prompt_tokens_details?: Readonly<Record<string, unknown>> | undefined;
  readonly completion_tokens_details?: Readonly<Record<string, unknown>> | undefined;
  /** Other figures of the vendor, such as a price */
  readonly vendor?: Readonly<Record<string, unknown>> | undefined;
  /** True when the provider reported nothing */
  readonly estimated?: boolean | undefined;
  readonly estimated_by?: "tokenizer" | "bytes" | undefined;
}

/** Work that a run is started with, as the body of `POST /v1/runs`. Give `message` or `messages`. */
export interface ProgramRunInput {
  /** Message of the user */
  readonly message?: string | undefined;
  readonly messages?: readonly ProgramMessage[] | undefined;
  /** Default: the configured model */
  readonly model?: string | undefined;
  /** Conversation that the run continues and is recorded under; `new` begins one. Default: none */
  readonly conversation_id?: string | undefined;
  /** Name of a configured agent, as in `[agents.<name>]`. Default: none */
  readonly agent?: string | undefined;
}

/** Run, as `GET /v1/runs/:id` shows it. Times are ISO 8601. */
export interface ProgramRun {
  readonly id: string;
  readonly object: "run";
  readonly kind: "chat" | "tool" | "cron" | "sop" | "subagent" | "channel";
  /** `needs_review`: a crash interrupted a call with an effect, and a person decides how the run goes on */
  readonly status:
    | "queued"
    | "running"
    | "waiting_for_approval"
    | "completed"
    | "failed"
    | "cancelled"
    | "needs_review";
  /** Present for a queued run of a cluster whose workspace has no gateway now */
  readonly waiting_for?: "workspace" | undefined;
  readonly created_at: string;
  readonly started_at: string | null;
  readonly ended_at: string | null;
  readonly model: string;
  /** Message of the user that began it, cut after 1,000 characters. Absent in records of earlier versions */
  readonly message?: string | null | undefined;
  readonly conversation_id: string | null;
  readonly parent_id: string | null;
  /** Text of the answer; null until the run is completed */
  readonly result: string | null;
  readonly error: { readonly code: string; readonly message: string } | null;
  readonly usage: ProgramUsage;
  /** Origins of outside content that it has read, such as `web_fetch example.com`. Absent: none */
  readonly taint?: readonly string[] | undefined;
}

/** How the programs that a call starts are contained. */
export interface ProgramContainment {
  /** `uncontained`: with the rights of the gateway; `refused`: none is started */
  readonly kind: "contained" | "uncontained" | "refused";
  readonly text: string;
}

/** File that a call would change, as it was when the approval was asked for. `sha256` is null for a new file. */
export interface ProgramApprovalFile {
  readonly path: string;
  readonly sha256: string | null;
}

/** State beside the input that an answer is bound to: a change of it makes the answer count for nothing. */
export interface ProgramBoundState {
  readonly kind: "file" | "files" | "index" | "head" | "commit" | "remote" | "plugin" | "login" | "tool";
  readonly name: string;
  readonly sha256: string | null;
}

/** Change of one file that a call would make; known secrets masked. */
export interface ProgramDescribedChange {
  readonly path: string;
  readonly kind: "create" | "change" | "delete" | "move";
  /** With kind `move`: where the file is now */
  readonly from?: string | undefined;
  /** Permission bits that the file gets */
  readonly mode?: number | undefined;
  readonly added: number;
  readonly removed: number;
  /** Lines of the unified difference, cut; null: `note` says why it is not shown */
  readonly diff: string | null;
  /** Lines of the difference that are not in `diff` */
  readonly left_out: number;
  readonly note?: string | undefined;
}

/** Work that a question comes from. */
export interface ProgramAsker {
  readonly via: string;
  /** True: the caller makes the call without an agent */
  readonly direct?: boolean | undefined;
  readonly conversation_id: string | null;
  readonly parent_id: string | null;
  /** Message that led to the work, cut */
  readonly message: string | null;
}

/** Rule that a person's answer can store. An answer of the program stores none. */
export interface ProgramRuleOffer {
  readonly remember: "run" | "always";
  readonly match: "call" | "folder" | "command";
  readonly text: string;
}

/** Field of a form that a person fills in: a part of JSON Schema. */
export type ProgramFormField =
  & { readonly title?: string | undefined; readonly description?: string | undefined }
  & (
    | {
      readonly type: "string";
      readonly minLength?: number | undefined;
      readonly maxLength?: number | undefined;
      readonly format?: "email" | "uri" | "date" | "date-time" | undefined;
      /** Choices, of which the text is one */
      readonly oneOf?: readonly ProgramFormChoice[] | undefined;
      readonly default?: string | undefined;
    }
    | {
      readonly type: "number" | "integer";
      readonly minimum?: number | undefined;
      readonly maximum?: number | undefined;
      readonly default?: number | undefined;
    }
    | { readonly type: "boolean"; readonly default?: boolean | undefined }
    | {
      readonly type: "array";
      readonly items: { readonly anyOf: readonly ProgramFormChoice[] };
      readonly minItems?: number | undefined;
      readonly maxItems?: number | undefined;
      readonly default?: readonly string[] | undefined;
    }
  );

/** Choice of a field: the value that is sent, and the words that a person reads. */
export interface ProgramFormChoice {
  readonly const: string;
  readonly title: string;
}

/** Form of an elicitation: a flat object, as JSON Schema. */
export interface ProgramForm {
  readonly type: "object";
  readonly properties: Readonly<Record<string, ProgramFormField>>;
  readonly required: readonly string[];
}

/** Answer of the program to an elicitation. */
export interface ProgramElicitationAnswer {
  readonly decision: "approve" | "deny";
  /** Fields of the form. Default: none is filled in */
  readonly content?: Readonly<Record<string, string | number | boolean | readonly string[]>> | undefined;
}

/** Approval, as `GET /v1/approvals/:id` shows it. Times are ISO 8601. */
export interface ProgramApproval {
  readonly id: string;
  readonly object: "approval";
  readonly status: "pending" | "approved" | "denied" | "expired" | "cancelled";
  /** `elicitation`: the MCP server of a running call asks, the agent, or the program's own tool. Absent in records of earlier versions: `call` */
  readonly kind?: "call" | "elicitation" | undefined;
  /** Name of the MCP server that asks; absent: the agent asks, or the program's own tool */
  readonly server?: string | undefined;
  /** True when the agent asks, by `ask_user` */
  readonly agent?: true | undefined;
  /** Words of the question */
  readonly message?: string | undefined;
  /** Form to fill in; null: a person opens `url` */
  readonly schema?: ProgramForm | null | undefined;
  /** Address that a person opens; null: `schema` is filled in */
  readonly url?: string | null | undefined;
  readonly tool: string;
  readonly access: "read" | "state" | "write" | "network";
  /** Input that the tool would get, with known secrets masked */
  readonly input: unknown;
  /** SHA-256 of the whole input's canonical JSON, hexadecimal */
  readonly input_digest: string;
  /** Sentence that says why the policy asks, with what would allow the call without asking */
  readonly reason: string;
  /** Rule of the policy, such as `level:supervised/write` */
  readonly rule: string;
  readonly workspace: string;
  readonly files: readonly ProgramApprovalFile[];
  /** Files as the call would leave them */
  readonly changes?: readonly ProgramDescribedChange[] | undefined;
  /** Why the call would fail as things stand */
  readonly fails?: string | undefined;
  /** Commands of a line of bash */
  readonly commands?: readonly string[] | undefined;
  readonly asker?: ProgramAsker | undefined;
  /** True: an answer over HTTP may bring another input */
  readonly editable?: true | undefined;
  /** The call as it was asked about, where the answer brought another input */
  readonly edited?: { readonly input: unknown; readonly digest: string } | undefined;
  readonly bound?: readonly ProgramBoundState[] | undefined;
  /** null: the call starts no program */
  readonly containment?: ProgramContainment | null | undefined;
  /** SHA-256 over everything that the answer is bound to */
  readonly digest: string;
  readonly run_id: string;
  readonly call_id: string;
  /** Id of the request that made the call, as `x-request-id` has it; null: none did. Absent in records of earlier versions */
  readonly request_id?: string | null | undefined;
  /** Id of the token that made the call; null without one */
  readonly requested_by: string | null;
  readonly created_at: string;
  readonly expires_at: string;
  readonly always_rule: string | null;
  readonly offers?: readonly ProgramRuleOffer[] | undefined;
  readonly answered_at: string | null;
  /** Id of the token that answered, or `program` */
  readonly answered_by: string | null;
  readonly note: string | null;
  readonly remember: "once" | "run" | "always" | null;
  readonly rule_id: string | null;
  readonly used_at: string | null;
}

type Fields = Readonly<Record<string, unknown>>;

/** Event of a run, tagged by `type`, as `GET /v1/runs/:id/events` sends it. `done` and `error` end a run. */
export type ProgramRunEvent =
  & {
    /** Number within the run, from 1 */
    readonly seq: number;
    /** ISO 8601 */
    readonly time: string;
  }
  & (
    | {
      readonly type: "run_start";
      readonly kind: string;
      readonly model: string;
      readonly conversation_id: string | null;
      readonly parent_id: string | null;
      readonly taint?: readonly string[] | undefined;
    }
    | { readonly type: "turn_start"; readonly turn: number }
    /** A turn is asked again after a crash: forget the deltas with a seq of `from_seq` and above */
    | { readonly type: "turn_restart"; readonly turn: number; readonly from_seq: number }
    | { readonly type: "text_delta"; readonly delta: string }
    | { readonly type: "reasoning_delta"; readonly delta: string }
    | { readonly type: "refusal_delta"; readonly delta: string }
    | {
      readonly type: "client_tool_call_delta";
      readonly index: number;
      readonly call_id: string;
      readonly name?: string | undefined;
      readonly arguments_delta: string;
      readonly extra?: Fields | undefined;
    }
    | {
      readonly type: "reply_fields";
      readonly reply?: Fields | undefined;
      readonly choice?: Fields | undefined;
      readonly message?: Fields | undefined;
      readonly provider?: string | undefined;
    }
    | { readonly type: "tool_start"; readonly call_id: string; readonly tool: string; readonly input: unknown }
    | { readonly type: "tool_progress"; readonly call_id: string; readonly message: string }
    | {
      readonly type: "tool_end";
      readonly call_id: string;
      readonly tool: string;
      readonly output: string;
      readonly is_error: boolean;
      readonly duration_ms: number;
      /** Source of the denial of a call that was not made */
      readonly denied_by?: "person" | "program" | "rule" | "nobody" | "policy" | "halt" | undefined;
      readonly data?: unknown;
      /** The tool is off: key of the configuration that a person may turn it on with */
      readonly turn_on?: { readonly key: string; readonly value: boolean | string } | undefined;
      readonly taint?: readonly string[] | undefined;
      /** Pictures of the output, without their bytes */
      readonly pictures?: readonly ProgramRunPicture[] | undefined;
      /** Skill that the output is from, with patterns of tools that the run may not call any more */
      readonly skill?: { readonly name: string; readonly disallowed_tools: readonly string[] } | undefined;
    }
    | {
      readonly type: "approval_needed";
      readonly approval_id: string;
      readonly kind?: "call" | "elicitation" | undefined;
      readonly server?: string | undefined;
      readonly agent?: true | undefined;
      readonly message?: string | undefined;
      readonly schema?: ProgramForm | null | undefined;
      readonly url?: string | null | undefined;
      readonly call_id: string;
      readonly tool: string;
      readonly input: unknown;
      readonly reason: string;
      readonly rule: string;
      readonly containment?: ProgramContainment | null | undefined;
      readonly expires_at: string;
      readonly input_digest?: string | undefined;
      readonly files?: readonly ProgramApprovalFile[] | undefined;
      readonly bound?: readonly ProgramBoundState[] | undefined;
      readonly offers?: readonly ProgramRuleOffer[] | undefined;
      readonly asker?: ProgramAsker | undefined;
      readonly editable?: true | undefined;
      /** The words for the person who answers, with what nobody sees spelled out */
      readonly description?: {
        readonly title?: string | undefined;
        readonly call: string;
        readonly asker?: readonly string[] | undefined;
        readonly input: string;
        readonly reason: string;
        readonly containment: string | null;
        readonly files: readonly string[];
        readonly bound: readonly string[];
      } | undefined;
    }
    | {
      readonly type: "approval_answered";
      readonly approval_id: string;
      readonly decision: "approve" | "deny" | "expired" | "cancelled";
      /** Id of the token that answered, or `program`; null for nobody */
      readonly by: string | null;
      /** Input that the person put in place of the call's */
      readonly input?: unknown;
    }
    | {
      readonly type: "review_answered";
      readonly outcome: "done" | "not_done" | "unknown";
      readonly by: string | null;
      readonly note: string | null;
    }
    | {
      readonly type: "notice";
      readonly code: string;
      readonly message: string;
      readonly param?: string | undefined;
      readonly model?: string | undefined;
      readonly count?: number | undefined;
    }
    | { readonly type: "turn_end"; readonly turn: number; readonly usage: ProgramUsage }
    | {
      readonly type: "done";
      readonly finish_reason: "stop" | "length" | "tool_calls" | "content_filter";
      readonly usage: ProgramUsage;
    }
    | {
      readonly type: "error";
      readonly code: string;
      readonly message: string;
      /** Answer of the provider that refused or failed */
      readonly upstream?: {
        readonly status?: number | undefined;
        readonly code?: string | undefined;
        readonly param?: string | undefined;
        readonly retry_after_secs?: number | undefined;
      } | undefined;
    }
  );

/** Picture of a tool's output, without its bytes. */
export interface ProgramRunPicture {
  /** SHA-256 of the bytes, hexadecimal */
  readonly sha256: string;
  readonly media_type: "image/png" | "image/jpeg" | "image/webp" | "image/gif";
  /** Number of bytes */
  readonly bytes: number;
  /** Pixels */
  readonly width: number;
  readonly height: number;
  /** File of the workspace that holds the picture too */
  readonly saved_as?: string | undefined;
}

/**
 * Runs of a gateway for the program that mounts it. Each function does what its route does, without HTTP, and rejects with an HttpError that
 * has the `code` and `status` of the route's reply.
 */
export interface GatewayRuns {
  /**
   * Starts a durable run, as `POST /v1/runs`. The run is on disk when the promise resolves, and goes on after a restart.
   * @param options.signal cancels the run when it aborts. Aborted before: nothing starts, and the promise rejects with its reason
   */
  readonly start: (
    input: ProgramRunInput,
    options?: { readonly signal?: AbortSignal | undefined },
  ) => Promise<ProgramRun>;
  /**
   * Reads the events of a run, as `GET /v1/runs/:id/events`: those on record, then those that come, to `done` or `error`. The first step
   * throws for an unknown run. Ends early, without an error, when `signal` aborts and when the gateway closes; the run goes on, and the seq of
   * the last event as `after` reads on.
   * @param options.after seq of the last known event. Default 0: from the first
   */
  readonly follow: (
    id: string,
    options?: { readonly after?: number | undefined; readonly signal?: AbortSignal | undefined },
  ) => AsyncIterable<ProgramRunEvent>;
  /** Returns a run, as `GET /v1/runs/:id` */
  readonly get: (id: string) => Promise<ProgramRun>;
  /** Stops a run, as `POST /v1/runs/:id/cancel`, and waits up to 5 s for its end */
  readonly cancel: (id: string) => Promise<ProgramRun>;
}

/** Message that `gateway.run` starts with: a text of the user, or a conversation. */
export type ProgramMessageInput = string | readonly ProgramMessage[];

/** Options of `gateway.run`: the fields of a run beside its message. */
export interface ProgramRunOptions extends Omit<ProgramRunInput, "message" | "messages"> {
  /** Cancels the run when it aborts */
  readonly signal?: AbortSignal | undefined;
}

/**
 * A run that `gateway.run` has started. Read it in each of its ways as often as you like: a loop over it gives its events, `textStream` the
 * text of its answer, and `await` the run itself when it is completed.
 */
export interface ProgramStartedRun extends AsyncIterable<ProgramRunEvent>, PromiseLike<ProgramRun> {
  /** Id of the run, once it is accepted. @throws {HttpError} the run was refused */
  readonly id: Promise<string>;
  /** Pieces of the answer's text as they come. The loop throws the HttpError of a run that fails */
  readonly textStream: AsyncIterable<string>;
}

/** Result of a tool call of the program, as `POST /v1/tools/:name/call` replies it. */
export interface ProgramCallResult {
  /** Text for a model */
  readonly output: string;
  /** True when the input was bad, the tool is off, the call was denied or the tool failed */
  readonly is_error: boolean;
  /** The value for programs, where the tool gives one */
  readonly data?: unknown;
  /** Approval that a person may still give to exactly this call */
  readonly approval_id?: string;
}

/** Tools of a gateway for the program that mounts it. */
export interface GatewayTools {
  /**
   * Calls a tool through the executor and the policy of all calls. What asks is asked: without an answer of the hook, the result is an error
   * with the `approval_id` of what a person may answer. `approved: true` says that the program has seen this very call.
   * @param input an object, or the tool's plain-text form. Default: `{}`
   * @throws {HttpError} 404 not_found for an unknown tool
   */
  readonly call: (
    name: string,
    input?: Readonly<Record<string, unknown>> | string,
    options?: {
      readonly approved?: boolean | undefined;
      readonly approvalId?: string | undefined;
      readonly signal?: AbortSignal | undefined;
    },
  ) => Promise<ProgramCallResult>;
}
