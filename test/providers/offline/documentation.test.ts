import assert from "node:assert/strict";
import { test } from "node:test";
import { helpOfEach } from "../../../cli/help_text.ts";
import { readDocumentation } from "../../../lib/providers/offline/documentation.ts";

test("the README and the pages of the package and the help of each command are its documentation", async () => {
  const passages = await readDocumentation(helpOfEach);
  assert.ok(passages.every(({ isOwn }) => isOwn));
  assert.ok(passages.some(({ source, heading }) => source === "Postern's README" && heading === "First minute"));
  assert.ok(passages.some(({ source, heading }) => source === "Postern's docs/http.md" && heading === "Pair a client"));
  assert.ok(passages.every(({ source }) => !source.includes("docs/design")), "that is for who works on Postern");
  const help = passages.find(({ source }) => source === "postern schedule run --help");
  assert.match(help?.text ?? "", /Usage: postern schedule run/);
  assert.deepEqual([help?.isCode, help?.isRow], [false, false], "help counts as much as prose");
  const withoutHelp = await readDocumentation(() => Promise.reject(new Error("no commands here")));
  assert.ok(withoutHelp.length > 50 && withoutHelp.length < passages.length);
});
