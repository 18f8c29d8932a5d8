import type { AgentRun } from "../../agent/agent_run.ts";
import { answerAllCalls } from "../../agent/parked_client_calls.ts";
import { cancelError } from "../../base/cancel.ts";
import type { Message } from "../../base/records/message.ts";
import type { Provider } from "../../providers/provider.ts";
import type { Conversations } from "../conversations/conversations.ts";
import { assembleMessages, recallHistory } from "../conversations/recall_history.ts";
import type { RunRequest } from "../run_request.ts";
import type { ActiveRun } from "./active_run.ts";
import type { QueuePlace } from "./run_queue.ts";

/** Parts that the first messages of a run are made of. */
export interface RunOpeningOptions {
  readonly request: RunRequest;
  /** Pinned messages of an interrupted run, with parked calls in their places; undefined: they are found anew. */
  readonly spliced: readonly Message[] | undefined;
  /** Provider that condenses a long history. */
  readonly provider: Provider;
  /** System prompt; null: none. */
  readonly prompt: string | null;
  readonly place: QueuePlace;
  readonly entry: ActiveRun;
  readonly conversations: Conversations;
}

/** Waits for the slot of a run and gives the run's first messages for the model. */
export class RunOpening {
  /** Number of first messages that are never cut; see AgentRun.fixedMessages. */
  fixedMessages = 0;
  readonly #options: RunOpeningOptions;

  constructor(options: RunOpeningOptions) {
    this.#options = options;
  }

  /** Sets `opening` of the run when a history was read. @throws {CancelError} when the run was stopped first */
  begin(run: AgentRun): readonly Message[] | Promise<readonly Message[]> {
    const { place, entry } = this.#options;
    if (run.signal.aborted) throw cancelError(run.signal);
    if (!place.ready() || run.conversationId !== null) return this.#beginLater(run);
    entry.startedAt = run.time();
    return this.#clientMessages(run);
  }

  async #beginLater(run: AgentRun): Promise<readonly Message[]> {
    const { request, provider, prompt, place, entry, conversations } = this.#options;
    await place.wait(run.signal);
    entry.startedAt = run.time();
    if (run.conversationId === null) return this.#clientMessages(run);
    const messages = this.#givenMessages(run);
    const recalled = await recallHistory(run.conversationId, {
      conversations,
      caller: request.caller,
      provider,
      model: run.providerModel,
      findWindow: run.findWindow,
      prompt,
      messages,
      tools: [...run.agentTools, ...request.clientTools],
      parameters: request.parameters,
      budget: run.budget,
      requestId: request.requestId,
      signal: run.signal,
      time: run.time,
    });
    run.opening = recalled;
    return answerAllCalls(assembleMessages({ prompt, history: recalled.messages, messages }));
  }

  /** Returns the messages of a run without a conversation. The client keeps its own history, so the gateway cuts nothing of it. */
  #clientMessages(run: AgentRun): readonly Message[] {
    const messages = this.#givenMessages(run);
    const assembled = assembleMessages({ prompt: this.#options.prompt, history: [], messages });
    this.fixedMessages = assembled.length;
    return assembled;
  }

  /** Returns the messages of the request, with parked calls in their places. */
  #givenMessages(run: AgentRun): readonly Message[] {
    return this.#options.spliced ?? run.parked.splice(this.#options.request.messages);
  }
}
