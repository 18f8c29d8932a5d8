import type { SampledReply, SampleRequest } from "../tools/runtime/askable_client.ts";
import { ToolError } from "../base/errors.ts";
import type { AgentRun } from "./agent_run.ts";
import { askModel } from "./summarize.ts";
import { createTokenAccount } from "./token_budget.ts";

/** Tokens of one reply, whatever a server asks for, and bytes of it that are kept. */
const MAX_TOKENS = 4_096;
const MAX_BYTES = 65_536;

/**
 * Asks the run's model for the server of a call: with the server's messages alone, nothing of the run, and never with tools. It counts in the
 * run's budget.
 * @throws {CancelError} `budget`; when the signal aborts. {ProviderError} as the provider
 */
export async function sampleModel(
  run: Pick<AgentRun, "model" | "budget" | "limits" | "scope">,
  { messages, system, maxTokens, temperature }: SampleRequest,
  signal: AbortSignal,
): Promise<SampledReply> {
  const { model: { provider, id, name: model }, budget, limits, scope: { requestId } } = run;
  if (messages.length === 0) throw new ToolError("invalid_input", "Cannot ask the model: there is no message");
  const account = budget === undefined
    ? undefined
    : createTokenAccount({ budget, contextWindowTokens: limits.contextWindowTokens, signal });
  const request = {
    model: id,
    messages: [...(system === undefined ? [] : [{ role: "system", content: system } as const]), ...messages],
    tools: [],
    parameters: {
      max_tokens: Math.min(MAX_TOKENS, maxTokens),
      ...(temperature === undefined ? {} : { temperature }),
    },
  };
  const { text } = await askModel(request, { provider, account, requestId, signal }, MAX_BYTES);
  return { text, model };
}
