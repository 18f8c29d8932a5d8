import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { sampleManifest, samplePackage, sha256, tarOf } from "../../support/plugin_package.ts";
import { createPublisher, writeRegistry } from "../../support/plugin_registry.ts";
import { until } from "../../support/until.ts";
import { answering } from "../../support/wasm_modules.ts";
import { type Machine, onMachine } from "../support/run_in.ts";

const ALLOWED = { POSTERN__PLUGINS__ALLOW_PROCESS: "true", POSTERN__PLUGINS__SANDBOX: "off" };
const PROCESS = { kind: "process", wasm: undefined, process: { command: "node" } };

/** Runs a command that must succeed, and returns its JSON. */
async function jsonOf({ run }: Machine, argv: readonly string[], env: Readonly<Record<string, string>> = {}) {
  const { code, stdout, stderr } = await run([...argv, "--json"], { env });
  assert.equal(code, 0, stderr);
  return JSON.parse(stdout);
}

test("a plugin is written, tested, packaged, installed, enabled, called, disabled and removed", () =>
  onMachine(async (machine) => {
    const { run, cwd } = machine;
    const say = async (argv: readonly string[], options: Parameters<typeof run>[1] = { env: ALLOWED }) => {
      const { code, stdout, stderr } = await run(argv, options);
      assert.equal(code, 0, stderr);
      return stdout;
    };
    assert.match(await say(["plugin", "new", "--id", "shout", "--scaffold", "process-node"]), /^Wrote shout: /);
    const manifest = "shout/plugin.json";
    assert.match(
      await say(["plugin", "test", "--manifest", manifest]),
      /^shout 0\.1\.0 \(process\) is well formed, with the tools shout\n$/,
    );
    const off = await run(["plugin", "test", "--manifest", manifest, "--execute", '{"text": "hi"}']);
    assert.deepEqual([off.code, /set \[plugins\] allow_process = true/.test(off.stderr)], [1, true]);
    assert.equal(await say(["plugin", "test", "--manifest", manifest, "--execute", '{"text": "hi"}']), "HI\n");
    assert.match(await say(["plugin", "package", "--manifest", manifest]), /^Wrote .*shout-0\.1\.0\.tar: /);
    const file = join(cwd, "shout-0.1.0.tar");
    assert.match(
      await say(["plugin", "add", "--package", file]),
      /^Installed shout 0\.1\.0: it is off; run postern plugin enable shout\n$/,
    );
    const asked = await run(["plugin", "enable", "shout"], { env: ALLOWED, answers: ["n"], terminal: true });
    assert.equal(asked.code, 1);
    assert.match(asked.stderr, /program on this machine/);
    assert.match(asked.stderr, /shout: /);
    const nobody = await run(["plugin", "enable", "shout"], { env: ALLOWED, stdin: "" });
    assert.match(nobody.stderr, /--yes enables it/);
    assert.equal((await jsonOf(machine, ["plugin", "info", "shout"])).state, "installed");
    assert.equal(
      await say(["plugin", "enable", "shout"], { env: ALLOWED, answers: ["y"], terminal: true }),
      "Enabled shout 0.1.0\n",
    );
    assert.match(
      (await run(["plugin", "enable", "shout"])).stdout,
      /^shout 0\.1\.0 is enabled but will not run until you set \[plugins\] allow_process = true/,
    );
    const tool = (await jsonOf(machine, ["tools", "info", "shout"], ALLOWED)) as Record<string, unknown>;
    assert.deepEqual([tool["source"], tool["origin"], tool["enabled"], tool["access"]], [
      "process",
      "plugin shout 0.1.0",
      true,
      "network",
    ]);
    assert.equal(await say(["tools", "call", "shout", "--input", '{"text": "hi"}', "--yes"]), "HI\n");
    assert.match(
      await say(["plugin", "list"]),
      /^ID +VERSION +KIND +FROM +STATE +ABOUT\nshout +0\.1\.0 +process +package +enabled +/,
    );
    assert.equal(await say(["plugin", "disable", "shout"]), "Disabled shout 0.1.0\n");
    assert.equal(await say(["plugin", "remove", "--id", "shout"]), "Removed shout\n");
    assert.equal(await say(["plugin", "list"]), "No plugin is installed or found\n");
    const { records } = await jsonOf(machine, ["audit", "show", "--type", "plugin"]);
    assert.deepEqual(records.map(({ action }: { action: string }) => action).sort(), [
      "disabled",
      "enabled",
      "installed",
      "removed",
    ]);
  }));

