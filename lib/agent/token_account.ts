import { CancelError } from "../base/cancel.ts";
import type { ModelParameters, ProviderRequest } from "../providers/provider.ts";
import { maxInputTokens, maxThinkingTokens } from "./estimate_tokens.ts";
import { DEFAULT_OUTPUT_TOKENS, type TokenBudget, type TokenReservation } from "./token_budget.ts";

/** The calls of one run on its budget: at most one is open at a time. */
export interface TokenAccount {
  /** Sets the call's tokens aside. @returns the request with the output limit that was granted. @throws {CancelError} as TokenBudget */
  open(request: ProviderRequest): Promise<ProviderRequest>;
  /** The request goes out again and the first time may have cost as much: that counts as used, and the same is set aside anew */
  again(): Promise<void>;
  /** The open call has ended and used this much */
  settle(usedTokens: number): void;
  /** The open call broke off: unless `unused`, all that was set aside for it counts as used. Without one it does nothing */
  broken(unused: boolean): void;
}

export interface TokenAccountOptions {
  readonly budget: TokenBudget;
  /** 0: unknown */
  readonly contextWindowTokens: number;
  readonly signal: AbortSignal;
}

/** Reserves before each call of the model and settles after it (docs/design/runs.md "Budgets"). */
export function createTokenAccount({ budget, contextWindowTokens, signal }: TokenAccountOptions): TokenAccount {
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
