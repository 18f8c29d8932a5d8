import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { writeControlFile } from "../../lib/host/control_file.ts";
import { createCommandLookup } from "../../lib/system/process/command_lookup.ts";
import { type Machine, onMachine } from "../cli/support/run_in.ts";
import { lastOutput, scriptedTasks, toolTurn } from "../support/scripted_tasks.ts";
import { jsonOf, type RunningGateway, withWorld } from "../support/world.ts";

const lookup = createCommandLookup();
const skip = await lookup.find("cc") === undefined || await lookup.find("make") === undefined
  ? "there is no C compiler or no make"
  : false;

/** Lines that make the library of `plugin new` obey two words. */
const WORDS = `  if (strstr(json, "\\"text\\":\\"crash\\"")) abort();
  if (strstr(json, "\\"text\\":\\"pid\\"")) {
    char *answer = malloc(64);
    sprintf(answer, "{\\"output\\":\\"process %d\\"}", (int)getpid());
    return answer;
  }
`;

/** Runs a command that must succeed. */
async function say({ run }: Machine, gateway: RunningGateway, argv: readonly string[], answers?: readonly string[]) {
  const { code, stdout, stderr } = await run([...argv, "--data-dir", gateway.dataDir], {
    env: { POSTERN__PLUGINS__ALLOW_FFI: "true" },
    ...(answers === undefined ? {} : { answers, terminal: true }),
  });
  assert.equal(code, 0, stderr);
  return `${stdout}${stderr}`;
}

for (const ffi of ["process", "in_process"]) {
  test(`a new library is built, tested, packaged, installed, enabled and used by the model, with ffi = "${ffi}"`, {
    skip,
  }, () =>
    withWorld((world) =>
      onMachine(async (machine) => {
        const call = (text: string) => [toolTurn("yell", { text }), lastOutput];
        const gateway = await world.gateway({
          script: scriptedTasks({ hello: call("hello"), pid: call("pid"), crash: call("crash"), again: call("hello") }),
          config: { autonomy: { auto_approve: ["yell"] }, plugins: { allow_ffi: true, ffi } },
        });
        const { url, token, dataDir } = gateway;
        const record = { address: `${url}/`, pid: process.pid, token, started_at: "", version: "" };
        await writeControlFile(dataDir, { ...record, workspace: machine.cwd });
        const told = async (words: string) => {
          const reply = await jsonOf(gateway.call("/api/chat", { body: { message: words } }));
          return JSON.stringify(reply);
        };

        await say(machine, gateway, ["plugin", "new", "--id", "yell", "--scaffold", "ffi-c"]);
        const folder = join(machine.cwd, "yell");
        const manifest = join(folder, "plugin.json");
        const make = () => execFileSync("make", [], { cwd: folder, stdio: "pipe" });
        make();
        const tested = ["plugin", "test", "--manifest", manifest, "--execute", '{"text": "hi"}'];
        assert.match(await say(machine, gateway, tested), /^HI\n/);
        await say(machine, gateway, ["plugin", "package", "--manifest", manifest]);
        await say(machine, gateway, ["plugin", "install", "--package", "yell-0.1.0.tar"]);
        assert.match(await say(machine, gateway, ["plugin", "enable", "yell"], ["y"]), /library of machine code/);
        assert.match(await told("hello"), /HELLO/);

        writeFileSync(manifest, readFileSync(manifest, "utf8").replace("0.1.0", "0.2.0"));
        const source = readFileSync(join(folder, "plugin.c"), "utf8").replace(/^char \*yell.*\n/m, `$&${WORDS}`);
        writeFileSync(join(folder, "plugin.c"), `#include <stdio.h>\n#include <unistd.h>\n${source}`);
        make();
        await say(machine, gateway, ["plugin", "package", "--manifest", manifest]);
        const updated = await say(machine, gateway, ["plugin", "install", "--package", "yell-0.2.0.tar"]);
        assert.match(updated, /it is enabled/);
        const own = `process ${process.pid}`;
        assert.equal((await told("pid")).includes(own), ffi === "in_process", own);
        if (ffi === "in_process") return;
        assert.match(await told("crash"), /Cannot call plugin .*yell/);
        assert.match(await told("again"), /HELLO/);
      })
    ));
}
