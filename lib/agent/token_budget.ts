import { CancelError } from "../base/cancel.ts";
import type { Usage } from "../base/records/usage.ts";
import type { ModelParameters } from "../providers/provider.ts";

/** The tokens one run may use. */
export interface TokenBudget {
  /**
   * Reserves for one model call: its input in bytes (one token is at least one byte) and the output that is left.
   * @returns the parameters with the output limit that must be sent
   * @throws {CancelError} `budget` when the input alone does not fit
   */
  reserve(inputBytes: number, parameters: ModelParameters): ModelParameters;
  /** Replaces the reservation by what was used */
  settle(usage: Usage): void;
}

/** @param tokensPerRun above 0 */
export function createTokenBudget(tokensPerRun: number): TokenBudget {
  let used = 0;
  return {
    reserve(inputBytes, parameters) {
      const left = tokensPerRun - used - inputBytes;
      if (left < 1) {
        throw new CancelError(
          "budget",
          `The run was ended: its budget of ${tokensPerRun} tokens has ${
            Math.max(0, tokensPerRun - used)
          } left, and the next call may ` +
            `need ${inputBytes}; raise tokens_per_run in [budget]`,
        );
      }
      const { max_completion_tokens: completion, max_tokens: plain } = parameters;
      if (completion !== undefined) return { ...parameters, max_completion_tokens: Math.min(completion, left) };
      return { ...parameters, max_tokens: Math.min(plain ?? left, left) };
    },
    settle(usage) {
      used += usage.total_tokens;
    },
  };
}
