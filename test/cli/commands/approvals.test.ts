import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { type Machine, onMachine, type RunOptions } from "../support/run_in.ts";
import { until } from "../../support/until.ts";

const WRITES = { POSTERN__SECURITY__WRITE_FILE__ENABLED: "true" };
const WAYS: readonly (readonly [name: string, (machine: Machine, use: () => Promise<void>) => Promise<unknown>])[] = [
  ["through the running gateway", (machine, use) => machine.withGateway([], use)],
  ["without a gateway", (_machine, use) => use()],
];

/** A machine whose agent may write, when it is asked. */
function onWritingMachine(way: (typeof WAYS)[number][1], use: (machine: Machine) => Promise<void>) {
  return onMachine((machine) => {
    const run = (argv: readonly string[], options: RunOptions = {}) =>
      machine.run(argv, { ...options, env: { ...WRITES, ...options.env } });
    const withGateway: Machine["withGateway"] = (argv, work) =>
      machine.withGateway(["--config", writesConfig(machine), ...argv], work);
    const writing = { ...machine, run, withGateway };
    return Promise.resolve(way(writing, () => use(writing))).then(() => {});
  });
}

function writesConfig({ home }: Machine): string {
  const path = join(home, "writes.toml");
  writeFileSync(path, "[security.write_file]\nenabled = true\n");
  return path;
}

const INPUT = '{"path":"new.txt","content":"hello"}';
const CALL = ["tools", "call", "write_file", "--input", INPUT] as const;
const idIn = (text: string) => /"(apr_\w+)"/.exec(text)?.[1] ?? assert.fail(`no approval in ${text}`);

