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

function isPassed({ passed, failed }: Row): boolean {
  return failed === 0 && passed > 0;
}

function sayRow({ scenario, passed, failed }: Row, required: readonly string[]): string {
  const state = passed + failed === 0
    ? "has nothing to check"
    : failed === 0
    ? "passes"
    : required.includes(scenario)
    ? "FAILS"
    : "not required";
  return `${state} ${scenario} ${passed}/${passed + failed}`;
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
    test(`passes all that ${revision} requires of a server`, async (t) => {
      const { server: required } = parse(await readFile(join(SUITE, `requirements/${revision}.yaml`), "utf8")) as {
        server: readonly string[];
      };
      const run = promisify(execFile)(process.execPath, [
        join(SUITE, "dist/index.js"),
        "server",
        ...["--url", url, "--requirements", revision],
      ], { maxBuffer: 16 * 1024 * 1024 });
      // The exit code counts the scenarios that are not required too
      const { stdout } = await run.catch((error: { stdout: string }) => error);
      const rows = readSummary(stdout);
      for (const row of rows) t.diagnostic(sayRow(row, required));
      const missing = required.filter((scenario) => !rows.some((row) => row.scenario === scenario));
      assert.deepEqual(missing, [], "each required scenario ran");
      assert.deepEqual(rows.filter((row) => required.includes(row.scenario) && !isPassed(row)), [], stdout);
    });
  }
});
