import assert from "node:assert/strict";
import { mkdir, rename, rm, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { watchFiles } from "../../lib/config/watch_files.ts";
import { createFakeClock, type FakeClock } from "../support/fake_clock.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

interface Watched {
  readonly folder: string;
  readonly file: string;
  readonly clock: FakeClock;
  /** How often a change was told by now, after everything has settled */
  told(): Promise<number>;
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
    const told = async () => {
      for (let step = 0; step < 8; step++) {
        await clock.advance(1000);
        await settle();
      }
      return count;
    };
    try {
      await use({ folder, file, clock, told });
    } finally {
      stop();
      assert.equal(clock.pending(), 0);
    }
  });
}

/** Lets what was asked of the file system answer. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await stat("/");
  await new Promise((resolve) => setImmediate(resolve));
}

test("a file that is left alone tells nothing", () => watching(async ({ told }) => assert.equal(await told(), 0)));

test("a file that is written in place tells once", () =>
  watching(async ({ file, told }) => {
    await writeFile(file, "a = 2\n");
    assert.equal(await told(), 1);
    assert.equal(await told(), 1);
  }));

test("an atomic replacement tells, and so does the next one", () =>
  watching(async ({ folder, file, told }) => {
    for (const [index, text] of ["a = 2\n", "a = 3\n"].entries()) {
      await writeFile(join(folder, "postern.toml.tmp"), text);
      await rename(join(folder, "postern.toml.tmp"), file);
      assert.equal(await told(), index + 1);
    }
  }));

test("an editor that moves the file away and writes a new one is followed", () =>
  watching(async ({ folder, file, told }) => {
    await rename(file, join(folder, "postern.toml~"));
    await writeFile(file, "a = 2\n");
    assert.equal(await told(), 1);
    await writeFile(file, "a = 3\n");
    assert.equal(await told(), 2);
  }));

test("a file that goes tells, and tells again when it is back", () =>
  watching(async ({ file, told }) => {
    await rm(file);
    assert.equal(await told(), 1);
    await writeFile(file, "a = 1\n");
    assert.equal(await told(), 2);
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
    assert.equal(await told(), 1);
    await symlink("two", join(folder, "then"));
    await rename(join(folder, "then"), join(folder, "now"));
    assert.equal(await told(), 2);
  }));

test("a file that keeps changing is told once it rests", () =>
  watching(async ({ file, clock, told }) => {
    await clock.advance(2000);
    for (let step = 0; step < 3; step++) {
      await writeFile(file, `a = ${step}\n`);
      await clock.advance(200);
      await settle();
    }
    assert.equal(await told(), 1);
  }));

test("a change during a call is told after it", async () => {
  let release = () => {};
  let calls = 0;
  await watching(async ({ file, told }) => {
    await writeFile(file, "a = 2\n");
    assert.equal(await told(), 1);
    await writeFile(file, "a = 3, still in the call\n");
    assert.equal(await told(), 1);
    release();
    assert.equal(await told(), 2);
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
    for (let step = 0; step < 8; step++) {
      await clock.advance(1000);
      await settle();
    }
    stop();
    assert.equal(count, 1);
  }));
