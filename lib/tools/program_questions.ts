/**
 * Kind of question that whoever called can answer: `form`: a person fills in fields; `url`: a person opens an address; `sample`: a model
 * writes a text; `roots`: the folders that the client works with.
 */
export type ProgramAbility = "form" | "url" | "sample" | "roots";

/** Question of a program to the person who called, or whose client did. */
export type ProgramQuestion =
  & {
    /** Words to the person, 4,000 characters at most */
    readonly message: string;
    /** Name of the question in the request to a client of MCP, `[A-Za-z0-9_.-]{1,64}`. Default: a number */
    readonly key?: string;
  }
  & (
    /** Form as JSON Schema: a flat object of texts, numbers, booleans and choices, with 32 fields at most */
    | { readonly schema: Readonly<Record<string, unknown>> }
    /** Address of the web that the person opens. Nothing else opens it */
    | { readonly url: string }
  );

/** Answer to a question of a program. */
export type ProgramQuestionAnswer =
  /** `content` has passed the form. It is empty for an address */
  | {
    readonly action: "accept";
    readonly content: Readonly<Record<string, string | number | boolean | readonly string[]>>;
  }
  /** The person does not want to */
  | { readonly action: "decline" }
  /** Nobody decided, for the `reason` */
  | { readonly action: "cancel"; readonly reason: string };

/** Request of a program to the model of the client that called. */
export interface ProgramSampleRequest {
  /** 200,000 characters in all, `system` among them */
  readonly messages: readonly { readonly role: "user" | "assistant"; readonly content: string }[];
  /** Default: none */
  readonly system?: string;
  /** Most tokens that the model writes */
  readonly maxTokens: number;
  /** Default: what the client chooses */
  readonly temperature?: number;
  /** As in a question */
  readonly key?: string;
}

/** Functions by which a tool or a prompt of a program asks whoever called, while it works. The time limit stands still meanwhile. */
export interface ProgramQuestions {
  /** Kinds of questions that whoever called answers. A question of another kind is answered by `cancel`, or throws */
  readonly can: ReadonlySet<ProgramAbility>;
  /**
   * Asks a person and waits. In a client of MCP the client asks; in a run of the agent, and where the client cannot, the question is an
   * approval in the dashboard. Nobody knows whether a person or an agent answered for a client, so an answer is no permission.
   * @throws {TypeError} for a question that no form can show
   */
  readonly ask: (question: ProgramQuestion) => Promise<ProgramQuestionAnswer>;
  /** Asks several questions at once, and returns the answers by the same names */
  readonly askAll: <Key extends string>(
    questions: Readonly<Record<Key, ProgramQuestion>>,
  ) => Promise<Readonly<Record<Key, ProgramQuestionAnswer>>>;
  /** Asks the model of the client that called. @throws {ToolError} in a run of the agent, and where the client refuses */
  readonly sample: (request: ProgramSampleRequest) => Promise<{ readonly text: string; readonly model: string }>;
  /** Returns the folders that the client works with. @throws {ToolError} as `sample` */
  readonly roots: (
    options?: { readonly key?: string },
  ) => Promise<readonly { readonly uri: string; readonly name?: string | undefined }[]>;
  /**
   * Sends a message to the log of the client of MCP that called, which chooses how severe a message must be. Readers of a run get it as
   * progress; a message of `debug` is for clients alone
   */
  readonly log: (
    level: "debug" | "info" | "notice" | "warning" | "error" | "critical" | "alert" | "emergency",
    message: string,
  ) => void;
}
