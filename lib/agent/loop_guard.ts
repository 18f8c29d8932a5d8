import { createHash } from "node:crypto";

/** A finished tool call as the guard sees it. */
export interface GuardedCall {
  readonly name: string;
  readonly input: string;
  readonly output: string;
  readonly isError: boolean;
}

/** `warn`: tell the model what it repeats; `stop`: it was told and went on. */
export type LoopVerdict =
  | { readonly kind: "ok" }
  | { readonly kind: "warn" | "stop"; readonly what: string };

export interface LoopGuard {
  /** Looks at the calls of one turn, in order. Stops no earlier than the turn after its warning */
  observe(calls: readonly GuardedCall[]): LoopVerdict;
}

const REPEATS = 3;
const KEPT = 8;

/**
 * Notices a model that runs in circles: the same call with the same result three times, two calls in turns (A-B-A-B), or three
 * failures in a row. The first time it warns; when the very next turn still fits a pattern, it stops.
 * Source: docs/design/runs.md "Loop guard"
 */
export function createLoopGuard(): LoopGuard {
  const seen: string[] = [];
  let failures = 0;
  let warned = false;

  const patternNow = (): string | undefined => {
    const [d, c, b, a] = [seen.at(-1), seen.at(-2), seen.at(-3), seen.at(-4)];
    if (seen.length >= REPEATS && d === c && c === b) return "the same call with the same result three times";
    if (a !== undefined && a === c && b === d && a !== b) return "the same two calls in turns";
    if (failures >= REPEATS) return "three failed calls in a row";
    return undefined;
  };

  return {
    observe(calls) {
      let found: string | undefined;
      for (const call of calls) {
        failures = call.isError ? failures + 1 : 0;
        seen.push(signature(call));
        if (seen.length > KEPT) seen.shift();
        found = patternNow() ?? found;
      }
      if (calls.length === 0) return { kind: "ok" };
      if (found === undefined) {
        warned = false;
        return { kind: "ok" };
      }
      if (warned) return { kind: "stop", what: found };
      warned = true;
      return { kind: "warn", what: found };
    },
  };
}

function signature(call: GuardedCall): string {
  return createHash("sha256").update(JSON.stringify([call.name, call.input, call.isError, call.output])).digest(
    "base64",
  );
}
