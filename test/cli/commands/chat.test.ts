import assert from "node:assert/strict";
import { test } from "node:test";
import { writeControlFile } from "../../../lib/host/control_file.ts";
import { withRunningGateway } from "../../support/running_gateway.ts";
import { onMachine } from "../support/run_in.ts";

test("an interrupt cancels the reply under way and ends the command with exit 1", () =>
  onMachine(({ run, cwd }) =>
    withRunningGateway({ script: [{ text: "half an answ", hang: "after" }] }, async ({ url, token, dataDir }) => {
      const record = { address: `${url}/`, pid: process.pid, token, started_at: "", version: "", workspace: cwd };
      await writeControlFile(dataDir, record);
      let interrupted = false;
      const { code, stdout, stderr } = await run(["chat", "tell me", "--data-dir", dataDir], {
        onOutput({ stdout, interrupt }) {
          if (interrupted || !stdout.includes("half an answ")) return;
          interrupted = true;
          interrupt();
        },
      });
      assert.equal(code, 1);
      assert.equal(stdout, "half an answ\n");
      assert.match(stderr, /^\[error\] /m);
    })
  ));

test("text of the model cannot drive the terminal, and reaches a pipe unchanged", () =>
  onMachine(({ run, cwd }) =>
    withRunningGateway(
      { script: [{ text: "\u001b]0;owned\u0007" }, { text: "\u001b[2J" }] },
      async ({ url, token, dataDir }) => {
        const record = { address: `${url}/`, pid: process.pid, token, started_at: "", version: "", workspace: cwd };
        await writeControlFile(dataDir, record);
        const argv = ["chat", "hello", "--data-dir", dataDir];
        assert.equal((await run(argv, { terminal: true })).stdout, "\\x1b]0;owned\\x07\n");
        assert.equal((await run(argv)).stdout, "\u001b[2J\n");
      },
    )
  ));
