import assert from "node:assert/strict";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { takeGatewayLock } from "../../../lib/storage/gateway_lock.ts";
import { onMachine } from "../support/run_in.ts";

const READ_ONLY = { POSTERN__AUTONOMY__LEVEL: "read_only" };
const STORE = '{"key":"colour","value":"green"}';

test("policy explain prints decision, reason, rule path and what flips it", () =>
  onMachine(async ({ run, dataDir }) => {
    const { code, stdout, stderr } = await run(["policy", "explain", "memory_store", "--input", STORE], {
      env: READ_ONLY,
    });
    assert.deepEqual([code, stderr], [0, ""]);
    assert.equal(
      stdout,
      [
        "deny",
        'Cannot call "memory_store": it changes the agent\'s own records, which level "read_only" never allows; ' +
        'set [autonomy] level = "supervised"',
        "",
        "RULE                   SAYS",
        "enabled                pass",
        "forbidden_path         pass",
        "level:read_only/state  deny",
        "",
        "What flips it",
        '  set [autonomy] level = "supervised"',
        "",
      ].join("\n"),
    );
    assert.equal(existsSync(dataDir), false, "nothing was written");
  }));

test("the reason is the one a denied call gives, and the change it names is enough", () =>
  onMachine(async ({ run }) => {
    const explain = async (env: Readonly<Record<string, string>>) =>
      JSON.parse((await run(["policy", "explain", "memory_store", "--input", STORE, "--json"], { env })).stdout);
    const denied = await explain(READ_ONLY);
    assert.deepEqual([denied.tool, denied.access, denied.decision, denied.rule], [
      "memory_store",
      "state",
      "deny",
      "level:read_only/state",
    ]);
    assert.deepEqual(denied.path.at(-1), { rule: "level:read_only/state", says: "deny" });
    const called = await run(["tools", "call", "memory_store", "--input", STORE], { env: READ_ONLY });
    assert.deepEqual([called.code, called.stderr], [1, `${denied.reason}\n`]);
    assert.deepEqual(denied.change, ['set [autonomy] level = "supervised"']);
    assert.equal((await explain({ POSTERN__AUTONOMY__LEVEL: "supervised" })).decision, "allow");
    const asked = await explain({ POSTERN__AUTONOMY__ALWAYS_ASK: '["memory_store"]' });
    assert.deepEqual([asked.decision, asked.change], ["ask", ['remove "memory_store" from [autonomy] always_ask']]);
  }));

test("a tool that is off says so in the same words everywhere", () =>
  onMachine(async ({ run }) => {
    const input = ["--input", '{"path":"a.txt","content":"x"}'];
    const off = "it is off; a person can turn it on with `postern config set security.write_file.enabled true`";
    assert.ok((await run(["tools", "info", "write_file"])).stdout.includes(off));
    assert.equal((await run(["tools", "call", "write_file", ...input])).stderr, `Cannot call "write_file": ${off}\n`);
    const { stdout } = await run(["policy", "explain", "write_file", ...input]);
    assert.ok(stdout.startsWith(`deny\nCannot call "write_file": ${off}\n\nRULE     SAYS\nenabled  deny\n`), stdout);
  }));

test("Postern's own data and configuration are forbidden", () =>
  onMachine(async ({ run, cwd, home, dataDir }) => {
    const file = join(cwd, "own.toml");
    const other = join(home, "other");
    const own = [
      join(dataDir, "postern.db"),
      join(dataDir, "trusted_configs.json"),
      join(home, ".config/postern/postern.toml"),
    ];
    const denied = async (paths: readonly string[], flags: readonly string[]) => {
      for (const path of paths) {
        const { stdout } = await run(["policy", "explain", "read_file", "--input", path, ...flags]);
        assert.match(stdout, /^deny\n.* lies in the forbidden path .*; no setting opens /, `${path} ${flags}`);
      }
    };
    await denied(own, []);
    writeFileSync(file, "");
    await denied([...own, file], ["--config", file]);
    await denied([...own, file, join(other, "postern.db")], ["--config", file, "--data-dir", other]);
    writeFileSync(join(cwd, "postern.toml"), 'data_dir = "elsewhere"\n');
    assert.equal((await run(["trust"])).code, 0);
    await denied([...own, join(cwd, "postern.toml"), join(cwd, "elsewhere/postern.db")], []);
  }));

