import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { until } from "../../support/until.ts";
import { onMachine } from "../support/run_in.ts";

/** Returns the commands of the second list, which stand before two blanks. */
const nextOf = (stdout: string) => [...stdout.matchAll(/^ {2}(postern .*?) {2,}/gm)].map(([, command]) => command);

test("postern by itself says what state things are in, and three commands that come next", () =>
  onMachine(async ({ run, home, cwd }) => {
    const fresh = await run([], { terminal: true, env: { POSTERN__PROVIDER__KIND: "auto" } });
    assert.equal(fresh.code, 0, fresh.stderr);
    assert.match(fresh.stdout, /^ {2}Gateway +not running$/m);
    assert.match(fresh.stdout, /^ {2}Model +looked for at the start/m);
    assert.match(fresh.stdout, new RegExp(`^  Folder +${cwd}$`, "m"));
    assert.match(fresh.stdout, /^ {2}How far +look$/m);
    assert.deepEqual(nextOf(fresh.stdout), ["postern init", "postern gateway", "postern chat"]);
    const path = join(home, ".config/postern/postern.toml");
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, '[autonomy]\nlevel = "full"\n');
    const own = (await run([], { terminal: true })).stdout;
    assert.match(own, /^ {2}How far +settings of your own$/m);
    assert.match(own, new RegExp(`^  Configuration +${path}$`, "m"));
    assert.deepEqual(nextOf(own), ["postern preset show", "postern gateway", "postern chat"]);
    const { next } = JSON.parse((await run(["--json"], { terminal: true })).stdout);
    assert.deepEqual(next, ["postern preset show", "postern gateway", "postern chat"]);
  }));

test("where a gateway runs, its address is there, and calls that wait come first", () =>
  onMachine(async (machine) => {
    await machine.withGateway([], async ({ address }) => {
      const { stdout } = await machine.run([], { terminal: true });
      assert.ok(stdout.includes(`running at ${address.slice(0, -1)}`), stdout);
      assert.match(stdout, /^ {2}Model +offline\/assistant$/m);
      assert.deepEqual(nextOf(stdout), ["postern chat", "postern pair", "postern doctor"]);
      await machine.run(["runs", "start", '/shell {"command": "ls"}']);
      await until(async () => (await machine.run(["approvals", "list"])).stdout.includes(" pending "));
      const waiting = (await machine.run([], { terminal: true })).stdout;
      assert.match(waiting, /^ {2}Waiting for you +1 tool call$/m);
      assert.deepEqual(nextOf(waiting), ["postern approval list", "postern chat", "postern pair"]);
    });
  }));

test("a configuration that cannot be used is named with what mends it", () =>
  onMachine(async ({ run, cwd }) => {
    writeFileSync(join(cwd, "postern.toml"), "port = 1\n");
    const untrusted = await run([], { terminal: true });
    assert.equal(untrusted.code, 0, untrusted.stderr);
    assert.match(untrusted.stdout, /^ {2}Configuration +Cannot use .*: you have not accepted it/m);
    assert.deepEqual(nextOf(untrusted.stdout)[0], "postern trust");
  }));

test("without a terminal postern by itself is a wrong command line, as before", () =>
  onMachine(async ({ run }) => {
    const { code, stdout, stderr } = await run([]);
    assert.deepEqual([code, stdout], [2, ""]);
    assert.match(stderr, /^Usage: postern <command>/m);
  }));
