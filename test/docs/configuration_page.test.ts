import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { allKeys } from "../../lib/config/schema_keys.ts";
import { configurationPage } from "../../scripts/configuration_page.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";

const PAGE = readFileSync(join(PROJECT_ROOT, "docs/configuration.md"), "utf8");

test("the tables of docs/configuration.md are those of the schema", () => {
  assert.equal(configurationPage(PAGE), PAGE, "rebuild them: npm run docs");
});

test("every key has a row with its meaning", () => {
  const shown = new Set<string>();
  let section = "";
  for (const line of PAGE.split("\n")) {
    section = /^### (?:Top|`\[+(.*?)\]+`)/.exec(line)?.slice(1).join("") ?? section;
    const [, key, meaning] = /^\| `([a-z_]+)` \| (.*?) \|/.exec(line) ?? [];
    if (key !== undefined && meaning !== "undefined.") shown.add(section === "" ? key : `${section}.${key}`);
  }
  assert.deepEqual([...shown].sort(), allKeys().map((key) => key.replaceAll(".<n>", "")).sort());
});
