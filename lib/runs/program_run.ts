import type { ProgramMessage } from "../providers/program_provider.ts";

/**
 * Runs and approvals as the types of the package show them, in the JSON form of the routes. They stand alone, as in
 * lib/providers/program_provider.ts; a test compares them with the schemas.
 */

/** Tokens of one turn or of a whole run. */
export interface ProgramUsage {
  /** Tokens of what the model read */
  readonly prompt_tokens: number;
  /** Tokens of what the model wrote */
  readonly completion_tokens: number;
  /** Tokens of both, as the vendor adds them */
  readonly total_tokens: number;
  /** Parts of `prompt_tokens` as the vendor counts them, such as `cached_tokens` */
  readonly prompt_tokens_details?: Readonly<Record<string, unknown>> | undefined;
  /** Parts of `completion_tokens` as the vendor counts them, such as `reasoning_tokens` */
  readonly completion_tokens_details?: Readonly<Record<string, unknown>> | undefined;
  /** Other figures of the vendor, such as a price */
  readonly vendor?: Readonly<Record<string, unknown>> | undefined;
  /** True when the provider reported nothing */
  readonly estimated?: boolean | undefined;
  /** Way of the estimate: the tokenizer of `gpt-tokenizer`, or bytes / 4. Absent: reported by the provider */
  readonly estimated_by?: "tokenizer" | "bytes" | undefined;
}

/** Work that a run is started with, as the body of `POST /v1/runs`. Give `message` or `messages`. */
export interface ProgramRunInput {
  /** Message of the user */
  readonly message?: string | undefined;
  /** Conversation in place of `message`, the oldest message first */
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
  /** Id of the run, `run_` and random characters */
  readonly id: string;
  /** Kind of this object, as the routes give it */
  readonly object: "run";
  /** Beginning of the run: a chat or completion, a tool call, a schedule, a procedure, another run or a channel */
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
  /** Time at which the run was accepted */
  readonly created_at: string;
  /** Time at which its work began; null while it is queued */
  readonly started_at: string | null;
  /** Time at which it ended; null until then */
  readonly ended_at: string | null;
  /** Model that the run works with, such as `openai/gpt-5` */
  readonly model: string;
  /** Message of the user that began it, cut after 1,000 characters. Absent in records of earlier versions */
  readonly message?: string | null | undefined;
  /** Id of the conversation that the run continues; null without one */
  readonly conversation_id: string | null;
  /** Id of the run that started this one; null for a run of its own */
  readonly parent_id: string | null;
  /** Run at work that its message was sent to. Absent: it is a turn of its own */
  readonly steers?: { readonly run_id: string; readonly mode: "steer" | "interrupt" } | undefined;
  /** Text of the answer; null until the run is completed */
  readonly result: string | null;
  /** Code and message of the failure; null unless the run has failed */
  readonly error: { readonly code: string; readonly message: string } | null;
  /** Tokens of all turns so far */
  readonly usage: ProgramUsage;
  /** Origins of outside content that it has read, such as `web_fetch example.com`. Absent: none */
  readonly taint?: readonly string[] | undefined;
}

/** How the programs that a call starts are contained. */
export interface ProgramContainment {
  /** `uncontained`: with the rights of the gateway; `refused`: none is started */
  readonly kind: "contained" | "uncontained" | "refused";
  /** Sentence that says how the programs are contained, with the reason */
  readonly text: string;
}

/** File that a call would change, as it was when the approval was asked for. `sha256` is null for a new file. */
export interface ProgramApprovalFile {
  /** Path within the workspace, with slashes */
  readonly path: string;
  /** SHA-256 of the content, hexadecimal; null for a new file */
  readonly sha256: string | null;
}

/** State beside the input that an answer is bound to: a change of it makes the answer count for nothing. */
export interface ProgramBoundState {
  /** Kind of the state: `files` is what git would take from a folder, `tool` what an MCP server says of its tool */
  readonly kind: "file" | "files" | "index" | "head" | "commit" | "remote" | "plugin" | "login" | "tool";
  /** Path, or name of the branch, commit or remote */
  readonly name: string;
  /** SHA-256 of the content or list, hexadecimal; null: there was none */
  readonly sha256: string | null;
}

/** Change of one file that a call would make; known secrets masked. */
export interface ProgramDescribedChange {
  /** Path of the file, as the call names it */
  readonly path: string;
  /** Fate of the file */
  readonly kind: "create" | "change" | "delete" | "move";
  /** With kind `move`: where the file is now */
  readonly from?: string | undefined;
  /** Permission bits that the file gets */
  readonly mode?: number | undefined;
  /** Lines that come */
  readonly added: number;
  /** Lines that go */
  readonly removed: number;
  /** Lines of the unified difference, cut; null: `note` says why it is not shown */
  readonly diff: string | null;
  /** Lines of the difference that are not in `diff` */
  readonly left_out: number;
  /** Why no difference is shown, or what it does not say */
  readonly note?: string | undefined;
}

/** Work that a question comes from. */
export interface ProgramAsker {
  /** Door that the work came through, such as `http` or `cron` */
  readonly via: string;
  /** True: the caller makes the call without an agent */
  readonly direct?: boolean | undefined;
  /** Id of its conversation; null: it has none */
  readonly conversation_id: string | null;
  /** Id of the run that began a sub-agent; null: no run did */
  readonly parent_id: string | null;
  /** Message that led to the work, cut */
  readonly message: string | null;
}

/** Rule that a person's answer can store. An answer of the program stores none. */
export interface ProgramRuleOffer {
  /** How long the rule counts: for this run, or until it is revoked */
  readonly remember: "run" | "always";
  /** Calls that the rule covers: this very one, those within a folder, or those of a command */
  readonly match: "call" | "folder" | "command";
  /** The rule that an approval then stores, word for word */
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
  /** Value that the answer holds */
  readonly const: string;
  /** Words for the person who chooses */
  readonly title: string;
}

