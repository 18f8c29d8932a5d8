import type { AgentJournal, AgentOutcome } from "../agent/agent_run.ts";
import { hasOwnWork } from "../agent/parked_client_calls.ts";
import { CancelError } from "../base/cancel.ts";
import type { RunStatus } from "../base/records/run.ts";
import type { Logger } from "../base/telemetry/log.ts";
import type { ActiveRun } from "./active_run.ts";
import { endStatus } from "./apply_event.ts";
import { withoutInstructions } from "./assemble_messages.ts";
import type { Conversations } from "./conversations.ts";
import type { RunRecorder } from "./run_recorder.ts";
import type { RunRequest } from "./run_request.ts";
import type { ParkedRecords } from "./parked_records.ts";

export interface RunJournalOptions {
  readonly entry: ActiveRun;
  readonly request: RunRequest;
  /** undefined for a run that can have nothing to record */
  readonly recorder: RunRecorder | undefined;
  readonly conversations: Conversations;
  readonly parkedRecords: ParkedRecords;
  readonly log: Logger;
  /** Called once, when the run is over and written; undefined when it was stopped for a shutdown and the next start finds its journal open */
  readonly onEnd: (status: RunStatus | undefined) => void;
}

/** The agent's view of the journal: recorded from the first effect on, ended in one transaction with the conversation. */
export class RunJournal implements AgentJournal {
  readonly record: AgentJournal["record"];
  readonly turn: AgentJournal["turn"];
  readonly #options: RunJournalOptions;
  /** Calls that run now and must not be made twice; made with the first */
  #effects: Set<string> | undefined = undefined;

  constructor(options: RunJournalOptions) {
    this.record = options.recorder?.record;
    this.turn = options.recorder?.turn;
    this.#options = options;
  }

  async beforeEffect(callId: string, { repeatable }: { readonly repeatable: boolean }): Promise<void> {
    const { entry, recorder } = this.#options;
    entry.hadEffect = true;
    if (!repeatable) entry.effectsAtWork = (this.#effects ??= new Set()).add(callId).size;
    if (recorder === undefined) return;
    recorder.activate();
    if (!repeatable) recorder.effect(callId);
    await recorder.commit();
  }

  afterCall(callId: string, { outside }: { readonly outside: boolean }): void {
    const { entry, recorder } = this.#options;
    const effects = this.#effects;
    if (outside) recorder?.outside(callId);
    if (effects?.delete(callId) !== true) return;
    entry.effectsAtWork = effects.size;
    if (entry.suspending && effects.size === 0) entry.abort(new CancelError("shutdown"));
  }

  end(outcome: AgentOutcome): void | Promise<void> {
    const { terminal, added, refused } = outcome;
    const { entry, request, recorder, onEnd } = this.#options;
    entry.refused = refused;
    const stopsForShutdown = request.durable && terminal.type === "error" && terminal.code === "shutdown";
    // Finished work must be on disk before the run counts as stopped for the shutdown. Unfinished work is left out
    if (stopsForShutdown) return recorder?.commit().finally(() => onEnd(undefined));
    if (!recorder?.active()) {
      const noted = recorder === undefined ? undefined : this.#noteOwnWork(outcome);
      if (noted === undefined) return this.#over(terminal, endStatus(terminal));
      return noted.then(() => this.#over(terminal, endStatus(terminal)));
    }
    // A request that failed before anything was said is the client's to repeat: its conversation stays as it was
    const said = refused === undefined && (terminal.type === "done" || added.length > 0);
    return this.#write(recorder, said ? outcome : undefined).then(
      () => this.#over(terminal, endStatus(terminal)),
      (error) => {
        this.#over(terminal, "failed");
        throw error;
      },
    );
  }

  /** Notes on disk that a run without records did work of the agent, if its client must come back. undefined: nothing to note */
  #noteOwnWork(outcome: AgentOutcome): Promise<void> | undefined {
    const { entry, request, parkedRecords, log } = this.#options;
    if (!isSuspended(request, outcome) || !hasOwnWork(outcome.added)) return undefined;
    return parkedRecords.note(outcome.added).catch((error) => {
      log.warn("Cannot note what a restart would lose of this run", { run_id: entry.id, error });
    });
  }

  /** @param said undefined: the conversation gets nothing of it */
  async #write(recorder: RunRecorder, said: AgentOutcome | undefined): Promise<void> {
    const { entry: { id, conversationId }, request, conversations, parkedRecords } = this.#options;
    if (said === undefined) return await recorder.finish([]);
    const { added, terminal } = said;
    const kept = isSuspended(request, said) ? await parkedRecords.writes(added, { durable: request.durable }) : [];
    if (conversationId === null) return await recorder.finish(kept);
    const messages = [...withoutInstructions(request.messages), ...added];
    const { time } = terminal;
    await recorder.finish([
      ...await conversations.writes(conversationId, { runId: id, caller: request.caller, messages, time }),
      ...kept,
    ]);
  }

  #over(terminal: AgentOutcome["terminal"], status: RunStatus): void {
    const { entry, request, log, onEnd } = this.#options;
    if (terminal.type === "error" && status === "failed") {
      const { code, message } = terminal;
      log.warn("Run failed", { run_id: entry.id, request_id: request.requestId, code, message });
    }
    onEnd(status);
  }
}

/** Tells whether the run ended with calls to tools of the client, or may have. */
function isSuspended(request: RunRequest, { terminal }: AgentOutcome): boolean {
  return terminal.type === "done" && terminal.finish_reason !== "stop" && request.clientTools.length > 0;
}
