import assert from "node:assert/strict";
import { globSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { chooseForDeno, importedBy, JOURNEYS } from "../../scripts/deno_files.ts";
import { PROJECT_ROOT, sourceFiles } from "../support/source_files.ts";

const FILES = globSync("test/**/*.test.ts", { cwd: PROJECT_ROOT }).sort();
const CHOSEN = chooseForDeno(FILES);
const IMPORTS = new Map(FILES.map((file) => [file, importedBy(file)]));

describe("the tests that npm test runs on Deno", () => {
  test("are those whose imports reach files, sockets, processes, threads, storage, cryptography or streams", () => {
    const doors = [
      "test/base/durable_files.test.ts",
      "test/system/net/guarded_fetch.test.ts",
      "test/system/process/run_command.test.ts",
      "test/storage/store_contract.test.ts",
      "test/cli/serve/serve_gateway.test.ts",
      "test/host/daemon/log_file.test.ts",
    ];
    assert.deepEqual(doors.filter((file) => !CHOSEN.includes(file)), []);
  });

  test("leave no source that reaches the runtime to Node alone where a test imports it", () => {
    const lost = sourceFiles(["cli", "handlers", "lib"])
      .filter(({ text }) => /"node:(?:fs|net|child_process)/.test(text))
      .filter(({ path }) => {
        const tests = FILES.filter((file) => IMPORTS.get(file)?.includes(path));
        return tests.length > 0 && !tests.some((file) => CHOSEN.includes(file));
      });
    assert.deepEqual(lost.map(({ path }) => path), []);
  });

  test("leave out those of code that is the same on both runtimes", () => {
    const same = [
      "test/agent/sample_model.test.ts",
      "test/base/text.test.ts",
      "test/automation/cron/parse_schedule.test.ts",
    ];
    assert.deepEqual(same.filter((file) => CHOSEN.includes(file)), []);
    assert.ok(CHOSEN.length < FILES.length / 3, `${CHOSEN.length} of ${FILES.length}`);
  });

  test("leave out one that takes a number alone from a source that reaches the runtime, and not that of its name", () => {
    const source = "lib/guard/tainted_places.ts";
    assert.match(sourceFiles(["lib"]).find(({ path }) => path === source)?.text ?? "", /"node:crypto"/);
    assert.equal(IMPORTS.get("test/guard/tainted_files.test.ts")?.includes(source), false);
    assert.ok(!CHOSEN.includes("test/guard/tainted_files.test.ts"));
    // Takes a text alone too
    assert.ok(CHOSEN.includes("test/storage/record_keys.test.ts"));
    // A value that has code of its own
    assert.ok(IMPORTS.get("test/access/token_sharing.test.ts")?.includes("lib/access/stored_token.ts"));
  });

  test("have a journey through each wing", () => {
    const wings = readdirSync(join(PROJECT_ROOT, "lib"), { withFileTypes: true }).filter((entry) =>
      entry.isDirectory()
    );
    assert.deepEqual(Object.keys(JOURNEYS).sort(), [...wings.map(({ name }) => name), "cli", "handlers"].sort());
    assert.deepEqual(Object.values(JOURNEYS).filter((file) => !CHOSEN.includes(file)), []);
  });
});
