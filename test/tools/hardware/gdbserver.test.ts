import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { createFakeClock } from "../../support/fake_clock.ts";
import { createToolBench } from "../../support/tool_bench.ts";

const skip = spawnSync("gdbserver", ["--version"]).status === 0 ? false : "no gdbserver here";

test(
  "a program under a real gdbserver is read without acknowledgments, and still waits at its start",
  { skip },
  async (t) => {
    // A port of its own choice is not told in a way that every version shares, but the first line always names it
    const child = spawn("gdbserver", ["127.0.0.1:0", "/bin/sleep", "60"], { stdio: ["ignore", "ignore", "pipe"] });
    const exited = once(child, "exit");
    let pid = "";
    try {
      let said = "";
      for await (const chunk of child.stderr) {
        said += String(chunk);
        if (/Listening on port \d+/.test(said)) break;
      }
      pid = /pid = (\d+)/.exec(said)?.[1] ?? "";
      const port = /Listening on port (\d+)/.exec(said)?.[1];
      if (port === undefined) return t.skip(`gdbserver may not trace here: ${said.slice(0, 200)}`);
      const start = readFileSync(`/proc/${pid}/maps`, "latin1").split("-", 1)[0] ?? "";
      const boards = {
        bench: {
          gdb_remote: `127.0.0.1:${port}`,
          memory_map: [{ name: "program", start: Number.parseInt(start, 16), length: 4096 }],
        },
      };
      // Without time: gdbserver may take as long as it needs
      const { call } = createToolBench({
        root: "/workspace",
        clock: createFakeClock(),
        config: { hardware: { boards } },
      });
      const state = () => / ([A-Za-z]) /.exec(readFileSync(`/proc/${pid}/stat`, "latin1").replace(/^.*\)/, ""))?.[1];
      assert.equal(state(), "t");
      for (let time = 0; time < 2; time++) {
        const read = (await call("hardware_memory_read", { board: "bench", address: `0x${start}`, length: 4 })).result;
        assert.equal((read.data as { hex: string }).hex, "7f454c46", read.output);
        assert.equal(state(), "t");
      }
      const info = (await call("hardware_board_info", {})).result;
      assert.equal(info.isError, false, info.output);
      const { architecture, registers, stub } = info.data as {
        architecture: string;
        registers: readonly { readonly name: string; readonly value: string | null }[];
        stub: { kind: string; acknowledges: boolean };
      };
      const counter = registers.find(({ name }) => ["rip", "pc"].includes(name))?.value;
      const seen = counterOf(pid);
      assert.ok(seen === undefined || seen === counter, `${counter} is not ${seen}`);
      assert.equal(typeof architecture, "string");
      assert.deepEqual([stub.kind, stub.acknowledges], ["gdbserver", false]);
      assert.equal(state(), "t");
    } finally {
      child.kill("SIGKILL");
      await exited;
      if (pid !== "") spawnSync("kill", ["-9", pid]);
    }
  },
);

/** Where a process stands, as the kernel says; undefined where it does not. */
function counterOf(pid: string): string | undefined {
  try {
    return /(0x[0-9a-f]+)\s*$/.exec(readFileSync(`/proc/${pid}/syscall`, "latin1"))?.[1];
  } catch {
    return undefined;
  }
}
