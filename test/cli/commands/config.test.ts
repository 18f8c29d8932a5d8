import assert from "node:assert/strict";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { parseToml } from "../../../lib/config/toml.ts";
import { validateConfig } from "../../../lib/config/validate_config.ts";
import { takeGatewayLock } from "../../../lib/storage/gateway_lock.ts";
import { SAMPLE_MODULE, sampleManifest, samplePackage, sampleTool } from "../../support/plugin_package.ts";
import { until } from "../../support/until.ts";
import { onMachine } from "../support/run_in.ts";

function write(path: string, text: string): void {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}

test("config show prints TOML that is a valid configuration, says where values came from, and masks secrets", () =>
  onMachine(async ({ run, home }) => {
    write(
      join(home, ".config/postern/postern.toml"),
      '[gateway]\nport = 5\n[gateway.node_control]\nauth_token = "tip-top"\n',
    );
    const { code, stdout } = await run(["config", "show"]);
    assert.equal(code, 0);
    assert.match(stdout, /^port = 5 {2}# file$/m);
    assert.match(stdout, /^kind = "offline" {2}# environment$/m);
    assert.match(stdout, /^auth_token = "\*\*\*"/m);
    assert.doesNotMatch(stdout, /tip-top/);
    assert.ok("config" in validateConfig([parseToml(stdout, "shown")]));
    const json = JSON.parse((await run(["config", "show", "--json"])).stdout);
    assert.equal(json.config.gateway.port, 5);
    assert.equal(json.sources["gateway.port"], "file");
  }));

test("config get prints one value or one table", () =>
  onMachine(async ({ run }) => {
    assert.equal((await run(["config", "get", "gateway.host"])).stdout, "127.0.0.1\n");
    assert.equal((await run(["config", "get", "gateway.port"])).stdout, "42617\n");
    assert.equal((await run(["config", "get", "security.allowed_commands"])).stdout, '["ls", "pwd", "cat", "echo"]\n');
    assert.match((await run(["config", "get", "storage"])).stdout, /driver = "sqlite"/);
    assert.equal((await run(["config", "get", "providers.nobody.model"])).code, 2);
  }));

test("config set changes one value, keeps comments, and refuses what the gateway would refuse", () =>
  onMachine(async ({ run, home }) => {
    const path = join(home, ".config/postern/postern.toml");
    write(path, "# mine\n[gateway]\nport = 70000 # too high\n");
    assert.equal((await run(["tools", "list"])).code, 78);
    assert.equal((await run(["config", "set", "gateway.port", "99999"])).code, 78);
    assert.equal((await run(["config", "set", "gateway.port", "8080"])).code, 0, "a wrong file can be mended");
    assert.equal((await run(["config", "set", "provider.model", "123"])).code, 0);
    assert.equal(
      readFileSync(path, "utf8"),
      '# mine\n[gateway]\nport = 8080 # too high\n\n[provider]\nmodel = "123"\n',
    );
    assert.equal((await run(["config", "get", "gateway.port"])).stdout, "8080\n");
  }));

test("config set without a file makes the user's own", () =>
  onMachine(async ({ run, home }) => {
    assert.equal((await run(["config", "set", "security.allowed_commands", '["git"]'])).code, 0);
    assert.equal(
      readFileSync(join(home, ".config/postern/postern.toml"), "utf8"),
      '[security]\nallowed_commands = ["git"]\n',
    );
  }));

test("config set says that a running gateway may go by the old value, and doctor by which", () =>
  onMachine(async ({ run, withGateway }) => {
    const set = async (key: string, value: string) => (await run(["config", "set", key, value])).stderr;
    assert.equal(await set("enable_git", "true"), "");
    await withGateway([], async () => {
      const told = /^A gateway is running: it takes the change over where it can; postern doctor says what waits/;
      assert.match(await set("enable_git", "false"), told);
      assert.match(await set("gateway.shutdown_grace_secs", "9"), told);
      const waits = /It still uses the old value of gateway\.shutdown_grace_secs/;
      await until(
        async () => waits.test((await run(["doctor"])).stdout),
        "doctor does not say what waits for a restart",
      );
    });
  }));

test("config set says that a gateway started without a file takes a new one over at its next start", () =>
  onMachine(async ({ run, withGateway }) => {
    await withGateway([], async () => {
      const { stderr } = await run(["config", "set", "enable_git", "true"]);
      assert.match(stderr, /^A gateway is running without this file: it uses the file from its next start/);
    });
  }));

test("config check tells all problems with exit 78", () =>
  onMachine(async ({ run, cwd }) => {
    write(join(cwd, "own.toml"), "[gateway]\nprot = 1\nport = -1\n");
    const { code, stdout, stderr } = await run(["config", "check", "--config", "own.toml"]);
    assert.deepEqual([code, stdout], [78, ""]);
    assert.match(stderr, /own\.toml:2\).*\n.*own\.toml:3\)/);
    assert.equal((await run(["config", "check"])).code, 0);
  }));

