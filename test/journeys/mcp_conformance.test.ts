import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { parse } from "yaml";
import { CONFORMANCE_OFFERS, conformanceTools } from "../../fixtures/conformance_tools.ts";
import { createGateway, type Gateway, toNodeHandler } from "../../handlers/mod.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const SUITE = join(import.meta.dirname, "../../node_modules/@modelcontextprotocol/conformance");

const NO_SAMPLING = "a gateway has models of its own and never uses the client's; it reads no roots";
const NO_QUESTIONS = "tools of a program ask nobody: a call is asked about by its policy, before it runs";

/** Scenarios that a gateway does not pass, each with the reason. All of them need a tool or a prompt that asks the client. */
const NOT_SERVED: Readonly<Record<string, string>> = {
  "tools-call-sampling": NO_SAMPLING,
  "tools-call-elicitation": NO_QUESTIONS,
  "elicitation-sep1034-defaults": NO_QUESTIONS,
  "elicitation-sep1330-enums": NO_QUESTIONS,
  "input-required-result-basic-elicitation": NO_QUESTIONS,
  "input-required-result-basic-sampling": NO_SAMPLING,
  "input-required-result-basic-list-roots": NO_SAMPLING,
  "input-required-result-request-state": NO_QUESTIONS,
  "input-required-result-multiple-input-requests": NO_SAMPLING,
  "input-required-result-multi-round": NO_QUESTIONS,
  "input-required-result-non-tool-request": NO_QUESTIONS,
  "input-required-result-result-type": NO_QUESTIONS,
  "input-required-result-tampered-state": NO_QUESTIONS,
  "input-required-result-capability-check": NO_QUESTIONS,
};

/** Scenarios of which a gateway passes a part, with the checks that it passes at least, and the reason for the others. */
const PARTLY_SERVED: Readonly<Record<string, { readonly checks: number; readonly why: string }>> = {
  "server-stateless": { checks: 25, why: `three checks need a tool that asks the client: ${NO_QUESTIONS}` },
};

interface Row {
  readonly scenario: string;
  readonly passed: number;
  readonly failed: number;
}

/** Reads the summary that the suite prints. */
function readSummary(output: string): readonly Row[] {
  return [...output.matchAll(/^[✓✗] ([\w-]+): (\d+) passed, (\d+) failed/gm)].map((
    [, scenario = "", passed, failed],
  ) => ({
    scenario,
    passed: Number(passed),
    failed: Number(failed),
  }));
}

function isPassed({ scenario, passed, failed }: Row): boolean {
  if (failed === 0 || Object.hasOwn(NOT_SERVED, scenario)) return true;
  return passed >= (PARTLY_SERVED[scenario]?.checks ?? Infinity);
}

function sayRow(row: Row, required: readonly string[]): string {
  const { scenario, passed, failed } = row;
  const why = failed === 0 ? undefined : NOT_SERVED[scenario] ?? PARTLY_SERVED[scenario]?.why;
  const state = failed === 0
    ? "passes"
    : !required.includes(scenario)
    ? "not required"
    : why === undefined
    ? "FAILS"
    : "not served";
  return `${state} ${scenario} ${passed}/${passed + failed}${why === undefined ? "" : `: ${why}`}`;
}

describe("the official conformance suite, server part", {
  skip: "Deno" in globalThis ? "the suite runs on Node" : false,
}, () => {
  let gateway: Gateway;
  let url = "";
  let over: Promise<void>;
  let release = () => {};

  before(() =>
    new Promise<void>((resolve, reject) => {
      over = withTemporaryFolder(async (folder) => {
        gateway = await createGateway({
          dataDir: join(folder, "data"),
          workspace: folder,
          config: { provider: { kind: "offline" }, gateway: { require_pairing: false, rate_limit_max: 0 } },
          ...CONFORMANCE_OFFERS,
          tools: conformanceTools((ms) => new Promise((wake) => setTimeout(wake, ms))),
        });
        const server = createServer(toNodeHandler(gateway));
        await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
        url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
        const held = new Promise<void>((free) => release = free);
        resolve();
        await held;
        await gateway.close();
        server.closeAllConnections();
        server.close();
      });
      over.catch(reject);
    })
  );

  after(async () => {
    release();
    await over;
  });

  for (const revision of ["2025-11-25", "2026-07-28"]) {
    test(`passes what ${revision} requires of this gateway`, async (t) => {
      const { server: required } = parse(await readFile(join(SUITE, `requirements/${revision}.yaml`), "utf8")) as {
        server: readonly string[];
      };
      const run = promisify(execFile)(process.execPath, [
        join(SUITE, "dist/index.js"),
        "server",
        ...["--url", url, "--requirements", revision],
      ], { maxBuffer: 16 * 1024 * 1024 });
      // The exit code counts the scenarios that are not served
      const { stdout } = await run.catch((error: { stdout: string }) => error);
      const rows = readSummary(stdout);
      for (const row of rows) t.diagnostic(sayRow(row, required));
      const missing = required.filter((scenario) => !rows.some((row) => row.scenario === scenario));
      assert.deepEqual(missing, [], "each required scenario ran");
      assert.deepEqual(rows.filter((row) => required.includes(row.scenario) && !isPassed(row)), [], stdout);
    });
  }
});
