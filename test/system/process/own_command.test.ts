import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { ToolError } from "../../../lib/base/errors.ts";
import { createCommandLookup } from "../../../lib/system/process/command_lookup.ts";
import { runOwnCommand } from "../../../lib/system/process/own_command.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { killIfThere } from "../../support/kill_if_there.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { until } from "../../support/until.ts";

const run = (words: readonly string[], more: Partial<Parameters<typeof runOwnCommand>[0]> = {}) =>
  runOwnCommand({
    words,
    home: "/",
    environment: { HOME: "/home/me", LANG: "C", GITHUB_TOKEN: "token-of-the-gateway", LD_PRELOAD: "/tmp/x.so" },
    commands: createCommandLookup(),
    clock: systemClock,
    signal: new AbortController().signal,
    ...more,
  });

const codeOf = (code: string) => (error: unknown) => error instanceof ToolError && error.code === code;

test("a command gets what finds a home and a session, and no other variable of the gateway", async () => {
  const names = (await run(["env"])).split("\n").map((line) => line.split("=")[0]).filter((name) => name !== "");
  assert.deepEqual(names.sort(), ["HOME", "LANG", "PATH"]);
});

test("words go to the program as they are: no shell reads them", async () => {
  assert.equal(await run(["echo", "$HOME; true", "a  b"]), "$HOME; true a  b\n");
});

test("a failure, a program that is not there and an endless output give no value", async () => {
  await assert.rejects(run(["false"]), codeOf("command_failed"));
  await assert.rejects(run(["no-such-program"]), codeOf("command_not_found"));
  await assert.rejects(run(["./echo"]), codeOf("command_not_found"));
  await assert.rejects(run(["yes"]), codeOf("command_failed"));
});

test("an output of 64 KiB is a value, and a longer one is none", async () => {
  assert.equal((await run(["head", "-c", "65536", "/dev/zero"])).length, 65_536);
  await assert.rejects(run(["head", "-c", "65537", "/dev/zero"]), codeOf("command_failed"));
});

test("what takes too long is stopped, and so is what is cancelled", async () => {
  const clock = createFakeClock();
  const slow = run(["sleep", "600"], { clock });
  let isOver = false;
  slow.catch(() => (isOver = true));
  await until(async () => {
    await clock.advance(10_000);
    return isOver;
  });
  await assert.rejects(slow, codeOf("command_failed"));
  const controller = new AbortController();
  const cancelled = run(["sleep", "600"], { signal: controller.signal });
  controller.abort(new CancelError("client_gone"));
  await assert.rejects(cancelled, CancelError);
});

const skip = existsSync("/usr/bin/setsid") ? false : "there is no setsid, which starts a daemon";

/** A daemon of a command, as password managers leave one: a process in a session of its own, which no signal to the group reaches. */
interface Daemon {
  /** Returns the words of a command that starts the daemon, waits until it is up, and goes on. Both are scripts of the shell */
  leave(daemon: string, then: string): readonly string[];
  isUp(): boolean;
}

function withDaemon(use: (daemon: Daemon) => Promise<void>): Promise<void> {
  return withTemporaryFolder(async (folder) => {
    const file = join(folder, "pid");
    const isUp = () => existsSync(file);
    try {
      await use({
        leave(daemon, then) {
          const script = `echo $$ > ${file}.new; mv ${file}.new ${file}; ${daemon}; rm ${file}`;
          return ["sh", "-c", `setsid sh -c '${script}' & while [ ! -e ${file} ]; do sleep 0.02; done; ${then}`];
        },
        isUp,
      });
    } finally {
      if (isUp()) killIfThere(-Number(readFileSync(file, "utf8")));
    }
  });
}

test(
  "a value comes while a daemon that the command left holds its output",
  { skip },
  () =>
    withDaemon(async ({ leave, isUp }) => {
      assert.equal(await run(leave("sleep 30", "echo value")), "value\n");
      assert.ok(isUp());
    }),
);

test(
  "the time limit ends the wait while a daemon holds the output",
  { skip },
  () =>
    withDaemon(async ({ leave, isUp }) => {
      const clock = createFakeClock();
      let isOver = false;
      const slow = run(leave("sleep 30", "sleep 600"), { clock }).finally(() => (isOver = true));
      const refused = assert.rejects(slow, codeOf("command_failed"));
      await until(isUp);
      await until(async () => {
        await clock.advance(10_000);
        return isOver;
      });
      await refused;
      assert.ok(isUp());
    }),
);

test(
  "a cancellation ends the wait while a daemon holds the output",
  { skip },
  () =>
    withDaemon(async ({ leave, isUp }) => {
      const controller = new AbortController();
      const cancelled = assert.rejects(
        run(leave("sleep 30", "sleep 600"), { signal: controller.signal }),
        CancelError,
      );
      await until(isUp);
      controller.abort(new CancelError("client_gone"));
      await cancelled;
      assert.ok(isUp());
    }),
);

test(
  "a daemon that keeps the error output finds it closed after the command",
  { skip },
  () =>
    withDaemon(async ({ leave, isUp }) => {
      const daemon = 'exec >/dev/null; trap "" PIPE; while echo x >&2; do sleep 0.02; done';
      assert.equal(await run(leave(daemon, "echo value")), "value\n");
      await until(() => !isUp());
    }),
);
