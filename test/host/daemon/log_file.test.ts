import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import type { LogRecord } from "../../../lib/base/telemetry/log.ts";
import { type LogFile, openLogFile } from "../../../lib/host/daemon/log_file.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { ROOT, RUN } from "../../support/gateway_process.ts";
import { createSeededRandom } from "../../support/seeded_random.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { until } from "../../support/until.ts";

const LIMIT = 10_000_000;
const toLine = ({ message, fields }: LogRecord) => JSON.stringify({ message, ...fields });
const say = (log: LogFile, message: string, fields = {}) => log.write({ level: "info", time: 0, message, fields });
const linesOf = (path: string) => readFileSync(path, "utf8").split("\n").slice(0, -1);
/** Every line that is kept, oldest first. Within a rotation there is no file without a number. */
const allLines = (path: string) =>
  [...[5, 4, 3, 2, 1].map((number) => `${path}.${number}`), path].filter((name) => existsSync(name)).flatMap(linesOf);

function withLog(
  use: (log: LogFile, path: string, clock: ReturnType<typeof createFakeClock>) => Promise<void> | void,
  { maxBytes }: { readonly maxBytes?: number } = {},
): Promise<void> {
  return withTemporaryFolder(async (folder) => {
    const path = join(folder, "daemon.log");
    const clock = createFakeClock();
    const log = openLogFile({ path, clock, toLine, ...(maxBytes === undefined ? {} : { maxBytes }) });
    try {
      await use(log, path, clock);
    } finally {
      log.close();
    }
  });
}

test("of 59 MB by many tasks no line is lost, split or out of order, and no file is larger than 10,000,000 bytes", () =>
  withLog(async (log, path) => {
    const tasks = 40;
    const lines = 1_000;
    const random = createSeededRandom(7);
    let bytes = 0;
    await Promise.all(Array.from({ length: tasks }, async (_, task) => {
      for (let line = 0; line < lines; line++) {
        const message = "é".repeat(720 + (random.bytes(1)[0] ?? 0) % 3);
        bytes += Buffer.byteLength(toLine({ level: "info", time: 0, message, fields: { task, line } })) + 1;
        say(log, message, { task, line });
        if (line % 50 === 0) await new Promise(setImmediate);
      }
    }));
    const next = Array.from({ length: tasks }, () => 0);
    for (const text of allLines(path)) {
      const { task, line } = JSON.parse(text) as { task: number; line: number };
      assert.equal(line, next[task]);
      next[task] = line + 1;
    }
    assert.deepEqual(next, next.map(() => lines));
    assert.ok(bytes > 58_000_000, `${bytes}`);
    const sizes = [1, 2, 3, 4, 5].map((number) => statSync(`${path}.${number}`).size);
    assert.ok(sizes.every((size) => size <= LIMIT && size > LIMIT - 2_000), `${sizes}`);
    assert.equal(sizes.reduce((sum, size) => sum + size, statSync(path).size), bytes);
  }));

test("five older files are kept, the newest as .1; all are for their user alone", () =>
  withLog((log, path) => {
    for (let number = 0; number < 20; number++) say(log, `${number}`.padEnd(70));
    assert.deepEqual(readdirSync(join(path, "..")).sort(), [
      "daemon.log",
      ...[1, 2, 3, 4, 5].map((number) => `daemon.log.${number}`),
    ]);
    const numbers = allLines(path).map((line) => Number(JSON.parse(line).message));
    assert.deepEqual(numbers, Array.from({ length: 12 }, (_, index) => index + 8));
    for (const name of [path, `${path}.1`]) assert.equal(statSync(name).mode & 0o777, 0o600);
  }, { maxBytes: 200 }));

test("a line over 1,000,000 bytes is written as one line without its long parts", () =>
  withLog((log, path) => {
    say(log, "Long", { request_id: "req_1", status: 200, text: "x".repeat(12_000_000) });
    say(log, "m".repeat(2_000_000));
    say(log, "after");
    const [long, message, after] = linesOf(path).map((line) => JSON.parse(line));
    assert.deepEqual(long, { message: "Long", request_id: "req_1", status: 200, cut_from_bytes: 12_000_063 });
    assert.equal(message.message, "m".repeat(10_000));
    assert.equal(after.message, "after");
  }));

test("a file without a number loses nothing: the next rotation fills the gap that a crash between two renames left", () =>
  withLog((log, path) => {
    for (const number of [1, 2, 3, 5]) writeFileSync(`${path}.${number}`, `old ${number}\n`);
    for (let number = 0; number < 3; number++) say(log, `${number}`.padEnd(70));
    const first = ["old 5", "old 3", "old 2", "old 1"];
    assert.deepEqual(allLines(path).slice(0, 4), first);
    assert.equal(allLines(path).length, 7);
  }, { maxBytes: 200 }));

test("a torn last line is ended before the next one", () =>
  withTemporaryFolder((folder) => {
    const path = join(folder, "daemon.log");
    writeFileSync(path, "whole\nto");
    const log = openLogFile({ path, clock: createFakeClock(), toLine });
    say(log, "next");
    log.close();
    assert.deepEqual(linesOf(path), ["whole", "to", '{"message":"next"}']);
  }));

