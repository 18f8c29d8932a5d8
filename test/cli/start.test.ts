import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { createInterface } from "node:readline";
import { before, describe, test } from "node:test";
import { PROJECT_ROOT } from "../support/source_files.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

/** Packages that a gateway cannot answer /health without */
const PACKAGES = ["@valibot/to-json-schema", "citty", "confbox", "consola", "itty-router", "srvx", "valibot"];

/** What a start leaves to the first use: imported with `await import(...)` where it is needed, see lib/base/lazily.ts */
const LATER = [
  "lib/automation/cron/cron_service.ts",
  "lib/automation/sops/sop_service.ts",
  "lib/providers/anthropic",
  "lib/providers/openai",
  "lib/providers/upstream_http.ts",
  "lib/system/git/",
  "lib/tools/documents/docx/",
  "lib/tools/documents/pdf/",
  "lib/tools/git/run_operation.ts",
];

/** Modules of Postern itself. Each costs a start about a tenth of a millisecond, in one file with the others */
const MAX_MODULES = 440;

const ON_DENO = "Deno" in globalThis;

describe("a start with the offline provider", { skip: ON_DENO && "Deno has no hook that sees modules load" }, () => {
  let own: readonly string[] = [];
  let packages: readonly string[] = [];

  before(async () => {
    const loads = await loadsUntilHealth({ POSTERN__PROVIDER__KIND: "offline" });
    own = loads.filter((url) => url.startsWith("file:") && !url.includes("/node_modules/")).map((url) =>
      url.slice(url.indexOf(PROJECT_ROOT) + PROJECT_ROOT.length + 1)
    );
    const names = loads.map((url) => /\/node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(url)?.[1]);
    packages = [...new Set(names.filter((name) => name !== undefined))].sort();
  });

  test("it loads these packages and no other", () => {
    assert.deepEqual(packages, PACKAGES);
  });

  test("it leaves to the first use what /health does not need", () => {
    assert.deepEqual(own.filter((file) => LATER.some((place) => file.startsWith(place))), []);
  });

  test("with a provider elsewhere, the HTTP client is left for after the start", async () => {
    const loads = await loadsUntilHealth({
      POSTERN__PROVIDER__KIND: "openai_compatible",
      POSTERN__PROVIDER__BASE_URL: "http://127.0.0.1:9/v1",
      POSTERN__PROVIDER__MODEL: "m",
    });
    assert.ok(loads.some((url) => url.endsWith("lib/providers/openai_compatible.ts")));
    assert.deepEqual(loads.filter((url) => url.includes("/undici/")), []);
  });

  test(`it loads at most ${MAX_MODULES} modules`, () => {
    const rooms = Object.entries(Object.groupBy(own, (file) => file.split("/").slice(0, -1).join("/")));
    const counts = rooms.map(([room, files = []]) => `${room} ${files.length}`).sort();
    assert.ok(own.length <= MAX_MODULES, `${own.length}: ${counts.join(", ")}`);
  });
});

/** URLs of the modules a gateway has loaded when it first answers. */
async function loadsUntilHealth(config: Readonly<Record<string, string>>): Promise<readonly string[]> {
  let loads: readonly string[] = [];
  await withTemporaryFolder(async (home) => {
    const file = join(home, "loads");
    const hook = join(PROJECT_ROOT, "test/support/record_loads.ts");
    const child = spawn(
      process.execPath,
      ["--import", hook, join(PROJECT_ROOT, "cli/main.ts"), "gateway", "--port", "0", "--json"],
      {
        cwd: home,
        env: { PATH: process.env["PATH"], HOME: home, LOADS_FILE: file, ...config },
      },
    );
    const ended = once(child, "exit");
    let stderr = "";
    child.stderr.on("data", (part) => (stderr += part));
    try {
      const lines = createInterface({ input: child.stdout });
      const [line] = await Promise.race([once(lines, "line"), ended.then(() => [stderr])]) as [string];
      const url = /http:\/\/[^\s"]+/.exec(line)?.[0];
      assert.ok(url !== undefined, line);
      assert.equal((await fetch(new URL("/health", url))).status, 200);
      const [before = ""] = readFileSync(file, "utf8").split("answered\n", 1);
      loads = before.trim().split("\n");
    } finally {
      child.kill("SIGKILL");
      await ended;
    }
  });
  return loads;
}