for (const [name, way] of WAYS) {
  test(`a call is asked about, listed, shown, approved and then runs once, ${name}`, () =>
    onWritingMachine(way, async ({ run, cwd }) => {
      const asked = await run(CALL);
      assert.deepEqual([asked.code, asked.stdout], [1, ""]);
      const id = idIn(asked.stderr);
      assert.match(asked.stderr, new RegExp(`--yes approves it at once.*repeat this call with --approval ${id}\n$`));
      assert.doesNotMatch(asked.stderr, /approval_id|approved"/);
      assert.match((await run(["approvals", "list"])).stdout, new RegExp(`^${id} +pending +write_file`, "m"));
      const shown = await run(["approvals", "show", id]);
      assert.match(
        shown.stdout,
        /wants to create new\.txt\nwrite_file \(write\) in .*\npath: "new\.txt"\nFile .* new, \+1 -0 lines\n@@.*@@\n\+hello\n/,
      );
      assert.match(shown.stdout, /"new\.txt" \(new\)\nTo remember:\n/);
      assert.match(shown.stdout, /^ {2}--remember always --match folder\n {4}Allow "write_file" in ".*" on whatever/m);
      assert.equal((await run([...CALL, "--approval", id])).code, 1, "it is not answered yet");
      assert.equal((await run(["approvals", "approve", id])).stdout, `${id}: approved\n`);
      const done = await run([...CALL, "--approval", id]);
      assert.deepEqual([done.code, done.stderr], [0, ""]);
      assert.equal(readFileSync(join(cwd, "new.txt"), "utf8"), "hello");
      assert.match((await run([...CALL, "--approval", id])).stderr, /its one call/);
      assert.equal((await run(["approvals", "list"])).stdout, "No call waits for an answer\n");
      assert.match((await run(["approvals", "list", "--status", "any"])).stdout, /approved/);
      const again = await run(["approvals", "deny", id]);
      assert.deepEqual([again.code, again.stdout], [1, ""]);
      assert.match(again.stderr, /approved already/);
    }));

  test(`a remembered answer is listed as the rule it is, stands, and is revoked, ${name}`, () =>
    onWritingMachine(way, async ({ run }) => {
      const dry = ["tools", "call", "write_file", "--input", '{"path":"a","content":"","dry_run":true}'];
      const id = idIn((await run(dry)).stderr);
      const approved = await run(["approvals", "approve", id, "--remember", "always"]);
      const rule = /Stored (rule_\w+): Allow "write_file" in/.exec(approved.stdout)?.[1] ??
        assert.fail(approved.stdout);
      assert.equal((await run(dry)).code, 0);
      assert.match(
        (await run(["approvals", "rules"])).stdout,
        new RegExp(`^${rule} +always .*Allow "write_file"`, "m"),
      );
      assert.equal((await run(["approvals", "revoke", rule])).code, 0);
      assert.equal((await run(["approvals", "revoke", rule])).code, 1);
      assert.equal((await run(["approvals", "rules"])).stdout, "No answer is remembered\n");
      assert.equal((await run(dry)).code, 1);
    }));

  test(`the person at the terminal is asked, with the exact input, ${name}`, () =>
    onWritingMachine(way, async ({ run, cwd }) => {
      const denied = await run(CALL, { terminal: true, answers: ["no"] });
      assert.equal(denied.code, 1);
      assert.match(denied.stderr, /\n\+hello\n[\s\S]*Cannot call "write_file": it was not approved/);
      assert.ok(!existsSync(join(cwd, "new.txt")));
      assert.equal((await run(CALL, { terminal: true, answers: ["y"] })).code, 0);
      assert.ok(existsSync(join(cwd, "new.txt")));
      const overwrite = ["tools", "call", "write_file", "--input", '{"path":"new.txt","content":"b","overwrite":true}'];
      assert.equal((await run([...overwrite, "--yes"])).code, 0);
      assert.match(
        (await run(["approvals", "list", "--status", "any"])).stdout,
        /approved[\s\S]*approved[\s\S]*denied/,
      );
    }));

  test(`a chat asks at the terminal while the reply is under way, ${name}`, () =>
    onWritingMachine(way, async ({ run, cwd }) => {
      const chat = ["chat", `/write_file ${INPUT}`];
      const denied = await run(chat, { answers: ["n"] });
      assert.match(denied.stderr, /\[approval\] write_file needs your approval\n[\s\S]*\[approval\] deny/);
      assert.match(denied.stderr, /\[tool\] write_file denied by you: Cannot call "write_file": a person denied it/);
      assert.ok(!existsSync(join(cwd, "new.txt")));
      assert.match((await run(chat)).stderr, /nobody_could_answer/, "nobody is there to answer");
      const approved = await run(chat, { answers: ["y"] });
      assert.match(approved.stderr, /\[approval\] approve\n\[tool\] write_file [\s\S]*done in/);
      assert.equal(readFileSync(join(cwd, "new.txt"), "utf8"), "hello");
    }));
}

/** Text with characters that a person cannot see: they turn the line around, have no width, or end the line. */
const HIDDEN = "a\u202etxt.\u200bz\u2028\u2066b";
const SPELLED = "a\\u202etxt.\\u200bz\\u2028\\u2066b";

for (const [name, way] of WAYS) {
  test(`what cannot be seen is spelled out wherever a call is asked about, ${name}`, () =>
    onWritingMachine(way, async ({ run }) => {
      const input = JSON.stringify({ path: "a.txt", content: HIDDEN });
      const asked = await run(["tools", "call", "write_file", "--input", input], { terminal: true, answers: ["no"] });
      assert.ok(asked.stderr.includes(`\n+${SPELLED}\n`), asked.stderr);
      const chat = await run(["chat", `/write_file ${input}`], { answers: ["always", "n", "n"] });
      assert.ok(chat.stderr.includes(`with exactly the input {"path":"a.txt","content":"${SPELLED}"}`), chat.stderr);
      const id = idIn((await run(["tools", "call", "write_file", "--input", input])).stderr);
      const shown = [
        await run(["approvals", "show", id]),
        await run(["approvals", "list"]),
        await run(["approvals", "approve", id, "--remember", "always"]),
        await run(["approvals", "rules"]),
      ];
      for (const { stdout, stderr } of [...shown, asked, chat]) {
        assert.doesNotMatch(stdout + stderr, /[\u202e\u200b\u2028\u2066]/);
      }
      for (const { stdout } of shown) assert.ok(stdout.includes(SPELLED) || stdout.includes("cut: "), stdout);
    }));

  test(`a long input is marked as cut before the question, and shown whole by "approvals show", ${name}`, () =>
    onWritingMachine(way, async ({ run }) => {
      const input = JSON.stringify({ path: "a.txt", content: `${"x".repeat(30_000)} the end` });
      const asked = await run(["tools", "call", "write_file", "--input", "-"], {
        stdin: input,
        terminal: true,
        answers: [],
      });
      assert.match(
        asked.stderr,
        /x \[cut: 20000 of 300\d\d characters are shown; SHA-256 of the whole [0-9a-f]{64}\]\n/,
      );
      const id = idIn(asked.stderr);
      assert.match(asked.stderr, new RegExp(`postern approval show ${id} shows it whole`));
      assert.match((await run(["approvals", "show", id])).stdout, /x the end\n/);
      assert.match(
        (await run(["approvals", "list"])).stdout,
        /\[cut: 60 of \d+ characters are shown; SHA-256 of the whole/,
      );
    }));

  test(`a rule is shown before it is stored, and stored after a yes of its own, ${name}`, () =>
    onWritingMachine(way, async ({ run, cwd }) => {
      const call = (path: string) => ["chat", `/write_file ${JSON.stringify({ path, content: "x" })}`];
      const rule =
        /This rule would be stored, until you revoke it:\n {2}Allow "write_file" in .* in the folder ".*\/src" and below/;
      const refused = await run(call("src/a.txt"), { answers: ["folder", "no", "no"] });
      assert.match(refused.stderr, rule);
      assert.match(refused.stderr, /\[approval\] deny/);
      assert.equal((await run(["approvals", "rules"])).stdout, "No answer is remembered\n");
      const stored = await run(call("src/a.txt"), { answers: ["folder", "y"] });
      assert.match(stored.stderr, rule);
      assert.ok(existsSync(join(cwd, "src/a.txt")));
      assert.equal((await run(call("src/b.txt"), { answers: [] })).code, 0, "it is not asked about");
      assert.equal((await run(call("c.txt"), { answers: [] })).code, 1);
    }));

  test(`"approvals approve" shows the rule first, and asks a person who is there, ${name}`, () =>
    onWritingMachine(way, async ({ run }) => {
      const id = idIn((await run(CALL)).stderr);
      const approve = ["approvals", "approve", id, "--remember", "always", "--match", "folder"];
      const refused = await run(approve, { answers: ["n"] });
      assert.equal(refused.code, 1);
      assert.match(refused.stderr, /^This rule is stored, until you revoke it:\n {2}Allow "write_file"/);
      assert.equal((await run(["approvals", "rules"])).stdout, "No answer is remembered\n");
      assert.match((await run(["approvals", "approve", id, "--match", "folder"])).stderr, /Cannot use "match" alone/);
      const command = ["approvals", "approve", id, "--remember", "always", "--match", "command"];
      assert.match((await run(command)).stderr, /the rules for this call are "call", "folder"/);
      assert.match((await run(approve)).stdout, /approved\nStored rule_\w+: Allow "write_file" in .* on whatever/);
    }));
}

test("a run that a stop interrupted makes the call that is approved after the next start", () =>
  onWritingMachine((_machine, use) => use(), async ({ run, withGateway, cwd }) => {
    let id = "";
    await withGateway([], async ({ address }) => {
      const token = (await run(["token", "create"])).stdout.trim();
      const asked = async () => /^apr_\w+/m.exec((await run(["approvals", "list"])).stdout)?.[0] ?? "";
      assert.equal(await asked(), "", "somebody looks, so that a channel's message asks");
      await fetch(`${address}v1/webhook/default`, {
        method: "POST",
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
        body: JSON.stringify({ message: `/write_file ${INPUT}` }),
      });
      await until(async () => (id = await asked()) !== "", "nothing is asked");
    });
    await withGateway([], async () => {
      assert.deepEqual(await run(["approvals", "approve", id]), { code: 0, stdout: `${id}: approved\n`, stderr: "" });
      await until(() => existsSync(join(cwd, "new.txt")));
      assert.equal(readFileSync(join(cwd, "new.txt"), "utf8"), "hello");
    });
  }));

test("an approval that is not there is told so", () =>
  onMachine(async ({ run }) => {
    for (const verb of ["show", "approve", "deny"]) {
      const { code, stderr } = await run(["approvals", verb, "apr_unknown"]);
      assert.equal(code, 1);
      assert.match(stderr, /Cannot find this approval/);
    }
    assert.equal((await run(["approvals", "approve", "apr_1", "--remember", "ever"])).code, 2);
    assert.equal((await run(["approvals", "list", "--status", "open"])).code, 2);
  }));
