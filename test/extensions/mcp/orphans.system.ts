import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { isGone } from "../../support/is_gone.ts";
import { fixtureServer, NEVER, withMcp } from "../../support/mcp_bench.ts";
import { endSessions } from "../../support/mcp_cycles.ts";
import { PROJECT_ROOT } from "../../support/source_files.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { until } from "../../support/until.ts";

test("no program is left after sessions that end in every way", async () => {
  assert.ok(await endSessions(24) >= 24);
});

test("what a server started in a process group of its own ends with the session, however that ends", () =>
  withTemporaryFolder(async (folder) => {
    for (const act of ["leaves_child", "leaves_child_and_ends"]) {
      const log = join(folder, act);
      const args = [join(PROJECT_ROOT, "fixtures/mcp/hostile_server.mjs"), JSON.stringify({ at: "call", act, log })];
      await withMcp({ servers: { one: { command: "node", args } } }, async ({ server }) => {
        await server().request("tools/call", { name: "echo" }, { signal: NEVER }).catch(() => {});
        const left = () => /^left (\d+)$/m.exec(readFileSync(log, "utf8"))?.[1];
        await until(() => left() !== undefined, "the server started a program");
        await server().close();
        assert.ok(await isGone(left() ?? ""), act);
        const temporary = /^TMPDIR (.+)$/m.exec(readFileSync(log, "utf8"))?.[1] ?? "";
        assert.match(temporary, /^\/tmp\/postern-[0-9a-f]{16}\//);
        await until(() => !existsSync(temporary), "its temporary files are removed");
      });
    }
  }));

test("a folder that the configuration names as TMPDIR is the person's, and stays", () =>
  withTemporaryFolder(async (folder) => {
    const own = join(folder, "own");
    mkdirSync(own);
    writeFileSync(join(own, "file"), "");
    await withMcp({ servers: { one: { ...fixtureServer(), env: { TMPDIR: own } } } }, async ({ server }) => {
      await server().freshTools(NEVER);
      await server().close();
    });
    assert.ok(existsSync(join(own, "file")));
  }));
