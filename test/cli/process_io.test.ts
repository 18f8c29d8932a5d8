import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { test } from "node:test";
import { ROOT, RUN, RUN_ENV } from "../support/gateway_process.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

/** Writes more than a pipe holds, and says on standard error when its reader took it. */
const PROGRAM = `
import { processIo } from ${JSON.stringify(pathToFileURL(join(ROOT, "cli/process_io.ts")).href)};
const io = processIo();
await io.stdoutReady();
io.stdout("x".repeat(1_048_576));
io.stderr("written;");
await io.stdoutReady();
io.stderr("taken;");
`;

const skip = "Deno" in globalThis ? "a write of Deno to a full pipe waits by itself" : false;

test("stdoutReady() waits for whoever reads standard output", { skip }, () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "program.ts");
    writeFileSync(path, PROGRAM);
    const [command = "", ...options] = RUN;
    const child = spawn(command, [...options, path], { env: RUN_ENV, stdio: "pipe" });
    child.stdout.pause();
    let said = "";
    child.stderr.on("data", (part) => said += part);
    await once(child.stderr, "data");
    assert.equal(said, "written;");
    child.stdout.resume();
    await once(child, "close");
    assert.equal(said, "written;taken;");
  }));
