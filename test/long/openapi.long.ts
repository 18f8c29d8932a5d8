/**
 * The description of the routes, checked by tools of others: Redocly and openapi-spec-validator read it, Schemathesis sends requests made
 * from it to a running gateway. A tool that the machine lacks is installed into a temporary folder; where that fails, its test is skipped.
 */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { after, before, describe, test } from "node:test";
import { ROOT, RUN, RUN_ENV } from "../support/gateway_process.ts";
import { startProcess } from "../support/started_process.ts";

const TOKEN = "a-token-for-the-checks-of-the-description";
const SCHEMATHESIS = "schemathesis==4.32.5";
const VALIDATOR = "openapi-spec-validator==0.9.0";
const REDOCLY = "@redocly/cli@2.77.0";
const EXAMPLES = 40;

/**
 * Checks that cannot hold here: a body may be refused for what two fields say together or for what is on the machine, which a schema
 * does not tell; a gateway answers 405 and HEAD by itself; the token is sent with every request.
 */
const LEFT_OUT = "positive_data_acceptance,unsupported_method,ignored_auth";

type Gateway = Awaited<ReturnType<typeof startProcess>>;

describe("the description of the routes", () => {
  const folder = mkdtempSync(join(tmpdir(), "postern-openapi-"));
  const file = join(folder, "openapi.json");
  let gateway: Gateway | undefined;
  let url = "";

  before(async () => {
    mkdirSync(join(folder, "workspace"));
    const words = ["--port", "0", "--data-dir", join(folder, "data"), "--workspace", join(folder, "workspace")];
    gateway = await startProcess([...RUN, join(ROOT, "cli/main.ts"), "gateway", ...words], {
      cwd: ROOT,
      env: {
        ...RUN_ENV,
        POSTERN_TOKEN: TOKEN,
        POSTERN__PROVIDER__KIND: "offline",
        POSTERN__GATEWAY__RATE_LIMIT_MAX: "0",
        POSTERN__LOGGING__LEVEL: "error",
      },
      ready: /(http:\S+)\/\n/m,
    });
    url = gateway.match[1] ?? "";
    writeFileSync(file, await (await fetch(`${url}/openapi.json`)).text());
  });
  after(async () => {
    await gateway?.end("SIGTERM");
    rmSync(folder, { recursive: true, force: true });
  });

  test("is valid for Redocly", (context) => {
    const tool = join(folder, "redocly");
    mkdirSync(tool);
    writeFileSync(join(tool, "package.json"), "{}");
    if (!runs("npm", ["install", "--silent", "--no-audit", "--prefix", tool, REDOCLY])) {
      return context.skip(`${REDOCLY} cannot be installed`);
    }
    passes(join(tool, "node_modules/.bin/redocly"), ["lint", file], folder);
  });

  test("is valid for openapi-spec-validator", (context) => {
    const bin = installPython(VALIDATOR);
    if (bin === undefined) return context.skip(`${VALIDATOR} cannot be installed`);
    passes(join(bin, "openapi-spec-validator"), [file], folder);
  });

  test("is kept by the gateway for every request that Schemathesis makes of it", (context) => {
    const bin = installPython(SCHEMATHESIS);
    if (bin === undefined) return context.skip(`${SCHEMATHESIS} cannot be installed`);
    passes(join(bin, "schemathesis"), [
      "run",
      `${url}/openapi.json`,
      ...["--header", `Authorization: Bearer ${TOKEN}`],
      ...["--phases", "examples,coverage,fuzzing", "--max-examples", String(EXAMPLES), "--seed", "1"],
      ...["--checks", "all", "--exclude-checks", LEFT_OUT],
      // Sockets, and streams that end with their run
      ...["--exclude-path-regex", "^/ws/|/events$"],
      ...["--request-timeout", "20", "--warnings", "off", "--generation-database", "none"],
    ], folder);
  });

  /** Returns the folder of the programs of a Python package; undefined where it cannot be had. */
  function installPython(requirement: string): string | undefined {
    const tool = join(folder, requirement.replace(/\W/g, "_"));
    const bin = join(tool, "bin");
    const isThere = runs("python3", ["-m", "venv", tool]) &&
      runs(join(bin, "pip"), ["install", "--quiet", requirement]);
    return isThere ? bin : undefined;
  }
});

function runs(command: string, words: readonly string[]): boolean {
  return spawnSync(command, words, { stdio: "ignore" }).status === 0;
}

/** @param cwd where the tool may leave files of its own */
function passes(command: string, words: readonly string[], cwd: string): void {
  const { status, stdout, stderr } = spawnSync(command, words, {
    cwd,
    encoding: "utf8",
    env: { ...process.env, CI: "true" },
  });
  assert.equal(status, 0, `${stdout}\n${stderr}`);
}
