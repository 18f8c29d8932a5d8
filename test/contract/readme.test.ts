import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { VERBS } from "../../cli/verbs.ts";
import { ROUTES } from "../../handlers/routes.ts";
import { BUILTIN_TOOLS } from "../../lib/tools/builtin.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";

const read = (path: string) => readFileSync(join(PROJECT_ROOT, path), "utf8");
const README = read("README.md");
/** Texts in backticks in the first column of a section's table, in order. */
const firstColumn = (heading: string) => {
  const section = README.split(`\n## ${heading}\n`)[1]?.split("\n## ")[0] ?? "";
  const rows = section.split("\n").filter((line) => line.startsWith("| `"));
  return rows.flatMap((row) => [...(row.split(" | ")[0] ?? "").matchAll(/`([^`]+)`/g)].map((match) => match[1] ?? ""));
};

test("the README's routes are the gateway's, no more and no less", () => {
  const routes = ROUTES.map(({ method, path }) => `${method} ${path.replace("+", "")}`);
  assert.deepEqual(firstColumn("HTTP").sort(), routes.sort());
});

test("the README's commands are the program's, no more and no less", () => {
  assert.deepEqual(firstColumn("Commands").sort(), Object.keys(VERBS).map((verb) => `postern ${verb}`).sort());
});

test("the README's tools are the built-in ones, no more and no less", () => {
  assert.deepEqual(firstColumn("Tools").sort(), BUILTIN_TOOLS.map(({ name }) => name).sort());
});

test("the README's two commands exist, come first, and CI runs the second one", () => {
  const blocks = [...README.matchAll(/```sh\n([\s\S]*?)```/g)].map((match) => match[1]?.trim());
  assert.deepEqual(blocks.slice(0, 2), ["npm ci && npm start", "npm ci && npm test"]);
  const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };
  assert.ok("start" in scripts && "test" in scripts);
  assert.equal(read(".ci/run").trim().split("\n").at(-1), blocks[1]);
});
