import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { createCommandLookup } from "../../../lib/system/process/command_lookup.ts";
import { killLeftovers } from "../../../lib/system/process/leftover_processes.ts";
import { ROOT, RUN } from "../../support/gateway_process.ts";
import { isGone } from "../../support/is_gone.ts";
import { startProcess } from "../../support/started_process.ts";
import { withWorkspace } from "../../support/workspace.ts";

const skip = process.platform === "linux" ? false : "only Linux tells the environment of a process";

test("kill -9 leaves nothing: the parent-death signal ends the process, the next start what it had started", {
  skip,
}, () =>
  withWorkspace({}, async (workspace) => {
    const marker = `killed-${process.pid}`;
    const words = [...RUN, join(ROOT, "test/system/process/start_processes.ts"), workspace.root, marker];
    const program = await startProcess(words, { cwd: ROOT, ready: /started/ });
    await program.end("SIGKILL");
    const idIn = (file: string) => readFileSync(workspace.path(file), "utf8");
    if (await createCommandLookup().find("setpriv") !== undefined) assert.ok(await isGone(idIn("leader")));
    assert.equal(await killLeftovers("another gateway's"), 0);
    assert.ok(await killLeftovers(marker) >= 1);
    assert.ok(await isGone(idIn("leader")));
    assert.ok(await isGone(idIn("child")));
    assert.equal(await killLeftovers(marker), 0);
  }));
