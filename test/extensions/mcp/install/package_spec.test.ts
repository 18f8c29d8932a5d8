import assert from "node:assert/strict";
import { test } from "node:test";
import {
  isServerName,
  parseAddTarget,
  shownPackage,
  suggestServerName,
} from "../../../../lib/extensions/mcp/install/package_spec.ts";

for (
  const [text, registry, name, version, shown] of [
    ["npm:left-pad", "npm", "left-pad", undefined, "npm:left-pad"],
    ["npm:@acme/notes@1.2.3-rc.1", "npm", "@acme/notes", "1.2.3-rc.1", "npm:@acme/notes@1.2.3-rc.1"],
    ["@acme/notes@next", "npm", "@acme/notes", "next", "npm:@acme/notes@next"],
    ["left-pad@1.0.0", undefined, "left-pad", "1.0.0", "left-pad@1.0.0"],
    ["mcp-server-time", undefined, "mcp-server-time", undefined, "mcp-server-time"],
    ["mcp-server-time==2026.1.14", "pypi", "mcp-server-time", "2026.1.14", "pypi:mcp-server-time==2026.1.14"],
    ["pypi:Mcp_Server.Time@1.0rc1", "pypi", "Mcp_Server.Time", "1.0rc1", "pypi:Mcp_Server.Time==1.0rc1"],
    ["Mcp_Time", "pypi", "Mcp_Time", undefined, "pypi:Mcp_Time"],
  ] as const
) {
  test(`parseAddTarget() reads ${text}`, () => {
    const target = parseAddTarget(text);
    assert.deepEqual(target, { kind: "package", spec: { registry, name, version } });
    assert.equal(target.kind === "package" && shownPackage(target.spec), shown);
  });
}

for (
  const text of [
    ...["", "npm:", "--registry=http://evil.test", "npm:--global", "npm:-g", "pypi:--index-url", "pypi:-r/etc/passwd"],
    ...["../evil", "npm:../evil", "npm:./x", "npm:/etc", "pypi:/etc/x", "npm:a/b", "npm:file:x", "npm:git+ssh://x/y"],
    ...[
      "npm:a@^1.0.0",
      "npm:a@>=1",
      "npm:a@1.x",
      "npm:a@file:x",
      "npm:a@--global",
      "pypi:a==1.*",
      "pypi:a>=1",
      "a==1==2",
    ],
    ...["npm:@acme/../x", "npm:a b", "pypi:a[extra]", "pypi:a; python_version<'3'", "pypi:a @ https://x.test/y.whl"],
    ...[
      "npm:a\n--global",
      "npm:a@1.0.0\n",
      "pypi:a==1\n--index-url",
      `npm:${"a".repeat(215)}`,
      "ftp://x.test/",
      "npm:A",
    ],
    ...[
      "https://user:password@x.test/mcp",
      "https://x.test/#part",
      "http://",
      "npm:node_modules/../x",
      "npm:a@1.2.3\0",
    ],
  ]
) {
  test(`parseAddTarget() refuses ${JSON.stringify(text.slice(0, 40))}`, () => {
    assert.throws(() => parseAddTarget(text), { code: "package_name_invalid" });
  });
}

test("parseAddTarget() takes the address of a server", () => {
  assert.deepEqual(parseAddTarget("https://x.test/mcp"), { kind: "url", url: "https://x.test/mcp" });
});

test("a password in an address is not in the refusal", () => {
  assert.throws(() => parseAddTarget("https://user:hunter2@x.test/mcp"), (error: Error) => {
    assert.doesNotMatch(error.message, /hunter2/);
    return true;
  });
});

test("suggestServerName() says what a package is", () => {
  const names = [
    "@modelcontextprotocol/server-memory",
    "mcp-server-time",
    "@acme/notes-mcp",
    "Notes Server!",
    "mcp",
    "@@",
  ];
  assert.deepEqual(names.map(suggestServerName), ["memory", "time", "notes", "notes", "mcp", undefined]);
});

test("isServerName() takes what fits into the name of a tool", () => {
  assert.deepEqual(["a", "a-b_c9", "A", "a__b", "-a", "a.b", "a b", "", "a".repeat(33)].map(isServerName), [
    ...[true, true, true, false, false, false, false, false, false],
  ]);
});
