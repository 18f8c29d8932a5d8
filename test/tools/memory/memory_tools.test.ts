import assert from "node:assert/strict";
import { test } from "node:test";
import { createToolBench } from "../../support/tool_bench.ts";

const bench = () => {
  const { call } = createToolBench({ root: "/workspace" });
  return async (name: string, input: unknown) => (await call(name, input)).result;
};

test("what is stored is recalled by key, by words and in plain text, until it is forgotten", async () => {
  const call = bench();
  assert.equal(
    (await call("memory_store", { key: "colour", value: "The door is green", tags: ["house"] })).output,
    'Stored "colour"',
  );
  assert.equal((await call("memory_store", { key: "colour", value: "The door is red" })).output, 'Replaced "colour"');
  await call("memory_store", { key: "size", value: "The gate is wide", namespace: "facts" });
  assert.equal((await call("memory_recall", "door")).output, "colour: The door is red");
  assert.equal((await call("memory_recall", { key: "colour" })).output, "colour: The door is red");
  assert.equal((await call("memory_recall", { query: "gate" })).output, "No memory matches");
  const found = await call("memory_recall", { query: "gate", namespace: "facts" });
  assert.equal(found.output, "size: The gate is wide");
  assert.equal((found.data as { memories: { namespace: string }[] }).memories[0]?.namespace, "facts");
  assert.equal((await call("memory_forget", "colour")).output, 'Forgot "colour"');
  const again = await call("memory_forget", "colour");
  assert.deepEqual([again.isError, again.output], [
    true,
    'Cannot forget "colour": no memory has this key; memory_recall shows the keys',
  ]);
});

test("a value over its bound is refused by name", async () => {
  const result = await bench()("memory_store", { key: "big", value: "x".repeat(70_000) });
  assert.equal(result.isError, true);
  assert.match(result.output, /"value"/);
});

test("a plan is created, added to, updated, listed and deleted", async () => {
  const call = bench();
  assert.equal((await call("task_plan", { op: "list" })).output, "There is no plan");
  assert.equal(
    (await call("task_plan", { op: "create", tasks: ["One", "Two"] })).output,
    "1. [pending] One\n2. [pending] Two",
  );
  await call("task_plan", { op: "add", title: "Three" });
  const updated = await call("task_plan", { op: "update", id: "2", status: "completed" });
  assert.equal(updated.output, "1. [pending] One\n2. [completed] Two\n3. [pending] Three");
  assert.equal((updated.data as { tasks: unknown[] }).tasks.length, 3);
  assert.match((await call("task_plan", { op: "update", id: "9", status: "completed" })).output, /the ids are 1, 2, 3/);
  assert.equal((await call("task_plan", { op: "delete" })).output, "Deleted the plan");
  assert.equal((await call("task_plan", { op: "delete" })).output, "There was no plan");
});

test("each conversation has a plan of its own, and so has the workspace", async () => {
  const { call } = createToolBench({ root: "/workspace" });
  const inside = (id: string) => ({ conversationId: id });
  await call("task_plan", { op: "create", tasks: ["Workspace"] });
  await call("task_plan", { op: "create", tasks: ["First"] }, inside("conv_1"));
  await call("task_plan", { op: "create", tasks: ["Second"] }, inside("conv_2"));
  await call("task_plan", { op: "delete" }, inside("conv_2"));
  const outputs = [];
  for (const more of [{}, inside("conv_1"), inside("conv_2")]) {
    outputs.push((await call("task_plan", { op: "list" }, more)).result.output);
  }
  assert.deepEqual(outputs, ["1. [pending] Workspace", "1. [pending] First", "There is no plan"]);
});

test("each operation says which field it misses", async () => {
  const call = bench();
  for (
    const [input, field] of [[{ op: "create" }, "tasks"], [{ op: "add" }, "title"], [
      { op: "update", id: "1" },
      "status",
    ]] as const
  ) {
    const result = await call("task_plan", input);
    assert.equal(result.isError, true);
    assert.match(result.output, new RegExp(`"${field}" is missing, which op "${input.op}" needs`));
  }
});

test("a read-only agent recalls but keeps nothing", async () => {
  const { call } = createToolBench({ root: "/workspace", config: { autonomy: { level: "read_only" } } });
  for (
    const [name, input] of [["memory_store", { key: "a", value: "b" }], ["memory_forget", "a"], ["task_plan", {
      op: "list",
    }]] as const
  ) {
    const outcome = await call(name, input);
    assert.equal(outcome.ran, false, name);
    assert.match(outcome.result.output, /level = "supervised"/, name);
  }
  assert.equal((await call("memory_recall", {})).result.output, "No memory matches");
});
