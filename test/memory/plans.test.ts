import assert from "node:assert/strict";
import { test } from "node:test";
import { ToolError } from "../../lib/base/errors.ts";
import { Plans } from "../../lib/memory/plans.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { createFakeClock } from "../support/fake_clock.ts";

function setUp() {
  const clock = createFakeClock();
  const store = createMemoryStore();
  return { store, clock, plans: new Plans({ store, clock }) };
}

const isError = (code: string, about: string) => (error: unknown) =>
  error instanceof ToolError && error.code === code && error.message.includes(about);

test("a plan is created, added to, updated, listed and deleted", async () => {
  const { plans, clock } = setUp();
  assert.deepEqual(await plans.list("c1"), { tasks: [], taint: [] });
  await plans.create("c1", ["read", "write"], []);
  await clock.advance(1000);
  await plans.add("c1", "test", []);
  const updated = await plans.update("c1", "2", "in_progress");
  assert.deepEqual(updated.tasks.map(({ id, title, status }) => [id, title, status]), [
    ["1", "read", "pending"],
    ["2", "write", "in_progress"],
    ["3", "test", "pending"],
  ]);
  assert.deepEqual([updated.tasks[1]?.created_at, updated.tasks[1]?.updated_at], [
    "2026-01-01T00:00:00.000Z",
    "2026-01-01T00:00:01.000Z",
  ]);
  assert.deepEqual(await plans.list("c1"), updated);
  assert.equal(await plans.delete("c1"), true);
  assert.equal(await plans.delete("c1"), false);
  assert.deepEqual(await plans.list("c1"), { tasks: [], taint: [] });
});

test("a new plan takes the place of the earlier one", async () => {
  const { plans } = setUp();
  await plans.create("c1", ["a", "b"], []);
  assert.deepEqual((await plans.create("c1", ["c"], [])).tasks.map(({ id, title }) => [id, title]), [["1", "c"]]);
});

test("a plan keeps the taint of what was added to it, until it is created again", async () => {
  const { plans } = setUp();
  await plans.create("c1", ["a"], []);
  assert.deepEqual((await plans.add("c1", "b", ["web_fetch example.com"])).taint, ["web_fetch example.com"]);
  await plans.add("c1", "c", []);
  await plans.update("c1", "1", "completed");
  assert.deepEqual((await plans.list("c1")).taint, ["web_fetch example.com"]);
  assert.deepEqual((await plans.create("c1", ["d"], [])).taint, []);
});

test("add() starts a plan where there is none, and scopes do not see each other", async () => {
  const { plans } = setUp();
  await plans.add("/home/me/project", "first", []);
  assert.equal((await plans.list("/home/me/project")).tasks.length, 1);
  assert.equal((await plans.list("/home/me")).tasks.length, 0);
});

test("an unknown task is an error that names the ids there are", async () => {
  const { plans } = setUp();
  await assert.rejects(plans.update("c1", "1", "completed"), isError("task_not_found", "no plan"));
  await plans.create("c1", ["a", "b"], []);
  for (const id of ["3", "", "01", "__proto__"]) {
    await assert.rejects(plans.update("c1", id, "completed"), isError("task_not_found", "1, 2"));
  }
});

test("bounds are refused, naming the field", async () => {
  const { plans } = setUp();
  const bad = (field: string) => isError("invalid_input", `"${field}"`);
  await assert.rejects(plans.create("c1", [], []), bad("tasks"));
  await assert.rejects(plans.create("c1", Array(201).fill("x"), []), bad("tasks"));
  await assert.rejects(plans.create("c1", ["ok", "x".repeat(501)], []), bad("tasks[1]"));
  for (const title of ["", "  ", "x".repeat(501)]) await assert.rejects(plans.add("c1", title, []), bad("title"));
  for (const scope of ["", "x".repeat(513), "a\0", "\ud800"]) {
    await assert.rejects(plans.list(scope), bad("scope"));
    await assert.rejects(plans.add(scope, "x", []), bad("scope"));
    await assert.rejects(plans.delete(scope), bad("scope"));
  }
  await plans.create("c1", Array(200).fill("x".repeat(500)), []);
  await assert.rejects(plans.add("c1", "one more", []), isError("plan_full", "200"));
});

test("parallel additions all stay, with ids of their own", async () => {
  const { plans } = setUp();
  await Promise.all(Array.from({ length: 10 }, (_, index) => plans.add("c1", `t${index}`, [])));
  const { tasks } = await plans.list("c1");
  assert.deepEqual(tasks.map(({ id }) => id), Array.from({ length: 10 }, (_, index) => String(index + 1)));
});

test("beyond 1,000 plans the oldest makes room", async () => {
  const { plans, store } = setUp();
  for (let index = 0; index < 1001; index++) await plans.create(`c${index}`, ["x"], []);
  assert.equal(await store.count("plans"), 1000);
  assert.equal((await plans.list("c0")).tasks.length, 0);
  assert.equal((await plans.list("c1")).tasks.length, 1);
});