test("the input may be text, a file or standard input; one that cannot be prepared says why", () =>
  onMachine(async ({ run, cwd }) => {
    writeFileSync(join(cwd, "input.json"), '{"path":"/etc/passwd"}');
    for (const [input, stdin] of [["/etc/passwd"], ["@input.json"], ["-", "/etc/passwd"]] as const) {
      const options = stdin === undefined ? {} : { stdin };
      const { code, stdout } = await run(["policy", "explain", "read_file", "--input", input], options);
      assert.equal(code, 0);
      assert.match(stdout, /^deny\n.*"\/etc\/passwd" lies in the forbidden path "\/etc"/);
    }
    const bad = await run(["policy", "explain", "read_file", "--input", '{"colour":1}']);
    assert.deepEqual([bad.code, bad.stdout], [1, ""]);
    assert.match(bad.stderr, /^Cannot call "read_file": "path" is missing/);
    assert.match(
      (await run(["policy", "explain", "shell"])).stderr,
      /"command" is missing; give the call's input with --input\n$/,
    );
    assert.equal((await run(["policy", "explain", "read_file", "--input", "@nowhere"])).code, 1);
    assert.equal((await run(["policy", "explain", "read_file", "--input", "-"])).code, 2);
    assert.equal((await run(["policy", "explain"])).code, 2);
    const unknown = await run(["policy", "explain", "read_fil"]);
    assert.equal(unknown.code, 2);
    assert.match(unknown.stderr, /did you mean "read_file"/);
  }));

test("policy explain works while a gateway holds the data directory", () =>
  onMachine(async ({ run, dataDir }) => {
    await run(["tools", "list"]);
    const lock = takeGatewayLock(dataDir);
    try {
      assert.equal((await run(["policy", "explain", "task_plan", "--input", '{"op":"list"}'])).code, 0);
    } finally {
      lock?.release();
    }
  }));

test("paths are those of the running gateway's folder, unless --workspace names another", () =>
  onMachine(async ({ run, cwd, home, withGateway }) => {
    const env = { POSTERN__AUTONOMY__FORBIDDEN_PATHS: JSON.stringify([join(home, "work/secrets")]) };
    const decide = async (...flags: readonly string[]) =>
      (await run(["policy", "explain", "read_file", "--input", "secrets/x", ...flags], { env })).stdout.split(
        "\n",
        1,
      )[0];
    const rule = '[[autonomy.rules]]\nname = "notes"\ntool = "*"\npath = "notes/**"\nthen = "deny"\n';
    writeFileSync(join(home, "postern.toml"), rule);
    await withGateway(["--workspace", home], async () => {
      assert.equal(await decide(), "allow");
      assert.equal(await decide("--workspace", cwd), "deny");
      const { stdout } = await run(["policy", "explain", "read_file", "--input", "notes/x"]);
      assert.match(stdout, /^deny\n.*the rule "workspace\/notes" denies it/, "its workspace narrows the gateway");
      assert.match((await run(["policy", "list"])).stdout, /^rule:workspace\/notes +deny/m);
    });
    assert.equal(await decide(), "deny");
  }));

test("a command is told to be contained or not, and what runs any program is warned of", () =>
  onMachine(async ({ run }) => {
    const explain = async (env: Readonly<Record<string, string>>) =>
      (await run(["policy", "explain", "shell", "--input", "ls"], { env })).stdout;
    assert.match(await explain({}), /\nSandbox: Commands are (contained by bubblewrap|not contained: [^\n]+)\n$/);
    assert.match(
      await explain({
        POSTERN__SECURITY__SHELL__SANDBOX: "off",
        POSTERN__SECURITY__ALLOWED_COMMANDS: '["ls", "bash", "python3"]',
      }),
      new RegExp(
        '\nSandbox: Commands are not contained: \\[security.shell\\] sandbox is "off"\n\n' +
          "Allowed commands that can run any program: bash, python3; remove them from allowed_commands\n$",
      ),
    );
  }));

