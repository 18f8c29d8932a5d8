import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { ROOT, RUN } from "../support/gateway_process.ts";

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