test("wrong command lines are 2, refusals are 1 with their reason, and nothing is written", () =>
  onMachine(async ({ run, cwd, dataDir }) => {
    writeFileSync(join(cwd, "evil.tar"), tarOf([{ name: "../evil" }]));
    writeFileSync(join(cwd, "words.tar"), samplePackage());
    const cases: readonly (readonly [argv: readonly string[], code: number, message: RegExp])[] = [
      [["plugin", "add"], 2, /give the id of a plugin in the registry, or --package/],
      [["plugin", "add", "words", "--package", "words.tar"], 2, /give the id/],
      [["plugin", "add", "--package", "none.tar"], 1, /Cannot read the package/],
      [["plugin", "add", "--package", "evil.tar"], 1, /"\.\.\/evil"/],
      [["plugin", "add", "words"], 1, /set \[plugins\] registry_url/],
      [["plugin", "remove"], 2, /without --id/],
      [["plugin", "remove", "--id", "words"], 1, /Cannot find the plugin "words"/],
      [["plugin", "enable", "words"], 1, /Cannot find the plugin "words"/],
      [["plugin", "info", "words"], 1, /Cannot find the plugin "words"/],
      [["plugin", "new", "--id", "x", "--scaffold", "cobol"], 2, /one of wasm-rust, wasm-go/],
      [["plugin", "new", "--id", "shell", "--scaffold", "process-node"], 1, /name of a built-in tool/],
      [["plugin", "test"], 1, /plugin\.json/],
      [["plugin", "test", "--manifest", "manifest.json"], 2, /is called plugin\.json/],
      [["plugin", "dev", "."], 1, /no gateway runs/],
    ];
    for (const [argv, code, message] of cases) {
      const told = await run(argv);
      assert.deepEqual([told.code, message.test(told.stderr)], [code, true], `${argv.join(" ")}: ${told.stderr}`);
    }
    assert.equal(existsSync(join(dataDir, "plugins")), false);
    assert.deepEqual(readdirSync(cwd).sort(), ["evil.tar", "words.tar"]);
  }));

test("plugin test and plugin add refuse the same module with the same words; a digest that is not there yet is put in", () =>
  onMachine(async ({ run, cwd }) => {
    const imports = [{ module: "extism:host/user", name: "workspace_read", type: "I:I" }] as const;
    const module = answering(undefined, { imports });
    mkdirSync(join(cwd, "words"));
    writeFileSync(join(cwd, "words/words.wasm"), module);
    const write = (digest: string) => {
      const manifest = sampleManifest({ wasm: { file: "words.wasm", sha256: digest } });
      writeFileSync(join(cwd, "words/plugin.json"), JSON.stringify(manifest));
      writeFileSync(join(cwd, "words.tar"), samplePackage(manifest, [{ name: "words.wasm", bytes: module }]));
    };
    const refusals = async () => {
      const tested = await run(["plugin", "test", "--manifest", "words/plugin.json"]);
      const installed = await run(["plugin", "add", "--package", "words.tar"]);
      assert.deepEqual([tested.code, installed.code, installed.stderr], [1, 1, tested.stderr]);
      return tested.stderr;
    };
    write(sha256(module));
    assert.match(await refusals(), /Cannot use the plugin "words": "words\.wasm": .*workspace_read.*"capabilities"/);
    write("1".repeat(64));
    assert.match(await refusals(), /has the SHA-256 [0-9a-f]{64}, and plugin\.json says 1{64}; make the package with/);
    writeFileSync(join(cwd, "words/words.wasm"), answering());
    write("0".repeat(64));
    assert.equal((await run(["plugin", "test", "--manifest", "words/plugin.json"])).code, 0);
    assert.match((await run(["plugin", "add", "--package", "words.tar"])).stderr, /plugin\.json says 0{64}/);
  }));

