import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { type Scope, withWorld } from "./world.ts";

/** Returns scopes of strings that note when they start and stop. */
function notedScopes() {
  const notes: string[] = [];
  const scope = (name: string, failure?: Error): Scope<string> => async (use) => {
    notes.push(`start ${name}`);
    await use(name);
    notes.push(`stop ${name}`);
    if (failure !== undefined) throw failure;
  };
  return { notes, scope };
}

test("a world stops what a failed journey has started, the last one first, and gives the failure", async () => {
  const { notes, scope } = notedScopes();
  const failure = new Error("the journey failed");
  const journey = withWorld(async (world) => {
    assert.equal(await world.enter(scope("a")), "a");
    await world.enter(scope("b"));
    throw failure;
  });
  await assert.rejects(journey, (error) => error === failure);
  assert.deepEqual(notes, ["start a", "start b", "stop b", "stop a"]);
});

test("what a journey has started by itself is stopped in its turn", async () => {
  const { notes, scope } = notedScopes();
  await withWorld(async (world) => {
    await world.enter(scope("a"));
    world.onEnd(() => Promise.resolve(notes.push("stop own")));
    await world.enter(scope("b"));
  });
  assert.deepEqual(notes, ["start a", "start b", "stop b", "stop own", "stop a"]);
});

test("a thing that cannot be stopped fails the journey, and the others are stopped", async () => {
  const { notes, scope } = notedScopes();
  const failure = new Error("it runs on");
  const journey = withWorld(async (world) => {
    await world.enter(scope("a"));
    await world.enter(scope("b", failure));
  });
  await assert.rejects(journey, (error) => error === failure);
  assert.deepEqual(notes.at(-1), "stop a");
  const both = withWorld(async (world) => {
    await world.enter(scope("c", failure));
    throw new Error("the journey failed");
  });
  await assert.rejects(both, /AggregateError: Error: the journey failed; Error: it runs on/);
});

test("a thing that cannot be started fails the journey where it is asked for", async () => {
  const failure = new Error("it does not start");
  await withWorld(async (world) => {
    await assert.rejects(world.enter(() => Promise.reject(failure)), (error) => error === failure);
  });
});

test("a thing that is still about to start when the journey fails is stopped too", async () => {
  const { notes, scope } = notedScopes();
  const slow = Promise.withResolvers<void>();
  const failure = new Error("the journey failed");
  const journey = withWorld(async (world) => {
    const starting = world.enter<string>(async (use) => {
      await slow.promise;
      await scope("a")(use);
    });
    await Promise.all([starting, Promise.reject(failure)]);
  });
  slow.resolve();
  await assert.rejects(journey, (error) => error === failure);
  assert.deepEqual(notes, ["start a", "stop a"]);
});

test("a thing of a part of the journey is stopped at the end of the part", async () => {
  const { notes, scope } = notedScopes();
  await withWorld(async (world) => {
    await world.enter(scope("a"));
    for (const name of ["b", "c"]) {
      await world.during(world.enter(scope(name)), (thing) => Promise.resolve(void notes.push(`use ${thing}`)));
    }
    await assert.rejects(world.during(world.enter(scope("d")), () => Promise.reject(new Error("in the part"))));
    notes.push("the end");
  });
  assert.deepEqual(notes, [
    ...["start a", "start b", "use b", "stop b", "start c", "use c", "stop c", "start d", "stop d"],
    ...["the end", "stop a"],
  ]);
});

test("servers, folders and workspaces are gone with their world", async () => {
  const gone: string[] = [];
  let origin = "";
  await withWorld(async (world) => {
    gone.push(await world.folder(), (await world.workspace({ "a.txt": "a" })).path("a.txt"));
    assert.ok(gone.every((path) => existsSync(path)));
    ({ origin } = await world.server((_seen, response) => response.end("hello")));
    assert.equal(await (await fetch(origin)).text(), "hello");
  });
  assert.deepEqual(gone.filter((path) => existsSync(path)), []);
  await assert.rejects(fetch(origin));
});