/** Form of an elicitation: a flat object, as JSON Schema. */
export interface ProgramForm {
  /** The answer is an object */
  readonly type: "object";
  /** Fields by their names */
  readonly properties: Readonly<Record<string, ProgramFormField>>;
  /** Names of the fields that must be filled in */
  readonly required: readonly string[];
}

/** Answer of the program to an elicitation. */
export interface ProgramElicitationAnswer {
  /** `approve` answers the question, `deny` refuses it */
  readonly decision: "approve" | "deny";
  /** Fields of the form. Default: none is filled in */
  readonly content?: Readonly<Record<string, string | number | boolean | readonly string[]>> | undefined;
}

/** Approval, as `GET /v1/approvals/:id` shows it. Times are ISO 8601. */
export interface ProgramApproval {
  /** Id of the approval, `apr_` and random characters */
  readonly id: string;
  /** Kind of this object, as the routes give it */
  readonly object: "approval";
  /** `expired`: nobody answered in time; `cancelled`: the run ended before */
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
  /** Name of the tool */
  readonly tool: string;
  /** Widest thing that the call does */
  readonly access: "read" | "state" | "write" | "network";
  /** Input that the tool would get, with known secrets masked */
  readonly input: unknown;
  /** SHA-256 of the whole input's canonical JSON, hexadecimal */
  readonly input_digest: string;
  /** Sentence that says why the policy asks, with what would allow the call without asking */
  readonly reason: string;
  /** Rule of the policy, such as `level:supervised/write` */
  readonly rule: string;
  /** Absolute path of the folder that the call works in */
  readonly workspace: string;
  /** Files that the call would change */
  readonly files: readonly ProgramApprovalFile[];
  /** Files as the call would leave them */
  readonly changes?: readonly ProgramDescribedChange[] | undefined;
  /** Why the call would fail as things stand */
  readonly fails?: string | undefined;
  /** Commands of a line of bash */
  readonly commands?: readonly string[] | undefined;
  /** Work that the question comes from */
  readonly asker?: ProgramAsker | undefined;
  /** True: an answer over HTTP may bring another input */
  readonly editable?: true | undefined;
  /** The call as it was asked about, where the answer brought another input */
  readonly edited?: { readonly input: unknown; readonly digest: string } | undefined;
  /** State beside `files` that the answer is bound to. Absent in records of earlier versions */
  readonly bound?: readonly ProgramBoundState[] | undefined;
  /** null: the call starts no program */
  readonly containment?: ProgramContainment | null | undefined;
  /** SHA-256 over everything that the answer is bound to */
  readonly digest: string;
  /** Id of the run that made the call */
  readonly run_id: string;
  /** Id of the call within its run */
  readonly call_id: string;
  /** Id of the request that made the call, as `x-request-id` has it; null: none did. Absent in records of earlier versions */
  readonly request_id?: string | null | undefined;
  /** Id of the token that made the call; null without one */
  readonly requested_by: string | null;
  /** Time at which it was asked for */
  readonly created_at: string;
  /** Time from which on no answer is taken */
  readonly expires_at: string;
  /** Rule that `remember: "always"` would store, word for word; null: it would be refused */
  readonly always_rule: string | null;
  /** Rules that an answer of a person can store; empty where there is none. Absent in records of earlier versions */
  readonly offers?: readonly ProgramRuleOffer[] | undefined;
  /** Time of the answer; null while it waits */
  readonly answered_at: string | null;
  /** Id of the token that answered, or `program` */
  readonly answered_by: string | null;
  /** Note of whoever answered, or the reason of a denial by the program; null without one */
  readonly note: string | null;
  /** How long the answer is remembered; null while it waits */
  readonly remember: "once" | "run" | "always" | null;
  /** Id of the rule that the answer stored; null: none */
  readonly rule_id: string | null;
  /** Time at which the call ran with this answer; null: it has not */
  readonly used_at: string | null;
}

/**
 * JSON object.
 * @internal
 */
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
      /** Files that the call wrote or removed, the first 1,000; not those of commands and other programs */
      readonly files?: readonly ProgramWrittenFile[] | undefined;
      /** Files beyond those */
      readonly files_dropped?: number | undefined;
      /** The call was not made: a message to the run came before it */
      readonly skipped?: true | undefined;
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
      readonly type: "message_taken";
      readonly message_id: string;
      readonly text: string;
      readonly by: string | null;
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
      /** With code `cancelled`: a person's message came in the place of the reply */
      readonly interrupted?: true | undefined;
      /** Answer of the provider that refused or failed */
      readonly upstream?: {
        readonly status?: number | undefined;
        readonly code?: string | undefined;
        readonly param?: string | undefined;
        readonly retry_after_secs?: number | undefined;
      } | undefined;
    }
  );

/** File as a call left it. */
export interface ProgramWrittenFile {
  /** Path relative to the workspace, with slashes */
  readonly path: string;
  /** Number of bytes; null: it was removed */
  readonly bytes: number | null;
  /** SHA-256 of the bytes, hexadecimal; null: it was removed */
  readonly sha256: string | null;
}

/** Picture of a tool's output, without its bytes. */
export interface ProgramRunPicture {
  /** SHA-256 of the bytes, hexadecimal */
  readonly sha256: string;
  /** Media type, told by the first bytes */
  readonly media_type: "image/png" | "image/jpeg" | "image/webp" | "image/gif";
  /** Number of bytes */
  readonly bytes: number;
  /** Pixels */
  readonly width: number;
  /** Pixels */
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
