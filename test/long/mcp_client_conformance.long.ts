import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import { parse } from "yaml";
import { PROJECT_ROOT } from "../support/source_files.ts";

const SUITE = join(PROJECT_ROOT, "node_modules/@modelcontextprotocol/conformance");
const CLIENT = join(PROJECT_ROOT, "test/support/conformance_client.ts");

/** Required scenarios that are not shown here yet, by the start of their names, with the reason. */
const NOT_SHOWN: Readonly<Record<string, string>> = {
  "auth/": "the client of this test does not sign in",
};

describe("the official conformance suite, client part", {
  skip: "Deno" in globalThis ? "the suite runs on Node" : false,
}, () => {
  for (const revision of ["2025-11-25", "2026-07-28"]) {
    test(`passes what ${revision} requires, save for what is named`, async (t) => {
      const { client: required } = parse(await readFile(join(SUITE, `requirements/${revision}.yaml`), "utf8")) as {
        client: readonly string[];
      };
      const reasonOf = (scenario: string) =>
        Object.entries(NOT_SHOWN).find(([start]) => scenario.startsWith(start))?.[1];
      const failed: string[] = [];
      for (const scenario of required) {
        const reason = reasonOf(scenario);
        const passes = reason === undefined && await run(scenario, revision);
        t.diagnostic(
          `${passes ? "passes" : reason === undefined ? "FAILS" : "not shown"} ${scenario}: ${reason ?? ""}`,
        );
        if (!passes && reason === undefined) failed.push(scenario);
      }
      assert.deepEqual(failed, []);
    });
  }
});

async function run(scenario: string, revision: string): Promise<boolean> {
  const words = ["client", "--command", `${process.execPath} ${CLIENT}`, "--scenario", scenario];
  const suite = join(SUITE, "dist/index.js");
  return await promisify(execFile)(process.execPath, [suite, ...words, "--spec-version", revision])
    .then(() => true, () => false);
}
