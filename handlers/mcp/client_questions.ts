import type { ClientAbility } from "../../lib/base/records/tool_info.ts";
import type { InputRequest } from "@modelcontextprotocol/server";
import * as v from "valibot";
import { CancelError } from "../../lib/base/cancel.ts";
import { ToolError } from "../../lib/base/errors.ts";
import { canonicalDigest } from "../../lib/base/json.ts";
import { type Caller, storedActor } from "../../lib/base/records/caller.ts";
import { redactJson } from "../../lib/base/redact.ts";
import { asSentence, exactLine, exactText } from "../../lib/base/text.ts";
import type { Services } from "../../lib/services.ts";
import type { QuestionEvent } from "../../lib/guard/audit/audit_event.ts";
import { sayAsker } from "../../lib/guard/approvals.ts";
import { checkContent, type Elicitation } from "../../lib/guard/elicitation.ts";
import type {
  AskableClient,
  ClientQuestionOptions,
  ClientRoot,
  ElicitationAnswer,
  SampledReply,
  SampleRequest,
} from "../../lib/tools/runtime/askable_client.ts";

/** Question on its way to a client. */
export interface PosedQuestion<T> {
  /** Name of the question in the client's request. Default: a number */
  readonly key: string | undefined;
  readonly request: InputRequest;
  /** Reads the client's answer, whatever it is */
  readonly read: (given: unknown) => ReadAnswer<T>;
}

/** Answer that was read, or why it does not fit. A reason repeats no value. */
export type ReadAnswer<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly reason: string };

/** Way of questions to the client of one request. */
export interface QuestionWay {
  /** True where the client gets a question as a request of its own, as in revisions with sessions */
  readonly isLive: boolean;
  /**
   * Puts a question to the client and waits for an answer that fits.
   * @param options.audited resolves once the audit has the question, which the client is not asked before
   * @throws {UnansweredError}; {CancelError} when the signal aborts
   */
  put<T>(
    question: PosedQuestion<T>,
    options: { readonly signal: AbortSignal; readonly audited: Promise<void> },
  ): Promise<T>;
}

/** Error of a question that the client gave no answer to. */
export class UnansweredError extends Error {
  override readonly name = "UnansweredError";
}

/** Request that asks, as the audit names it. */
export interface AskingPlace {
  /** Name of the tool, or `prompt <name>` */
  readonly tool: string;
  readonly requestId: string;
  /** Absent for a prompt */
  readonly runId?: string;
  readonly callId?: string;
  readonly caller: Caller;
}

/** Options of ClientQuestions. */
export interface ClientQuestionsOptions {
  readonly can: ReadonlySet<ClientAbility>;
  readonly way: QuestionWay;
  readonly place: AskingPlace;
  readonly services: Pick<Services, "audit" | "log" | "random" | "redactor">;
}

/** Characters of one answer of a client's model. */
const MAX_SAMPLED = 200_000;
const MAX_MODEL = 200;
const MAX_ROOTS = 1_000;
const MAX_URI = 2_048;
const MAX_NAME = 500;

type Recorded = Pick<QuestionEvent, "kind" | "server" | "message">;
type End = Pick<QuestionEvent, "action" | "fields">;

/**
 * The questions of one request to the client that made it: written for the protocol, with known secrets masked, and recorded in the audit with
 * the way they ended. What a client answers is bounded and checked.
 */
export class ClientQuestions implements AskableClient {
  readonly can: ReadonlySet<ClientAbility>;
  readonly #options: ClientQuestionsOptions;

  constructor(options: ClientQuestionsOptions) {
    this.can = options.can;
    this.#options = options;
  }

  async elicit(
    { server, agent, message, schema: form, url }: Elicitation,
    { schema, ...options }: Parameters<AskableClient["elicit"]>[1],
  ): Promise<ElicitationAnswer> {
    const { way, services: { random, redactor } } = this.#options;
    // The client's user knows the gateway alone, and must not take another's words for the gateway's
    const isProgram = server === undefined && agent !== true;
    const words = isProgram ? message : `${asSentence(sayAsker({ server, agent }))} asks: ${exactText(message)}`;
    const params = url === null
      ? { mode: "form", message: words, requestedSchema: redactJson(schema ?? exactForm(form), redactor.redact) }
      : { mode: "url", message: words, url, ...(way.isLive ? { elicitationId: random.id("ask_") } : {}) };
    const request = { method: "elicitation/create", params } as InputRequest; // parseElicitation has checked the form
    const read = (given: unknown) => readElicited(given, form);
    try {
      return await this.#ask({ kind: url === null ? "form" : "url", server, message: words }, {
        question: { key: options.key, request, read },
        signal: options.signal,
        endOf: endOfElicited,
      });
    } catch (error) {
      if (error instanceof UnansweredError) return { action: "cancel", reason: error.message };
      throw error;
    }
  }

  async sample(
    { messages, system, maxTokens, temperature }: SampleRequest,
    { key, signal }: ClientQuestionOptions,
  ): Promise<SampledReply> {
    const request: InputRequest = {
      method: "sampling/createMessage",
      params: {
        messages: messages.map(({ role, content }) => ({ role, content: { type: "text" as const, text: content } })),
        maxTokens,
        ...(system === undefined ? {} : { systemPrompt: system }),
        ...(temperature === undefined ? {} : { temperature }),
      },
    };
    const question = { key, request, read: readSampled };
    return await this.#askClient({ kind: "sample" }, { question, signal, endOf: () => ({ action: "answered" }) });
  }

  async roots({ key, signal }: ClientQuestionOptions): Promise<readonly ClientRoot[]> {
    const request = { method: "roots/list", params: {} } as InputRequest; // as requests have it in every revision
    const question = { key, request, read: readRoots };
    return await this.#askClient({ kind: "roots" }, { question, signal, endOf: () => ({ action: "answered" }) });
  }

  /** Asks for what no answer can be made up for. @throws {ToolError} */
  async #askClient<T>(about: Recorded, asked: AskedQuestion<T>): Promise<T> {
    try {
      return await this.#ask(about, asked);
    } catch (error) {
      if (!(error instanceof UnansweredError)) throw error;
      const what = about.kind === "sample" ? "its model" : "its folders";
      throw new ToolError("client_refused", `Cannot ask the client for ${what}: ${error.message}`, { cause: error });
    }
  }

  async #ask<T>(about: Recorded, { question, signal, endOf }: AskedQuestion<T>): Promise<T> {
    const digest = canonicalDigest(question.request);
    const audited = this.#record({ ...about, digest, action: "asked" }).then((isWritten) => {
      if (!isWritten) throw new UnansweredError("the audit cannot be written, and nobody is asked without it");
    });
    // A question that is taken back at once waits for nothing
    audited.catch(() => {});
    try {
      const answer = await this.#options.way.put(question, { signal, audited });
      await this.#record({ ...about, digest, ...endOf(answer) });
      return answer;
    } catch (error) {
      await this.#record({ ...about, digest, action: error instanceof CancelError ? "unanswered" : "failed" });
      throw error;
    }
  }

  /** @returns true when the record is written */
  async #record(event: Omit<QuestionEvent, "type" | "tool" | "by">): Promise<boolean> {
    const { place: { tool, requestId, runId, callId, caller }, services: { audit, log } } = this.#options;
    try {
      return await audit.append({
        type: "question",
        request_id: requestId,
        run_id: runId,
        call_id: callId,
        tool,
        ...event,
        by: storedActor(caller),
      });
    } catch (error) {
      log.error("Cannot write the audit", { request_id: requestId, tool, error });
      return false;
    }
  }
}

