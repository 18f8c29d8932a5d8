import * as v from "valibot";
import { defineTool } from "../runtime/define_tool.ts";
import type { SkillText } from "./skills.ts";

/** `skill_read`: reads the instructions or a file of a skill that is on (docs/design/skills.md "Reading"). */
export const skillRead = defineTool({
  name: "skill_read",
  description: "Reads a skill: the instructions for a kind of task, or one of its files",
  access: "read",
  // The system prompt tells of skills, and a model cannot call what it is not told of
  alwaysOffered: true,
  enabled: "always",
  needs: ["skills"],
  input: v.strictObject({
    name: v.pipe(v.string(), v.minLength(1), v.maxLength(256), v.description("Skill")),
    path: v.optional(
      v.pipe(v.string(), v.minLength(1), v.maxLength(1024), v.description("File of it. Default: its instructions")),
    ),
  }),
  textField: "name",
  async run({ name, path }, { services: { skills } }) {
    const read = await skills.read(name, path);
    const { disallowedTools, taint } = read;
    return {
      output: path === undefined ? describe(read) : read.text,
      isError: false,
      data: { name: read.name, path: read.path, files: read.files, disallowed_tools: disallowedTools },
      taint,
      skill: { name: read.name, disallowedTools },
    };
  },
});

function describe({ name, text, files, compatibility, disallowedTools }: SkillText): string {
  return [
    `Skill "${name}"`,
    ...(compatibility === undefined ? [] : [`Needs: ${compatibility}`]),
    ...(disallowedTools.length === 0
      ? []
      : [`For the rest of this run these tools are off: ${disallowedTools.join(", ")}`]),
    ...(files.length === 0 ? [] : [`Files, which skill_read reads by "path": ${files.join(", ")}`]),
    "",
    text,
  ].join("\n");
}
