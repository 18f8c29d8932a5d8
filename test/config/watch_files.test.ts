import assert from "node:assert/strict";
import { mkdir, rename, rm, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { watchFiles } from "../../lib/config/watch_files.ts";
import { createFakeClock, type FakeClock } from "../support/fake_clock.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { until } from "../support/until.ts";

interface Watched {
  readonly folder: string;
  readonly file: string;
  readonly clock: FakeClock;
  /** A change was told so often by now, and is not told once more */
  told(times: number): Promise<void>;
}

/** By looking only, so that the fake clock decides when; events are tried with the real clock in the journeys. */
function watching(use: (watched: Watched) => Promise<void>, onChange = () => Promise.resolve()): Promise<void> {
  return withTemporaryFolder(async (folder) => {
    const clock = createFakeClock();
    const file = join(folder, "postern.toml");
    await writeFile(file, "a = 1\n");
    let count = 0;
    const stop = await watchFiles([file], {
      clock,
      useEvents: false,
      async onChange() {
        count++;
        await onChange();
      },
    });
    const told = (times: number) => assertTold(clock, () => count, times);
    try {
      await use({ folder, file, clock, told });
    } finally {
      stop();
      assert.equal(clock.pending(), 0);
    }
  });
}

/** Moves the clock until it was told so often, and on, far enough to be told once more. */
async function assertTold(clock: FakeClock, told: () => number, times: number): Promise<void> {
  await until(async () => {
    await look(clock);
    return told() >= times;
  }, () => `told ${told()} times in place of ${times}`);
  for (let turn = 0; turn < 8; turn++) await look(clock);
  assert.equal(told(), times);
}

async function look(clock: FakeClock): Promise<void> {
  await clock.advance(1000);
  await settle();
}

/** Lets what was asked of the file system answer. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await stat("/");
  await new Promise((resolve) => setImmediate(resolve));
}

test("a file that is left alone tells nothing", () => watching(({ told }) => told(0)));

test("a file that is written in place tells once", () =>
  watching(async ({ file, told }) => {
    await writeFile(file, "a = 22\n");
    await told(1);
    await told(1);
  }));

test("an atomic replacement tells, and so does the next one", () =>
  watching(async ({ folder, file, told }) => {
    for (const [index, text] of ["a = 2\n", "a = 3\n"].entries()) {
      await writeFile(join(folder, "postern.toml.tmp"), text);
      await rename(join(folder, "postern.toml.tmp"), file);
      await told(index + 1);
    }
  }));

test("a file that a link leads to is seen by an event in its own folder, before it is looked at", () =>
  withTemporaryFolder(async (folder) => {
    const clock = createFakeClock();
    const [link, target] = [join(folder, "own/postern.toml"), join(folder, "kept/postern.toml")];
    for (const name of ["own", "kept"]) await mkdir(join(folder, name));
    await writeFile(target, "a = 1\n");
    await symlink(target, link);
    let count = 0;
    const stop = await watchFiles([link], { clock, onChange: () => Promise.resolve(void count++) });
    await writeFile(`${target}.tmp`, "a = 2\n");
    await rename(`${target}.tmp`, target);
    // The clock stands still, so that nothing is looked at by itself
    await until(() => clock.pending() === 2, "no event came");
    await clock.advance(300);
    await until(() => count === 1);
    stop();
  }));

test("an editor that moves the file away and writes a new one is followed", () =>
  watching(async ({ folder, file, told }) => {
    await rename(file, join(folder, "postern.toml~"));
    await writeFile(file, "a = 2\n");
    await told(1);
    await writeFile(file, "a = 33\n");
    await told(2);
  }));

test("a file that goes tells, and tells again when it is back", () =>
  watching(async ({ file, told }) => {
    await rm(file);
    await told(1);
    await writeFile(file, "a = 1\n");
    await told(2);
  }));

test("a link whose folder is exchanged is followed", () =>
  watching(async ({ folder, file, told }) => {
    for (const name of ["one", "two"]) {
      await mkdir(join(folder, name));
      await writeFile(join(folder, name, "postern.toml"), name);
    }
    await symlink("one", join(folder, "now"));
    await rm(file);
    await symlink(join("now", "postern.toml"), file);
    await told(1);
    await symlink("two", join(folder, "then"));
    await rename(join(folder, "then"), join(folder, "now"));
    await told(2);
  }));

test("a file that keeps changing is told once it rests", () =>
  watching(async ({ file, clock, told }) => {
    // A look falls between the writes, each of another size: the clock of the file system may stand still meanwhile
    await clock.advance(1900);
    for (let step = 0; step < 3; step++) {
      await writeFile(file, `a = ${10 ** (step + 1)}\n`);
      await clock.advance(200);
      await settle();
    }
    await told(1);
  }));

test("a change during a call is told after it", async () => {
  let release = () => {};
  let calls = 0;
  await watching(async ({ file, told }) => {
    await writeFile(file, "a = 22\n");
    await told(1);
    await writeFile(file, "a = 3, still in the call\n");
    await told(1);
    release();
    await told(2);
  }, () => (calls++ === 0 ? new Promise<void>((resolve) => (release = resolve)) : Promise.resolve()));
});

test("a folder that is not there is waited for", () =>
  withTemporaryFolder(async (folder) => {
    const clock = createFakeClock();
    let count = 0;
    const path = join(folder, "later", "postern.toml");
    const stop = await watchFiles([path], { clock, onChange: () => Promise.resolve(void count++) });
    await mkdir(join(folder, "later"));
    await writeFile(path, "a = 1\n");
    await assertTold(clock, () => count, 1);
    stop();
  }));
