import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { parse } from "yaml";
import { PROJECT_ROOT } from "./source_files.ts";

/** Revisions of the protocol whose requirements the official conformance suite has. */
export const REVISIONS = ["2025-11-25", "2026-07-28"] as const;
export type Revision = typeof REVISIONS[number];

/** Scenarios of the suite's client part for one revision. */
export interface ClientScenarios {
  readonly required: readonly string[];
  /** Scenarios that the suite runs and does not count: extensions, and those that were added later */
  readonly optional: readonly string[];
}

/** Outcome of one scenario. */
export interface ScenarioOutcome {
  /** True: no check failed, and none warned */
  readonly passes: boolean;
  /** Line of the suite with the counts, and the lines of checks that failed or warned */
  readonly says: readonly string[];
}

const SUITE = join(PROJECT_ROOT, "node_modules/@modelcontextprotocol/conformance");
const CLIENT = join(PROJECT_ROOT, "test/support/conformance_client.ts");
const MAX_OUTPUT = 16 * 1_048_576;
// deno-lint-ignore no-control-regex
const COLOURS = /\u001b\[\d+m/g;

/** Reads the scenarios that the suite has for clients of a revision. */
export async function readClientScenarios(revision: Revision): Promise<ClientScenarios> {
  const { client, not_scored: others } = parse(
    await readFile(join(SUITE, `requirements/${revision}.yaml`), "utf8"),
  ) as {
    readonly client: readonly string[];
    readonly not_scored: readonly { readonly scenario: string; readonly leg: string }[];
  };
  return { required: client, optional: others.filter(({ leg }) => leg === "client").map(({ scenario }) => scenario) };
}

/** Runs one scenario against Postern's client, in processes of their own. */
export function runClientScenario(scenario: string, revision: Revision): Promise<ScenarioOutcome> {
  const client = ["client", "--command", `${process.execPath} ${CLIENT}`, "--scenario", scenario];
  const words = [join(SUITE, "dist/index.js"), ...client, "--spec-version", revision, "--force"];
  return new Promise((resolve) => {
    execFile(process.execPath, words, { maxBuffer: MAX_OUTPUT }, (error, stdout, stderr) => {
      const lines = `${stdout}\n${stderr}`.replaceAll(COLOURS, "").split("\n");
      const counts = lines.find((line) => line.startsWith("Passed: "));
      const bad = lines.filter((line) => /\] ?(?:FAILURE|WARNING)/.test(line));
      resolve({ passes: error === null && counts !== undefined && bad.length === 0, says: [counts ?? "", ...bad] });
    });
  });
}
