import assert from "node:assert/strict";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { type Machine, onMachine, type RunOptions } from "./support/run_in.ts";
import { until } from "../support/until.ts";

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
      assert.match(shown.stdout, /write_file \(write\) in .*\n\{\n +"path": "new\.txt",\n +"content": "hello"\n\}/);
      assert.match(shown.stdout, /new\.txt \(new\)\n"always" stores: Allow "write_file" in/);
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
      assert.match(denied.stderr, /"content": "hello"[\s\S]*Cannot call "write_file": it was not approved/);
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
      assert.match(denied.stderr, /\[approval\] write_file needs your word\n[\s\S]*\[approval\] deny/);
      assert.ok(!existsSync(join(cwd, "new.txt")));
      assert.match((await run(chat)).stderr, /nobody_could_answer/, "nobody is there to answer");
      const approved = await run(chat, { answers: ["y"] });
      assert.match(approved.stderr, /\[approval\] approve\n\[tool\] write_file [\s\S]*done in/);
      assert.equal(readFileSync(join(cwd, "new.txt"), "utf8"), "hello");
    }));
}

test("a run that a stop interrupted makes the call that is approved after the next start", () =>
  onWritingMachine((_machine, use) => use(), async ({ run, withGateway, cwd }) => {
    let id = "";
    await withGateway([], async ({ address }) => {
      const token = (await run(["token", "create"])).stdout.trim();
      await fetch(`${address}v1/webhook/default`, {
        method: "POST",
        headers: { authorization: `Bearer ${token}`, "content-type": "application/json" },
        body: JSON.stringify({ message: `/write_file ${INPUT}` }),
      });
      const asked = async () => /^apr_\w+/m.exec((await run(["approvals", "list"])).stdout)?.[0] ?? "";
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
