import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe, test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { type EffectRight, withEffectRight } from "../../../lib/base/effect_right.ts";
import { behindGate, RightUncertain } from "../../../lib/system/process/gated_start.ts";
import { type CommandLine, startGroup } from "../../../lib/system/process/process_group.ts";
import { runCommand } from "../../../lib/system/process/run_command.ts";
import { NEVER } from "../../support/mcp_bench.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

const skip = process.platform === "win32" && "programs are not supported there";
const GIVEN: EffectRight = { mayAct: () => Promise.resolve(), mayActNow: () => true };

async function run(line: CommandLine, right: EffectRight | undefined = GIVEN) {
  const limits = { timeoutMs: 10_000, maxOutputBytes: 10_000 };
  const running = () => runCommand(line, { ...limits, signal: NEVER, clock: systemClock, isEffect: true });
  const { ending, stdout, stderr } = await withEffectRight({ right }, running);
  return { ending, stdout: stdout.text, stderr: stderr.text };
}

describe("a program behind a gate", { skip }, () => {
  test("gets the words, the environment, the folder and the input that it would have without one", () =>
    withTemporaryFolder(async (cwd) => {
      const env = { PATH: "/usr/bin:/bin", GIVEN: "two words", IFS: "x" };
      const words = ["a b", "", "c'd", 'e"f', "$HOME", "-n", "two\nlines", "*", "`id`"];
      const printed = await run({ file: "/usr/bin/printf", args: ["%s|", ...words], cwd, env });
      assert.deepEqual([printed.stdout, printed.stderr], [`${words.join("|")}|`, ""]);
      // A bash in the place of the shell has two variables of its own
      const variables = (text: string) => text.split("\n").filter((line) => !/^(_|SHLVL)=/.test(line)).sort();
      for (const file of ["/usr/bin/env", "/bin/pwd", "/bin/cat"]) {
        const line = { file, args: [], cwd, env };
        const [gated, bare] = [await run(line), await run(line, undefined)];
        assert.deepEqual([variables(gated.stdout), gated.stderr], [variables(bare.stdout), bare.stderr], file);
      }
    }));

  test("gives its exit code and its signal on", async () => {
    const line = (script: string) => ({ file: "/bin/sh", args: ["-c", script], cwd: "/", env: {} });
    assert.deepEqual((await run(line("exit 3"))).ending, { kind: "exit", code: 3 });
    assert.deepEqual((await run(line("kill -TERM $$"))).ending, { kind: "signal", name: "SIGTERM" });
  });

  test("is started and killed, and begins nothing, when the right is uncertain by then", () =>
    withTemporaryFolder(async (cwd) => {
      const line = { file: "/bin/sh", args: ["-c", "echo begun > effect"], cwd, env: { PATH: "/usr/bin:/bin" } };
      const uncertain: EffectRight = { mayAct: () => Promise.resolve(), mayActNow: () => false };
      await assert.rejects(run(line, uncertain), RightUncertain);
      await systemClock.sleep(100);
      assert.equal(existsSync(join(cwd, "effect")), false);
    }));

  test("ends when its gateway is gone before it could begin", () =>
    withTemporaryFolder(async (cwd) => {
      const line = { file: "/bin/sh", args: ["-c", "echo begun > effect"], cwd, env: { PATH: "/usr/bin:/bin" } };
      const group = startGroup(behindGate(line));
      // The end of a process closes its pipes
      group.stdin?.end();
      assert.deepEqual(await group.exited, { kind: "exit", code: 1 });
      assert.equal(existsSync(join(cwd, "effect")), false);
    }));
});
