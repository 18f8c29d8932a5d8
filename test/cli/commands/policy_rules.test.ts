import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { type Machine, onMachine } from "../support/run_in.ts";

const OWN = ".config/postern/postern.toml";
const RULES = `[autonomy]
auto_approve = ["file_edit"]
always_ask = ["git_operations"]

[[autonomy.rules]]
name = "docs"
tool = "write_file"
path = "docs/**"
then = "allow"

[[autonomy.rules]]
name = "find"
tool = "shell"
command = "find *"
then = "allow"

[security.write_file]
enabled = true

[tools.node__pi__led]
access = "read"
`;

function put(folder: string, path: string, text: string): void {
  mkdirSync(dirname(join(folder, path)), { recursive: true });
  writeFileSync(join(folder, path), text);
}

/** Has a call asked about and answered. */
async function asked({ run }: Machine, path: string, answer: "approve" | "deny"): Promise<void> {
  const { stderr } = await run(["tools", "call", "write_file", "--input", JSON.stringify({ path, content: "x" })]);
  const [id = ""] = /apr_\w+/.exec(stderr) ?? [];
  assert.equal((await run(["approvals", answer, id])).code, 0, stderr);
}

test("policy list shows every rule with where it comes from, and warns of one that allows every program", () =>
  onMachine(async (machine) => {
    const { run, home, cwd } = machine;
    put(home, OWN, RULES);
    put(cwd, "postern.toml", '\n[[autonomy.rules]]\nname = "keep"\ntool = "*"\npath = "keep/**"\nthen = "deny"\n');
    await asked(machine, "a.md", "approve");
    const { id } = JSON.parse((await run(["approvals", "list", "--status", "any", "--json"])).stdout)[0];
    assert.match(id, /^apr_/);
    const env = { POSTERN__AUTONOMY__RULES: '[{ name = "env", tool = "shell", command = "ls *", then = "ask" }]' };
    const { code, stdout, stderr } = await run(["policy", "list", "--json"], { env });
    assert.equal(code, 0, stderr);
    const own = join(home, OWN);
    assert.deepEqual(
      (JSON.parse(stdout) as readonly Record<string, string>[]).map((
        { rule, says, about, from },
      ) => [rule, says, about, from]),
      [
        ["rule:docs", "allow", 'write_file path "docs/**"', `${own}:5`],
        ["rule:find", "allow", 'shell command "find *"', `${own}:11`],
        ["rule:env", "ask", 'shell command "ls *"', "environment autonomy.rules.env"],
        ["rule:workspace/keep", "deny", '* path "keep/**"', `${join(cwd, "postern.toml")}:2`],
        ["always_ask:git_operations", "ask", "git_operations", `${own} autonomy.always_ask`],
        ["auto_approve:file_edit", "allow", "file_edit", `${own} autonomy.auto_approve`],
        [
          "access:node__pi__led",
          "allow",
          "counts as read",
          `${own} tools.node__pi__led.access`,
        ],
        ["level:supervised/read", "allow", "where no rule speaks", "default autonomy.level"],
        ["level:supervised/state", "allow", "where no rule speaks", "default autonomy.level"],
        ["level:supervised/write", "ask", "where no rule speaks", "default autonomy.level"],
        ["level:supervised/network", "ask", "where no rule speaks", "default autonomy.level"],
      ],
    );
    assert.equal(
      stderr,
      'Warning: the rule "find" allows every program, since "find" starts others: name more words before the "*"\n',
    );
    const plain = (await run(["policy", "list"])).stdout;
    assert.match(plain, /^RULE +SAYS +ABOUT +FROM\nrule:docs +allow +write_file path "docs\/\*\*" /);
    assert.match(plain, /\n\nAny deny wins, else any ask, else an allow; where no rule speaks, the level decides\.\n$/);
  }));

test("policy list has remembered answers in their words", () =>
  onMachine(async (machine) => {
    const { run, home } = machine;
    put(home, OWN, RULES);
    const { stderr } = await run(["tools", "call", "write_file", "--input", '{"path":"a/b","content":"x"}']);
    const [id = ""] = /apr_\w+/.exec(stderr) ?? [];
    await run(["approvals", "approve", id, "--remember", "always", "--match", "folder"]);
    const list = JSON.parse((await run(["policy", "list", "--json"])).stdout) as readonly Record<string, string>[];
    const { rule, says, about, from } = list.find((each) => each["rule"]?.startsWith("remembered:")) ?? {};
    assert.match(String(rule), /^remembered:rule_[0-9a-f]{32}$/);
    assert.equal(says, "allow");
    assert.match(String(about), /^Allow "write_file" in ".*" on whatever it changes in the folder/);
    assert.match(String(from), /^an answer of \d{4}-/);
  }));

