import type { FormContent } from "../../base/records/elicitation.ts";
import type { ClientAbility } from "../../base/records/tool_info.ts";
import type { Elicitation } from "../../guard/elicitation.ts";

/** Folder or file that a client of MCP works with. */
export interface ClientRoot {
  /** Address that begins with `file://` */
  readonly uri: string;
  readonly name?: string | undefined;
}

/** Request of the server of a call, or of the program, to a model. */
export interface SampleRequest {
  readonly messages: readonly { readonly role: "user" | "assistant"; readonly content: string }[];
  /** Default: none */
  readonly system?: string | undefined;
  readonly maxTokens: number;
  readonly temperature?: number | undefined;
}

/** Reply of the model. */
export interface SampledReply {
  readonly text: string;
  readonly model: string;
}

/** Answer to the question of a server or of the program. */
export type ElicitationAnswer =
  | { readonly action: "accept"; readonly content: FormContent | undefined }
  | { readonly action: "decline" }
  /** Nobody decided: nobody could be asked, or nobody answered in time. `reason` says which */
  | { readonly action: "cancel"; readonly reason: string };

/** Options of a question to a client. */
export interface ClientQuestionOptions {
  /** Takes the question back */
  readonly signal: AbortSignal;
  /** Name of the question in the client's request. Default: a number */
  readonly key?: string | undefined;
}

/**
 * Client of MCP that made a call, as far as it can be asked. Its answers are content from outside. They decide about no call: nobody knows
 * whether a person gave them.
 */
export interface AskableClient {
  /** Kinds of questions that the client says it answers */
  readonly can: ReadonlySet<ClientAbility>;
  /**
   * Puts a question to the client's user.
   * @param options.schema form as the program wrote it, which the client is sent in place of the checked one
   * @throws {CancelError} when the signal aborts
   */
  elicit(
    elicitation: Elicitation,
    options: ClientQuestionOptions & { readonly schema?: Readonly<Record<string, unknown>> | undefined },
  ): Promise<ElicitationAnswer>;
  /** Asks the client's model. @throws {ToolError} when the client refuses; {CancelError} */
  sample(request: SampleRequest, options: ClientQuestionOptions): Promise<SampledReply>;
  /** Returns the client's folders. @throws {ToolError} when the client refuses; {CancelError} */
  roots(options: ClientQuestionOptions): Promise<readonly ClientRoot[]>;
}
