import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { onMachine } from "../support/run_in.ts";

const CALL = ["tools", "call", "write_file", "--input", '{"path":"a.txt","content":"x"}', "--yes"];
const WAY = 'Cannot call "write_file": it is off; a person can turn it on with ' +
  "`postern config set security.write_file.enabled true`";

test("a tool that is off names the command that turns it on, and that command does", () =>
  onMachine(async ({ run, cwd }) => {
    const off = await run(CALL);
    assert.deepEqual([off.code, off.stderr], [1, `${WAY}\n`]);
    assert.match(
      (await run(["tools", "list"])).stdout,
      /write_file .* off .*postern config set security.write_file.enabled true/,
    );
    assert.equal((await run(["config", "set", "security.write_file.enabled", "true"])).code, 0);
    assert.equal((await run(CALL)).code, 0);
    assert.equal(readFileSync(join(cwd, "a.txt"), "utf8"), "x");
  }));

test("tools call offers a tool that is off to the person at the terminal", () =>
  onMachine(async ({ run, cwd, home }) => {
    const denied = await run(CALL, { answers: ["n"] });
    assert.equal(denied.stderr, `${WAY}\n`);
    const file = join(home, ".config/postern/postern.toml");
    assert.equal(existsSync(file), false);
    assert.equal((await run(CALL, { answers: ["y"] })).code, 0);
    assert.equal(readFileSync(file, "utf8"), "[security.write_file]\nenabled = true\n");
    assert.equal(readFileSync(join(cwd, "a.txt"), "utf8"), "x");
    const audit = (await run(["audit", "show"])).stdout;
    assert.match(audit, /config +http(:\S+)? +set security\.write_file\.enabled/);
  }));

test("the offline assistant calls the door, and chat offers the tool for the next message", () =>
  onMachine(async ({ run, cwd, home, withGateway }) => {
    const say = `/write_file {"path":"a.txt","content":"x"}`;
    const env = { POSTERN__AUTONOMY__LEVEL: "full" };
    const talk = async (where: readonly string[]) => {
      const { stdout, stderr } = await run(["chat", say, ...where], { env, answers: ["y"] });
      assert.ok(stdout.includes(WAY), stdout);
      assert.match(stderr, /\nwrite_file is on from your next message\n/);
      assert.equal(existsSync(join(cwd, "a.txt")), false);
      const again = await run(["chat", say, ...where], { env, answers: [] });
      assert.doesNotMatch(again.stderr, /is off/);
      assert.equal(readFileSync(join(cwd, "a.txt"), "utf8"), "x");
    };
    await withGateway([], () => talk([]), { env });
    assert.match(
      readFileSync(join(home, ".config/postern/postern.toml"), "utf8"),
      /\[security.write_file\]\nenabled = true/,
    );
  }));

test("a refusal names the program as it is typed where the gateway's reader is", () =>
  onMachine(async ({ run, withGateway }) => {
    const say = ["chat", `/write_file {"path":"a.txt","content":"x"}`];
    await withGateway([], async () => {
      const { stdout } = await run(say, { env: {} });
      assert.ok(stdout.includes("turn it on with `./postern config set security.write_file.enabled true`"), stdout);
    }, { env: { POSTERN_PROGRAM: "./postern" } });
  }));

test("a workspace's configuration stays trusted, and one that changed meanwhile is left alone", () =>
  onMachine(async ({ run, cwd, withGateway }) => {
    const file = join(cwd, "postern.toml");
    writeFileSync(file, "# mine\n");
    assert.equal((await run(["trust"])).code, 0);
    await withGateway([], async () => {
      writeFileSync(file, "# mine\n[autonomy]\nlevel = 'full'\n");
      assert.match((await run(CALL, { answers: ["y"] })).stderr, /it has changed since you accepted it/);
      assert.equal(readFileSync(file, "utf8"), "# mine\n[autonomy]\nlevel = 'full'\n");
      writeFileSync(file, "# mine\n");
    });
    assert.equal((await run(CALL, { answers: ["y"] })).code, 0);
    assert.equal(readFileSync(file, "utf8"), "# mine\n\n[security.write_file]\nenabled = true\n");
    assert.equal((await run(["tools", "info", "write_file"])).code, 0, "it is still trusted");
  }));

test("nothing is offered where the gateway cannot write, or something else sets the key", () =>
  onMachine(async ({ run, cwd }) => {
    const file = join(cwd, "own.toml");
    writeFileSync(file, "");
    const inWorkspace = await run([...CALL, "--config", file], { answers: ["y"] });
    assert.equal(inWorkspace.stderr, 'Cannot call "write_file": it is off; set [security.write_file] enabled = true\n');
    const env = { POSTERN__SECURITY__WRITE_FILE__ENABLED: "false" };
    const { stderr } = await run(CALL, { answers: ["y"], env });
    assert.match(stderr, /Cannot turn on "write_file": the environment sets "security\.write_file\.enabled"/);
    assert.equal(readFileSync(file, "utf8"), "");
  }));
