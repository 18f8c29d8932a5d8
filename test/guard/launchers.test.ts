import assert from "node:assert/strict";
import { test } from "node:test";
import { defaultConfig } from "../../lib/config/config.ts";
import { launchersIn } from "../../lib/guard/understood_commands.ts";

test("allowed commands that can run any program are found, also with a version in their name", () => {
  const allowed = ["ls", "bash", "cat", "python3", "python3.13", "env", "node", "lua5.4", "gcc-14", "grep", "7z"];
  assert.deepEqual(launchersIn(allowed), ["bash", "python3", "python3.13", "env", "node", "lua5.4", "gcc-14"]);
});

test("none of the commands allowed by default is one", () => {
  assert.deepEqual(launchersIn(defaultConfig().security.allowed_commands), []);
});
