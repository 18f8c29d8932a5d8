import assert from "node:assert/strict";
import { test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { maskUserinfo } from "../../../lib/system/git/git_process.ts";

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
