import { CancelError } from "../base/cancel.ts";

/** What one model call may need at most. */
export interface TokenNeed {
  /** Upper bound of its input, and of what the model may think beyond its output */
  readonly input: number;
  /** Output wished for; at least 1 of it must be there */
  readonly output: number;
  readonly signal: AbortSignal;
}

/** Tokens set aside for one call. Until it is settled they all count as used, since they may have been. */
export interface TokenReservation {
  /** The output that was granted, 1 at least: the limit that must be sent with the call */
  readonly output: number;
  /** Replaces the reservation by what was used; once */
  settle(usedTokens: number): void;
  /** The call broke off, and how much it used is unknown: all of the reservation counts as used; once */
  forfeit(): void;
}

/** Tokens that may be used, by one run or by many. */
export interface TokenBudget {
  /** @throws {CancelError} `budget` when the input and one token of output do not fit; that of the signal when it aborts first */
  reserve(need: TokenNeed): Promise<TokenReservation>;
}

export interface RunBudgetOptions {
  readonly tokensPerRun: number;
  /** Used before: a resumed run goes on counting */
  readonly used: number;
  /** What it counts in as well: the parent's, or the day's */
  readonly within: TokenBudget | undefined;
}

/** Output that is set aside where the client names no limit: a bound every common model takes. */
export const DEFAULT_OUTPUT_TOKENS = 4096;

/** The budget of one run. */
export function createRunBudget({ tokensPerRun, used, within }: RunBudgetOptions): TokenBudget {
  let left = tokensPerRun - used;
  return {
    async reserve({ input, output, signal }) {
      if (left <= input) throw exceeded(tokensPerRun, left, input);
      const granted = Math.min(output, left - input);
      // Taken before the wait for the other, which may be long: runs below this one reserve at the same time
      const own = input + granted;
      left -= own;
      try {
        const outer = await within?.reserve({ input, output: granted, signal });
        return {
          output: outer?.output ?? granted,
          settle(usedTokens) {
            left += own - usedTokens;
            outer?.settle(usedTokens);
          },
          forfeit: () => outer?.forfeit(),
        };
      } catch (error) {
        left += own;
        throw error;
      }
    },
  };
}

function exceeded(tokensPerRun: number, left: number, input: number): CancelError {
  return new CancelError(
    "budget",
    `The run was ended: of its budget of ${tokensPerRun} tokens ${
      Math.max(0, left)
    } are left, and the next call may need ` +
      `${input + 1}; raise tokens_per_run in [budget]`,
  );
}
