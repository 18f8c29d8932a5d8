import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { pathToFileURL } from "node:url";
import { ROOT, RUN_ENV } from "../support/gateway_process.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const skip = "Deno" in globalThis && "the module is for Node's runner";
const LEAK = `net.createServer().listen(0, "127.0.0.1");`;

/** Runs a test file that must end within its tests' time and 100 ms. */
function runFile(folder: string, text: string) {
  const file = join(folder, "some.test.mjs");
  writeFileSync(file, `import net from "node:net";\nimport { test } from "node:test";\n${text}`);
  return spawnSync(
    process.execPath,
    [`--import=${join(ROOT, "scripts/end_leaky_files.js")}?ms=100`, "--test", "--test-reporter=tap", file],
    { encoding: "utf8", env: RUN_ENV, timeout: 60_000 },
  );
}

test(
  "a file that leaves something open after its last test fails, and says what",
  { skip },
  () =>
    withTemporaryFolder(async (folder) => {
      for (const failure of ["", "throw new Error('failed');"]) {
        const { status, stdout, stderr } = runFile(
          folder,
          `test("a", () => { ${LEAK} ${failure} });\ntest("b", () => {});`,
        );
        assert.equal(status, 1, stdout + stderr);
        assert.match(stdout, /^# Subtest: b\nok 2 - b$/m, "the tests after it run");
        assert.match(stdout + stderr, /some\.test\.mjs: the tests are over, .* TCPServerWrap/);
      }
    }),
);

test(
  "files of a group whose next file loads after the tests of the one before are not over",
  { skip },
  () =>
    withTemporaryFolder(async (folder) => {
      const wait = (ms: number) => `await new Promise((resolve) => setTimeout(resolve, ${ms}));`;
      const files = [`test("a", () => {});`, `${wait(50)}\ntest("b", async () => { ${wait(500)} });`];
      const urls = files.map((text, at) => {
        const path = join(folder, `${at}.mjs`);
        writeFileSync(path, `import { test } from "node:test";\n${text}`);
        return pathToFileURL(path).href;
      });
      const loader = new URL("../support/load_group.ts", import.meta.url).href;
      const { status, stdout } = runFile(
        folder,
        `import { loadGroup } from "${loader}";\nawait loadGroup(${JSON.stringify(urls)});`,
      );
      assert.equal(status, 0, stdout);
      assert.match(stdout, /^ok 3 - /m);
    }),
);

test("a file that closes what it opens passes", { skip }, () =>
  withTemporaryFolder(async (folder) => {
    const { status, stdout } = runFile(
      folder,
      `test("a", (t) => { const server = ${LEAK} t.after(() => server.close()); });`,
    );
    assert.equal(status, 0, stdout);
  }));