test("a file that was moved or removed is made again within a second", () =>
  withLog(async (log, path, clock) => {
    say(log, "one");
    renameSync(path, `${path}.moved`);
    await clock.advance(1_000);
    say(log, "two");
    rmSync(path);
    await clock.advance(1_000);
    say(log, "three");
    assert.deepEqual(linesOf(`${path}.moved`), ['{"message":"one"}']);
    assert.deepEqual(linesOf(path), ['{"message":"three"}']);
  }));

test("lines that others append to the file stay whole", () =>
  withLog((log, path) => {
    say(log, "one");
    appendFileSync(path, "from the runtime itself\n");
    say(log, "two");
    assert.deepEqual(linesOf(path), ['{"message":"one"}', "from the runtime itself", '{"message":"two"}']);
  }));

test("a folder that cannot be written is no failure: lines are counted, and the loss is said when it works again", () =>
  withTemporaryFolder(async (folder) => {
    const place = join(folder, "data");
    const path = join(place, "daemon.log");
    const clock = createFakeClock(Date.UTC(2026, 0, 1));
    const log = openLogFile({ path, clock, toLine });
    assert.equal(log.healthy(), false);
    say(log, "lost");
    await clock.advance(1_500);
    say(log, "lost too");
    mkdirSync(place);
    assert.equal(log.healthy(), false, "it is tried once in a second");
    await clock.advance(1_000);
    assert.equal(log.healthy(), true);
    say(log, "kept");
    log.close();
    say(log, "after the end");
    const [loss, kept, ...more] = linesOf(path).map((line) => JSON.parse(line));
    assert.equal(loss.message, "Log lines were lost");
    assert.deepEqual([loss.dropped, loss.since], [2, "2026-01-01T00:00:00.000Z"]);
    assert.match(loss.reason, /ENOENT/);
    assert.deepEqual([kept.message, more], ["kept", []]);
  }));

test(
  "a device that is full is no failure",
  { skip: !existsSync("/dev/full") && "there is no /dev/full" },
  () =>
    withTemporaryFolder(async (folder) => {
      const path = join(folder, "daemon.log");
      const clock = createFakeClock();
      symlinkSync("/dev/full", path);
      const log = openLogFile({ path, clock, toLine });
      say(log, "lost");
      assert.equal(log.healthy(), false);
      rmSync(path);
      await clock.advance(1_000);
      say(log, "kept");
      log.close();
      assert.deepEqual(linesOf(path).map((line) => JSON.parse(line).message), ["Log lines were lost", "kept"]);
    }),
);

const mounted = (folder: string) => spawnSync("mount", ["-t", "tmpfs", "-o", "size=64k", "postern-test", folder]);

test("a disk that fills up leaves no part of a line, and the log goes on when there is room again", (context) =>
  withTemporaryFolder(async (folder) => {
    if (mounted(folder).status !== 0) return context.skip("this user cannot mount a small file system");
    try {
      const path = join(folder, "daemon.log");
      const clock = createFakeClock();
      const log = openLogFile({ path, clock, toLine });
      for (let number = 0; number < 100; number++) say(log, `${number}`.padEnd(1_000));
      assert.equal(log.healthy(), false);
      const before = linesOf(path).map((line) => Number(JSON.parse(line).message));
      assert.deepEqual(before, Array.from({ length: before.length }, (_, index) => index));
      assert.ok(before.length < 70 && before.length > 40, `${before.length}`);
      renameSync(path, `${path}.1`);
      rmSync(`${path}.1`);
      // A system may free the room of a removed file a moment later
      await until(async () => (await clock.advance(1_000), log.healthy()), "there is room again");
      say(log, "kept");
      log.close();
      const [loss, kept] = linesOf(path).map((line) => JSON.parse(line));
      assert.equal(loss.dropped, 100 - before.length);
      assert.match(loss.reason, /no space/i);
      assert.equal(kept.message, "kept");
    } finally {
      spawnSync("umount", ["-l", folder]);
    }
  }));

test("a writer that is killed at any moment, also within a rotation, loses no line it had told of", () =>
  withTemporaryFolder(async (folder) => {
    const path = join(folder, "daemon.log");
    const random = createSeededRandom(11);
    const [command = "", ...options] = RUN;
    let told = -1;
    for (let round = 0; round < 4; round++) {
      // So small that much of the time is spent in rotations
      const child = spawn(command, [...options, "test/host/daemon/log_writer.ts", path, `${told + 1}`, "160"], {
        cwd: ROOT,
        stdio: ["ignore", "pipe", "inherit"],
      });
      const ended = once(child, "close");
      let tail = "";
      child.stdout.on("data", (part) => (tail = (tail + part).slice(-100)));
      await once(child.stdout, "data");
      await systemClock.sleep(20 + (random.bytes(1)[0] ?? 0) % 40);
      process.kill(child.pid ?? 0, "SIGKILL");
      await ended;
      told = Number(tail.split("\n").at(-2));
      const numbers = allLines(path).map((line) => Number(line.split(" ")[0]));
      const first = numbers[0] ?? 0;
      // The last one may have been written and not told of
      const written = numbers.at(-1) ?? 0;
      assert.ok(written >= told, `${numbers} after ${told}`);
      assert.deepEqual(numbers, Array.from({ length: numbers.length }, (_, index) => first + index));
      told = written;
    }
  }));
