import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { readLogEnd } from "../../../lib/host/daemon/log_file.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

const lines = (count: number) => Array.from({ length: count }, (_, index) => `line ${index}`);

test("the last twenty lines are given, of what came after a place, and all of a file that is shorter than that", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "daemon.log");
    assert.equal(await readLogEnd(path), "");
    writeFileSync(path, `${lines(30).join("\n")}\n`);
    assert.equal(await readLogEnd(path), lines(30).slice(10).join("\n"));
    const last = "line 29\n".length;
    const whole = `${lines(30).join("\n")}\n`.length;
    assert.equal(await readLogEnd(path, whole - last), "line 29");
    assert.equal(await readLogEnd(path, whole), "");
    assert.equal(await readLogEnd(path, whole + 1), lines(30).slice(10).join("\n"));
    writeFileSync(path, "x".repeat(100_000));
    assert.equal((await readLogEnd(path)).length, 16_384);
  }));
