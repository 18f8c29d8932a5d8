import assert from "node:assert/strict";
import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { parseToml } from "../../../lib/config/toml.ts";
import { validateConfig } from "../../../lib/config/validate_config.ts";
import { startLocalServer } from "../../../fixtures/upstream/local_servers.ts";
import { onMachine } from "../support/run_in.ts";

const modeOf = (path: string) => statSync(path).mode & 0o777;
const onWindows = process.platform === "win32";

test("with --yes it writes a file that changes nothing, closed to others, and accepts it", () =>
  onMachine(async ({ run, cwd }) => {
    const path = join(cwd, "postern.toml");
    const { code, stdout, stderr } = await run(["init", "--yes"]);
    assert.deepEqual([code, stdout, stderr], [0, `Wrote ${path} and accepted it. Next: postern gateway\n`, ""]);
    assert.equal((await run(["config", "check"])).stdout, `${path} is fine\n`);
    assert.deepEqual(readdirSync(cwd), ["postern.toml"]);
    if (!onWindows) assert.equal(modeOf(path), 0o600);
    const { file, sources } = JSON.parse((await run(["config", "show", "--json"])).stdout);
    assert.deepEqual([file, sources], [path, { "provider.kind": "environment" }]);
  }));

test("every key the starter file shows is a default of the schema", () =>
  onMachine(async ({ run, cwd }) => {
    await run(["init", "--yes"]);
    const text = readFileSync(join(cwd, "postern.toml"), "utf8").replaceAll(/^# (?=\w+ = )/gm, "");
    const shown = validateConfig([parseToml(text, "starter")]);
    const defaults = validateConfig([{}]);
    assert.ok("config" in shown && "config" in defaults);
    assert.deepEqual({ ...shown.config, given: [] }, defaults.config);
  }));

test("three answers decide over provider, folder and what the agent may change", () =>
  onMachine(async ({ run, home, cwd }) => {
    mkdirSync(join(home, "project"));
    const answers = ["http://127.0.0.1:8000/v1", "~/project", "3"];
    assert.equal((await run(["init"], { answers })).code, 0);
    const { config, sources } = JSON.parse((await run(["config", "show", "--json"], { env: {} })).stdout);
    assert.equal(config.provider.base_url, "http://127.0.0.1:8000/v1");
    assert.match(readFileSync(join(cwd, "postern.toml"), "utf8"), /^kind = "openai_compatible"$/m);
    assert.equal(config.workspace, join(home, "project"));
    assert.deepEqual([config.autonomy.level, config.security.write_file.enabled, config.enable_git], [
      "full",
      true,
      true,
    ]);
    assert.equal(sources["gateway.port"], undefined);
  }));

test("a folder with AGENTS.md or CLAUDE.md gives a fourth question, and yes turns workspace_instructions on", () =>
  onMachine(async ({ run, cwd }) => {
    writeFileSync(join(cwd, "CLAUDE.md"), "Use tabs.");
    const { code, stdout, stderr } = await run(["init"], { answers: ["", "", "", "2"] });
    assert.equal(code, 0, `${stdout}${stderr}`);
    assert.match(readFileSync(join(cwd, "postern.toml"), "utf8"), /^workspace_instructions = true$/m);
    await run(["init"], { answers: ["y", "", "", "", ""] });
    assert.match(readFileSync(join(cwd, "postern.toml"), "utf8"), /^# workspace_instructions = false$/m);
  }));

test("empty answers keep every default, and a vendor without its key is told where the key goes", () =>
  onMachine(async ({ run, cwd }) => {
    const path = join(cwd, "postern.toml");
    await run(["init"], { answers: ["", "", ""] });
    const plain = readFileSync(path, "utf8");
    assert.doesNotMatch(plain, /^\w+ = /m);
    const { code, stderr } = await run(["init"], { answers: ["y", "anthropic", "", "2"] });
    assert.equal(code, 0);
    assert.match(stderr, /ANTHROPIC_API_KEY/);
    assert.match(readFileSync(path, "utf8"), /^kind = "anthropic"$/m);
    assert.equal((await run(["config", "check"])).code, 0, "the new content is accepted too");
    const { notes, accepted } = JSON.parse(
      (await run(["init", "--json"], { answers: ["y", "2", "", ""], env: { OPENAI_API_KEY: "sk-1234567890" } })).stdout,
    );
    assert.deepEqual([notes, accepted], [[], true]);
  }));

test("a model server on this machine can be chosen by its number", () =>
  onMachine(async ({ run, cwd }) => {
    const server = await startLocalServer("ollama");
    try {
      const { code } = await run(["init"], { answers: ["5", "", ""], env: { OLLAMA_HOST: server.origin } });
      assert.equal(code, 0);
      assert.match(
        readFileSync(join(cwd, "postern.toml"), "utf8"),
        new RegExp(`^base_url = "${server.origin}/v1"$`, "m"),
      );
    } finally {
      await server.close();
    }
  }));

test("what makes no sense is asked again, and given up after five answers", () =>
  onMachine(async ({ run, cwd }) => {
    const wrong = await run(["init"], { answers: ["http://me:secret@127.0.0.1/", "ftp://a", "99", "0", "x"] });
    assert.equal(wrong.code, 1);
    assert.match(wrong.stderr, /user name or password/);
    const folder = await run(["init"], { answers: ["", "/nowhere/at/all", "", "7", "1"] });
    assert.equal(folder.code, 0);
    assert.match(folder.stderr, /"\/nowhere\/at\/all" is no folder\n"7" is none of/);
    assert.deepEqual(readdirSync(cwd), ["postern.toml"]);
  }));

test("without a terminal it must be told --yes, and answers that end early write nothing", () =>
  onMachine(async ({ run, cwd }) => {
    for (const answers of [[], ["2"], ["2", ""]]) {
      const { code, stdout, stderr } = await run(["init"], { answers });
      assert.deepEqual([code, stdout], [2, ""]);
      assert.match(stderr, /--yes/);
    }
    assert.deepEqual(readdirSync(cwd), []);
  }));

test("a file that exists is overwritten after a question of its own, and never with --yes", () =>
  onMachine(async ({ run, cwd }) => {
    const path = join(cwd, "postern.toml");
    writeFileSync(path, "# mine\n");
    chmodSync(path, 0o644);
    const refused = await run(["init", "--yes"]);
    assert.deepEqual([refused.code, readFileSync(path, "utf8")], [1, "# mine\n"]);
    for (const answers of [["n"], [""], []]) {
      assert.notEqual((await run(["init"], { answers })).code, 0);
      assert.equal(readFileSync(path, "utf8"), "# mine\n");
    }
    assert.equal((await run(["init"], { answers: ["y", "", "", ""] })).code, 0);
    assert.match(readFileSync(path, "utf8"), /^# Postern's configuration/);
    if (!onWindows) assert.equal(modeOf(path), 0o600);
  }));

test("--config names another place, which needs no acceptance", () =>
  onMachine(async ({ run, home }) => {
    const path = join(home, "conf/mine.toml");
    const { code, stdout } = await run(["init", "--yes", "--config", path]);
    assert.deepEqual([code, stdout], [0, `Wrote ${path}. Next: postern gateway --config ${path}\n`]);
    assert.equal((await run(["config", "check", "--config", path])).code, 0);
    const own = join(home, ".config/postern/postern.toml");
    assert.equal((await run(["init", "--yes", "--config", own])).code, 0);
    assert.equal((await run(["config", "check"])).stdout, `${own} is fine\n`);
    assert.match((await run(["init", "--yes"])).stderr, /is not used while .*postern\.toml exists/);
  }));
