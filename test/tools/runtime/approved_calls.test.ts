import assert from "node:assert/strict";
import { appendFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { BUILTIN_TOOLS } from "../../../lib/tools/builtin.ts";
import { bindFiles } from "../../../lib/tools/runtime/bind_call.ts";
import type { Tool } from "../../../lib/tools/runtime/tool.ts";
import type { ApprovalAnswer, ApprovalRequest } from "../../../lib/tools/runtime/tool_call.ts";
import { createToolBench, type ToolBenchOptions } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

const WRITES = { write_file: { enabled: true } };
const YES: ApprovalAnswer = { decision: "approve", reason: "" };

/** Calls and approves, doing something between the request and the answer. */
async function approved(
  root: string,
  call: readonly [tool: string, input: unknown],
  between: (request: ApprovalRequest, bench: ReturnType<typeof createToolBench>) => void | Promise<void> = () => {},
  more: Partial<ToolBenchOptions> = {},
) {
  const bench = createToolBench({ root, config: WRITES, ...more });
  const requests: ApprovalRequest[] = [];
  const outcome = await bench.call(...call, {
    approver: async (request) => {
      requests.push(request);
      await between(request, bench);
      return YES;
    },
  });
  return { ...outcome, requests, output: outcome.result.output };
}

const EDIT = ["file_edit", { path: "a.txt", edits: [{ old_text: "one", new_text: "two" }] }] as const;

test("an approved call runs, bound to the files it changes", () =>
  withWorkspace({ "a.txt": "one\n" }, async ({ root }) => {
    const { ran, requests } = await approved(root, EDIT);
    assert.ok(ran);
    assert.equal(readFileSync(join(root, "a.txt"), "utf8"), "two\n");
    assert.deepEqual(requests[0]?.binding.files, [{
      path: "a.txt",
      sha256: "2c8b08da5ce60398e1f19af0e5dccc744df274b826abe585eaba68c525434806",
    }]);
  }));

const CHANGES: readonly (readonly [what: string, change: (root: string) => void])[] = [
  ["a byte of the file", (root) => writeFileSync(join(root, "a.txt"), "one!")],
  ["a byte more", (root) => appendFileSync(join(root, "a.txt"), "!")],
];
for (const [what, change] of CHANGES) {
  test(`${what} changed between request and answer: the call is refused and nothing is written`, () =>
    withWorkspace({ "a.txt": "one\n" }, async ({ root }) => {
      const { ran, output } = await approved(root, EDIT, () => change(root));
      assert.equal(ran, false);
      assert.match(output, /is not what it was when the call was approved/);
      assert.match(readFileSync(join(root, "a.txt"), "utf8"), /^one/);
    }));
}

test("a file that appears where none was is not written over", () =>
  withWorkspace({}, async ({ root }) => {
    const input = { path: "new.txt", content: "mine", overwrite: true };
    const { ran } = await approved(root, ["write_file", input], () => writeFileSync(join(root, "new.txt"), "theirs"));
    assert.equal(ran, false);
    assert.equal(readFileSync(join(root, "new.txt"), "utf8"), "theirs");
  }));

test("every file of a patch counts, the target of a move too", () =>
  withWorkspace({ "a.txt": "one\n", "b.txt": "b\n" }, async ({ root }) => {
    const patch = [
      "*** Begin Patch",
      "*** Update File: a.txt",
      "*** Move to: c.txt",
      "@@",
      "-one",
      "+two",
      "*** Delete File: b.txt",
      "*** End Patch",
    ].join("\n");
    for (const path of ["a.txt", "b.txt", "c.txt"]) {
      const { ran } = await approved(root, ["apply_patch", { patch }], () => appendFileSync(join(root, path), "x"));
      assert.equal(ran, false, path);
      const put = createToolBench({ root, config: { ...WRITES, autonomy: { level: "full" } } });
      await put.call("write_file", { path: "a.txt", content: "one\n", overwrite: true });
      await put.call("write_file", { path: "b.txt", content: "b\n", overwrite: true });
      if (path === "c.txt") {
        await put.call("apply_patch", { patch: "*** Begin Patch\n*** Delete File: c.txt\n*** End Patch" });
      }
    }
    const { ran, result } = await approved(root, ["apply_patch", { patch }]);
    assert.ok(ran && !result.isError);
    assert.equal(readFileSync(join(root, "c.txt"), "utf8"), "two\n");
  }));

test("what is written after the last look and before the change is not written over", () =>
  withWorkspace({ "a.txt": "one\n" }, async ({ root }) => {
    const [writeFile] = BUILTIN_TOOLS.filter(({ name }) => name === "write_file") as [Tool];
    const slow: Tool = {
      ...writeFile,
      prepare(text) {
        const prepared = writeFile.prepare(text);
        return {
          ...prepared,
          run(context) {
            appendFileSync(join(root, "a.txt"), "theirs");
            return prepared.run(context);
          },
        };
      },
    };
    const input = { path: "a.txt", content: "mine", overwrite: true };
    const { ran, result } = await approved(root, ["write_file", input], undefined, { tools: [slow] });
    assert.ok(ran && result.isError);
    assert.match(result.output, /not what it was when the call was approved/);
    assert.equal(readFileSync(join(root, "a.txt"), "utf8"), "one\ntheirs");
  }));

test("a call that was approved beforehand runs in the approved state alone, though the policy asks nobody", () =>
  withWorkspace({ "a.txt": "one\n" }, async ({ root }) => {
    const bench = createToolBench({ root, config: { ...WRITES, autonomy: { level: "full" } } });
    const [tool, input] = EDIT;
    const bound = await bench.executor.bind(tool, JSON.stringify(input), new AbortController().signal);
    const approvedDigest = bound.ok ? bound.binding.digest : assert.fail(bound.reason);
    appendFileSync(join(root, "a.txt"), "theirs");
    const { ran, result } = await bench.call(tool, input, { approvedDigest });
    assert.equal(ran, false);
    assert.match(result.output, /is not what it was when the call was approved/);
    writeFileSync(join(root, "a.txt"), "one\n");
    assert.ok((await bench.call(tool, input, { approvedDigest })).ran);
    assert.equal(readFileSync(join(root, "a.txt"), "utf8"), "two\n");
  }));

test("a script that is exchanged while the approved call is written to the journal does not run", () =>
  withWorkspace({ "a.sh": "echo good > made.txt\n" }, async ({ root }) => {
    const bench = createToolBench({ root, config: { allowed_commands: ["sh"], shell: { sandbox: "off" } } });
    const { result } = await bench.call("shell", { command: "sh a.sh" }, {
      approver: () => Promise.resolve(YES),
      onStart: () => Promise.resolve(writeFileSync(join(root, "a.sh"), "echo evil > made.txt\n")),
    });
    assert.ok(result.isError);
    assert.match(result.output, /is not what it was when the call was approved/);
    assert.equal(existsSync(join(root, "made.txt")), false);
    assert.deepEqual(
      bench.audit.events.flatMap((event) => event.type === "decision" ? [[event.decision, event.rule]] : []).at(-1),
      [
        "deny",
        "binding",
      ],
    );
  }));

test("bindFiles() refuses a change of a file that nobody was asked about", async () => {
  const inner = { change: () => assert.fail("changed") } as unknown as Parameters<typeof bindFiles>[0];
  const bound = bindFiles(inner, new Map([["a", undefined]]));
  const write = (path: string, expected?: string) =>
    bound.change(
      [{ kind: "write", path, content: new Uint8Array(), expected }],
      undefined as never,
      { signal: new AbortController().signal },
    );
  await assert.rejects(write("b"), { code: "path_changed" });
  await assert.rejects(write("a", "1:2"), { code: "path_changed" });
});

test("nobody is asked about a call whose file cannot be changed", () =>
  withWorkspace({}, async ({ root }) => {
    for (const path of ["../out.txt", ".env", ".git/config", "a\0b"]) {
      const { ran, requests, result } = await approved(root, ["write_file", { path, content: "x" }]);
      assert.deepEqual([ran, requests.length, result.isError], [false, 0, true], path);
    }
  }));

test("the digest tells the tool, the input, the workspace, the schema and the executable apart", () =>
  withWorkspace({ "a.txt": "one\n" }, async ({ root }) => {
    const digestOf = async (command: string, more: Partial<ToolBenchOptions> = {}) =>
      (await approved(root, ["shell", { command }], undefined, more)).requests[0]?.binding.digest;
    const shell = BUILTIN_TOOLS.filter(({ name }) => name === "shell");
    const [other] = shell.map((tool): Tool => ({
      ...tool,
      inputSchema: { type: "object", properties: {}, additionalProperties: false },
    }));
    const digests = [
      await digestOf("ls"),
      await digestOf("ls -l"),
      await digestOf("cat"),
      await digestOf("ls", { root: `${root}/..` }),
      await digestOf("ls", { tools: [other as Tool] }), // shell is built in
    ];
    assert.equal(new Set(digests).size, digests.length);
    assert.equal(await digestOf("ls"), digests[0]);
  }));

test("secrets in the input are masked for the person, and the exact input is what runs", () =>
  withWorkspace({}, async ({ root }) => {
    const input = { path: "a.txt", content: "key canary-secret-1234" };
    const bench = createToolBench({ root, config: WRITES });
    bench.redactor.add("canary-secret-1234");
    let shown: unknown;
    await bench.call("write_file", input, {
      approver: async (request) => {
        shown = request.input;
        return YES;
      },
    });
    assert.deepEqual(shown, { path: "a.txt", content: "key [redacted]" });
    assert.equal(readFileSync(join(root, "a.txt"), "utf8"), input.content);
  }));

test("a remembered answer takes the place of an approval, never for what always_ask names", () =>
  withWorkspace({}, async ({ root }) => {
    const rule = (decision: "approve" | "deny") => ({ remembered: () => Promise.resolve({ id: "rule_1", decision }) });
    const call = ["write_file", { path: "a.txt", content: "x", overwrite: true }] as const;
    const ask = (more: Partial<ToolBenchOptions>) => approved(root, call, undefined, more);
    const allowed = await ask(rule("approve"));
    assert.deepEqual([allowed.ran, allowed.requests.length], [true, 0]);
    const denied = await ask(rule("deny"));
    assert.deepEqual([denied.ran, denied.requests.length], [false, 0]);
    assert.match(denied.output, /"postern approval revoke rule_1" lifts that/);
    const always = { config: { ...WRITES, autonomy: { always_ask: ["write_file"] } } };
    assert.equal((await ask({ ...rule("approve"), ...always })).requests.length, 1);
    // Any deny wins, else any ask
    const never = await ask({ ...rule("deny"), ...always });
    assert.deepEqual([never.ran, never.requests.length], [false, 0]);
  }));

const TOKEN = "hQ8x2Lm4Vt7Rz9Kp3Wn6Yc1B";
const FOREIGN = 'a token of the MCP server "acme"';

test("a call in which a stranger's token hides text is neither asked about nor let through by a remembered answer", () =>
  withWorkspace({}, async ({ root }) => {
    const input = { path: "new.txt", content: `curl -s ${TOKEN} | sh` };
    const remembered = { id: "rule_1", decision: "approve" } as const;
    const bench = createToolBench({ root, config: WRITES, remembered: () => Promise.resolve(remembered) });
    bench.redactor.replace(FOREIGN, [TOKEN]);
    const asked: ApprovalRequest[] = [];
    const approver = (request: ApprovalRequest) => Promise.resolve(asked.push(request)).then(() => YES);
    const { ran, result } = await bench.call("write_file", input, { approver });
    assert.deepEqual([ran, asked], [false, []]);
    assert.match(
      result.output,
      /^Cannot call "write_file" with an approval: its input holds a token of the MCP server "acme"/,
    );
    assert.equal(
      (await bench.executor.bind("write_file", JSON.stringify(input), new AbortController().signal)).ok,
      false,
    );
    // Once the server has another token, the text is text as any other
    bench.redactor.replace(FOREIGN, []);
    assert.ok((await bench.call("write_file", input, { approver })).ran);
  }));

test("a token that hides text since the question was asked makes its answer count for nothing", () =>
  withWorkspace({}, async ({ root }) => {
    const input = { path: "new.txt", content: `curl -s ${TOKEN} | sh` };
    const { ran, output } = await approved(root, ["write_file", input], (_, { redactor }) => {
      redactor.replace(FOREIGN, [TOKEN]);
    });
    assert.equal(ran, false);
    assert.match(output, /holds a token of the MCP server "acme"/);
  }));

test("a call that is bound before it is made, as a step of a procedure, has no secret in the names of its files", () =>
  withWorkspace({}, async ({ root }) => {
    const bench = createToolBench({ root, config: WRITES });
    bench.redactor.add("canary-secret-1234");
    const input = JSON.stringify({ path: "canary-secret-1234.txt", content: "" });
    const bound = await bench.executor.bind("write_file", input, AbortSignal.timeout(60_000));
    assert.deepEqual(bound.ok && bound.binding.files, [{ path: "[redacted].txt", sha256: null }]);
  }));

test("an approval names the operator's own secrets that its input does not show", () =>
  withWorkspace({}, async ({ root }) => {
    const bench = createToolBench({ root, config: WRITES });
    bench.redactor.add(TOKEN, 'the environment variable "SHOP_KEY"');
    bench.redactor.replace(FOREIGN, [TOKEN]);
    const asked: ApprovalRequest[] = [];
    const approver = (request: ApprovalRequest) => Promise.resolve(asked.push(request)).then(() => YES);
    const input = { path: "new.txt", content: `key=${TOKEN}` };
    assert.ok((await bench.call("write_file", input, { approver })).ran);
    const [request] = asked;
    assert.deepEqual(request?.input, { ...input, content: "key=[redacted]" });
    assert.deepEqual(request?.masked, [{ name: 'the environment variable "SHOP_KEY"', isOwn: true }]);
  }));
