import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { startFakeServer } from "../../fixtures/upstream/fake_server.ts";
import { takeGatewayLock } from "../../lib/storage/gateway_lock.ts";
import { type Machine, onMachine } from "./support/run_in.ts";

/** Each command must do the same through a running gateway and by itself. */
const WAYS: readonly (readonly [name: string, (machine: Machine, use: () => Promise<void>) => Promise<unknown>])[] = [
  ["through the running gateway", (machine, use) => machine.withGateway([], use)],
  ["without a gateway", (_machine, use) => use()],
];

for (const [way, within] of WAYS) {
  test(`tools are listed, described and called ${way}`, () =>
    onMachine(async (machine) => {
      const { run, cwd } = machine;
      writeFileSync(join(cwd, "notes.md"), "hello\u001b[2J\n");
      writeFileSync(join(cwd, "input.json"), '{"path":"notes.md"}');
      await within(machine, async () => {
        assert.match((await run(["tools", "list"])).stdout, /^read_file +read +builtin +on/m);
        assert.match((await run(["tools", "info", "read_file"])).stdout, /path +string +required/);
        assert.match(
          (await run(["tools", "info", "cli_discovery"])).stdout,
          /op +string +required .*: one of \w+, \w+/,
        );
        assert.equal(JSON.parse((await run(["tools", "schema", "read_file"])).stdout).type, "object");
        for (
          const [input, stdin] of [['{"path":"notes.md"}', undefined], ["@input.json", undefined], [
            "-",
            '{"path":"notes.md"}',
          ]] as const
        ) {
          const { code, stdout, stderr } = await run(
            ["tools", "call", "read_file", "--input", input],
            stdin === undefined ? {} : { stdin },
          );
          assert.deepEqual([code, stdout, stderr], [0, "hello\u001b[2J\n", ""], "data is not changed");
        }
        const shown = await run(["tools", "call", "read_file", "--input", '{"path":"notes.md"}'], { terminal: true });
        assert.ok(shown.stdout.startsWith("hello\\x1b[2J\n"), "a terminal is not given control characters");
        const json = JSON.parse(
          (await run(["tools", "call", "read_file", "--input", '{"path":"notes.md"}', "--json"])).stdout,
        );
        assert.equal(json.is_error, false);
      });
    }));

  test(`a failed tool ends with exit 1 and its reason on stderr, a wrong name with exit 2, ${way}`, () =>
    onMachine(async (machine) => {
      const { run } = machine;
      await within(machine, async () => {
        const failed = await run(["tools", "call", "read_file", "--input", '{"path":"../secret"}']);
        assert.deepEqual([failed.code, failed.stdout], [1, ""]);
        assert.match(failed.stderr, /\.\./);
        assert.equal((await run(["tools", "call", "read_file", "--input", "{}"])).code, 1);
        const unknown = await run(["tools", "call", "read_fil"]);
        assert.equal(unknown.code, 2);
        assert.match(unknown.stderr, /did you mean "read_file"/);
        assert.equal((await run(["tools", "call", "read_file", "--input", "@nowhere"])).code, 1);
        assert.equal((await run(["tools", "call", "read_file", "--input", "-"])).code, 2);
      });
    }));

  test(`tokens are made, listed and revoked ${way}`, () =>
    onMachine(async (machine) => {
      const { run } = machine;
      await within(machine, async () => {
        const terms = ["--ttl", "2h", "--idle-ttl", "45m", "--label", "ci"];
        const made = await run(["token", "create", "--scope", "chat,tools", ...terms]);
        assert.match(made.stdout, /^pst_[\w-]{43}\n$/);
        const [token] = JSON.parse((await run(["token", "list", "--json"])).stdout);
        assert.deepEqual([token.label, token.scopes], ["ci", ["chat", "tools"]]);
        assert.equal(Date.parse(token.expires_at) - Date.parse(token.created_at), 7_200_000);
        assert.equal(token.idle_ttl_seconds, 2700);
        assert.match((await run(["token", "list"])).stdout, / after 45m /);
        assert.equal(token.plain, false);
        assert.equal((await run(["token", "create", "--plain"])).code, 0);
        const [plain] = JSON.parse((await run(["token", "list", "--json"])).stdout);
        assert.equal(plain.plain, true);
        assert.match((await run(["token", "list"])).stdout, /COMPLETIONS[\s\S]*plain/);
        await run(["token", "revoke", plain.id]);
        assert.equal((await run(["token", "create", "--scope", "tools", "--tools", "read_*, echo"])).code, 0);
        const [bounded] = JSON.parse((await run(["token", "list", "--json"])).stdout);
        assert.deepEqual(bounded.tools, ["read_*", "echo"]);
        assert.match((await run(["token", "list"])).stdout, /tools \(read_\*,echo\)/);
        await run(["token", "revoke", bounded.id]);
        assert.match(
          (await run(["token", "create", "--tools", "echo"])).stderr,
          /"tools": it bounds the scope tools alone/,
        );
        for (
          const [argv, list] of [
            [["token", "revoke", "tok_unknown"], "token list"],
            [["runs", "show", "run_unknown"], "run list"],
            [["runs", "events", "run_unknown"], "run list"],
            [["runs", "cancel", "run_unknown"], "run list"],
            [["runs", "resolve", "run_unknown", "close"], "run list"],
            [["cron", "history", "unknown"], "schedule list"],
          ] as const
        ) {
          const { code, stderr } = await run(argv);
          assert.equal(code, 1, stderr);
          assert.ok(stderr.includes(`: "postern ${list}"`), `${argv.join(" ")}: ${stderr}`);
        }
        assert.equal((await run(["token", "revoke", token.id])).code, 0);
        assert.match((await run(["token", "list"])).stdout, /No token is stored/);
        await run(["token", "create"]);
        assert.equal((await run(["token", "revoke", "--all"])).stdout, "Revoked 1 tokens\n");
      });
    }));

  test(`models are listed ${way}`, () =>
    onMachine(async (machine) => {
      await within(machine, async () => {
        assert.match((await machine.run(["models"])).stdout, /assistant/);
      });
    }));

  test(`one message gets one reply, with tool use told aside, ${way}`, () =>
    onMachine(async (machine) => {
      const { run, cwd } = machine;
      writeFileSync(join(cwd, "notes.md"), "the gate is green\n");
      await within(machine, async () => {
        const { code, stdout, stderr } = await run(["chat", "/read_file", '{"path":"notes.md"}']);
        assert.equal(code, 0);
        assert.match(stdout, /the gate is green/);
        assert.match(stderr, /\[tool\] read_file \{"path":"notes\.md"\}\n\[tool\] read_file done in/);
        assert.doesNotMatch(stdout, /\[tool\]/);
        assert.match((await run(["chat"], { stdin: "hello" })).stdout, /offline/);
        const events = (await run(["chat", "--json", "hello"])).stdout.trimEnd().split("\n").map((line) =>
          JSON.parse(line).type
        );
        assert.deepEqual([events[0], events.at(-1)], ["run_start", "done"]);
        assert.equal((await run(["chat"], { stdin: " \n" })).code, 1);
      });
    }));

  test(`a conversation goes on line by line until the end of input ${way}`, () =>
    onMachine(async (machine) => {
      await within(machine, async () => {
        const { code, stdout } = await machine.run(["chat"], { answers: ["hello", "", "hello"] });
        assert.equal(code, 0);
        assert.equal(stdout.match(/offline assistant/gi)?.length, 2);
      });
    }));
}

