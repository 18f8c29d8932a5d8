import assert from "node:assert/strict";
import { test } from "node:test";
import { parseGitignore } from "../../../lib/system/files/gitignore.ts";

const verdict = (rules: string, path: string) => {
  const isFolder = path.endsWith("/");
  return parseGitignore(rules).verdict((isFolder ? path.slice(0, -1) : path).split("/"), isFolder);
};

test("rules read as git reads them", () => {
  const cases: readonly (readonly [rules: string, path: string, verdict: boolean | undefined])[] = [
    ["*.log", "a.log", true],
    ["*.log", "a/b/c.log", true],
    ["*.log", "a.txt", undefined],
    ["/a.log", "a.log", true],
    ["/a.log", "b/a.log", undefined],
    ["build/", "build/", true],
    ["build/", "build", undefined],
    ["build/", "x/build/", true],
    ["a/b", "a/b", true],
    ["a/b", "x/a/b", undefined],
    ["**/a/b", "x/a/b", true],
    ["**\\/b", "b", undefined],
    ["**\\/b", "x/y/b", true],
    ["a/**\\/b", "a/b", undefined],
    ["a/**\\/b", "a/x/b", true],
    ["a/**", "a/x/y", true],
    ["a/**/b", "a/b", true],
    ["*.log\n!keep.log", "keep.log", false],
    ["!keep.log\n*.log", "keep.log", true],
    ["# a.log", "# a.log", undefined],
    ["\\#a", "#a", true],
    ["\\!a", "!a", true],
    ["a   ", "a", true],
    ["a\\ ", "a ", true],
    ["a\r\nb", "a", true],
    ["{a,b}", "a", undefined],
    ["{a,b}", "{a,b}", true],
    ["[ab]", "b", true],
    ["", "a", undefined],
    ["/", "a", undefined],
  ];
  for (const [rules, path, expected] of cases) {
    assert.equal(verdict(rules, path), expected, `${JSON.stringify(rules)} ${path}`);
  }
});

test("a huge file of rules is cut, and a hostile rule takes no time", () => {
  const rules = `${"x\n".repeat(2000)}last`;
  assert.equal(verdict(rules, "last"), undefined);
  assert.equal(verdict(`${"*a".repeat(499)}b`, "a".repeat(255)), undefined);
  assert.equal(verdict("y".repeat(2000), "y".repeat(2000)), undefined);
});
