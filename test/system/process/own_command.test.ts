import assert from "node:assert/strict";
import { test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { systemClock } from "../../../lib/base/clock.ts";
import { ToolError } from "../../../lib/base/errors.ts";
import { createCommandLookup } from "../../../lib/system/process/command_lookup.ts";
import { runOwnCommand } from "../../../lib/system/process/own_command.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
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
