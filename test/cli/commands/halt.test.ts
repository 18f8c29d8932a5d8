import assert from "node:assert/strict";
import { test } from "node:test";
import { onMachine } from "../support/run_in.ts";

test("work is halted while no gateway runs, its start and the status say so, and the gateway that runs lets it go on", () =>
  onMachine(async ({ run, withGateway }) => {
    assert.deepEqual((await run(["halt", "--tool", "glob_search", "--network"])).stdout.split("\n"), [
      "Halted: every call that reaches the network",
      'Halted: the tool "glob_search"',
      "",
    ]);
    await withGateway([], async () => {
      assert.match((await run(["status"])).stdout, /Halted +the tool "glob_search", since .*postern resume/s);
      const call = ["tool", "call", "glob_search", "--input", '{"pattern":"*"}'];
      assert.match((await run(call)).stderr, /a person has halted the tool "glob_search"/);
      assert.equal((await run(["halt"])).stdout, "Halted: all work\n");
      assert.match((await run(call)).stderr, /a person has halted .*postern resume/);
      assert.equal((await run(["resume", "--network"])).stdout, "Goes on: network\n");
      assert.equal((await run(["resume", "--run", "run_1"])).stdout, "Nothing of it is halted\n");
      assert.equal((await run(["resume"])).stdout, "Goes on: tool:glob_search, all\n");
      assert.equal((await run(call)).code, 0);
    });
  }));
