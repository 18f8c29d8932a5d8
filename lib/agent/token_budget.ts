import { CancelError } from "../base/cancel.ts";
import type { ModelParameters, ProviderRequest } from "../providers/provider.ts";
import { maxInputTokens, maxThinkingTokens } from "./estimate_tokens.ts";

/** The most tokens that a model call may need. */
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

/** Output that is set aside where the client names no limit: a bound every common model takes. */
export const DEFAULT_OUTPUT_TOKENS = 4096;

/** The budget of one run. */
export function createRunBudget({ tokensPerRun, used, within }: {
  readonly tokensPerRun: number;
  /** Tokens that were used before: a resumed run goes on counting */
  readonly used: number;
  /** Budget that this one counts in as well: the parent run's, or the day's */
  readonly within: TokenBudget | undefined;
}): TokenBudget {
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

/** The calls of one run on its budget: at most one is open at a time. */
export interface TokenAccount {
  /** Sets the call's tokens aside. @returns the request with the output limit that was granted. @throws {CancelError} as TokenBudget */
  open(request: ProviderRequest): Promise<ProviderRequest>;
  /** The request goes out again and the first time may have cost as much: that counts as used, and the same is set aside again */
  again(): Promise<void>;
  /** The open call has ended and used this much */
  settle(usedTokens: number): void;
  /** The open call broke off: unless `unused`, all that was set aside for it counts as used. Without one it does nothing */
  broken(unused: boolean): void;
}

/** Reserves before each call of the model and settles after it (docs/design/runs.md "Budgets"). */
export function createTokenAccount({ budget, contextWindowTokens, signal }: {
  readonly budget: TokenBudget;
  /** 0: unknown */
  readonly contextWindowTokens: number;
  readonly signal: AbortSignal;
}): TokenAccount {
  let reservation: TokenReservation | undefined;
  let input = 0;
  return {
    async open(request) {
      const { parameters } = request;
      input = maxInputTokens(request) + maxThinkingTokens(parameters);
      reservation = await budget.reserve({ input, output: outputLimit(parameters, contextWindowTokens), signal });
      return { ...request, parameters: withOutputLimit(parameters, reservation.output) };
    },
    async again() {
      const first = reservation;
      if (first === undefined) return;
      first.forfeit();
      reservation = undefined;
      const second = await budget.reserve({ input, output: first.output, signal });
      if (second.output < first.output) {
        second.settle(0);
        throw new CancelError(
          "budget",
          "The token budget does not allow to ask again after an attempt without a reply",
        );
      }
      reservation = second;
    },
    settle(usedTokens) {
      reservation?.settle(usedTokens);
      reservation = undefined;
    },
    broken(unused) {
      if (unused) reservation?.settle(0);
      else reservation?.forfeit();
      reservation = undefined;
    },
  };
}

/** The output the client allows; without its word 4096 tokens, and no more than a quarter of a known window. */
export function outputLimit(parameters: ModelParameters, contextWindowTokens: number): number {
  const { max_completion_tokens: completion, max_tokens: plain } = parameters;
  const quarter = contextWindowTokens > 0 ? Math.ceil(contextWindowTokens / 4) : DEFAULT_OUTPUT_TOKENS;
  return completion ?? plain ?? Math.min(DEFAULT_OUTPUT_TOKENS, quarter);
}

/** The limit under the name the client used for it. */
function withOutputLimit(parameters: ModelParameters, limit: number): ModelParameters {
  return parameters.max_completion_tokens === undefined
    ? { ...parameters, max_tokens: limit }
    : { ...parameters, max_completion_tokens: limit };
}