test("a model server cannot speak to the terminal through the name of its model", () =>
  onMachine(async ({ run, withGateway }) => {
    const server = await startFakeServer((_seen, response) => {
      response.writeHead(200, { "content-type": "application/json" });
      const id = "m\u001b]0;owned\u0007\nIn use: x\u202e";
      response.end(JSON.stringify({ object: "list", data: [{ id, object: "model" }] }));
    });
    const env = { POSTERN__PROVIDER__KIND: "openai_compatible", POSTERN__PROVIDER__BASE_URL: `${server.origin}/v1` };
    try {
      const listed = await run(["models"], { env });
      assert.match(listed.stdout, /^In use: openai_compatible\/m\\x1b\]0;owned\\x07\\nIn use: x\\u202e,/m);
      const chosen = await run(["chat"], { env, answers: ["/model", "/exit"] });
      assert.match(chosen.stderr, /^m\\x1b\]0;owned\\x07\\nIn use: x\\u202e$/m);
      const gateway = await withGateway([], () => Promise.resolve(), { env });
      assert.match(gateway.stdout, /Provider +openai_compatible\/m\\x1b\]0;owned\\x07\\nIn use: x\\u202e,/);
      // deno-lint-ignore no-control-regex -- these are the characters that must not come through
      assert.doesNotMatch(`${listed.stdout}${chosen.stderr}${gateway.stdout}`, /[\x07\x1b\u202e]|^In use: x/m);
    } finally {
      await server.close();
    }
  }));

test("pair prints another code while a gateway runs, and says how to start one when none does", () =>
  onMachine(async ({ run, withGateway }) => {
    const alone = await run(["pair"]);
    assert.equal(alone.code, 1);
    assert.match(alone.stderr, /postern gateway/);
    await withGateway([], async ({ address }) => {
      const code = /^Pairing code: (\S+)\n$/.exec((await run(["pair"])).stdout)?.[1] ?? "";
      assert.equal(
        (await fetch(`${address}pair`, { method: "POST", headers: { "x-pairing-code": code } })).status,
        200,
      );
    });
  }));

test("a running gateway keeps its folder: another --workspace is refused", () =>
  onMachine(async ({ run, withGateway, home }) => {
    await withGateway([], async () => {
      const { code, stderr } = await run(["tools", "list", "--workspace", home]);
      assert.equal(code, 1);
      assert.match(stderr, /works in/);
      assert.equal((await run(["tools", "list", "--workspace", "."])).code, 0);
    });
  }));

test("a data directory held by a gateway that does not answer is not opened", () =>
  onMachine(async ({ run, dataDir }) => {
    await run(["tools", "list"]);
    const lock = takeGatewayLock(dataDir);
    const { code, stderr } = await run(["tools", "list"]);
    lock?.release();
    assert.equal(code, 1);
    assert.match(stderr, /does not answer/);
  }));

test("without a configuration file, the one the next start would read is closed to tools", () =>
  onMachine(async ({ run, home }) => {
    const input = ".config/postern/postern.toml";
    const { code, stderr } = await run(["tools", "call", "read_file", "--input", input, "--workspace", home]);
    assert.equal(code, 1);
    assert.match(stderr, /forbidden path ".*\/\.config\/postern"/);
  }));
