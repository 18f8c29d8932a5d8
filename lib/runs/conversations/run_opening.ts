import type { AgentLimits, AgentOpening, AgentRun } from "../../agent/agent_run.ts";
import { tokensAround } from "../../agent/context_window.ts";
import { DeclaredTools, NONE } from "../../agent/deferred_tools.ts";
import { messageTokens } from "../../agent/estimate_tokens.ts";
import { MIN_SUMMARY_WINDOW, summarize, type Summary, SummaryError } from "../../agent/summarize.ts";
import { createTokenAccount } from "../../agent/token_budget.ts";
import { ProviderError } from "../../base/errors.ts";
import type { AgentEventBody } from "../../base/records/agent_event.ts";
import type { Taint } from "../../base/taint.ts";
import type { Message } from "../../base/records/message.ts";
import type { Usage } from "../../base/records/usage.ts";
import { type ContextWindows, UNKNOWN_WINDOW } from "../../providers/models/context_windows.ts";
import type { Provider, ToolDeclaration } from "../../providers/provider.ts";
import { beginsConversation } from "./conversation_records.ts";
import type { RunConversations } from "./conversations.ts";
import { fitHistory } from "./fit_history.ts";
import { answerAllCalls } from "../../agent/parked_client_calls.ts";
import { CancelError, cancelError } from "../../base/cancel.ts";
import type { Run } from "../../base/records/run.ts";
import type { RunRequest } from "../run_request.ts";
import type { QueuePlace } from "../supervisor/run_queue.ts";

/** Instruction for a turn that was to be words in the turn of a run, which says nothing before a person has reviewed it. */
const EARLY_NOTE: Message = {
  role: "system",
  content:
    "[Postern] The next message was meant for work that was cut off and waits for a person's review. This conversation does not show " +
    "that work: do not guess what it was or repeat it; say what you cannot know",
};

/** Parts that the first messages of a run are made of. */
export interface RunOpeningOptions {
  readonly request: RunRequest;
  /** Pinned messages of an interrupted run, with parked calls in their places; undefined: they are found again. */
  readonly spliced: readonly Message[] | undefined;
  /** Provider that condenses a long history. */
  readonly provider: Provider;
  /** System prompt; null: none. */
  readonly prompt: string | null;
  readonly place: QueuePlace;
  /** The run at work, whose start is noted. */
  readonly entry: { startedAt: string | null; readonly steers: Run["steers"] };
  readonly conversations: Pick<RunConversations, "history" | "summarized">;
  /** Returns what has become of the run that the message was sent to. `taken_in`: it took it in, and this run has nothing to do. Default: it was sent to none */
  readonly steered?: (() => Promise<"taken_in" | Run["status"] | undefined>) | undefined;
}

/** Waits for the slot of a run and gives the run's first messages for the model. */
export class RunOpening implements AgentOpening {
  fixedMessages = 0;
  recalled: AgentOpening["recalled"] = undefined;
  readonly #options: RunOpeningOptions;

  constructor(options: RunOpeningOptions) {
    this.#options = options;
  }

  /** Sets `recalled` when a history was read. @throws {CancelError} when the run was stopped first */
  begin(run: AgentRun): readonly Message[] | Promise<readonly Message[]> {
    const { place, entry } = this.#options;
    if (run.scope.signal.aborted) throw cancelError(run.scope.signal);
    if (!place.ready() || this.#hasHistory(run) || this.#options.request.wishes?.condenses) {
      return this.#beginLater(run);
    }
    entry.startedAt = run.kit.time();
    return this.#firstMessages(run);
  }

  /** Tells whether the run goes on with a conversation. A conversation that begins with the run has nothing to read. */
  #hasHistory({ scope: { conversationId } }: AgentRun): boolean {
    return conversationId !== null && !beginsConversation(this.#options.request);
  }

