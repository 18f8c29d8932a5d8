import { test } from "node:test";
import { executeThroughKills } from "../support/killed_procedure.ts";

test("a procedure that is killed with SIGKILL is finished, and each step took effect once", async () => {
  await executeThroughKills({ steps: 4, kills: 2, seed: 1 });
});
