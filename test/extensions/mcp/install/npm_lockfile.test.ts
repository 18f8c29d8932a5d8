import assert from "node:assert/strict";
import { test } from "node:test";
import { checkLockfile } from "../../../../lib/extensions/mcp/install/npm_lockfile.ts";

const integrity = `sha512-${"A".repeat(86)}==`;
const OWN = {
  version: "1.0.0",
  resolved: "https://registry.test/a.tgz",
  integrity,
  bin: { a: "a.js" },
  dependencies: { b: "^1.0.0", c: "npm:@scope/other@~2.0.0 || 3", d: "latest" },
};
const B = { version: "1.0.0", resolved: "https://registry.test/b.tgz", integrity, hasInstallScript: true };

function lock(packages: Readonly<Record<string, unknown>>): string {
  return JSON.stringify({ lockfileVersion: 3, packages: { "": {}, ...packages } });
}

test("checkLockfile() takes packages of a registry with strong digests, and names those with scripts", () => {
  const text = lock({
    "node_modules/a": OWN,
    "node_modules/b": B,
    "node_modules/b/node_modules/@x/inner": { ...B, inBundle: true, resolved: undefined, integrity: undefined },
  });
  assert.deepEqual(checkLockfile(text, "a"), {
    version: "1.0.0",
    integrity,
    programs: { a: "a.js" },
    withScripts: ["b", "@x/inner"],
    count: 3,
  });
});

for (
  const [what, packages, reason] of [
    [
      "a package from git",
      { "node_modules/b": { ...B, resolved: "git+ssh://git@x.test/b.git#abc" } },
      /"b" does not come from a registry/,
    ],
    ["a package without a digest", { "node_modules/b": { ...B, integrity: undefined } }, /no strong digest of "b"/],
    [
      "a package with a weak digest",
      { "node_modules/b": { ...B, integrity: `sha1-${"A".repeat(27)}=` } },
      /no strong digest of "b"/,
    ],
    ["a link", { "node_modules/b": { link: true, resolved: "../b" } }, /"b", which is a folder/],
    ["a package of a workspace", { "packages/b": B }, /which is a folder/],
    [
      "a range that is an address",
      { "node_modules/b": { ...B, dependencies: { e: "https://x.test/e.tgz" } } },
      /"b" needs "e" from "https:/,
    ],
    [
      "a range that is a repository",
      { "node_modules/b": { ...B, dependencies: { e: "owner/repository" } } },
      /needs "e" from/,
    ],
    [
      "a peer of another address",
      { "node_modules/b": { ...B, peerDependencies: { f: "git+https://x.test/f" } } },
      /needs "f" from/,
    ],
    [
      "a peer of the same name as a dependency",
      { "node_modules/b": { ...B, dependencies: { g: "file:../g" }, peerDependencies: { g: "1" } } },
      /needs "g" from/,
    ],
    ["an optional folder", { "node_modules/b": { ...B, optionalDependencies: { e: "file:../e" } } }, /needs "e" from/],
    [
      "an alias of an address",
      { "node_modules/b": { ...B, dependencies: { e: "npm:x@git+ssh://y/z" } } },
      /needs "e" from/,
    ],
  ] as const
) {
  test(`checkLockfile() refuses ${what}`, () => {
    assert.throws(() => checkLockfile(lock({ "node_modules/a": OWN, ...packages }), "a"), (error: Error) => {
      assert.equal((error as { code?: string }).code, "package_refused");
      assert.match(error.message, reason);
      return true;
    });
  });
}

test("checkLockfile() refuses what is no lockfile, and one without the package", () => {
  for (const text of ["", "[]", '{"lockfileVersion":1}', lock({ "node_modules/b": B })]) {
    assert.throws(() => checkLockfile(text, "a"), { code: "package_refused" });
  }
});
