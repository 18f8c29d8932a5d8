import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { ToolError } from "../../../lib/base/errors.ts";
import { isSafeKey, keyParts, parseConfigEntries } from "../../../lib/system/git/config_entries.ts";
import { configOverrides, FIXED_OVERRIDES, type GitUse } from "../../../lib/system/git/config_overrides.ts";

const LOOKS: GitUse = { content: false, merges: false, network: false };
const DOES: GitUse = { content: true, merges: true, network: true };
const FIXED = new Map(FIXED_OVERRIDES);

/** Returns the fate of one key: `kept`, `refused`, or the value that wins. */
function fate(key: string, use: GitUse, value = "evil"): string {
  try {
    const entries = [{ key, value, origin: "file:.git/config" }];
    const overrides = new Map(configOverrides(entries, { use, gitDir: "/w/.git", top: "/w" }));
    const winner = overrides.get(key) ?? FIXED.get(key);
    return winner === undefined ? "kept" : `"${winner}"`;
  } catch (error) {
    assert.ok(error instanceof ToolError && error.code === "git_config_refused", String(error));
    assert.ok(error.message.includes(JSON.stringify(key)), error.message);
    return "refused";
  }
}

test("plain settings of a repository are kept", () => {
  const keys = ["core.autocrlf", "core.repositoryformatversion", "user.name", "branch.main.remote", "branch.a.b.merge"];
  for (const key of [...keys, "remote.origin.url", "remote.origin.fetch", "diff.algorithm", "diff.x.xfuncname"]) {
    for (const use of [LOOKS, DOES]) assert.equal(fate(key, use), "kept", key);
  }
});

test("keys that run a program, or reach elsewhere, are overridden by name or refused", () => {
  const fates: Readonly<Record<string, readonly [looks: string, does: string]>> = {
    "filter.x.clean": ['""', "refused"],
    "filter.a=b.c d.smudge": ['""', "refused"],
    "filter.x.process": ['""', "refused"],
    "filter.x.required": ['"false"', '"false"'],
    "merge.x.driver": ['""', "refused"],
    "diff.external": ['""', '""'],
    "diff.x.command": ['""', '""'],
    "diff.x.textconv": ['""', '""'],
    "core.fsmonitor": ['"false"', '"false"'],
    "core.hookspath": ['"/dev/null"', '"/dev/null"'],
    "core.sshcommand": ['"false"', '"false"'],
    "core.gitproxy": ['""', '""'],
    "pager.log": ['""', '""'],
    "gpg.ssh.defaultkeycommand": ['""', '""'],
    "credential.https://example.com.helper": ['""', '""'],
    "alias.st": ['""', '""'],
    "submodule.x.update": ['"none"', '"none"'],
    "uploadpack.packobjectshook": ['""', '""'],
    "core.somethingnew": ['""', '""'],
    "new.section.key": ['""', '""'],
    "include.path": ["refused", "refused"],
    "includeif.gitdir:/.path": ["refused", "refused"],
    "extensions.partialclone": ["refused", "refused"],
    "core.worktree": ["refused", "refused"],
    "remote.x.promisor": ["refused", "refused"],
    "remote.x.vcs": ["kept", "refused"],
    "remote.x.uploadpack": ["kept", "refused"],
    "remote.x.receivepack": ["kept", "refused"],
    "remote.x.proxy": ["kept", "refused"],
    "remote.x.mirror": ["kept", "refused"],
    "url.ext::sh.insteadof": ["kept", "refused"],
    "http.proxy": ['""', "refused"],
    "http.https://example.com/.sslverify": ["kept", "refused"],
    "http.cookiefile": ["kept", "refused"],
    "protocol.ext.allow": ['""', '""'],
  };
  const found = Object.fromEntries(Object.keys(fates).map((key) => [key, [fate(key, LOOKS), fate(key, DOES)]]));
  assert.deepEqual(found, fates);
  assert.equal(fate("core.worktree", DOES, ".."), "kept");
});

test("whatever the key, it is on the safe list, of no use without a remote, overridden or refused", () => {
  const word = fc.constantFrom(
    "core",
    "filter",
    "diff",
    "merge",
    "remote",
    "url",
    "http",
    "include",
    "x",
    "alias",
    "hook",
  );
  const middle = fc.option(fc.string({ minLength: 1, maxLength: 12 }), { nil: undefined });
  const name = fc.constantFrom("clean", "command", "url", "path", "driver", "x", "program", "helper", "required");
  fc.assert(
    fc.property(word, middle, name, (section, subsection, last) => {
      const key = [section, ...subsection === undefined ? [] : [subsection], last].join(".");
      assert.deepEqual(keyParts(key), { section, subsection, name: last });
      if (fate(key, LOOKS) !== "kept") return;
      assert.ok(isSafeKey(key) || ["remote", "url", "http"].includes(section), key);
      if (fate(key, DOES) === "kept") assert.ok(isSafeKey(key) || section === "http", key);
    }),
    { numRuns: 200 },
  );
});

test("parseConfigEntries() reads what git lists, line breaks in values included", () => {
  const listed =
    "file:.git/config\0core.bare\nfalse\0file:.git/config\0filter.x.required\0command line:\0a.b.c\none\ntwo=\0";
  assert.deepEqual(parseConfigEntries(listed), [
    { key: "core.bare", value: "false", origin: "file:.git/config" },
    { key: "filter.x.required", value: "", origin: "file:.git/config" },
    { key: "a.b.c", value: "one\ntwo=", origin: "command line:" },
  ]);
  assert.deepEqual(parseConfigEntries(""), []);
  assert.throws(() => parseConfigEntries("f\0filter.\ufffd.clean\nx\0"), { code: "git_config_refused" });
});
