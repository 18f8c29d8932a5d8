import type { ReadSkill } from "../tools/runtime/tool_call.ts";
import { matchesPatterns } from "../tools/runtime/registry.ts";

/**
 * Skills that a run has read, and the tools that they take from it. What was taken stays taken to the end of the run.
 * Source: docs/design/skills.md "Narrowing"
 */
export class ReadSkills {
  readonly #read: ReadSkill[] = [];

  add(skill: ReadSkill): void {
    if (skill.disallowedTools.length > 0) this.#read.push(skill);
  }

  /** Returns why a tool cannot be called any more. Undefined for one that can. */
  refusalOf(tool: string): string | undefined {
    const by = this.#read.find(({ disallowedTools }) => matchesPatterns(tool, disallowedTools));
    if (by === undefined) return undefined;
    return `Cannot call "${tool}": the skill "${by.name}", which this run has read, turns it off for the rest of the run`;
  }

  /** Returns the tools that can still be called. */
  narrow(tools: readonly string[]): readonly string[] {
    return this.#read.length === 0 ? tools : tools.filter((tool) => this.refusalOf(tool) === undefined);
  }
}
