import assert from "node:assert/strict";
import { mkdirSync, readFileSync, symlinkSync } from "node:fs";
import { test } from "node:test";
import { git, gitTest, initRepository } from "../support/git_fixture.ts";
import { jsonOf, type RunningGateway, withWorld } from "../support/world.ts";

const CONFIG = { security: { write_file: { enabled: true }, allowed_commands: ["sh"], shell: { sandbox: "off" } } };
const FILES = { "src/a.txt": "a\n", "other/b.txt": "b\n", "build.sh": "echo built $1\n", "evil.sh": "echo evil\n" };

type Call = readonly [tool: string, input: unknown];

/** Calls a tool and tells whether it ran without a question. */
async function runs(gateway: RunningGateway, [tool, input]: Call): Promise<boolean> {
  const reply = await jsonOf(gateway.call(`/v1/tools/${tool}/call`, { body: { input } }));
  if (reply.approval_id === undefined) assert.equal(reply.is_error, false, reply.output);
  return reply.approval_id === undefined;
}

/** Asks about a call, looks at what may be remembered, and remembers that. @returns the rule's text, shown before */
async function remember(gateway: RunningGateway, [tool, input]: Call, match: string): Promise<string> {
  const { approval_id: id } = await jsonOf(gateway.call(`/v1/tools/${tool}/call`, { body: { input } }));
  const { offers } = await jsonOf(gateway.call(`/v1/approvals/${id}`));
  const offer = offers.find((each: { match: string; remember: string }) =>
    each.match === match && each.remember === "always"
  );
  const body = { decision: "approve", remember: "always", match };
  const { stored_rule: rule } = await jsonOf(gateway.call(`/v1/approvals/${id}`, { body }));
  assert.equal(rule?.text, offer?.text, "what is stored is what was shown");
  return rule.text;
}

const write = (path: string): Call => ["write_file", { path, content: "new\n", overwrite: true }];
const run = (command: string): Call => ["shell", { command }];

test("this tool in this folder: the folder and those below, no other, and through no link out of it", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ config: CONFIG, files: FILES });
    const text = await remember(gateway, write("src/a.txt"), "folder");
    assert.match(text, /on whatever it changes in the folder "[^"]*\/src" and below, with any content$/);
    mkdirSync(gateway.workspace.path("src/deep"));
    symlinkSync("../other", gateway.workspace.path("src/link"));
    for (const path of ["src/a.txt", "src/new.txt", "src/deep/er/x.txt", "./src//b.txt"]) {
      assert.equal(await runs(gateway, write(path)), true, path);
    }
    for (const path of ["top.txt", "other/b.txt", "src2/x.txt", "src/link/b.txt"]) {
      assert.equal(await runs(gateway, write(path)), false, path);
    }
    assert.equal(readFileSync(gateway.workspace.path("other/b.txt"), "utf8"), "b\n");
    const patch = (...files: readonly string[]): Call => {
      const parts = files.map((file) => `*** Add File: ${file}\n+x\n`);
      return ["apply_patch", { patch: `*** Begin Patch\n${parts.join("")}*** End Patch` }];
    };
    assert.equal(await runs(gateway, patch("src/c.txt")), false, "of another tool");
    await remember(gateway, patch("src/c.txt"), "folder");
    assert.equal(await runs(gateway, patch("src/d.txt", "src/e.txt")), true);
    assert.equal(await runs(gateway, patch("src/f.txt", "g.txt")), false, "one of the files lies outside");
  }));

test("this command with this first argument: whatever follows, no other first argument", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ config: CONFIG, files: FILES });
    const text = await remember(gateway, run("sh build.sh one"), "command");
    assert.match(text, /to run "sh" with the first argument "build.sh", whatever arguments follow/);
    for (const command of ["sh build.sh", "sh build.sh two", "sh 'build.sh' --all"]) {
      assert.equal(await runs(gateway, run(command)), true, command);
    }
    for (const command of ["sh evil.sh", "sh -x build.sh", "sh ./build.sh", "sh 'build.sh x'"]) {
      assert.equal(await runs(gateway, run(command)), false, command);
    }
  }));

test("a remembered answer is revoked, and lets nothing through that level or configuration denies", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ config: CONFIG, files: FILES });
    await remember(gateway, write("src/a.txt"), "folder");
    const env = await jsonOf(
      gateway.call("/v1/tools/write_file/call", { body: { input: { path: "src/.env", content: "" } } }),
    );
    assert.equal(env.is_error, true, "what may never be written is not written by a rule either");
    const { data: [rule] } = await jsonOf(gateway.call("/v1/approval-rules"));
    assert.deepEqual([rule.match, rule.input_digest], ["folder", null]);
    assert.equal((await gateway.call(`/v1/approval-rules/${rule.id}`, { method: "DELETE" })).status, 200);
    assert.equal(await runs(gateway, write("src/a.txt")), false);
  }));

test("a secret in a command is in no rule: only the exact call is offered", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({
      config: CONFIG,
      files: FILES,
      environment: { OPENAI_API_KEY: "sk-canary-0123456789abcdef" },
    });
    const input = { command: "sh sk-canary-0123456789abcdef" };
    const { approval_id: id } = await jsonOf(gateway.call("/v1/tools/shell/call", { body: { input } }));
    const approval = await jsonOf(gateway.call(`/v1/approvals/${id}`));
    assert.doesNotMatch(JSON.stringify(approval), /canary/);
    assert.deepEqual(approval.offers.map(({ match }: { match: string }) => match), ["call", "call"]);
  }));

gitTest(
  "git: one operation in one repository, and none that reaches a remote",
  () =>
    withWorld(async (world) => {
      const gateway = await world.gateway({
        config: { security: { enable_git: true, shell: { sandbox: "off" } } },
        files: FILES,
      });
      const { root } = gateway.workspace;
      initRepository(root);
      const add = (path: string): Call => {
        gateway.workspace.write(path, "new\n");
        return ["git_operations", { op: "add", paths: [path] }];
      };
      const text = await remember(gateway, add("src/a.txt"), "folder");
      assert.match(text, /^Allow "git_operations" in ".*" with op "add" on whatever it changes in the folder /);
      assert.equal(await runs(gateway, add("other/b.txt")), true);
      assert.equal(
        await runs(gateway, ["git_operations", { op: "commit", message: "m" }]),
        false,
        "another operation",
      );
      git(root, "remote", "add", "origin", "https://one.test/r.git");
      const { approval_id: id } = await jsonOf(
        gateway.call("/v1/tools/git_operations/call", { body: { input: { op: "push" } } }),
      );
      const { offers } = await jsonOf(gateway.call(`/v1/approvals/${id}`));
      assert.deepEqual(offers.map(({ match }: { match: string }) => match), ["call", "call"]);
    }),
);
