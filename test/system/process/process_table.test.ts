import assert from "node:assert/strict";
import { test } from "node:test";
import { ProcessTable } from "../../../lib/system/process/process_table.ts";
import { createFakeClock } from "../../support/fake_clock.ts";

test("in a cluster a process of another gateway is not found, and the message says whose it is", () => {
  const table = new ProcessTable(createFakeClock(), undefined, "gw_000000000000000000abcdef");
  assert.throws(() => table.get("p1-uvwxyz"), /belongs to another gateway of the cluster, and ends with that one/);
  assert.throws(() => table.get("p1-abcdef"), /Cannot find the process "p1-abcdef": the processes are none/);
});
