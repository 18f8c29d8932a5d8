import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { ROOT, RUN_ENV } from "../support/gateway_process.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const skip = "Deno" in globalThis && "the hooks are those of Node's runner";

/** Runs a test file with the hooks of the whole suite. */
function runFile(folder: string, text: string) {
  const file = join(folder, "some.test.mjs");
  writeFileSync(file, `import { before, describe, test } from "node:test";\n${text}`);
  const { status, stdout } = spawnSync(
    process.execPath,
    [`--import=${join(ROOT, "scripts/light_hooks.js")}`, "--test", "--test-reporter=tap", file],
    { encoding: "utf8", env: RUN_ENV },
  );
  return { status, stdout };
}

test(
  "with light hooks, an error that no test catches fails its file",
  { skip },
  () =>
    withTemporaryFolder(async (folder) => {
      const later = "new Promise((resolve) => setTimeout(resolve, 20))";
      const errors = [
        `void Promise.reject(new Error("lost"))`,
        `void (async () => { await null; throw new Error("lost"); })()`,
        `setTimeout(() => { throw new Error("lost"); })`,
        `setTimeout(async () => { await null; throw new Error("lost"); })`,
      ];
      for (const error of errors) {
        const { status, stdout } = runFile(folder, `test("a", async () => { await null; ${error}; await ${later}; });`);
        assert.equal(status, 1, `${error}\n${stdout}`);
        assert.match(stdout, /"Error: lost"|error: 'lost'/, error);
      }
    }),
);

test(
  "with light hooks, tests and hooks stay in the suite that they are written in",
  { skip },
  () =>
    withTemporaryFolder(async (folder) => {
      const suite =
        `describe("b", () => { let set; before(() => (set = true)); test("in", () => { if (!set) throw 1; }); });`;
      const { status, stdout } = runFile(
        folder,
        `test("a", async (t) => { await null; await t.test("sub", () => {}); });\n${suite}`,
      );
      assert.equal(status, 0, stdout);
      for (const line of ["    # Subtest: sub", "    # Subtest: in", "# Subtest: b"]) {
        assert.ok(stdout.includes(`\n${line}\n`), stdout);
      }
    }),
);

test(
  "light hooks that come after node:test fail the file, since they would do nothing",
  { skip },
  () =>
    withTemporaryFolder((folder) => {
      const file = join(folder, "some.test.mjs");
      writeFileSync(file, `import { test } from "node:test";\ntest("a", () => {});\n`);
      const [light, first] = ["light_hooks.js", "end_leaky_files.js"].map((name) => join(ROOT, "scripts", name));
      const statusOf = (...preloaded: readonly (string | undefined)[]) =>
        spawnSync(process.execPath, [...preloaded.map((path) => `--import=${path}`), "--test", file], { env: RUN_ENV })
          .status;
      assert.deepEqual([statusOf(light, first), statusOf(first, light)], [0, 1]);
      return Promise.resolve();
    }),
);
