import { test } from "node:test";
import { chaos } from "../support/daemon_chaos.ts";

test("a hundred starts and stops with kills at any moment leave no process and no file", () =>
  chaos({ cycles: 100, seed: 2026 }));
