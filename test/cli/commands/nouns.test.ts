import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { startFakeServer } from "../../../fixtures/upstream/fake_server.ts";
import { type Machine, onMachine } from "../support/run_in.ts";

const WAYS: readonly (readonly [name: string, (machine: Machine, use: () => Promise<void>) => Promise<unknown>])[] = [
  ["through the running gateway", (machine, use) => machine.withGateway([], use)],
  ["without a gateway", (_machine, use) => use()],
];

/** Writes a procedure of one step with one input. */
function writeProcedure(dataDir: string): void {
  mkdirSync(join(dataDir, "sops"), { recursive: true, mode: 0o700 });
  const steps = '[[steps]]\nid = "look"\ntool = "glob_search"\ninput = { pattern = "{{inputs.pattern}}" }\n';
  writeFileSync(join(dataDir, "sops/look.toml"), `[inputs.pattern]\ndescription = "Files"\n\n${steps}`);
}

for (const [name, way] of WAYS) {
  test(`memories are added, listed, found, shown and forgotten, ${name}`, () =>
    onMachine(async (machine) => {
      const { run } = machine;
      await way(machine, async () => {
        assert.equal((await run(["memory", "list"])).stdout, "Nothing is remembered\n");
        assert.equal(
          (await run(["memory", "add", "coffee", "black,", "no sugar", "--tags", "drink, morning"])).code,
          0,
        );
        assert.equal(
          (await run(["memory", "add", "tea", "--namespace", "guests"], { stdin: "green\u001b[2J" })).code,
          0,
        );
        assert.match(
          (await run(["memories", "list"])).stdout,
          /^tea +guests .*\n?^coffee +default +drink,morning .* black, no sugar$/m,
        );
        assert.match((await run(["memory", "search", "sugar"])).stdout, /^coffee /m);
        assert.doesNotMatch((await run(["memory", "search", "sugar"])).stdout, /tea/);
        assert.equal((await run(["memory", "show", "coffee"])).stdout, "black, no sugar\n");
        const shown = await run(["memory", "show", "tea", "--namespace", "guests"], { terminal: true });
        assert.equal(shown.stdout, "green\\x1b[2J\n");
        assert.equal((await run(["memory", "remove", "coffee"])).stdout, "Forgot coffee\n");
        for (const verb of ["show", "remove"]) {
          const { code, stdout } = await run(["memory", verb, "coffee"]);
          assert.deepEqual([code, stdout], [1, ""], verb);
        }
        assert.equal((await run(["memory", "add", "empty"])).code, 2);
      });
    }));

  test(`conversations are listed, shown, exported and deleted, ${name}`, () =>
    onMachine(async (machine) => {
      const { run } = machine;
      await way(machine, async () => {
        assert.equal((await run(["conversation", "list"])).stdout, "There is no conversation yet\n");
        await run(["chat", "--conversation", "beans", "hello"]);
        await run(["chat", "--conversation", "beans", "beans\u001b[2J"]);
        assert.match((await run(["conversations", "list"])).stdout, /^beans +\S+ +\d+ +hello$/m);
        const { stdout: exported } = await run(["conversation", "export", "beans"]);
        assert.match(exported, /^# hello\n\n\*\*user\*\*\n\nhello\n\n\*\*assistant\*\*\n\n/);
        assert.ok(exported.includes("beans\u001b[2J"), "a file gets the text as it is");
        assert.match((await run(["conversation", "show", "beans"], { terminal: true })).stdout, /beans\\x1b\[2J/);
        const { messages } = JSON.parse((await run(["conversation", "export", "beans", "--json"])).stdout);
        assert.deepEqual([messages.at(0).content, messages.at(-1).role], ["hello", "assistant"]);
        assert.equal((await run(["conversation", "delete", "beans"])).stdout, "Deleted beans\n");
        const { code, stderr } = await run(["conversation", "show", "beans"]);
        assert.deepEqual([code, /postern conversation list/.test(stderr)], [1, true]);
      });
    }));

  test(`procedures are listed and shown, ${name}`, () =>
    onMachine(async (machine) => {
      const { run, dataDir } = machine;
      writeProcedure(dataDir);
      await way(machine, async () => {
        assert.match(
          (await run(["procedure", "list"])).stdout,
          /^look: look\n {2}input pattern .*\n {2}1\. look \(glob_search\)$/m,
        );
        assert.match((await run(["procedures", "show", "look"])).stdout, /^look: look\n/);
        assert.equal(JSON.parse((await run(["procedure", "show", "look", "--json"])).stdout).id, "look");
        assert.match((await run(["procedure", "show", "other"])).stderr, /see postern procedure list/);
        assert.equal((await run(["procedure", "start", "look", "pattern"])).code, 2);
      });
    }));
}

test("a procedure is started in the running gateway alone, and its execution is shown", () =>
  onMachine(async ({ run, dataDir, withGateway }) => {
    writeProcedure(dataDir);
    assert.match((await run(["procedure", "start", "look", "pattern=*.md"])).stderr, /no gateway is running/);
    await withGateway([], async () => {
      const started = await run(["procedure", "start", "look", "pattern=*.md", "--json"]);
      assert.equal(started.code, 0, started.stderr);
      const { id, inputs } = JSON.parse(started.stdout);
      assert.deepEqual(inputs, { pattern: "*.md" });
      assert.ok((await run(["procedure", "show", id])).stdout.includes(id));
      assert.match((await run(["procedure", "start", "look"])).stderr, /pattern/);
    });
  }));

test("a token is shown without its secret", () =>
  onMachine(async ({ run }) => {
    const { stdout: token } = await run(["token", "add", "--label", "ci\u001b[2J"]);
    const [{ id }] = JSON.parse((await run(["token", "list", "--json"])).stdout);
    const { stdout } = await run(["token", "show", id]);
    assert.match(stdout, /^ {2}label +ci\\x1b\[2J$/m);
    assert.match(stdout, /^ {2}scopes +chat$/m);
    assert.ok(!stdout.includes(token.trim()));
  }));

test("a tool is turned on and off by its name, with those that share its switch", () =>
  onMachine(async ({ run, home }) => {
    const on = await run(["tool", "enable", "file_edit"]);
    assert.match(on.stdout, /^Enabled .*file_edit.*write_file|^Enabled .*write_file.*file_edit/);
    assert.match(
      readFileSync(join(home, ".config/postern/postern.toml"), "utf8"),
      /\[security\.write_file\]\nenabled = true/,
    );
    assert.match((await run(["tools", "list"])).stdout, /^file_edit +write +builtin +on/m);
    await run(["tool", "disable", "write_file"]);
    assert.match((await run(["tools", "list"])).stdout, /^file_edit +write +builtin +off/m);
    assert.match(
      (await run(["tool", "disable", "read_file"])).stderr,
      /always on; take it out of the tools of \[agent\]/,
    );
    assert.match(
      (await run(["tool", "enable", "delegate"])).stderr,
      /no single switch does that; set \[agents\.helper\]/,
    );
    assert.equal((await run(["tool", "enable", "nothing"])).code, 2);
  }));

test("status says what runs and what waits, and exits with 0 while nothing runs", () =>
  onMachine(async ({ run, withGateway }) => {
    const alone = await run(["status"]);
    assert.deepEqual([alone.code, alone.stderr], [0, ""]);
    assert.match(alone.stdout, /^No gateway is running; start one with postern gateway\n/);
    assert.equal(JSON.parse((await run(["status", "--json"])).stdout).running, false);
    await withGateway([], async ({ address }) => {
      const { stdout } = await run(["status"]);
      assert.ok(stdout.includes(`Address    ${address}\n`), stdout);
      assert.match(stdout, /^ {2}Model +offline\/assistant, since /m);
      assert.doesNotMatch(stdout, /Questions/);
      await run(["tools", "call", "memory_store", "--input", '{"key":"a","value":"b"}']);
    }, { env: { POSTERN__AUTONOMY__LEVEL: "supervised" } });
    await withGateway([], async () => {
      await run(["tools", "call", "memory_store", "--input", '{"key":"a","value":"b"}']);
      assert.match((await run(["status"])).stdout, /^ {2}Questions +1; see postern approval list --status pending$/m);
    }, { env: { POSTERN__AUTONOMY__ALWAYS_ASK: '["memory_store"]' } });
  }));

test("open gives the browser a code that signs in once, by a file of this user", () =>
  onMachine(async ({ run, withGateway, dataDir }) => {
    assert.match((await run(["open"])).stderr, /no gateway is running/);
    await withGateway([], async ({ address }) => {
      const { code, stdout, stderr } = await run(["open"]);
      assert.deepEqual([code, /No browser can be opened here/.test(stderr)], [0, true]);
      const [, ticket = ""] = /#open=([\w-]+)\n$/.exec(stdout) ?? [];
      assert.equal(stdout, `${address}#open=${ticket}\n`);
      assert.ok(readFileSync(join(dataDir, "open.html"), "utf8").includes(`0;url=${address}#open=${ticket}"`));
      const headers = { "x-pairing-code": ticket };
      assert.equal((await fetch(`${address}pair`, { method: "POST", headers })).status, 200);
      assert.notEqual((await fetch(`${address}pair`, { method: "POST", headers })).status, 200);
    });
  }));

test("logs shows the log of the running gateway, and follows it until Ctrl-C", () =>
  onMachine(async ({ run, withGateway }) => {
    assert.match((await run(["logs"])).stderr, /no gateway is running/);
    const server = await startFakeServer((_seen, response) => void response.writeHead(400).end("{}"));
    const env = {
      POSTERN__PROVIDER__KIND: "openai_compatible",
      POSTERN__PROVIDER__BASE_URL: `${server.origin}/v1`,
      POSTERN__PROVIDER__MODEL: "m",
    };
    try {
      await withGateway([], async () => {
        const [failed = "", other] = [await run(["run", "start", "a"]), await run(["run", "start", "b"])].map((
          started,
        ) => started.stdout.trim());
        for (const id of [failed, other ?? ""]) await run(["run", "events", id, "--follow"]);
        assert.match((await run(["logs"])).stdout, /^\d{4}-\S+ info {2}\S/m);
        const { stdout: lines } = await run(["logs", "--run", failed, "--json"]);
        assert.deepEqual(lines.trimEnd().split("\n").map((line) => JSON.parse(line).run_id), [failed]);
        const { stdout: urgent } = await run(["logs", "--level", "warn"]);
        assert.ok(urgent.includes(failed) && !/ info /.test(urgent), urgent);
        let isAsked = false;
        const followed = await run(["logs", "-f"], {
          onOutput({ stdout, interrupt }) {
            if (!isAsked && stdout !== "") isAsked = true, void run(["tools", "list"]);
            if (/route=\/v1\/tools /.test(stdout)) interrupt();
          },
        });
        assert.equal(followed.code, 0);
      }, { env });
    } finally {
      await server.close();
    }
  }));
