import { CodedError } from "../../base/errors.ts";

/** Code of a refusal about a skill. Source: docs/design/skills.md "Skills" */
export type SkillErrorCode =
  | "skill_invalid"
  | "skill_too_large"
  | "skill_not_found"
  | "skill_conflict"
  | "skill_changed"
  | "skill_source_failed";

/** Refusal about a skill. The message names the skill or the file, the reason and the way out. */
export class SkillError extends CodedError<SkillErrorCode> {
  override readonly name = "SkillError";
}

/** Returns the refusal of a name that no skill has. */
export function skillNotFound(name: string): SkillError {
  const message = `Cannot find the skill ${JSON.stringify(name.slice(0, 64))}: see postern skill list`;
  return new SkillError("skill_not_found", message);
}

/** Returns the refusal of a skill whose content is another than the one that was looked at. */
export function skillChanged(name: string, { asked, found }: { readonly asked: string; readonly found: string }) {
  const reason = `its content has the digest ${found}; look at it again`;
  return new SkillError("skill_changed", `Cannot trust "${name}" with the digest ${asked}: ${reason}`);
}
