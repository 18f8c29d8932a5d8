import assert from "node:assert/strict";
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { parseToml } from "../../../../lib/config/toml.ts";
import { type Machine, onMachine } from "../../support/run_in.ts";

const SERVERS = {
  mcpServers: {
    files: { command: "/usr/bin/node", args: ["server.js"], env: { LEVEL: "2", API_KEY: "hunter2" } },
    notes: { command: "npx", args: ["-y", "@acme/notes"] },
    remote: { url: "https://mcp.acme.test/mcp", headers: { Authorization: "Bearer hunter3" } },
    old: { type: "sse", url: "https://old.test/sse" },
    off: { command: "x", disabled: true },
  },
};

function put({ home }: Machine, path: string, content: unknown): void {
  const file = join(home, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, JSON.stringify(content));
}

const textOf = ({ home }: Machine) => readFileSync(join(home, ".config/postern/postern.toml"), "utf8");
const place = process.platform === "darwin" ? "Library/Application Support" : ".config";

test("mcp import shows what it would enter, asks, and keeps secrets out of the configuration and the terminal", () =>
  onMachine(async (machine) => {
    put(machine, `${place}/Claude/claude_desktop_config.json`, SERVERS);
    const nobody = await machine.run(["mcp", "import", "claude"], { stdin: "" });
    assert.deepEqual([nobody.code, /--yes enters them/.test(nobody.stderr)], [1, true]);
    const no = await machine.run(["mcp", "import", "claude"], { answers: ["n"] });
    assert.deepEqual([no.code, existsSync(join(machine.home, ".config/postern/postern.toml"))], [1, false]);
    const done = await machine.run(["mcp", "import", "claude"], { answers: ["y"] });
    assert.equal(done.code, 0, done.stderr);
    assert.match(
      done.stderr,
      /\+ \[mcp\.servers\.files\] \/usr\/bin\/node server\.js \(with env\.LEVEL, env\.API_KEY\)/,
    );
    assert.match(done.stderr, /Warning: \[mcp\.servers\.notes\] "npx" fetches its program at each start/);
    assert.match(done.stderr, /- "old" is not taken: its transport is "sse"/);
    assert.match(done.stderr, /- "off" is not taken: it is turned off there/);
    assert.match(done.stdout, /They are off\. To let the agent use them:/);
    assert.doesNotMatch(done.stderr + done.stdout + textOf(machine), /hunter/);
    const config = parseToml(textOf(machine), "postern.toml");
    const files = join(machine.dataDir, "mcp/secrets");
    assert.deepEqual(JSON.parse(JSON.stringify(config)), {
      secrets: {
        files_api_key: { file: join(files, "files_api_key"), mcp: ["files"] },
        remote_authorization: { file: join(files, "remote_authorization"), hosts: ["mcp.acme.test"], mcp: ["remote"] },
      },
      mcp: {
        servers: {
          files: {
            command: "/usr/bin/node",
            args: ["server.js"],
            env: { LEVEL: "2", API_KEY: { secret: "files_api_key" } },
          },
          notes: { command: "npx", args: ["-y", "@acme/notes"] },
          remote: {
            url: "https://mcp.acme.test/mcp",
            headers: { Authorization: { secret: "remote_authorization", prefix: "Bearer " } },
          },
        },
      },
    });
    assert.equal(readFileSync(join(files, "files_api_key"), "utf8"), "hunter2\n");
    assert.equal(statSync(join(files, "files_api_key")).mode & 0o777, 0o600);
    assert.equal(readFileSync(join(files, "remote_authorization"), "utf8"), "hunter3\n");
    const check = await machine.run(["config", "check"]);
    assert.match(check.stderr, /postern\.toml:\d+: \[mcp\.servers\.notes\] "npx" fetches its program at each start/);
    const doctor = await machine.run(["doctor"]);
    assert.match(doctor.stdout, /postern mcp add npm:@acme\/notes --name notes --replace/);
    const started = await machine.withGateway([], () => Promise.resolve());
    assert.match(started.stderr, /\[mcp\.servers\.notes\] .*npx.* fetches its program at each start/);
    const again = await machine.run(["mcp", "import", "claude", "--yes"]);
    assert.deepEqual([again.code, again.stdout], [0, "Nothing was entered: none of these servers can be taken\n"]);
    put(machine, ".claude.json", { numStartups: 1, projects: { "/a": { mcpServers: {} } } });
    const empty = await machine.run(["mcp", "import", "--file", join(machine.home, ".claude.json")]);
    assert.match(
      empty.stdout,
      /^Nothing was entered: \/.*\.claude\.json has no server, under "mcpServers" or "servers"$/m,
    );
    assert.match(again.stderr, /- "files" is not taken: there is a \[mcp\.servers\.files\] already/);
    const audit = await machine.run(["audit", "show", "--type", "mcp_server", "--json"]);
    assert.deepEqual(
      JSON.parse(audit.stdout).records.map(({ action, server }: Record<string, string>) => [action, server]),
      [
        ["imported", "files"],
        ["imported", "notes"],
        ["imported", "remote"],
      ],
    );
    for (const name of ["files", "remote", "notes"]) assert.equal((await machine.run(["mcp", "remove", name])).code, 0);
    assert.deepEqual(readdirSync(files), []);
    assert.doesNotMatch(textOf(machine), /secrets|servers\./);
  }));

test("mcp import reads the files of VS Code and Cursor, and a file that is named", () =>
  onMachine(async (machine) => {
    put(machine, `${place}/Code/User/mcp.json`, { servers: { one: { command: "/bin/one" } } });
    put(machine, `${place}/Code/User/settings.json`, {
      "editor.x": 1,
      "mcp": { servers: { two: { command: "/bin/two" } } },
    });
    put(machine, ".cursor/mcp.json", { mcpServers: { three: { command: "/bin/three" } } });
    put(machine, "work/mine.json", { mcpServers: { four: { command: "/bin/four" } } });
    put(machine, "work/.cursor/mcp.json", { mcpServers: { planted: { command: "/bin/evil" } } });
    assert.equal((await machine.run(["mcp", "import", "vscode", "--yes"])).code, 0);
    assert.equal((await machine.run(["mcp", "import", "cursor", "--yes", "--enable"])).code, 0);
    assert.equal((await machine.run(["mcp", "import", "--file", "mine.json", "--yes"])).code, 0);
    const { mcp, security } = parseToml(textOf(machine), "postern.toml") as Record<string, Record<string, object>>;
    assert.deepEqual(Object.keys(mcp?.["servers"] ?? {}), ["one", "two", "three", "four"]);
    assert.deepEqual(JSON.parse(JSON.stringify(security)), { mcp: { enabled: true, allowed_servers: ["three"] } });
  }));

test("mcp import says what is missing or wrong", () =>
  onMachine(async (machine) => {
    const none = await machine.run(["mcp", "import", "claude"]);
    assert.deepEqual([
      none.code,
      /there is no ".*claude_desktop_config\.json"; name another with --file/.test(none.stderr),
    ], [1, true]);
    assert.equal((await machine.run(["mcp", "import", "emacs"])).code, 2);
    assert.equal((await machine.run(["mcp", "import"])).code, 2);
    writeFileSync(join(machine.cwd, "bad.json"), '{"mcpServers": {"hunter2"');
    const bad = await machine.run(["mcp", "import", "--file", "bad.json", "--yes"]);
    assert.equal(bad.code, 1);
    assert.match(bad.stderr, /it is not valid JSON/);
    assert.doesNotMatch(bad.stderr, /hunter2/);
  }));
