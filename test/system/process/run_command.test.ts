import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { createRedactor } from "../../../lib/base/redact.ts";
import { type CommandResult, runCommand, type RunCommandOptions } from "../../../lib/system/process/run_command.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { isGone } from "../../support/is_gone.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { until } from "../../support/until.ts";

const skip = process.platform === "win32" ? "there are no process groups on Windows" : false;
const sh = (script: string, more: Partial<RunCommandOptions> = {}): Promise<CommandResult> =>
  runCommand({ file: "/bin/sh", args: ["-c", script], cwd: "/", env: { ONLY: "this" } }, {
    timeoutMs: 60_000,
    maxOutputBytes: 1000,
    signal: new AbortController().signal,
    clock: systemClock,
    ...more,
  });

/** A command of the shell that tells that it has come so far */
function withReady(use: (at: { readonly ready: string; readonly isReady: () => boolean }) => Promise<void>) {
  return withTemporaryFolder((folder) => {
    const file = join(folder, "ready");
    return use({ ready: `: > ${file}`, isReady: () => existsSync(file) });
  });
}

test("gives exit code, both streams, the given environment alone, and an empty input", { skip }, async () => {
  const { ending, stdout, stderr } = await sh('echo "out $ONLY"; echo err >&2; cat; /usr/bin/env | wc -l; exit 3');
  assert.deepEqual(ending, { kind: "exit", code: 3 });
  assert.match(stdout.text, /^out this\n\s*[123]\n$/);
  assert.equal(stderr.text, "err\n");
});

test("names the signal that ended it", { skip }, async () => {
  assert.deepEqual((await sh("kill -TERM $$")).ending, { kind: "signal", name: "SIGTERM" });
});

test("keeps the first bytes of each stream, cut between characters, and counts the rest", { skip }, async () => {
  const { ending, stdout, stderr } = await sh("printf 'aé€é€é€'; printf 12345 >&2", { maxOutputBytes: 5 });
  assert.deepEqual(ending, { kind: "exit", code: 0 });
  assert.deepEqual(stdout, { text: "aé", bytes: 16, truncated: true });
  assert.deepEqual(stderr, { text: "12345", bytes: 5, truncated: false });
});

test("a command that writes without end is stopped, at no cost in memory", { skip }, async () => {
  const before = process.memoryUsage().rss;
  const { ending, stdout } = await sh("cat /dev/zero");
  assert.deepEqual(ending, { kind: "flood" });
  assert.equal(stdout.text.length, 1000);
  // On Deno other test files run in this process too
  if (!("Deno" in globalThis)) assert.ok(process.memoryUsage().rss - before < 200_000_000);
});

test("the time limit kills the whole group, what ignores polite signals included", { skip }, async () => {
  await withReady(async ({ ready, isReady }) => {
    const clock = createFakeClock();
    const work = sh(`trap '' TERM INT HUP; sleep 60 & echo $!; ${ready}; sleep 60`, { clock, timeoutMs: 300 });
    await until(isReady);
    await clock.advance(300);
    const { ending, stdout } = await work;
    assert.deepEqual(ending, { kind: "timeout" });
    assert.ok(await isGone(stdout.text.trim()));
  });
});

test("abort kills the whole group and is a CancelError; a time limit from outside is an ending", { skip }, async () => {
  for (const reason of ["cancelled", "timeout"] as const) {
    const controller = new AbortController();
    const work = sh("sleep 60 & sleep 60", { signal: controller.signal });
    systemClock.after(200, () => controller.abort(new CancelError(reason)));
    if (reason === "timeout") assert.deepEqual((await work).ending, { kind: "timeout" });
    else await assert.rejects(work, CancelError);
  }
  await assert.rejects(sh("true", { signal: AbortSignal.abort() }), CancelError);
});

test(
  "a process that outlives the command and holds its output neither hangs the call nor stays",
  { skip },
  async () => {
    const started = systemClock.monotonic();
    const { ending, stdout } = await sh("sleep 60 & echo $!");
    assert.deepEqual(ending, { kind: "exit", code: 0 });
    assert.ok(systemClock.monotonic() - started < 30_000);
    assert.ok(await isGone(stdout.text.trim()));
  },
);

test("a program that cannot be started is a ToolError", { skip }, async () => {
  const line = { file: "/no/such/program", args: [], cwd: "/", env: {} };
  const options = { timeoutMs: 1000, maxOutputBytes: 10, signal: new AbortController().signal, clock: systemClock };
  await assert.rejects(runCommand(line, options), { name: "ToolError", code: "command_not_started" });
});

test("with a grace time a command can clean up when it is stopped, and no longer", { skip }, async () => {
  await withReady(async ({ ready, isReady }) => {
    const clock = createFakeClock();
    const cleaning = `trap 'echo cleaned; exit 0' TERM; echo up; ${ready}; while :; do /bin/sleep 0.02; done`;
    const work = sh(cleaning, { clock, timeoutMs: 200, graceMs: 5000 });
    await until(isReady);
    // The clock stands still within its grace
    await clock.advance(200);
    const { ending, stdout } = await work;
    assert.deepEqual([ending, stdout.text], [{ kind: "timeout" }, "up\ncleaned\n"]);
  });
  await withReady(async ({ ready, isReady }) => {
    const clock = createFakeClock();
    const controller = new AbortController();
    const signal = controller.signal;
    const aborted = sh(`trap '' TERM; ${ready}; while :; do :; done`, { clock, signal, graceMs: 100 });
    await until(isReady);
    // Listened to before the clock moves: the end may come within its turns
    const refused = assert.rejects(aborted, CancelError);
    controller.abort(new CancelError("client_gone"));
    await clock.advance(100);
    await refused;
  });
});

test("a secret is masked, also where the limit cuts through it", { skip }, async () => {
  const { part } = createRedactor(["secret-of-the-test"]);
  for (let limit = 1; limit < 40; limit += 4) {
    const script = "printf 'before secret-of'; sleep 0.01; printf %s '-the-test after'";
    const { stdout } = await sh(script, { maxOutputBytes: limit, redact: part });
    assert.ok(!stdout.text.includes("secr"), stdout.text);
  }
});
