import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { readTimes } from "../../scripts/test_plan.ts";
import { ROOT, RUN_ENV } from "../support/gateway_process.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

test(
  "the times of a run name the test files of a shared process, and no file of support",
  { skip: "Deno" in globalThis && "the runner is Node's" },
  () =>
    withTemporaryFolder((folder) => {
      mkdirSync(join(folder, "test/support"), { recursive: true });
      const write = (path: string, text: string) =>
        writeFileSync(join(folder, path), `import { describe, test } from "node:test";\n${text}`);
      const wait = "new Promise((resolve) => setTimeout(resolve, 30))";
      write("test/one.test.ts", `test("a", () => ${wait});\ndescribe("b", () => test("inside", () => ${wait}));`);
      write("test/two.system.ts", `import { added } from "./support/added.ts";\nadded();\ntest("c", () => {});`);
      write("test/support/added.ts", `export const added = () => test("added", () => ${wait});`);
      write("process.test.mjs", `import "./test/one.test.ts";\nimport "./test/two.system.ts";`);
      const { status, stdout } = spawnSync(
        process.execPath,
        ["--test", `--test-reporter=${join(ROOT, "scripts/remember_times.js")}`, "process.test.mjs"],
        { cwd: folder, encoding: "utf8", env: RUN_ENV },
      );
      assert.equal(status, 0, stdout);
      const written = join(folder, "times.json");
      writeFileSync(written, stdout);
      const times = readTimes([join(folder, "none.json"), written]);
      assert.deepEqual([...times.keys()], ["test/one.test.ts", "test/two.system.ts"]);
      assert.ok((times.get("test/one.test.ts") ?? 0) >= 0.05, stdout);
      return Promise.resolve();
    }),
);
