import { wrapUntrusted } from "../../agent/tool_calls.ts";
import type { Random } from "../../base/random.ts";
import type { SopStep } from "./definition.ts";
import type { Execution, ExecutionPlan, StepResult } from "./execution_record.ts";
import { fillInput, fillText, type TemplateScope } from "./template.ts";

interface Filling {
  readonly execution: Execution;
  readonly plan: ExecutionPlan;
  readonly results: ReadonlyMap<string, StepResult>;
  /** For the envelopes */
  readonly random: Random;
}

/**
 * What a step does, with the values of inputs and earlier steps in their places. In instructions what came over the network is put
 * into an envelope, so that the agent can tell it from instructions.
 * @throws {TemplateError} for a value there is not, and over the bounds
 */
export function fillStep(
  { work }: SopStep,
  { execution, plan, results, random }: Filling,
): SopStep["work"] {
  const scope = scopeOf({ execution, plan, results });
  switch (work.kind) {
    case "tool":
      // A record stays one: only texts in it are filled in
      return { ...work, input: fillInput(work.input, scope) as Record<string, unknown> };
    case "agent": {
      const shown = (id: string, output: string) =>
        results.get(id)?.outside === true ? wrapUntrusted(`steps.${id}`, output, random) : output;
      return { ...work, instructions: fillText(work.instructions, scope, shown) };
    }
    case "manual":
      return { ...work, text: fillHandWork(work.text, { execution, plan, results }) };
  }
}

/** What is to be done by hand. @throws {TemplateError} as `fillStep` */
export function fillHandWork(text: string, filling: Omit<Filling, "random">): string {
  return fillText(text, scopeOf(filling), (_, output) => output);
}

function scopeOf({ execution, plan, results }: Omit<Filling, "random">): TemplateScope {
  return {
    inputs: plan.inputs,
    steps: Object.fromEntries(results),
    execution: { id: execution.id, date: execution.created_at.slice(0, 10) },
  };
}
