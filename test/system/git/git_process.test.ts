import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { FIXED_OVERRIDES, type Override } from "../../../lib/system/git/config_overrides.ts";
import { gitEnvironment, maskUserinfo } from "../../../lib/system/git/git_process.ts";

test("masks user and password of each URL, and nothing else", () => {
  const cases = {
    "https://me:secret@example.com/x": "https://***@example.com/x",
    "https://token@example.com https://u:p@ss@h/": "https://***@example.com https://***@h/",
    "fatal: 'http://a:b@h:1/': 401": "fatal: 'http://***@h:1/': 401",
    "https://example.com/@scope mail@example.com": "https://example.com/@scope mail@example.com",
    "git@example.com:x.git": "git@example.com:x.git",
  };
  for (const [text, masked] of Object.entries(cases)) assert.equal(maskUserinfo(text), masked);
});

test("takes linear time", () => {
  const started = systemClock.monotonic();
  maskUserinfo("://a".repeat(500_000));
  maskUserinfo(`://${"a".repeat(2_000_000)}`);
  assert.ok(systemClock.monotonic() - started < 10_000);
});

const PLACE = { gitDir: "/home/me/project/.git", top: "/home/me/project", overrides: [], writes: false } as const;

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
