import assert from "node:assert/strict";
import { test } from "node:test";
import type { ApprovalRequest } from "../../../lib/tools/runtime/tool_call.ts";
import { type ConfigChanges, createToolBench, type ToolBench } from "../../support/tool_bench.ts";
import { gitTest, initRepository } from "../../support/git_fixture.ts";
import { withWorkspace } from "../../support/workspace.ts";

const CONFIG: ConfigChanges = {
  write_file: { enabled: true },
  enable_git: true,
  shell: { sandbox: "off" },
};

/** Calls, does something once the person was asked, and approves. */
async function approved(bench: ToolBench, name: string, input: unknown, between: () => void = () => {}) {
  let asked: ApprovalRequest | undefined;
  const outcome = await bench.call(name, input, {
    approver: (request) => {
      asked = request;
      between();
      return Promise.resolve({ decision: "approve", reason: "" });
    },
  });
  return { outcome, containment: asked?.binding.containment };
}

for (
  const [name, input] of [
    ["shell", { command: "ls" }],
    ["process_tool", { op: "start", command: "ls" }],
  ] as const
) {
  test(`whoever is asked about ${name} is told how it is contained`, () =>
    withWorkspace({}, async ({ root }) => {
      const bench = createToolBench({ root, config: CONFIG });
      const off = await approved(bench, name, input);
      assert.deepEqual(off.containment, {
        kind: "uncontained",
        text: 'Commands are not contained: [security.shell] sandbox is "off"',
      });
      bench.configure({ ...CONFIG, shell: { sandbox: "auto" } });
      const auto = await approved(bench, name, input);
      assert.deepEqual(auto.containment, await bench.processes.containment({ sandbox: "auto" }));
      await bench.processes.close();
    }));
}

test("an approval does not count for a command that may connect to more sockets by then", () =>
  withWorkspace({}, async ({ root }) => {
    const bench = createToolBench({ root, config: CONFIG });
    const more = { ...CONFIG, shell: { ...CONFIG.shell, local_sockets: ["docker.sock"] } };
    const { outcome } = await approved(bench, "shell", { command: "ls" }, () => bench.configure(more));
    assert.match(outcome.result.output, /is not what it was when the call was approved/);
    await bench.processes.close();
  }));

gitTest(
  "whoever is asked about git is told how it is contained, stored credentials or not",
  () =>
    withWorkspace({ "a.txt": "a" }, async ({ root }) => {
      initRepository(root);
      const bench = createToolBench({ root, config: CONFIG });
      const { containment } = await approved(bench, "git_operations", { op: "add", paths: ["a.txt"] });
      assert.equal(containment?.kind, "uncontained");
      bench.configure({ ...CONFIG, shell: { sandbox: "auto" }, git: { credentials: true } });
      const push = await approved(bench, "git_operations", { op: "push" });
      assert.deepEqual(push.containment, await bench.processes.containment({ sandbox: "auto" }));
    }),
);

test("a call that starts no program has no containment", () =>
  withWorkspace({}, async ({ root }) => {
    const bench = createToolBench({ root, config: CONFIG });
    const written = await approved(bench, "write_file", { path: "a.txt", content: "a" });
    assert.equal(written.containment, null);
    const listed = await approved(bench, "process_tool", { op: "list" });
    assert.equal(listed.containment, null);
  }));

test("what was approved inside the sandbox does not run without it", () =>
  withWorkspace({}, async ({ root }) => {
    const config: ConfigChanges = { ...CONFIG, allowed_commands: ["touch"], shell: { sandbox: "auto" } };
    const bench = createToolBench({ root, config });
    const { kind } = await bench.processes.containment({ sandbox: "auto" });
    const leaveSandbox = () => bench.configure({ ...config, shell: { sandbox: "off" } });
    const { outcome } = await approved(bench, "shell", "touch y", leaveSandbox);
    assert.equal(outcome.ran, kind === "uncontained");
    await bench.processes.close();
  }));
