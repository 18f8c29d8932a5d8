import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { createOpenedList } from "../../lib/base/opened_list.ts";
import { joinTools, type LateToolsOptions, openLateTools } from "../../lib/tools/late_tools.ts";
import { BUILTIN_TOOLS } from "../../lib/tools/builtin.ts";
import type { Tool } from "../../lib/tools/runtime/tool.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { createFakeServices } from "../support/fake_services.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { until } from "../support/until.ts";

const TOOLS: readonly Tool[] = BUILTIN_TOOLS.slice(0, 1);

/** Runs `use` with the parts of late tools, and tells how often the owner was loaded and closed. */
function withParts(
  use: (parts: {
    readonly folder: string;
    readonly clock: ReturnType<typeof createFakeClock>;
    readonly count: { loads: number; closes: number; fails: boolean };
    readonly logged: readonly { readonly message: string }[];
    readonly opened: ReturnType<typeof createOpenedList>;
    open(options?: Partial<LateToolsOptions<Owner>>): ReturnType<typeof openLateTools<Owner>>;
  }) => Promise<void>,
): Promise<void> {
  return withTemporaryFolder(async (folder) => {
    const clock = createFakeClock();
    const { log, logged } = createFakeServices();
    const opened = createOpenedList();
    const count = { loads: 0, closes: 0, fails: false };
    const load = () => {
      count.loads++;
      if (count.fails) return Promise.reject(new Error("broken"));
      return Promise.resolve({ tools: () => TOOLS, close: () => Promise.resolve(void count.closes++) });
    };
    const isNeeded = () => Promise.resolve(false);
    const awaited = join(folder, "plugins");
    const open = (options = {}) =>
      openLateTools({ load, isNeeded, folders: [awaited], awaited, clock, log, opened, ...options });
    await use({ folder, clock, count, logged, opened, open });
    await opened.close();
    assert.equal(clock.pending(), 0, "no timer is left");
  });
}

interface Owner {
  tools(): readonly Tool[];
  close(): Promise<void>;
}

test("the owner is loaded at the start when it has work, or its folder is there", () =>
  withParts(async ({ folder, count, open, opened }) => {
    const late = await open({ isNeeded: () => Promise.resolve(true) });
    assert.deepEqual([count.loads, late.now?.tools()], [1, TOOLS]);
    await late.load();
    assert.equal(count.loads, 1);
    mkdirSync(join(folder, "plugins"));
    await open();
    assert.equal(count.loads, 2);
    await opened.close();
    assert.equal(count.closes, 2);
  }));

test("without work nothing is loaded until its folder appears, which is seen within a second", () =>
  withParts(async ({ folder, clock, count, open }) => {
    const late = await open();
    const tools = joinTools([late]);
    await clock.advance(5_000);
    assert.deepEqual([count.loads, tools().length], [0, 0]);
    assert.equal(tools(), tools(), "the same array");
    mkdirSync(join(folder, "plugins"));
    await clock.advance(1_000);
    await until(() => tools().length === 1);
    await clock.advance(5_000);
    assert.equal(count.loads, 1);
  }));

test("an owner that cannot be loaded is logged and keeps nothing else from starting; the next use tries again", () =>
  withParts(async ({ count, logged, open }) => {
    count.fails = true;
    const late = await open({ isNeeded: () => Promise.resolve(true) });
    assert.deepEqual([late.now, logged.length], [undefined, 1]);
    await assert.rejects(late.load(), /broken/);
    count.fails = false;
    await late.load();
    assert.deepEqual(late.now?.tools(), TOOLS);
  }));

test("joinTools() gives another array only when one of the lists is another", () => {
  let second: readonly Tool[] = [];
  const joined = joinTools([{ now: { tools: () => TOOLS } }, { now: undefined }, { now: { tools: () => second } }]);
  const before = joined();
  assert.equal(joined(), before);
  second = BUILTIN_TOOLS.slice(1, 3);
  assert.deepEqual(joined().map(({ name }) => name), BUILTIN_TOOLS.slice(0, 3).map(({ name }) => name));
  assert.equal(joined(), joined());
});