test("enable shows what a new version asks for beyond the old one, and --digest holds it to one content", () =>
  onMachine(async (machine) => {
    const { run, cwd } = machine;
    const install = async (fields: object) => {
      writeFileSync(join(cwd, "words.tar"), samplePackage({ ...PROCESS, ...fields }));
      return await jsonOf(machine, ["plugin", "add", "--package", "words.tar"]);
    };
    const { digest } = await install({});
    const wrong = await run(["plugin", "enable", "words", "--yes", "--digest", "0".repeat(64)]);
    assert.deepEqual([wrong.code, /its digest is/.test(wrong.stderr)], [1, true]);
    await jsonOf(machine, ["plugin", "enable", "words", "--yes", "--digest", digest]);
    const next = await install({ version: "2.0.0", capabilities: { workspace: "read", hosts: ["a.example"] } });
    assert.deepEqual([next.state, next.asks_more], ["installed", [
      "reads the workspace",
      "reaches the host a.example",
    ]]);
    await install({ version: "2.1.0", capabilities: { workspace: "read" } });
    const { code, stderr } = await run(["plugin", "enable", "words"], { answers: ["n"], terminal: true });
    assert.equal(code, 1);
    assert.match(stderr, /Asks for:\n {2}reads the workspace/);
  }));

test("search, install, update and trust-key work on a registry in a folder", () =>
  onMachine(async (machine) => {
    const { run, cwd } = machine;
    const registry = join(cwd, "registry");
    const env = { POSTERN__PLUGINS__REGISTRY_URL: registry };
    const [ann, eve] = [createPublisher(), createPublisher()];
    const publish = (version: string, publisher = ann) =>
      writeRegistry(registry, { packages: [{ ...PROCESS, version }], publisher });
    publish("1.0.0");
    assert.match((await run(["plugin", "search", "words"], { env })).stdout, /words +1\.0\.0 +process +yes/);
    assert.match((await run(["plugin", "add", "words"], { env })).stdout, /key counts from now on/);
    assert.match((await run(["plugin", "update"], { env })).stdout, /words 1\.0\.0 is the newest/);
    publish("1.1.0");
    assert.match((await run(["plugin", "update", "words"], { env })).stdout, /words is now 1\.1\.0/);
    assert.match((await run(["plugin", "add", "words@1.1.0"], { env })).stdout, /It is signed by its publisher/);
    publish("2.0.0", eve);
    const refused = await run(["plugin", "update"], { env });
    assert.deepEqual([refused.code, /postern plugin trust-key words/.test(refused.stderr)], [1, true]);
    assert.equal((await run(["plugin", "trust-key", "words", eve.key], { env })).code, 0);
    assert.match((await run(["plugin", "update"], { env })).stdout, /words is now 2\.0\.0/);
  }));

test("dev serves each new version at once, keeps the old one when the new is broken, and ends with the command", () =>
  onMachine(async (machine) => {
    const { run, cwd } = machine;
    await run(["plugin", "new", "--id", "shout", "--scaffold", "process-node"]);
    const file = join(cwd, "shout/plugin.json");
    const manifest = JSON.parse(readFileSync(file, "utf8"));
    await machine.withGateway([], async () => {
      const seen = { stdout: "", stderr: "", interrupt: () => {} };
      const dev = run(["plugin", "dev", "shout"], {
        onOutput: ({ stdout, stderr, interrupt }) => Object.assign(seen, { stdout, stderr, interrupt }),
      });
      await until(() => seen.stdout.includes("Serving shout 0.1.0"));
      writeFileSync(file, JSON.stringify({ ...manifest, version: "0.2.0" }));
      await until(() => seen.stdout.includes("Serving shout 0.2.0"));
      writeFileSync(file, "{");
      await until(() => seen.stderr.includes("the version before stays"));
      const info = await jsonOf(machine, ["plugin", "info", "shout"]);
      assert.deepEqual([info.version, info.on, info.source], ["0.2.0", true, "dev"]);
      seen.interrupt();
      assert.equal((await dev).code, 0);
      assert.deepEqual(await jsonOf(machine, ["plugin", "list"]), []);
    }, { env: ALLOWED });
  }));
