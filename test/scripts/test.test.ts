import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { ROOT, RUN } from "../support/gateway_process.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

test("a test file that is not there is refused by its name, and no other file runs", () => {
  const [command = "", ...options] = RUN;
  const files = ["test/base/no_such_file.test.ts", "test/base/json.test.ts", "test/none_*.test.ts"];
  const argv = [...options, "scripts/test.ts", "node", ...files];
  const { status, stdout, stderr } = spawnSync(command, argv, { cwd: ROOT, encoding: "utf8" });
  assert.deepEqual([status, stdout], [1, ""]);
  assert.equal(
    stderr,
    'Cannot run "test/base/no_such_file.test.ts": no file has this path\n' +
      'Cannot run "test/none_*.test.ts": no file has this path\n',
  );
});

test(
  "what failed on either runtime is listed once more at the end",
  { skip: "Deno" in globalThis && "the runner is Node's" },
  () =>
    withTemporaryFolder(async (folder) => {
      const some = join(folder, "some.test.mjs");
      const other = join(folder, "other.test.mjs");
      writeFileSync(
        some,
        `import { describe, test } from "node:test";
      describe("outer", () => test("fails", () => { throw new Error("the reason"); }));
      test("passes", () => {});
      test("throws no text", () => { throw Object.assign(Object.create(null), { odd: 1 }); });`,
      );
      writeFileSync(other, `if (!("Deno" in globalThis)) { console.error("last words"); process.exit(1); }`);
      const [command = "", ...options] = RUN;
      const argv = [...options, "scripts/test.ts", some, other];
      // Deno comes through npm, whose settings may be in the environment
      const env = { ...process.env, NODE_TEST_CONTEXT: undefined };
      const { status, stdout, stderr } = spawnSync(command, argv, { cwd: ROOT, encoding: "utf8", env });
      assert.equal(status, 1, stdout + stderr);
      const [, list = "there is no list"] = stderr.split("\nTests failed (exit code 1):\n");
      assert.match(
        list,
        /^on Deno: .*some\.test\.mjs \(.*\n {2}AssertionError.*Deno ended with 1:\n[^]*?error: Error: the reason\n/m,
      );
      assert.match(list, /^throws no text \(.*some\.test\.mjs:4\)\n.*odd: 1/m);
      assert.match(list, /^fails \(.*some\.test\.mjs:2\)\n {2}Error: the reason\n/m);
      assert.match(list, /^.*other_test_mjs\.test\.mjs \(.*\n {2}test failed\n {2}last words\n/m);
      assert.doesNotMatch(list, /^(?:outer|passes)/m);
    }),
);