/** Returns a form of a server with everything spelled out that a person could not see in it. */
function exactForm(form: Elicitation["schema"]): Elicitation["schema"] {
  if (form === null) return null;
  const seen = (key: string, value: unknown) =>
    typeof value === "string" && (key === "title" || key === "description") ? exactLine(value) : value;
  // Titles and descriptions are texts still, and nothing else changes
  const properties = JSON.parse(JSON.stringify(form.properties, seen)) as typeof form.properties;
  return { ...form, properties };
}

interface AskedQuestion<T> {
  readonly question: PosedQuestion<T>;
  readonly signal: AbortSignal;
  /** Returns how the audit records an answer */
  readonly endOf: (answer: T) => End;
}

function endOfElicited(answer: ElicitationAnswer): End {
  switch (answer.action) {
    case "accept":
      return {
        action: "accepted",
        ...(answer.content === undefined ? {} : { fields: Object.keys(answer.content) }),
      };
    case "decline":
      return { action: "declined" };
    case "cancel":
      return { action: "cancelled" };
  }
}

const ELICITED = v.object({
  action: v.picklist(["accept", "decline", "cancel"]),
  content: v.nullish(v.record(v.string(), v.unknown())),
});

/** @param form null: the user was asked to open an address */
function readElicited(given: unknown, form: Elicitation["schema"]): ReadAnswer<ElicitationAnswer> {
  const { success, output } = v.safeParse(ELICITED, given);
  if (!success) {
    return { ok: false, reason: '"action" must be "accept", "decline" or "cancel", and "content" an object' };
  }
  switch (output.action) {
    case "decline":
      return { ok: true, value: { action: "decline" } };
    case "cancel":
      return { ok: true, value: { action: "cancel", reason: "the client's user closed the question" } };
    case "accept": {
      if (form === null) return { ok: true, value: { action: "accept", content: undefined } };
      const checked = checkContent(form, output.content ?? {});
      if (checked.ok) return { ok: true, value: { action: "accept", content: checked.content } };
      return { ok: false, reason: `the field ${JSON.stringify(checked.field.slice(0, 64))}: ${checked.reason}` };
    }
  }
}

const TEXT = v.object({ type: v.literal("text"), text: v.string() });
const SAMPLED = v.object({ content: v.union([TEXT, v.array(TEXT)]), model: v.optional(v.string(), "") });

function readSampled(given: unknown): ReadAnswer<SampledReply> {
  const { success, output } = v.safeParse(SAMPLED, given);
  if (!success) return { ok: false, reason: '"content" must be text, beside "role" and "model"' };
  const blocks = Array.isArray(output.content) ? output.content : [output.content];
  const text = blocks.map((block) => block.text).join("\n");
  if (text.length > MAX_SAMPLED) return { ok: false, reason: `the text has over ${MAX_SAMPLED} characters` };
  return { ok: true, value: { text: text.toWellFormed(), model: output.model.slice(0, MAX_MODEL).toWellFormed() } };
}

const ROOTS = v.object({
  roots: v.pipe(
    v.array(v.object({
      uri: v.pipe(v.string(), v.maxLength(MAX_URI), v.startsWith("file://")),
      name: v.nullish(v.pipe(v.string(), v.maxLength(MAX_NAME))),
    })),
    v.maxLength(MAX_ROOTS),
  ),
});

function readRoots(given: unknown): ReadAnswer<readonly ClientRoot[]> {
  const { success, output } = v.safeParse(ROOTS, given);
  if (!success) {
    return { ok: false, reason: `"roots" must be a list of at most ${MAX_ROOTS} folders with "file://" addresses` };
  }
  const value = output.roots.map(({ uri, name }) => ({
    uri,
    ...(name === undefined || name === null ? {} : { name }),
  }));
  return { ok: true, value };
}
