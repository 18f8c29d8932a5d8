const THINKING_TOKENS: ReadonlyMap<string, number> = new Map(
  Object.entries({ low: 2_048, medium: 8_192, high: 16_384, xhigh: 32_768 }),
);

/** Tokens a model may think beside its answer at this `reasoning_effort`, where a vendor wants a figure; 0 for none or an unknown one. */
export function thinkingTokens(effort: string): number {
  return THINKING_TOKENS.get(effort) ?? 0;
}
