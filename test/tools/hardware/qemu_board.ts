import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { CORTEX_M3_FIRMWARE } from "../../../fixtures/firmware/cortex_m3.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";

const PROGRAM = "qemu-system-arm";

/** Why there is no board to test with; false when there is one. */
export const NO_QEMU: string | false = spawnSync(PROGRAM, ["--version"]).status === 0 ? false : `no ${PROGRAM} here`;

/** A Cortex-M3 board in QEMU, with its real GDB stub. */
export interface QemuBoard {
  /** `host:port` of the stub */
  readonly remote: string;
  /** QEMU's own word, which it gives without a debugger: `running`, `paused` or `prelaunch` */
  status(): Promise<string>;
}

/** @param halted QEMU's `-S`: the machine stands still until something starts it */
export async function withQemuBoard(
  { halted }: { readonly halted: boolean },
  use: (board: QemuBoard) => Promise<void>,
): Promise<void> {
  await withTemporaryFolder(async (folder) => {
    const firmware = join(folder, "firmware.bin");
    writeFileSync(firmware, CORTEX_M3_FIRMWARE);
    const args = ["-M", "lm3s6965evb", "-nodefaults", "-display", "none", "-serial", "none", "-qmp", "stdio"];
    args.push("-kernel", firmware, "-gdb", "tcp:127.0.0.1:0", ...halted ? ["-S"] : []);
    const child = spawn(PROGRAM, args, { stdio: ["pipe", "pipe", "ignore"] });
    const exited = once(child, "exit");
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const ask = async (execute: string): Promise<unknown> => {
      child.stdin.write(`${JSON.stringify({ execute })}\n`);
      for (;;) {
        const { value, done } = await lines.next();
        if (done) throw new Error(`${PROGRAM} ended`);
        const message = JSON.parse(value) as { readonly return?: unknown };
        // The greeting and events come in between
        if ("return" in message) return message.return;
      }
    };
    try {
      await ask("qmp_capabilities");
      const devices = await ask("query-chardev") as readonly { readonly filename: string; readonly label: string }[];
      const filename = devices.find(({ label }) => label === "gdb")?.filename ?? "";
      const remote = /tcp:(127\.0\.0\.1:\d+)/.exec(filename)?.[1];
      if (remote === undefined) throw new Error(`${PROGRAM} does not say its port: ${filename}`);
      await use({
        remote,
        status: async () => (await ask("query-status") as { readonly status: string }).status,
      });
    } finally {
      child.kill("SIGKILL");
      await exited;
    }
  });
}
