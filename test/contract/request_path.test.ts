import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { PROJECT_ROOT } from "../support/source_files.ts";
import { withWorld } from "../support/world.ts";

const PAGE = readFileSync(join(PROJECT_ROOT, "docs/design", "request_path.md"), "utf8");
const STEPS = [...PAGE.matchAll(/^\|.*\| `([^`]+)` \| `([^`]+)` \|$/gm)].map(([, file, name]) => `${file} ${name}`);

/** Returns the functions that are entered while `work` goes on, each as its file and its name. */
async function enteredDuring(work: () => Promise<unknown>): Promise<ReadonlySet<string>> {
  const { Session } = await import("node:inspector/promises");
  const session = new Session();
  session.connect();
  try {
    await session.post("Profiler.enable");
    await session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: false });
    await work();
    const { result } = await session.post("Profiler.takePreciseCoverage");
    return new Set(result.flatMap(({ url, functions }) => {
      const file = url.slice(url.indexOf(PROJECT_ROOT) + PROJECT_ROOT.length + 1);
      const entered = functions.filter(({ ranges: [whole] }) => whole !== undefined && whole.count > 0);
      return entered.map(({ functionName }) => `${file} ${functionName.replace("#", "")}`);
    }));
  } finally {
    session.disconnect();
  }
}

test("a streamed completion with a tool call goes the way that request_path.md tells", {
  skip: "Deno" in globalThis && "Deno does not tell which functions were entered",
}, () =>
  withWorld(async (world) => {
    const call = { name: "read_file", arguments: { path: "notes.txt" } };
    const gateway = await world.gateway({ files: { "notes.txt": "a note" }, script: [{ toolCalls: [call] }, "Done"] });
    const body = { model: "assistant", stream: true, messages: [{ role: "user", content: "Read the notes" }] };
    const entered = await enteredDuring(async () => {
      assert.match(await (await gateway.call("/v1/chat/completions", { body })).text(), /Done/);
    });
    assert.ok(STEPS.length > 20, "the steps are found");
    assert.deepEqual(STEPS.filter((step) => !entered.has(step)), []);
    const files = [...PAGE.matchAll(/`((?:cli|handlers|lib)\/[^`]+\.ts)`/g)].map(([, file = ""]) => file);
    assert.deepEqual(files.filter((file) => !existsSync(join(PROJECT_ROOT, file))), []);
  }));

test("each question of request_path.md is answered by a file that declares what it names", () => {
  const answers = [...PAGE.matchAll(/^\|.*\?.*\| `(\w+)` in `([^`]+)` \|$/gm)];
  assert.ok(answers.length >= 20, "the questions are found");
  const wrong = answers.filter(([, name = "", file = ""]) => {
    const declared = String
      .raw`^(?:export )?(?:async )?(?:function|class|const|interface) ${name}\b|^  (?:async )?${name}[(<]`;
    return !new RegExp(declared, "m").test(readFileSync(join(PROJECT_ROOT, file), "utf8"));
  });
  assert.deepEqual(wrong.map(([row]) => row), []);
});

/** Parts that a completion without the agent's tools, a key and a record has no use for: they are not even asked. */
const NOT_FOR_PLAIN = [
  "handlers/middleware/idempotency.ts",
  "lib/agent/deferred_tools.ts",
  "lib/agent/tool_calls.ts",
  "lib/agent/untrusted_text.ts",
  "lib/guard/policy.ts",
  "lib/runs/conversations/conversations.ts",
  "lib/runs/journal/run_recorder.ts",
  "lib/runs/supervisor/create_approver.ts",
  "lib/runs/supervisor/run_coordination.ts",
  "lib/system/system_services.ts",
  "lib/tools/runtime/registry.ts",
];

/** Tools whose files a run enters that calls `read_file`: each other tool was asked when the configuration was new. */
const FOR_READ_FILE = ["lib/tools/files/file_scope.ts", "lib/tools/files/read_file.ts", "lib/tools/files/read_text.ts"];

/** Parts that a call has no use for which reads a file, asks nobody and meets neither a halt, a mark nor a tool of others. */
const NOT_FOR_CALL = [
  "lib/extensions/late_mcp_servers.ts",
  "lib/guard/stored_approvals.ts",
  "lib/guard/tainted_places.ts",
  "lib/tools/runtime/bind_call.ts",
  "lib/tools/runtime/call_asker.ts",
  "lib/tools/runtime/shared_calls.ts",
];

test("a completion enters neither what has nothing to do for it, nor the tools that it does not call", {
  skip: "Deno" in globalThis && "Deno does not tell which functions were entered",
}, () =>
  withWorld(async (world) => {
    const call = { name: "read_file", arguments: { path: "notes.txt" } };
    const script = ["Plain", { toolCalls: [call] }, "Done"];
    const gateway = await world.gateway({ files: { "notes.txt": "a note" }, script: [...script, ...script] });
    const body = { model: "assistant", stream: true, messages: [{ role: "user", content: "Read the notes" }] };
    const ask = (headers: Readonly<Record<string, string>>) => async () => {
      assert.match(await (await gateway.call("/v1/chat/completions", { body, headers })).text(), /Plain|Done/);
    };
    const plain = ask({ "x-postern-tools": "none" });
    const withTools = ask({});
    // The first ones load what they need
    await plain();
    await withTools();
    const filesOf = async (work: () => Promise<void>) =>
      new Set([...await enteredDuring(work)].map((entered) => entered.slice(0, entered.indexOf(" "))));
    const files = await filesOf(plain);
    assert.ok(files.has("lib/agent/run_agent.ts"), "the run is seen");
    assert.deepEqual(NOT_FOR_PLAIN.filter((file) => files.has(file)), []);
    assert.deepEqual(NOT_FOR_PLAIN.filter((file) => !existsSync(join(PROJECT_ROOT, file))), []);
    const entered = await filesOf(withTools);
    const tools = [...entered].filter((file) => /^lib\/tools\/(?!runtime\/)[a-z]+\//.test(file));
    assert.deepEqual(tools.sort(), FOR_READ_FILE);
    assert.deepEqual(NOT_FOR_CALL.filter((file) => entered.has(file)), []);
    assert.deepEqual(NOT_FOR_CALL.filter((file) => !existsSync(join(PROJECT_ROOT, file))), []);
  }));

test("the places of request_path.md have what they are named for", () => {
  const places = [...PAGE.matchAll(/^\|.*\| `([^`]+)` in `([^`]+)` \|$/gm)].map(([, name = "", file = ""]) => ({
    name,
    file,
  }));
  assert.ok(places.length >= 20, "the places are found");
  const isThere = ({ name, file }: { readonly name: string; readonly file: string }) =>
    new RegExp(`\\b${name}\\b`).test(readFileSync(join(PROJECT_ROOT, file), "utf8"));
  assert.deepEqual(places.filter((place) => !isThere(place)), []);
});
