import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { git, gitTest as test, initRepository } from "../support/git_fixture.ts";
import { jsonOf, type ReceivedFrame, withWorld } from "../support/world.ts";

const config = { security: { enable_git: true } };
const files = { "a.txt": "one\n", ".env": "TOKEN=hunter2hunter2\n" };
const call = (input: Readonly<Record<string, unknown>>) => ({
  toolCalls: [{ name: "git_operations", arguments: input }],
});

test("the model looks unasked, and commits what a person approves", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({
      config,
      files,
      script: [
        call({ op: "diff" }),
        call({ op: "commit", message: "second", paths: ["a.txt"] }),
        call({ op: "log", limit: 1 }),
        "Done",
      ],
    });
    const { root } = gateway.workspace;
    initRepository(root);
    gateway.workspace.write("a.txt", "two\n");
    const client = await gateway.chat();
    client.send({ type: "hello", events: true });
    client.send("Commit the change");
    const before = await client.readUntil(({ type }) => type === "approval_needed");
    assert.match(outputsOf(before).join(), /-one\n\+two/);
    assert.equal(git(root, "log", "--format=%s"), "first\n");
    client.send({ type: "approve", approval_id: before.at(-1)?.["approval_id"] });
    const after = await client.readReply();
    assert.match(outputsOf(after).at(-1) ?? "", /Ada: second/);
    assert.equal(git(root, "log", "--format=%s"), "second\nfirst\n");
    await client.leave();
  }));

test("over HTTP the same rules hold: looking is free, the network asks, secrets stay", () =>
  withWorld(async (world) => {
    const gateway = await world.gateway({ config, files });
    const { root, path } = gateway.workspace;
    initRepository(root);
    git(root, "remote", "add", "origin", "https://example.com/x.git");
    writeFileSync(path(".git/hooks/pre-commit"), "#!/bin/sh\ntouch ran\n", { mode: 0o755 });
    const tool = async (input: unknown, more: object = {}) =>
      await jsonOf(gateway.call("/v1/tools/git_operations/call", { body: { input, ...more } }));
    assert.deepEqual((await tool({ op: "status" })).output, "## main");
    for (const input of [{ op: "show" }, { op: "show", rev: "HEAD:.env" }, { op: "diff", rev: "HEAD" }]) {
      assert.doesNotMatch((await tool(input)).output, /hunter2/);
    }
    const pushed = await tool({ op: "push" });
    assert.deepEqual([pushed.is_error, typeof pushed.approval_id], [true, "string"]);
    gateway.workspace.write("a.txt", "two\n");
    const committed = await tool({ op: "commit", message: "x", paths: ["a.txt"] }, { approved: true });
    assert.match(committed.output, /^\[main [0-9a-f]+\] x/);
    assert.equal((await tool({ op: "status" })).output, "## main");
  }));

const outputsOf = (frames: readonly ReceivedFrame[]) =>
  frames.filter(({ type }) => type === "tool_end").map(({ output }) => String(output));
