import assert from "node:assert/strict";
import { test } from "node:test";
import type { CliIo } from "../../cli/command.ts";
import { reportFailure } from "../../cli/report_failure.ts";

function reported(error: unknown) {
  let stderr = "";
  const io = { env: {}, isTerminal: { stdout: false, stderr: false }, stderr: (text: string) => void (stderr += text) };
  const code = reportFailure(error, { io: io as unknown as CliIo, json: false });
  return { code, stderr };
}

const systemError = (code: string, message: string) => Object.assign(new Error(message), { code, syscall: "write" });

test("a full or read-only disk is told in its own words, and is no internal error", () => {
  for (const code of ["ENOSPC", "EROFS", "EACCES"]) {
    assert.deepEqual(reported(systemError(code, `${code}: no, write`)), {
      code: 1,
      stderr: `Cannot use the disk: ${code}: no, write\n`,
    });
  }
});

test("a mistake of this program is an internal error with its stack", () => {
  for (
    const error of [new TypeError("no"), systemError("EINVAL", "no"), Object.assign(new Error("no"), { code: "EIO" })]
  ) {
    const { code, stderr } = reported(error);
    assert.equal(code, 70);
    assert.match(stderr, /^Internal error: \w*Error: no\n +at /);
  }
});
