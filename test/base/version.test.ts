import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { VERSION } from "../../lib/base/version.ts";

test("VERSION is the version of package.json and deno.json", () => {
  for (const file of ["package.json", "deno.json"]) {
    const text = readFileSync(new URL(`../../${file}`, import.meta.url), "utf8");
    assert.equal((JSON.parse(text) as { version: string }).version, VERSION);
  }
});
