import type { Taint } from "../../base/taint.ts";

/** File of a skill, read for the agent. */
export interface SkillText {
  /** Name of the skill */
  readonly name: string;
  /** Path of the file within the skill, with `/` */
  readonly path: string;
  readonly text: string;
  /** Paths of the skill's other files */
  readonly files: readonly string[];
  /** Needs of the skill, in the words of its author. Undefined: not said */
  readonly compatibility: string | undefined;
  /** Patterns of the tools that a run which has read it may not call any more */
  readonly disallowedTools: readonly string[];
  /** Outside content that the text is: a skill of the workspace. Default: none */
  readonly taint: Taint;
}

/** Skills that the agent may read: those that are on. */
export interface ReadableSkills {
  /**
   * Reads SKILL.md without its front matter, or another file of a skill, again from the disk.
   * @throws {ToolError} `skill_not_found`, `skill_off`, `skill_changed` where the skill is not the one that is on, `skill_file`
   */
  read(name: string, path?: string): Promise<SkillText>;
}
