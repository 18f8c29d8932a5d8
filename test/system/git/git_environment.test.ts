import assert from "node:assert/strict";
import { test } from "node:test";
import { FIXED_OVERRIDES, type Override } from "../../../lib/system/git/config_overrides.ts";
import { gitEnvironment } from "../../../lib/system/git/git_environment.ts";

const PLACE = { gitDir: "/work/.git", top: "/work", overrides: [], writes: false } as const;

test("git may use no protocol but the one that a call names", () => {
  assert.equal(gitEnvironment(PLACE).GIT_ALLOW_PROTOCOL, "none");
  assert.equal(gitEnvironment({ ...PLACE, protocol: "https" }).GIT_ALLOW_PROTOCOL, "https");
});

test("git takes no lock for a call that only reads", () => {
  assert.equal(gitEnvironment(PLACE).GIT_OPTIONAL_LOCKS, "0");
  assert.equal(gitEnvironment({ ...PLACE, writes: true }).GIT_OPTIONAL_LOCKS, "1");
});

test("of the configuration the repository's own overrides come first, then the fixed ones, and what a call adds wins", () => {
  const own: Override = ["diff.external", ""];
  const added: Override = ["user.name", "Ada"];
  const environment = gitEnvironment({ ...PLACE, overrides: [own], added: [added] });
  const count = Number(environment.GIT_CONFIG_COUNT);
  const pairs = Array.from({ length: count }, (_, index) => [
    environment[`GIT_CONFIG_KEY_${index}`],
    environment[`GIT_CONFIG_VALUE_${index}`],
  ]);
  assert.deepEqual(pairs, [own, ...FIXED_OVERRIDES, added]);
  assert.equal(environment[`GIT_CONFIG_KEY_${count}`], undefined);
});
