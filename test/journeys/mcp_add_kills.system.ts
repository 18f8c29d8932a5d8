/** An end of the machine, or of the command, in the middle of an installation. */
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { withCliMachine } from "../support/cli_process.ts";
import { type FakePackage, startRegistries } from "../support/fake_registries.ts";

const hasNpm = (process.env["PATH"] ?? "").split(delimiter).some((folder) => existsSync(join(folder, "npm")));
const SERVER: FakePackage = {
  name: "server-notes",
  version: "1.2.3",
  manifest: { bin: { notes: "index.js" } },
  files: { "index.js": "#!/usr/bin/env node\nconsole.log('server');\n" },
};

test("a kill in the middle of postern mcp add leaves nothing half, and the next one installs all", {
  skip: process.platform === "linux" && hasNpm ? false : "there is no npm, or no /proc",
}, () =>
  withCliMachine(async (machine) => {
    const asked = Promise.withResolvers<void>();
    let hangs = true;
    const onAsk = (path: string) => {
      if (!hangs || !path.endsWith(".tgz")) return false;
      asked.resolve();
      return true;
    };
    await using registries = await startRegistries({ packages: [SERVER], onAsk });
    writeFileSync(join(machine.home, ".npmrc"), `registry=${registries.url}/npm/\n`);
    const add = ["mcp", "add", "npm:server-notes", "--name", "notes"];
    const { child, ended } = machine.spawn(add);
    await Promise.race([asked.promise, ended.then(({ stderr }) => assert.fail(`It ended before: ${stderr}`))]);
    child.kill("SIGKILL");
    await ended;
    const packages = join(machine.dataDir, "mcp/packages");
    assert.deepEqual(readdirSync(packages).filter((name) => !name.startsWith(".postern-")), []);
    const config = join(machine.home, ".config/postern/postern.toml");
    assert.equal(existsSync(config), false);
    hangs = false;
    const { code, stderr } = await machine.run(add);
    assert.equal(code, 0, stderr);
    assert.deepEqual(readdirSync(packages), ["npm-server-notes-1.2.3"]);
    assert.match(readFileSync(config, "utf8"), /^\[mcp\.servers\.notes\]$/m);
  }));