test("where a remembered answer may go before asking, policy explain says so", () =>
  onMachine(async ({ run }) => {
    const messages = async (env: Readonly<Record<string, string>>) =>
      (await run(["policy", "explain", "shell", "--input", "ls"], { env })).stderr;
    assert.match(
      await messages({}),
      /^A remembered answer counts before anybody is asked: see postern approval rules\n$/,
    );
    assert.equal(await messages({ POSTERN__AUTONOMY__ALWAYS_ASK: '["shell"]' }), "");
  }));

test("policy explain says when the agent is not offered the tool", () =>
  onMachine(async ({ run }) => {
    const env = { POSTERN__AGENT__TOOLS: '["memory_*"]' };
    const offered = await run(["policy", "explain", "memory_store", "--input", STORE], { env });
    assert.equal(offered.stderr, "");
    const hidden = await run(["policy", "explain", "read_file", "--input", "a"], { env });
    assert.deepEqual([hidden.code, hidden.stdout.split("\n", 1)[0]], [0, "allow"]);
    assert.match(hidden.stderr, /The agent does not get the tool "read_file": \[agent\] tools does not name it/);
  }));

test("what the door refuses is denied in the door's own words, before any effect", () =>
  onMachine(async ({ run, cwd }) => {
    writeFileSync(join(cwd, ".env"), "KEY=1\n");
    const env = { POSTERN__AUTONOMY__LEVEL: "full", POSTERN__SECURITY__WRITE_FILE__ENABLED: "true" };
    const calls = [
      ["read_file", '{"path":".env"}', "files of this name hold credentials"],
      ["read_file", '{"path":"../x"}', '".." is not allowed'],
      ["glob_search", '{"pattern":"*","path":"../"}', '".." is not allowed'],
      ["shell", "cat .env", "files of this name hold credentials"],
      ["shell", "cat ../x", "outside the workspace"],
      ["write_file", '{"path":"AGENTS.md","content":"x"}', "files that instruct agents"],
      ["write_file", '{"path":"../x","content":"x"}', '".." is not allowed'],
    ] as const;
    for (const level of ["full", "supervised"]) {
      for (const [tool, input, why] of calls) {
        const options = { env: { ...env, POSTERN__AUTONOMY__LEVEL: level } };
        const explained = JSON.parse(
          (await run(["policy", "explain", tool, "--input", input, "--json"], options)).stdout,
        );
        assert.equal(explained.decision, "deny", `${level}: ${tool} ${input}`);
        assert.ok(explained.reason.includes(why), explained.reason);
        const called = await run(["tools", "call", tool, "--input", input, "--yes"], options);
        assert.deepEqual([called.code, called.stderr], [1, `${explained.reason}\n`], `${level}: ${tool} ${input}`);
      }
    }
    assert.equal(existsSync(join(cwd, "AGENTS.md")), false);
  }));

test("what needs the network or another program is unknown, and says what is asked", () =>
  onMachine(async ({ run }) => {
    const env = {
      POSTERN__AUTONOMY__LEVEL: "full",
      POSTERN__WEB_FETCH__ENABLED: "true",
      POSTERN__SECURITY__ENABLE_GIT: "true",
    };
    const first = async (tool: string, input: string) =>
      (await run(["policy", "explain", tool, "--input", input], { env })).stdout.split("\n", 2);
    assert.deepEqual(await first("web_fetch", "http://example.test/a"), [
      "unknown: where the address leads, which is looked up when the call is made",
      'Can call "web_fetch" without asking: it reaches the network, which level "full" allows; add "web_fetch" to [autonomy] always_ask to be asked first',
    ]);
    assert.equal(
      (await first("git_operations", '{"op":"status"}'))[0],
      "unknown: what git finds in the repository, which is looked at when the call is made",
    );
  }));