test("policy test compares a table of calls with what is expected, and fails where one differs", () =>
  onMachine(async ({ run, home, cwd }) => {
    put(home, OWN, RULES);
    const calls = (expect: string) => `
[[calls]]
tool = "write_file"
input = { path = "docs/a.md", content = "x" }
expect = "${expect}"
rule = "rule:docs"

[[calls]]
tool = "write_file"
input = { path = "docs/a.md", content = "x" }
outside = true
expect = "ask"
rule = "outside_content"

[[calls]]
tool = "read_file"
input = "/etc/passwd"
expect = "deny"

[[calls]]
tool = "read_file"
expect = "deny"
rule = "bad_input"
`;
    put(cwd, "calls.toml", calls("allow"));
    const good = await run(["policy", "test", "calls.toml"]);
    assert.equal(good.code, 0, good.stdout + good.stderr);
    assert.match(good.stdout, /\nok +write_file +\{"path":"docs\/a\.md","content":"x"\} +allow +allow +rule:docs\n/);
    assert.match(good.stdout, /\n4 of 4 calls are decided as expected\n$/);
    put(cwd, "calls.toml", calls("deny"));
    const bad = await run(["policy", "test", "calls.toml"]);
    assert.equal(bad.code, 1);
    assert.match(bad.stdout, /\nDIFFERS +write_file .* deny +allow +rule:docs\n/);
    assert.match(bad.stdout, /\nCan call "write_file" without asking: the rule "docs" allows it; .*\n\n3 of 4 calls/);
    const json = JSON.parse((await run(["policy", "test", "calls.toml", "--json"])).stdout);
    assert.deepEqual([json.ok, json.calls.map(({ ok }: { ok: boolean }) => ok)], [false, [false, true, true, true]]);
    put(cwd, "calls.toml", '[[calls]]\ntool = "read_file"\nexpect = "perhaps"\n');
    assert.match(
      (await run(["policy", "test", "calls.toml"])).stderr,
      /^Cannot use ".*calls\.toml": calls\.0\.expect: /,
    );
    assert.match((await run(["policy", "test", "none.toml"])).stderr, /there is no such file/);
  }));

test("policy suggest proposes rules for questions that got a yes, and writes those that are picked", () =>
  onMachine(async (machine) => {
    const { run, home, cwd } = machine;
    put(home, OWN, "# Mine\n[security.write_file]\nenabled = true\n");
    for (const path of ["notes/a.md", "notes/b.md", "src/a.ts"]) await asked(machine, path, "approve");
    await asked(machine, "notes/sub/no.md", "deny");
    const name = "write-file-notes-md-285f";
    const block =
      '[[autonomy.rules]]\nname = "write-file-notes-md-285f"\ntool = "write_file"\npath = "notes/*.md"\nthen = "allow"\n';
    const { stdout, stderr } = await run(["policy", "suggest"]);
    assert.equal(
      stdout,
      `# 1: would have saved 2 questions\n${block}\npostern policy suggest --pick ${name} writes the first to your configuration\n`,
      stderr,
    );
    assert.equal(
      readFileSync(join(home, OWN), "utf8"),
      "# Mine\n[security.write_file]\nenabled = true\n",
      "nothing was changed",
    );
    const json = JSON.parse((await run(["policy", "suggest", "--json"])).stdout);
    assert.deepEqual(json.suggested.map(({ saves }: { saves: number }) => saves), [2]);
    for (const pick of ["2", "", "write-file-notes-txt-285f", `${name},0`]) {
      const { code, stderr } = await run(["policy", "suggest", "--pick", pick]);
      assert.deepEqual([code, /none of the 1 rules that are suggested now has it/.test(stderr)], [2, true], stderr);
    }
    assert.equal((await run(["policy", "suggest", "--pick", `${name},1`])).stdout, `Added ${name}\n`);
    assert.equal(readFileSync(join(home, OWN), "utf8"), `# Mine\n[security.write_file]\nenabled = true\n\n${block}`);
    assert.equal(
      (await run(["tools", "call", "write_file", "--input", '{"path":"notes/c.md","content":"x"}'])).code,
      0,
    );
    assert.equal(
      (await run(["policy", "suggest"])).stdout,
      "No rule would have saved two of the 3 questions of 28 days that were answered with yes\n",
    );
    put(cwd, "own.toml", "[security.write_file]\nenabled = true\n");
    const refused = await run(["policy", "suggest", "--pick", "1", "--config", "own.toml"]);
    assert.equal(refused.code, 1);
    assert.match(refused.stderr, /a rule in a file of the workspace may only "ask" or "deny"/);
  }));