  async #beginLater(run: AgentRun): Promise<readonly Message[]> {
    const { provider, prompt, place, entry, conversations, steered } = this.#options;
    await place.wait(run.scope.signal);
    const became = await steered?.();
    // After a crash the run that took it in may not have said so to this one
    if (became === "taken_in") throw new CancelError("taken_in");
    entry.startedAt = run.kit.time();
    if (this.#options.request.wishes?.condenses) return await this.#condense(run);
    if (run.scope.conversationId === null || !this.#hasHistory(run)) return this.#firstMessages(run);
    const isEarly = became === "needs_review";
    const messages = [...(isEarly ? [EARLY_NOTE] : []), ...this.#givenMessages(run)];
    const recalled = await recallHistory(run.scope.conversationId, {
      run,
      conversations,
      provider,
      prompt,
      messages,
      tools: new DeclaredTools(run.tools.agentTools, {
        deferred: run.tools.deferred ?? NONE,
        clientTools: run.model.wishes.clientTools,
      })
        .declared,
    });
    run.scope.taint.add(recalled.taint);
    this.recalled = isEarly
      ? { ...recalled, notices: [...recalled.notices, earlyNotice(entry.steers?.run_id)] }
      : recalled;
    return answerAllCalls(assembleMessages({ prompt, history: recalled.messages, messages }));
  }

  /** Condenses the messages of the request. @returns the summary as one message, which the turn says */
  async #condense(run: AgentRun): Promise<readonly Message[]> {
    const { provider } = this.#options;
    const windowTokens = Math.max(MIN_SUMMARY_WINDOW, await run.model.findWindow?.() || UNKNOWN_WINDOW);
    try {
      const { text, usage } = await summarizer(run, { provider, windowTokens })(
        withoutInstructions(this.#givenMessages(run)),
      );
      this.recalled = { notices: [], usage };
      return [{ role: "user", content: text }];
    } catch (error) {
      if (!(error instanceof SummaryError)) throw error;
      if (error.cause !== undefined) throw error.cause;
      throw new ProviderError("provider_error", `Cannot condense the conversation: ${error.message}`, {
        provider: provider.name,
      });
    }
  }

  /** Returns the messages of a run that has no history here. Without a conversation the client keeps its own, of which the gateway cuts nothing. */
  #firstMessages(run: AgentRun): readonly Message[] {
    const messages = this.#givenMessages(run);
    const assembled = assembleMessages({ prompt: this.#options.prompt, history: [], messages });
    if (run.scope.conversationId !== null) return answerAllCalls(assembled);
    this.fixedMessages = assembled.length;
    return assembled;
  }

  /** Returns the messages of the request, with parked calls in their places. */
  #givenMessages(run: AgentRun): readonly Message[] {
    const { spliced, request: { messages } } = this.#options;
    // A history has the calls of its turns already
    return spliced ?? (this.#hasHistory(run) ? messages : run.parked.splice(messages));
  }
}

function earlyNotice(runId = ""): AgentEventBody {
  const way = "decide about it, and say this again where it was meant for that work";
  const message = `This is answered without the work that it was meant for: run ${runId} waits for a review; ${way}`;
  return { type: "notice", code: "run_under_review", message };
}

/** The run that reads a history, and the model that condenses it. */
export interface RecallOptions {
  /** Run that goes on with the conversation, which its caller must be allowed to */
  readonly run: AgentRun;
  readonly conversations: RunOpeningOptions["conversations"];
  /** The run's provider, without what its turns add to it */
  readonly provider: Provider;
  /** System prompt; null: none. */
  readonly prompt: string | null;
  /** Messages that the request adds to the history. */
  readonly messages: readonly Message[];
  readonly tools: readonly ToolDeclaration[];
}

/** The history that a run of a conversation begins with. */
export interface RecalledHistory {
  readonly messages: readonly Message[];
  /** Notices for the reader. */
  readonly notices: readonly AgentEventBody[];
  /** Usage of the calls that condensed the history. */
  readonly usage: Usage;
  /** Outside content that the runs of the conversation have read. */
  readonly taint: Taint;
}

/** Tokens of a history that fits into the smallest window, together with everything around it. */
const SHORT_TOKENS = 1500;

/**
 * Returns the history that the model is sent. When the history outgrew the window, the run's own model condenses the older turns under the
 * run's budget, and the summary is kept with the conversation. The offline provider condenses nothing.
 * @throws {CancelError} when the run was stopped; {HttpError} 403 insufficient_scope for a caller who may not go on with it
 */
export async function recallHistory(id: string, options: RecallOptions): Promise<RecalledHistory> {
  const { run, provider, prompt, messages, conversations, tools } = options;
  const { scope, model: { wishes: { parameters }, findWindow }, kit } = run;
  const history = await conversations.history(id, scope.caller);
  const own: readonly Message[] = prompt === null ? messages : [{ role: "system", content: prompt }, ...messages];
  const ownTokens = messageTokens(own);
  const isShort = messageTokens(history.messages) + ownTokens < SHORT_TOKENS;
  const windowTokens = isShort ? 0 : await findWindow?.() ?? 0;
  const fitted = await fitHistory(history, {
    windowTokens,
    reservedTokens: windowTokens === 0 ? 0 : ownTokens + tokensAround({ parameters, tools }, windowTokens),
    summarize: provider.name === "offline" ? undefined : summarizer(run, { provider, windowTokens }),
  });
  const { summary } = fitted;
  if (summary !== undefined) await conversations.summarized(id, summary, kit.time());
  return { ...fitted, taint: history.taint };
}

/** Returns the function that condenses messages by a run's own model, under the run's budget. */
function summarizer(
  { scope: { requestId, signal }, model: { id: model }, budget }: AgentRun,
  { provider, windowTokens }: { readonly provider: Provider; readonly windowTokens: number },
): (messages: readonly Message[], earlier?: string) => Promise<Summary> {
  const account = budget === undefined
    ? undefined
    : createTokenAccount({ budget, contextWindowTokens: windowTokens, signal });
  return (messages, earlier) =>
    summarize(messages, { provider, model, windowTokens, earlier, account, requestId, signal });
}

/** Returns the function that finds the window of a run's model: from `[agent] context_window_tokens`, else from the provider; no more than a refusal told. Undefined: unknown. */
export function windowFinder(options: {
  readonly limits: Pick<AgentLimits, "contextWindowTokens">;
  readonly windows: ContextWindows;
  readonly provider: Provider;
  /** As the provider knows it */
  readonly model: string;
}): (() => Promise<number>) | undefined {
  const { limits, windows, provider, model } = options;
  const { contextWindowTokens: configured } = limits;
  return provider.name === "offline" && configured === 0 ? undefined : () => windows.of(provider, model, configured);
}

/** Returns the messages for the model in order: system prompt, the client's instructions, the conversation so far, the client's messages. */
export function assembleMessages(parts: {
  /** System prompt; null: none. */
  readonly prompt: string | null;
  readonly history: readonly Message[];
  readonly messages: readonly Message[];
}): readonly Message[] {
  const { prompt, history, messages } = parts;
  const first: readonly Message[] = prompt === null ? [] : [{ role: "system", content: prompt }];
  if (history.length > 0) {
    return [...first, ...messages.filter(isInstruction), ...history, ...withoutInstructions(messages)];
  }
  return first.length === 0 ? messages : [...first, ...messages];
}

/** Returns the messages that a conversation keeps. Instructions count for the request that they came with. */
export function withoutInstructions(messages: readonly Message[]): readonly Message[] {
  return messages.filter((message) => !isInstruction(message));
}

function isInstruction(message: Message): boolean {
  return message.role === "system" || message.role === "developer";
}
