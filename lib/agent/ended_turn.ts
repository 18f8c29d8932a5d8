import type { FinishReason } from "../base/records/agent_event.ts";
import type { TurnCall } from "./model_turn.ts";

/** What a resumed run must know of a finished turn beside its events. */
export interface EndedTurn {
  /** From 1 */
  readonly turn: number;
  readonly finishReason: FinishReason;
  /** Calls as the model made them, those of the client's tools among them */
  readonly calls: readonly TurnCall[];
  /** The vendor's parts of the reply; undefined: none */
  readonly opaque: unknown;
  /** Provider they belong to. undefined: the run's own */
  readonly provider: string | undefined;
  /** It was the one last turn without tools */
  readonly last: boolean;
}