test("config check and doctor name the secrets that are not there, with their line and what needs them", () =>
  onMachine(async ({ run, home }) => {
    const path = join(home, ".config/postern/postern.toml");
    const lines = [
      "[secrets.forge]",
      'env = "FORGE_VALUE"',
      'mcp = ["forge"]',
      "[secrets.shop]",
      'file = "/nowhere/shop"',
      'plugins = ["shop"]',
      '[plugins.config.shop]\nkey = { secret = "shop" }',
    ];
    write(path, `${lines.join("\n")}\n`);
    const { code, stdout, stderr } = await run(["config", "check"]);
    assert.equal(code, 0);
    assert.match(stderr, /postern\.toml:1: \[secrets\.forge\] cannot be used: the variable "FORGE_VALUE" is not set$/m);
    assert.match(
      stderr,
      /postern\.toml:4: \[secrets\.shop\] .* "\/nowhere\/shop" cannot be read.*; plugins\.config\.shop\.key needs it/,
    );
    assert.match(stdout, /can be used; what needs the secrets that the warnings name fails/);
    const doctor = JSON.parse((await run(["doctor", "--json"])).stdout);
    const said = doctor.checks.map(({ message }: { message: string }) => message).join("\n");
    assert.match(said, /FORGE_VALUE, which secrets\.forge\.env names, is not set/);
    assert.match(said, /\[secrets\.shop\] cannot be used/);
    assert.doesNotMatch(said, /\[secrets\.forge\]/);
  }));

test("config schema prints a JSON Schema", () =>
  onMachine(async ({ run }) => {
    assert.equal(JSON.parse((await run(["config", "schema"])).stdout).type, "object");
  }));

test("a postern.toml of the folder refuses every command until it is accepted, and again after a change", () =>
  onMachine(async ({ run, cwd }) => {
    write(join(cwd, "postern.toml"), "[gateway]\nport = 7\n");
    const refused = await run(["config", "get", "gateway.port"]);
    assert.equal(refused.code, 78);
    assert.match(refused.stderr, /postern trust.*--config \.\/postern\.toml/);
    assert.equal((await run(["trust"])).code, 0);
    assert.equal((await run(["config", "get", "gateway.port"])).stdout, "7\n");
    assert.equal((await run(["config", "set", "gateway.port", "8"])).code, 0, "the user's own change stays accepted");
    assert.equal((await run(["config", "get", "gateway.port"])).stdout, "8\n");
    write(join(cwd, "postern.toml"), "[gateway]\nport = 9\n");
    assert.equal((await run(["config", "get", "gateway.port"])).code, 78);
  }));

test("trust refuses a file that is missing or wrong", () =>
  onMachine(async ({ run, cwd }) => {
    assert.equal((await run(["trust"])).code, 1);
    write(join(cwd, "postern.toml"), "port = 1\n");
    assert.equal((await run(["trust"])).code, 78);
  }));

test("config check, doctor and a start know the tools of plugins, installed or found, on or off", () =>
  onMachine(async ({ run, home, cwd, withGateway }) => {
    const path = join(home, ".config/postern/postern.toml");
    const lists = 'auto_approve = ["count_words", "found_words", "no_words"]';
    write(path, `[autonomy]\n${lists}\n[tools.count_words]\naccess = "read"\n`);
    const warnings = async () => JSON.parse((await run(["config", "check", "--json"])).stdout).warnings;
    assert.equal((await warnings()).length, 4);
    writeFileSync(
      join(cwd, "words.tar"),
      samplePackage({ kind: "process", wasm: undefined, process: { command: "node" } }),
    );
    assert.equal((await run(["plugin", "install", "--package", "words.tar"])).code, 0);
    const found = sampleManifest({ id: "found", tools: [sampleTool("found_words")] });
    write(join(cwd, ".plugins/found/plugin.json"), JSON.stringify(found));
    writeFileSync(join(cwd, ".plugins/found/words.wasm"), SAMPLE_MODULE);
    write(join(cwd, "plugins/odd/plugin.json"), "{");
    const [only, ...more] = await warnings();
    assert.deepEqual([only?.line, more], [2, []]);
    assert.match(only?.message ?? "", /"no_words" .* no built-in tool and no plugin/);
    const { stderr } = await withGateway([], () => Promise.resolve());
    assert.match(stderr, /no_words.* does nothing/);
    assert.doesNotMatch(stderr, /count_words.* does nothing|found_words.* does nothing/);
  }));

