import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { readHostBoard } from "../../lib/system/read_host_board.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const withMachine = (files: Readonly<Record<string, string>>, use: (root: string) => Promise<void>) =>
  withTemporaryFolder(async (root) => {
    for (const [name, text] of Object.entries(files)) {
      const path = join(root, name);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, text);
    }
    await use(root);
  });

test("a single-board computer is what its device tree says", () =>
  withMachine({
    "proc/device-tree/model": "Raspberry Pi 4 Model B Rev 1.4\0",
    "proc/device-tree/compatible": "raspberrypi,4-model-b\0brcm,bcm2711\0",
    "proc/device-tree/serial-number": "10000000abcdef\0",
  }, async (root) => {
    const board = await readHostBoard(root);
    assert.equal(board.model, "Raspberry Pi 4 Model B Rev 1.4");
    assert.deepEqual(board.compatible, ["raspberrypi,4-model-b", "brcm,bcm2711"]);
    assert.doesNotMatch(JSON.stringify(board), /abcdef/);
  }));

test("a computer is what its DMI table says, without placeholders and serial numbers", () =>
  withMachine({
    "sys/class/dmi/id/sys_vendor": "Lenovo\n",
    "sys/class/dmi/id/product_name": "To Be Filled By O.E.M.\n",
    "sys/class/dmi/id/board_name": "20XW\n",
    "sys/class/dmi/id/bios_version": "N32ET75W (1.51 )\n",
    "sys/class/dmi/id/product_uuid": "4c4c4544\n",
  }, async (root) => {
    const { model, vendor, firmware, compatible } = await readHostBoard(root);
    assert.deepEqual({ model, vendor, firmware, compatible }, {
      model: "20XW",
      vendor: "Lenovo",
      firmware: "N32ET75W (1.51 )",
      compatible: [],
    });
  }));

test("a machine that says nothing still has processors and memory", () =>
  withMachine({}, async (root) => {
    const { model, vendor, cpu, memoryBytes, architecture } = await readHostBoard(root);
    assert.deepEqual([model, vendor], [undefined, undefined]);
    assert.ok(cpu.cores > 0 && memoryBytes > 0 && architecture !== "");
  }));

test("what a machine says is one short printable line", () =>
  withMachine({ "proc/device-tree/model": `Board\n\x1b[31m${"x".repeat(5000)}` }, async (root) => {
    const { model = "" } = await readHostBoard(root);
    assert.match(model, /^Board\[31mx+$/);
    assert.equal(model.length, 200);
  }));
