import assert from "node:assert/strict";
import { test } from "node:test";
import * as v from "valibot";
import type { Effects } from "../../../lib/guard/policy.ts";
import { defineTool } from "../../../lib/tools/runtime/define_tool.ts";
import { createToolPolicy } from "../../../lib/tools/runtime/tool_policy.ts";
import { type ConfigTable, toConfig } from "../../support/config_edits.ts";

const policyOf = (table: ConfigTable) =>
  createToolPolicy({ config: () => toConfig(table), workspaceRoot: "/home/me/work", home: "/home/me", ownPaths: [] });

const toolOf = (effects: Effects) =>
  defineTool({
    name: "probe",
    description: "A tool that does nothing at all",
    access: "network",
    accessOf: ({ op }) => (op === "look" ? "read" : "write"),
    enabled: "always",
    needs: [],
    input: v.strictObject({ op: v.pipe(v.picklist(["look", "change"]), v.description("What to do")) }),
    effects: () => effects,
    run: () => Promise.resolve({ output: "", isError: false }),
  });

test("judge() takes paths as relative to the root that the call names, whatever its access", () => {
  const policy = policyOf({
    autonomy: { level: "full", forbidden_paths: ["docs/private", "out/private", "private"] },
    security: { read_file: { allowed_root: "docs" }, write_file: { allowed_root: "out" } },
  });
  for (const [root, by] of [["read_file", "docs/"], ["write_file", "out/"], [undefined, ""]] as const) {
    const tool = toolOf({ paths: ["private/x"], ...(root === undefined ? {} : { root }) });
    for (const op of ["look", "change"]) {
      const judged = policy.judge(tool, JSON.stringify({ op }));
      assert.ok(judged.kind === "judged");
      assert.equal(judged.decision.rule, `forbidden_path:/home/me/work/${by}private`, `${root} ${op}`);
    }
  }
});

test("judge() decides by the access of the call, which may depend on its input", () => {
  const policy = policyOf({ autonomy: { level: "supervised" } });
  const kindOf = (op: string) => {
    const judged = policy.judge(toolOf({}), JSON.stringify({ op }));
    return judged.kind === "judged" ? [judged.access, judged.decision.kind] : judged.kind;
  };
  assert.deepEqual([kindOf("look"), kindOf("change"), kindOf("none")], [
    ["read", "allow"],
    ["write", "ask"],
    "bad_input",
  ]);
});