test("config check, doctor and a start name each setting that does nothing, with its line", () =>
  onMachine(async ({ run, home, withGateway }) => {
    const path = join(home, ".config/postern/postern.toml");
    write(path, '[gateway]\nhost = "127.0.0.1"\n\n[mcp.servers.files]\ncommand = "files"\n');
    const env = { POSTERN__SECURITY__MCP__ENABLED: "true" };
    const expected = [
      `${path}:4: [mcp.servers.files] does nothing`,
      "[security.mcp] does nothing",
    ];
    const checked = await run(["config", "check"], { env });
    assert.equal(checked.code, 0);
    assert.doesNotMatch(checked.stdout, /fine/);
    for (const text of expected) assert.ok(checked.stderr.includes(`Warning: ${text}`), `${text} in ${checked.stderr}`);
    const { warnings } = JSON.parse((await run(["config", "check", "--json"], { env })).stdout);
    assert.deepEqual(warnings.map(({ key, line }: { key: string; line: number | null }) => [key, line]), [
      ["security.mcp", null],
      ["mcp.servers.files", 4],
    ]);
    const doctor = JSON.parse((await run(["doctor", "--json"], { env })).stdout);
    const found = doctor.checks.filter(({ state }: { state: string }) => state === "warning")
      .map(({ message }: { message: string }) => message);
    for (const text of expected) {
      assert.ok(found.some((message: string) => message.startsWith(text)), `${text} in ${found}`);
    }
    const { stderr } = await withGateway([], () => Promise.resolve(), { env });
    for (const text of ["[mcp.servers.files]", "[security.mcp]"]) {
      assert.equal(stderr.split(`${text} does nothing`).length, 2, `${text} once in ${stderr}`);
    }
    write(path, '[gateway]\nhost = "127.0.0.1"\n');
    assert.match((await run(["config", "check"])).stdout, /is fine/);
  }));

test("changes of the configuration at the same moment all happen, or are refused", () =>
  onMachine(async ({ run, home, cwd }) => {
    const own = join(home, ".config/postern/postern.toml");
    mkdirSync(join(home, "project"));
    const init = ["init", "--config", own];
    for (const folder of ["none", "own"]) {
      if (folder === "own") write(own, "# mine\n");
      const all = [
        run(["config", "set", "gateway.port", "8080"]),
        run(["preset", "apply", "write", "--yes"]),
        run(["config", "set", "agent.system_prompt", "hello"]),
        run(init, { answers: ["", join(home, "project"), "1", "y"] }),
        run(["tool", "enable", "agents_ipc"]),
        run(["config", "set", "gateway.rate_limit_max", "77"]),
      ];
      const done = await Promise.all(all);
      const text = readFileSync(own, "utf8");
      const lines = [/^port = 8080$/m, /^enable_git = true$/m, /^system_prompt = "hello"$/m, /^workspace = "/m];
      for (const [index, line] of [...lines, /^enable_agents_ipc = true$/m, /^rate_limit_max = 77$/m].entries()) {
        const { code, stderr } = done[index] ?? { code: 0, stderr: "" };
        assert.equal(line.test(text), code === 0, `${line} ${code} ${stderr}\n${text}`);
        if (code !== 0) assert.match(stderr, /Nothing was written: .* was changed meanwhile; try again/);
      }
      assert.equal((await run(["config", "check"], { cwd })).code, 0);
    }
  }));

test("a change waits for a process that changes a configuration", () =>
  onMachine(async ({ run, home, dataDir }) => {
    const lock = takeGatewayLock(dataDir, "configuration.lock");
    const changed = run(["config", "set", "enable_git", "true"]);
    assert.equal((await run(["config", "get", "enable_git"])).stdout, "false\n");
    assert.equal(existsSync(join(home, ".config/postern/postern.toml")), false);
    lock?.release();
    assert.equal((await changed).code, 0);
  }));
