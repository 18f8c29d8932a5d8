import type { FinishReason } from "../base/records/agent_event.ts";
import type { Usage } from "../base/records/usage.ts";
import type { TurnCall } from "./model_turn.ts";

/** How a call ended. */
export interface RecordedResult {
  readonly output: string;
  readonly isError: boolean;
  /** It came from outside: the model gets it in the untrusted envelope */
  readonly outside: boolean;
}

/** A finished turn of the model, as the journal has it. */
export interface RecordedTurn {
  readonly text: string;
  readonly refusal: string;
  readonly finishReason: FinishReason;
  readonly calls: readonly TurnCall[];
  /** The vendor's parts of the reply, which go back as they are */
  readonly opaque: unknown;
  /** Provider they belong to. undefined: the run's own */
  readonly provider: string | undefined;
  readonly usage: Usage;
  /** It was the one last turn without tools */
  readonly last: boolean;
  /** Of its calls that have ended, by call id */
  readonly results: ReadonlyMap<string, RecordedResult>;
  /** Whether what follows from its results was recorded as well */
  readonly followed: boolean;
}

/** What a run did before it was interrupted. */
export interface RecordedRun {
  /** Whether it had begun; else it only waited for its turn */
  readonly started: boolean;
  readonly turns: readonly RecordedTurn[];
  /** Events from this seq on belong to no finished step: their text does not count */
  readonly fromSeq: number;
}

/** For a run that goes on after its last finished step. */
export interface RunResume {
  /** Its events are numbered from here on */
  readonly afterSeq: number;
  /** Asked for once its turn has come */
  readonly load: () => Promise<RecordedRun>;
  /** Why a tool it was told of cannot be called any more, by name */
  readonly gone: ReadonlyMap<string, string>;
}
