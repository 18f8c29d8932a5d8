import { hash } from "node:crypto";
import * as v from "valibot";
import { SKILL_LAYERS } from "../../base/records/extension_views.ts";
import type { Documents } from "../../storage/documents.ts";
import type { SkillIndex } from "./find_skills.ts";
import type { FoundSkill } from "./read_skill.ts";

const text = v.string();
const texts = v.array(text);

const skillSchema = v.object({
  name: text,
  layer: v.picklist(SKILL_LAYERS),
  folder: text,
  shownAs: text,
  document: v.optional(v.object({
    name: text,
    description: text,
    license: v.optional(text),
    compatibility: v.optional(text),
    metadata: v.record(text, text),
    allowedTools: texts,
    disallowedTools: texts,
    isOffered: v.boolean(),
  })),
  faults: v.array(v.object({ line: v.number(), key: v.optional(text), reason: text, isFatal: v.boolean() })),
  files: v.array(v.object({ path: text, size: v.number() })),
  digest: text,
});

const entrySchema = v.object({ v: v.literal(1), stamp: text, skill: skillSchema });

/**
 * Creates the memory of skills that were read before, so that a start reads no file of a skill that is as it was. An entry that is lost or
 * that another version wrote costs a look. Whoever reads a skill reads its files again.
 */
export function createSkillIndex(documents: Pick<Documents, "get" | "set">): SkillIndex {
  return {
    async get(path, stamp) {
      const found = v.safeParse(entrySchema, await documents.get(keyOf(path)));
      if (!found.success || found.output.stamp !== sha256(stamp)) return undefined;
      const { document, faults, ...skill } = found.output.skill;
      return {
        ...skill,
        document: document === undefined
          ? undefined
          : { ...document, license: document.license, compatibility: document.compatibility },
        faults: faults.map((fault) => ({ ...fault, key: fault.key })),
      };
    },
    async set(path, stamp, skill: FoundSkill) {
      await documents.set(keyOf(path), { v: 1, stamp: sha256(stamp), skill });
    },
  };
}

function keyOf(path: string): `skills/${string}` {
  return `skills/${sha256(path)}`;
}

function sha256(value: string): string {
  return hash("sha256", value);
}
