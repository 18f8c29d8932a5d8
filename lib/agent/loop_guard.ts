import { createHash } from "node:crypto";
import type { AgentEventBody } from "../base/records/agent_event.ts";
import type { Message, Picture } from "../base/records/message.ts";
import type { AgentLimits } from "./agent_run.ts";
import type { CallResult } from "./tool_calls.ts";

/** A finished tool call as the guard sees it. */
export interface GuardedCall {
  readonly name: string;
  readonly input: string;
  readonly output: string;
  /** Pictures beside the output. Default: none */
  readonly pictures?: readonly Pick<Picture, "sha256">[] | undefined;
  readonly isError: boolean;
}

/** `warn`: tell the model what it repeats; `stop`: it was told and went on. */
export type LoopVerdict =
  | { readonly kind: "ok" }
  | { readonly kind: "warn" | "stop"; readonly what: string };

/** Watches the tool calls of a run for repetition. */
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
  return createHash("sha256").update(
    JSON.stringify([call.name, call.input, call.isError, call.output, call.pictures?.map(({ sha256 }) => sha256)]),
  ).digest(
    "base64",
  );
}

/** Consequences of the results of a turn's calls. */
export interface AfterTools {
  /** The results as messages for the model, with the gateway's advice under the last one */
  readonly answers: readonly Message[];
  /** Notices for the reader */
  readonly notices: readonly AgentEventBody[];
}

/** The results of a turn's calls, and the state they are judged in. */
export interface AfterToolsOptions {
  readonly results: readonly CallResult[];
  readonly verdict: LoopVerdict;
  /** True when another turn of the model follows */
  readonly hasNextTurn: boolean;
  /** The turn just done, from 1 */
  readonly turn: number;
  /** Tool calls that may still run; below 1: none */
  readonly callsLeft: number;
  readonly limits: AgentLimits;
}

/** Puts the results into messages; a repeated call and a reached limit are told to the model and to the reader. */
export function afterTools({ results, verdict, hasNextTurn, turn, callsLeft, limits }: AfterToolsOptions): AfterTools {
  const advice: string[] = [];
  const notices: AgentEventBody[] = [];
  if (verdict.kind === "warn") {
    advice.push(`You repeated yourself: ${verdict.what}. Do something else, or answer with what you have.`);
    notices.push({ type: "notice", code: "loop_warning", message: `The model repeats itself: ${verdict.what}` });
  }
  const noCalls = callsLeft < 1;
  if (hasNextTurn && (noCalls || turn >= limits.maxIterations)) {
    const limit = noCalls ? `${limits.maxToolCalls} tool calls` : `${limits.maxIterations} turns`;
    const code = noCalls ? "max_tool_calls" : "max_iterations";
    advice.push(
      `The limit of ${limit} for one run is reached. Answer now with what you have; no tool can be called any more.`,
    );
    notices.push({
      type: "notice",
      code,
      message: `The limit of ${limit} is reached: one last turn without tools follows`,
    });
  }
  return { answers: toMessages(results, advice), notices };
}

/** Returns the results as messages for the model. @param advice lines of the gateway under the last one. Default: none */
export function toMessages(results: readonly CallResult[], advice: readonly string[] = []): readonly Message[] {
  return results.map((result, i): Message => {
    const lines = i === results.length - 1 ? advice.map((line) => `[Postern] ${line}`) : [];
    const content = [result.content, ...lines].join("\n\n");
    const { pictures, frame, deniedBy } = result;
    const message: Message = {
      role: "tool",
      tool_call_id: result.call.id,
      content,
      ...pictures === undefined ? {} : { pictures: [...pictures] },
      ...frame === undefined ? {} : { frame },
      ...deniedBy === undefined ? {} : { denied_by: deniedBy },
    };
    return result.isError ? { ...message, is_error: true } : message;
  });
}
