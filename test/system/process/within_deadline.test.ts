import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe, test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import type { CommandLine } from "../../../lib/system/process/process_group.ts";
import { runCommand } from "../../../lib/system/process/run_command.ts";
import { TOO_LATE, withinDeadline } from "../../../lib/system/process/within_deadline.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

const skip = process.platform === "linux" ? false : "only Linux tells processes the time since its start";

async function run(line: CommandLine) {
  const { ending, stdout, stderr } = await runCommand(line, {
    ...{ timeoutMs: 10_000, maxOutputBytes: 10_000, signal: new AbortController().signal, clock: systemClock },
  });
  return { ending, stdout: stdout.text, stderr: stderr.text };
}

describe("a program with a deadline", { skip }, () => {
  test("starts before it, with the words, the environment and the folder that it was given", () =>
    withTemporaryFolder(async (cwd) => {
      const env = { PATH: "/usr/bin:/bin", GIVEN: "two words" };
      const words = ["a b", "", "c'd", 'e"f', "$HOME", "-n", "two\nlines", "*"];
      const printed = await run(
        withinDeadline({ file: "/usr/bin/printf", args: ["%s|", ...words], cwd, env }, 60_000),
      );
      assert.deepEqual([printed.stdout, printed.stderr], [`${words.join("|")}|`, ""]);
      const bare: CommandLine = { file: "/usr/bin/env", args: [], cwd, env };
      // A bash in the place of the shell names the program in a variable
      const variables = (text: string) => text.split("\n").filter((line) => !line.startsWith("_=")).sort();
      const seen = await run(withinDeadline(bare, 60_000));
      assert.deepEqual(variables(seen.stdout), variables((await run(bare)).stdout));
      const place = await run(withinDeadline({ file: "/bin/pwd", args: [], cwd, env }, 60_000));
      assert.equal(place.stdout.trim(), cwd);
    }));

  test("gives its exit code and its signal on", async () => {
    const line = (script: string) =>
      withinDeadline({ file: "/bin/sh", args: ["-c", script], cwd: "/", env: {} }, 60_000);
    assert.deepEqual((await run(line("exit 3"))).ending, { kind: "exit", code: 3 });
    assert.deepEqual((await run(line("kill -TERM $$"))).ending, { kind: "signal", name: "SIGTERM" });
  });

  test("does not start after it, however late the gateway goes on that has looked in time", () =>
    withTemporaryFolder(async (cwd) => {
      const line = { file: "/bin/sh", args: ["-c", "echo begun > effect"], cwd, env: { PATH: "/usr/bin:/bin" } };
      const looked = withinDeadline(line, 20);
      await systemClock.sleep(60);
      const late = await run(looked);
      assert.deepEqual(late.ending, { kind: "exit", code: TOO_LATE });
      assert.match(late.stderr, /^Not started: the gateway stood still until others could take its work over\n$/);
      assert.deepEqual((await run(withinDeadline(line, -1_000))).ending, { kind: "exit", code: TOO_LATE });
      assert.equal(existsSync(join(cwd, "effect")), false);
    }));
});
