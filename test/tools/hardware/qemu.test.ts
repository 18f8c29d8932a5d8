import assert from "node:assert/strict";
import { test } from "node:test";
import { CORTEX_M3_FIRMWARE } from "../../../fixtures/firmware/cortex_m3.ts";
import { createFakeClock } from "../../support/fake_clock.ts";
import { NO_QEMU, type QemuBoard, withQemuBoard } from "./qemu_board.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { until } from "../../support/until.ts";

const MEMORY_MAP = [
  { name: "flash", start: 0, length: 0x40000 },
  { name: "ram", start: 0x20000000, length: 0x10000 },
];

const benchOf = ({ remote }: QemuBoard) => {
  const boards = { bench: { gdb_remote: remote, memory_map: MEMORY_MAP } };
  // Without time: QEMU may take as long as it needs
  const { call } = createToolBench({ root: "/workspace", clock: createFakeClock(), config: { hardware: { boards } } });
  const run = async (name: string, input: unknown) => {
    const { result } = await call(name, input);
    assert.equal(result.isError, false, result.output);
    // The tools' data are records of plain values
    return { output: result.output, data: result.data as Record<string, unknown> };
  };
  const counted = async () => {
    const { data } = await run("hardware_memory_read", { board: "bench", address: "0x20000000", length: 4 });
    return Buffer.from(String(data.hex), "hex").readUInt32LE();
  };
  return { call, run, counted };
};

test(
  "the memory of a real stub's board is read byte for byte",
  { skip: NO_QEMU },
  () =>
    withQemuBoard({ halted: true }, async (board) => {
      const { run } = benchOf(board);
      const { output, data } = await run("hardware_memory_read", { board: "bench", address: "0x80", length: 26 });
      assert.equal(
        output,
        [
          "00000080  50 6f 73 74 65 72 6e 20 66 69 72 6d 77 61 72 65  |Postern firmware|",
          "00000090  20 66 69 78 74 75 72 65 00 ff                    | fixture..|",
        ].join("\n"),
      );
      assert.deepEqual(data, {
        board: "bench",
        address: "0x80",
        length: 26,
        hex: Buffer.from(CORTEX_M3_FIRMWARE.subarray(0x80)).toString("hex"),
      });
    }),
);

test(
  "a read of many packets is put together in order",
  { skip: NO_QEMU },
  () =>
    withQemuBoard({ halted: true }, async (board) => {
      const { run } = benchOf(board);
      const { data } = await run("hardware_memory_read", { board: "bench", address: "0", length: 16_384 });
      const flash = new Uint8Array(16_384);
      flash.set(CORTEX_M3_FIRMWARE);
      assert.equal(data.hex, Buffer.from(flash).toString("hex"));
    }),
);

test(
  "a board says its architecture, stub, state and registers",
  { skip: NO_QEMU },
  () =>
    withQemuBoard({ halted: true }, async (board) => {
      const { run } = benchOf(board);
      const { data, output } = await run("hardware_board_info", "bench");
      assert.equal(data.architecture, "arm");
      assert.equal((data.stub as Record<string, unknown>).kind, "qemu");
      assert.deepEqual((data.features as readonly unknown[])[0], { name: "org.gnu.gdb.arm.m-profile", registers: 17 });
      const registers = data.registers as readonly { readonly name: string; readonly value: string }[];
      assert.deepEqual(registers.filter(({ name }) => ["sp", "pc", "xpsr"].includes(name)), [
        { name: "sp", value: "0x20010000" },
        { name: "pc", value: "0x40" },
        { name: "xpsr", value: "0x41000000" },
      ]);
      assert.equal(data.stopped, "signal 5");
      assert.match(output, /^architecture: arm$/m);
      assert.deepEqual((await run("hardware_board_info", {})).data, data);
    }),
);

test(
  "a board whose stub has no memory map has the configured one, and nothing outside it is read",
  { skip: NO_QEMU },
  () =>
    withQemuBoard({ halted: true }, async (board) => {
      const { run, call } = benchOf(board);
      const { data } = await run("hardware_memory_map", "bench");
      assert.deepEqual(data, {
        board: "bench",
        source: "configuration",
        regions: [
          { name: "flash", start: "0x0", length: "0x40000" },
          { name: "ram", start: "0x20000000", length: "0x10000" },
        ],
      });
      for (
        const [address, length] of [["0x40000000", 4], ["0x3ffff", 2], ["0x1fffffff", 2], ["0xffffffffffffffff", 64]]
      ) {
        const { result } = await call("hardware_memory_read", { board: "bench", address, length });
        assert.equal(result.isError, true);
        assert.match(result.output, /outside its memory map .*flash 0x0-0x3ffff, ram 0x20000000-0x2000ffff/);
      }
    }),
);

test(
  "a machine that runs is halted for the read alone, and runs on",
  { skip: NO_QEMU },
  () =>
    withQemuBoard({ halted: false }, async (board) => {
      const { counted, run } = benchOf(board);
      const first = await counted();
      assert.equal(await board.status(), "running");
      await until(async () => await counted() > first, "it counts no further");
      assert.equal((await run("hardware_board_info", "bench")).data.afterwards, "detached, so that it runs on");
      assert.equal(await board.status(), "running");
    }),
);

test(
  "a machine that was never started is not started by a read",
  { skip: NO_QEMU },
  () =>
    withQemuBoard({ halted: true }, async (board) => {
      const { counted, run } = benchOf(board);
      assert.equal(await counted(), 0);
      assert.equal((await run("hardware_board_info", "bench")).data.afterwards, "left halted, as it was");
      assert.equal(await board.status(), "prelaunch");
      assert.equal(await counted(), 0);
    }),
);

test(
  "a read that is refused lets the machine go too",
  { skip: NO_QEMU },
  () =>
    withQemuBoard({ halted: false }, async (board) => {
      const { call, counted } = benchOf(board);
      const { result } = await call("hardware_memory_read", { board: "bench", address: "0x50000000" });
      assert.equal(result.isError, true);
      assert.equal(await board.status(), "running");
      await until(async () => await counted() > 0, "it does not count");
    }),
);

test(
  "calls at the same time have the board one after the other",
  { skip: NO_QEMU },
  () =>
    withQemuBoard({ halted: true }, async (board) => {
      const { run } = benchOf(board);
      const reads = Array.from(
        { length: 8 },
        (_, index) => run("hardware_memory_read", { board: "bench", address: `${0x80 + index}`, length: 1 }),
      );
      const bytes = (await Promise.all(reads)).map(({ data }) => data.hex).join("");
      assert.equal(Buffer.from(bytes, "hex").toString(), "Postern ");
    }),
);

test(
  "an address that the board itself refuses is an error with the stub's own number",
  { skip: NO_QEMU },
  () =>
    withQemuBoard({ halted: true }, async ({ remote }) => {
      const boards = { bench: { gdb_remote: remote, memory_map: [{ name: "all", start: 0, length: 2 ** 32 }] } };
      const { call } = createToolBench({
        root: "/workspace",
        clock: createFakeClock(),
        config: { hardware: { boards } },
      });
      const { result } = await call("hardware_memory_read", { board: "bench", address: "0x10000000", length: 16 });
      assert.equal(result.isError, true);
      assert.match(result.output, /refused to read memory at 0x10000000 with error 14$/);
    }),
);
