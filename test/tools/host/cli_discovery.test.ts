import assert from "node:assert/strict";
import process from "node:process";
import { test } from "node:test";
import { createToolBench } from "../../support/tool_bench.ts";

const { call } = createToolBench({ root: "/workspace" });
const run = async (input: unknown) => (await call("cli_discovery", input)).result;

test("check_command says where a command is and whether it is allowed", async () => {
  const ls = await run({ op: "check_command", command: "ls" });
  assert.match(ls.output, /^ls: found at \/.*\/ls, allowed$/);
  const mv = await run({ operation: "check_command", command: "mv" });
  assert.match(mv.output, /^mv: found at \/.*\/mv, not in \[security\] allowed_commands$/);
  assert.deepEqual((await run({ op: "check_command", command: "no-such-command" })).data, {
    command: "no-such-command",
    path: null,
    allowed: false,
  });
});

test("check_command takes a bare name and nothing else", async () => {
  for (const command of ["/bin/ls", "../ls", "ls -la", "ls;id", "$(id)", "-x", ".", "a\nb"]) {
    const result = await run({ op: "check_command", command });
    assert.equal(result.isError, true, command);
    assert.match(result.output, /"command"/, command);
  }
  assert.match((await run({ op: "check_command" })).output, /"command" is missing/);
});

test("runtime_info names the runtime, its version and the platform", async () => {
  const { data } = await run({ op: "runtime_info" });
  const runtime = "Deno" in globalThis ? "deno" : "node";
  assert.deepEqual(data, {
    runtime,
    version: process.versions[runtime],
    platform: process.platform,
    architecture: process.arch,
  });
});
