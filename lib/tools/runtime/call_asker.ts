import { CancelError } from "../../base/cancel.ts";
import { ToolError } from "../../base/errors.ts";
import { redactJson } from "../../base/redact.ts";
import { joinTaints, type Taint, UNTAINTED } from "../../base/taint.ts";
import type { Elicitation } from "../../guard/elicitation.ts";
import type { AskableClient, ClientQuestionOptions, ElicitationAnswer } from "./askable_client.ts";
import type { TimeLimit } from "./time_limit.ts";
import type { PreparedCall, Tool, ToolContext } from "./tool.ts";
import type { ElicitOptions } from "./tool_call.ts";
import type { ToolCallRequest } from "./tool_executor.ts";

/** Call that is running, and its time limit. */
export interface AskingCall {
  readonly tool: Tool;
  readonly prepared: PreparedCall;
  readonly request: ToolCallRequest;
  readonly limit: TimeLimit;
  readonly signal: AbortSignal;
}

/** Questions that one call may ask: more of them are an attack on the patience of a person. */
const MAX_QUESTIONS = 16;
/** Origin of the answers of a client, which nobody has checked. */
const CLIENT: Taint = ["MCP client"];

/**
 * The questions of one running call. A question for a person goes to the client of MCP that made the call, where that client can answer it, and
 * becomes an approval otherwise, one after the other. The call's time limit stands still meanwhile.
 */
export class CallAsker {
  readonly #surroundings: { readonly redact: (text: string) => string; readonly workspaceRoot: string };
  readonly #call: AskingCall;
  /** Aborts when the call has ended: nobody is asked for it any more. */
  readonly #over = new AbortController();
  #asked = 0;
  /** The newest question that became an approval. */
  #last: Promise<unknown> = Promise.resolve();
  #taint: Taint = UNTAINTED;

  constructor(
    surroundings: { readonly redact: (text: string) => string; readonly workspaceRoot: string },
    call: AskingCall,
  ) {
    this.#surroundings = surroundings;
    this.#call = call;
  }

  /** Outside content that the answers of the client have brought into the call so far. */
  get taint(): Taint {
    return this.#taint;
  }

  /** Takes back the questions that still wait when the call has ended. */
  end(): void {
    this.#over.abort(new CancelError("cancelled", "The call has ended"));
  }

  /** Returns the parts of the call's context that ask, for a call of a client that can be asked. */
  parts(asks: AskableClient): Pick<ToolContext, "elicit" | "client" | "sample"> {
    const { request: { approver, model }, signal } = this.#call;
    const isAnswered = approver.elicit !== undefined || asks.can.has("form") || asks.can.has("url");
    const asked = this.#counted(asks);
    return {
      elicit: isAnswered ? (...question) => this.elicit(...question) : undefined,
      client: asked,
      // A call without a run has no model of its own: its client's model answers for it
      sample: model?.sample ??
        (asked.can.has("sample") ? (wanted, given) => asked.sample(wanted, { signal: given ?? signal }) : undefined),
    };
  }

  /** Asks a person, as `elicit` of the call's context. */
  elicit(elicitation: Elicitation, options: ElicitOptions = {}): Promise<ElicitationAnswer> {
    if (++this.#asked > MAX_QUESTIONS) {
      const reason = `one call may ask ${MAX_QUESTIONS} questions, and its server has asked more`;
      return Promise.resolve<ElicitationAnswer>({ action: "cancel", reason });
    }
    const { request: { client: calling, approver }, limit, signal: own } = this.#call;
    const signal = AbortSignal.any([options.signal ?? own, this.#over.signal]);
    const client = calling?.asks;
    if (client?.can.has(elicitation.url === null ? "form" : "url") === true) {
      return handled(limit.pause(async () => {
        const answer = await client.elicit(elicitation, { ...options, signal });
        if (answer.action === "accept") this.#addTaint();
        return answer;
      }));
    }
    if (approver.elicit === undefined) {
      const reason = `the client does not answer questions ${elicitation.url === null ? "by form" : "by address"}`;
      return Promise.resolve<ElicitationAnswer>({ action: "cancel", reason });
    }
    return this.#approve(elicitation, { elicit: approver.elicit, signal });
  }

  #approve(
    elicitation: Elicitation,
    { elicit, signal }: {
      readonly elicit: NonNullable<ToolCallRequest["approver"]["elicit"]>;
      readonly signal: AbortSignal;
    },
  ): Promise<ElicitationAnswer> {
    const { tool, prepared, request: { callId, scope }, limit } = this.#call;
    const { redact, workspaceRoot } = this.#surroundings;
    const answer = limit.pause(() =>
      this.#last.then(() =>
        elicit({
          elicitation,
          tool: tool.name,
          access: prepared.access,
          input: redactJson(prepared.input, redact),
          inputDigest: prepared.digest,
          workspaceRoot,
          callId,
          scope,
        }, signal)
      )
    );
    this.#last = answer.catch(() => {});
    return answer;
  }

  /** Returns the client with its questions counted, and the time limit standing still. */
  #counted(client: AskableClient): NonNullable<ToolContext["client"]> {
    const ask = <T>(work: () => Promise<T>): Promise<T> => {
      if (++this.#asked > MAX_QUESTIONS) return Promise.reject(tooMany());
      return handled(this.#call.limit.pause(async () => {
        // A refusal has words of the client too
        try {
          return await work();
        } finally {
          this.#addTaint();
        }
      }));
    };
    const { signal: over } = this.#over;
    const within = (options: ClientQuestionOptions) => ({
      ...options,
      signal: AbortSignal.any([options.signal, over]),
    });
    return {
      can: client.can,
      sample: (request, options) => ask(() => client.sample(request, within(options))),
      roots: (options) => ask(() => client.roots(within(options))),
    };
  }

  #addTaint(): void {
    this.#taint = joinTaints(this.#taint, CLIENT);
  }
}

/** Returns a promise that nobody has to wait for: a tool may end before its question does. */
function handled<T>(work: Promise<T>): Promise<T> {
  work.catch(() => {});
  return work;
}

function tooMany(): ToolError {
  return new ToolError("too_many_questions", `Cannot ask the client: one call may ask ${MAX_QUESTIONS} questions`);
}
