import type { AgentSteering, SteeringMessage } from "../../agent/agent_run.ts";
import { CancelError } from "../../base/cancel.ts";
import { textOf } from "../../base/records/message.ts";
import type { Patience } from "../../storage/read_records.ts";
import type { RunRecorder } from "../journal/run_recorder.ts";
import type { RunStore } from "../journal/run_store.ts";
import type { RunSupervisor } from "../run_request.ts";

/** A run, and the parts that its messages are found and ended with. */
export interface RunSteeringOptions {
  readonly runId: string;
  readonly runs: RunStore;
  readonly recorder: Pick<RunRecorder, "commit">;
  readonly cancel: RunSupervisor["cancel"];
  readonly patience: Patience;
  /** True for a run that goes on after a stop: messages may have come before it. */
  readonly isResumed: boolean;
}

/**
 * The messages that wait for one run. Each was accepted as a run of its own, the next turn of the conversation, and is on disk as such: a run
 * that ends without having taken it in leaves it its turn. The journal of the run that took it in decides; the other one ends then.
 * Source: docs/design/runs.md "Steering"
 */
export class RunSteering implements AgentSteering {
  isDue: boolean;
  /** Counts the messages that were accepted: one that comes during a look is looked for again. */
  #messages = 0;
  readonly #options: RunSteeringOptions;

  constructor(options: RunSteeringOptions) {
    this.#options = options;
    this.isDue = options.isResumed;
  }

  /** Notes that a message for the run was accepted. */
  onMessage(): void {
    this.#messages++;
    this.isDue = true;
  }

  async waiting(): Promise<readonly SteeringMessage[]> {
    const before = this.#messages;
    const messages = await this.#options.patience(() => this.#look());
    if (messages.length === 0 && before === this.#messages) this.isDue = false;
    return messages;
  }

  async taken(ids: readonly string[]): Promise<void> {
    const { recorder, cancel, patience } = this.#options;
    await recorder.commit();
    for (const id of ids) await patience(() => cancel(id, "taken_in"));
  }

  async #look(): Promise<readonly SteeringMessage[]> {
    const { runs, runId, cancel } = this.#options;
    const messages: SteeringMessage[] = [];
    for (const id of await runs.steering(runId)) {
      const [run, input] = await Promise.all([runs.get(id), runs.input(id)]);
      if (run === undefined || input === undefined) continue;
      if (run.steers?.mode === "interrupt") {
        // A crash came between the acceptance of the message and the end of this run
        await cancel(runId, "interrupted");
        throw new CancelError("interrupted");
      }
      messages.push({ id, text: textOf(input.messages.at(-1)?.content ?? ""), by: input.caller.token_id });
    }
    return messages;
  }
}
