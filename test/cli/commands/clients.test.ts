import assert from "node:assert/strict";
import { lstatSync, mkdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { parse } from "yaml";
import { CLIENTS } from "../../../cli/clients/client_table.ts";
import { enterBlock } from "../../../cli/clients/enter_block.ts";
import { parseToml } from "../../../lib/config/toml.ts";
import { onMachine } from "../support/run_in.ts";

const READERS = {
  json: JSON.parse,
  yaml: parse,
  toml: (text: string) => parseToml(text, "config.toml"),
  env: () => ({}),
};
/** Entries of others that a write must keep */
const OTHERS = {
  json: '{\n    "mcpServers": {"other": {"url": "http://x"}, "postern": {"command": "old"}},\n    "theme": "dark"\n}\n',
  yaml: "# my settings\nname: Mine\nmodels:\n  - name: Other # keep\n    model: a\n  - name: Postern\n    model: old\n",
  toml:
    '# my settings\nmodel = "gpt-5"\n\n[mcp_servers.other]\ncommand = "x"\n\n[mcp_servers.postern]\ncommand = "old"\n',
  env: "",
};

const tokensOf = (text: string) => [...text.matchAll(/pst_[\w-]{43}/g)].map(([token]) => token);

for (const [name, client] of Object.entries(CLIENTS)) {
  test(`${client.title} is given a block with a token that works, and what it cannot do is said`, () =>
    onMachine(async ({ run, withGateway }) => {
      await withGateway([], async ({ address }) => {
        const { code, stdout, stderr } = await run(["clients", name]);
        assert.equal(code, 0, stderr);
        const [token = "", ...others] = new Set(tokensOf(stdout));
        assert.deepEqual(others, []);
        for (const note of client.notes) assert.ok(stderr.includes(note), note);
        READERS[client.format](stdout);
        const headers = { authorization: `Bearer ${token}` };
        const status = async (path: string) => (await fetch(`${address}${path}`, { headers })).status;
        assert.equal(await status("v1/models"), client.scopes.includes("chat") ? 200 : 403);
        assert.equal(await status("v1/tools"), client.scopes.includes("tools") ? 200 : 403);
        assert.equal(await status("v1/tokens"), 403);
        if (client.scopes.includes("tools")) assert.ok(stdout.includes(`${address}mcp`) && /over MCP/.test(stderr));
        // Anthropic's clients add the version themselves, and Claude Code takes the address from its environment
        const isVersioned = client.scopes.includes("chat") && !["claude", "anthropic"].includes(name);
        assert.equal(stdout.includes(`${address}v1`), isVersioned);
        const [listed] = JSON.parse((await run(["token", "list", "--json"])).stdout);
        assert.deepEqual([listed.label, listed.plain], [client.title, client.plain]);
        assert.ok(stderr.includes(`postern token remove ${listed.id}`));
      });
    }));
}

test("a file is written after its change was shown without the token, and keeps what others wrote", () =>
  onMachine(async ({ run, withGateway, home }) => {
    await withGateway([], async () => {
      for (
        const [name, { file = "", format }] of Object.entries(CLIENTS).filter(([, { file }]) => file !== undefined)
      ) {
        const path = join(home, file);
        mkdirSync(dirname(path), { recursive: true });
        writeFileSync(path, OTHERS[format], { mode: 0o640 });
        const { code, stdout, stderr } = await run(["clients", name, "--write"], { answers: ["y"] });
        assert.deepEqual([code, stdout], [0, `Wrote ${path}\n`], stderr);
        assert.ok(/^\+.*pst_\.\.\./m.test(stderr) && tokensOf(stderr).length === 0, stderr);
        const text = readFileSync(path, "utf8");
        assert.ok(tokensOf(text).length > 0, text);
        const kept = {
          json: /^ {4}"theme": "dark"/m,
          yaml: /# my settings\nname: Mine\n[\s\S]*Other # keep/,
          toml: /^# my settings\nmodel = "gpt-5"/,
        };
        assert.match(text, kept[format as keyof typeof kept]);
        const isOld = /"command": "old"|command = "old"|model: old/.test(text);
        assert.equal(isOld, ["opencode", "zed"].includes(name), "an older entry of ours is replaced whole");
        assert.equal(statSync(path).mode & 0o777, 0o600, "it holds a token");
      }
      const kept = join(home, "dotfiles.json");
      writeFileSync(kept, "{}", { mode: 0o644 });
      const link = join(home, ".cursor/mcp.json");
      rmSync(link);
      symlinkSync(kept, link);
      await run(["clients", "cursor", "--write", "--yes"]);
      assert.deepEqual([lstatSync(link).isSymbolicLink(), statSync(kept).mode & 0o777], [true, 0o600]);
      assert.equal(tokensOf(readFileSync(kept, "utf8")).length, 1);
      const fresh = join(home, ".codex/config.toml");
      writeFileSync(fresh, "");
      await run(["clients", "codex", "--write", "--yes"]);
      assert.deepEqual(Object.keys(parseToml(readFileSync(fresh, "utf8"), "x")), ["model_providers", "mcp_servers"]);
    });
  }));

test("a client that is written twice keeps its one token, which no difference shows", () =>
  onMachine(async ({ run, withGateway, home }) => {
    await withGateway([], async () => {
      const path = join(home, ".cursor/mcp.json");
      const write = () => run(["clients", "cursor", "--write", "--yes"]);
      const labels = async () =>
        JSON.parse((await run(["token", "list", "--json"])).stdout).map(({ label }: { label: string }) => label);
      assert.match((await write()).stderr, /It ends with postern token remove tok_/);
      const text = readFileSync(path, "utf8");
      const { code, stdout, stderr } = await write();
      assert.deepEqual([code, stdout, readFileSync(path, "utf8")], [0, `Nothing to change in ${path}\n`, text], stderr);
      assert.match(stderr, /The token that the file has works: .*; postern token list shows it/);
      assert.deepEqual([await labels(), tokensOf(stderr)], [["Cursor"], []]);
      writeFileSync(path, text.replace(/"url": "[^"]+"/, '"url": "http://127.0.0.1:1/mcp"'));
      const moved = await write();
      assert.deepEqual([moved.stdout, readFileSync(path, "utf8")], [`Wrote ${path}\n`, text], moved.stderr);
      assert.deepEqual([await labels(), tokensOf(moved.stderr)], [["Cursor"], []]);
      const [{ id }] = JSON.parse((await run(["token", "list", "--json"])).stdout);
      await run(["token", "remove", id]);
      assert.match((await write()).stderr, /It ends with postern token remove tok_/, "the old one works no more");
      assert.notEqual(readFileSync(path, "utf8"), text);
      assert.deepEqual(await labels(), ["Cursor"]);
    });
  }));

test("nothing is written, and no token is left, where the person says no or the file cannot be changed without a loss", () =>
  onMachine(async ({ run, withGateway, home }) => {
    assert.match((await run(["clients", "codex"])).stderr, /no gateway is running/);
    await withGateway([], async () => {
      const path = join(home, ".cursor/mcp.json");
      mkdirSync(dirname(path));
      for (
        const [text, answer, told] of [["{}", "n", /Nothing was written/], ["{ // mine\n}", "y", /it has comments/], [
          "[]",
          "y",
          /no JSON object/,
        ]] as const
      ) {
        writeFileSync(path, text);
        const { code, stderr } = await run(["clients", "cursor", "--write"], { answers: [answer] });
        assert.equal(code, 1);
        assert.match(stderr, told);
        assert.equal(readFileSync(path, "utf8"), text);
      }
      writeFileSync(path, "{}");
      assert.match((await run(["clients", "cursor", "--write"])).stderr, /--yes writes it/);
      const changed = await run(["clients", "cursor", "--write"], {
        onAsk: () => Promise.resolve(writeFileSync(path, '{"a":1}')).then(() => "y"),
      });
      assert.match(changed.stderr, /mcp.json was changed meanwhile/);
      assert.match((await run(["token", "list"])).stdout, /No token is stored/);
      assert.match((await run(["clients", "open-webui", "--write"])).stderr, /it reads its environment/);
      assert.match((await run(["clients", "emacs"])).stderr, /the clients are codex, claude/);
    });
  }));

test("a block is entered into an empty file of each form, and a second time without a change", async () => {
  for (const [name, { format, block }] of Object.entries(CLIENTS)) {
    const facts = block({
      address: "http://127.0.0.1:1/",
      token: "pst_x",
      models: [{ id: "m" }, { id: "n", context_length: 9 }],
    });
    const once = await enterBlock(format, "", facts);
    assert.equal(await enterBlock(format, once, facts), once, name);
    if (format !== "env") assert.deepEqual(JSON.parse(JSON.stringify(READERS[format](once))), facts, name);
  }
});

test("a file whose other entries would be lost is not changed", async () => {
  const block = { mcpServers: { postern: { url: "http://x" } } };
  await assert.rejects(enterBlock("json", '{"id": 12345678901234567890}', block), /12345678901234567890/);
  const kept = '{"id": 9007199254740991, "text": "12345678901234567890", "cost": 0.1234567890123456}';
  assert.match(await enterBlock("json", kept, block), /"cost": 0\.1234567890123456,/);
  const models = { models: [{ name: "Postern", model: "m" }] };
  const shared = "other: &all\n  - name: Mine\nmodels: *all\n";
  await assert.rejects(enterBlock("yaml", shared, models), /"models" is no list of its own/);
  await assert.rejects(enterBlock("yaml", "models:\n  mine: a\n", models), /"models" is no list of its own/);
  assert.match(await enterBlock("yaml", "models:\n", models), /name: Postern/);
  const long = `prompt: ${"a long line ".repeat(20)}of words\n`;
  assert.ok((await enterBlock("yaml", long, models)).startsWith(long), "a line of somebody else stays as it is");
});
