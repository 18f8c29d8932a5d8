import assert from "node:assert/strict";
import { test } from "node:test";
import { clientConfigPaths } from "../../../../lib/extensions/mcp/install/client_configs.ts";
import { readServers } from "../../../../lib/extensions/mcp/install/import_servers.ts";

const read = (servers: unknown, taken: readonly string[] = []) =>
  readServers(JSON.stringify({ mcpServers: servers }), new Set(taken));

test("readServers() takes programs and addresses with their variables and headers", () => {
  const { taken, refused } = read({
    files: { command: "/usr/bin/node", args: ["server.js", "/data"], env: { LEVEL: "2", API_KEY: "hunter2", N: 3 } },
    remote: { type: "http", url: "https://x.test/mcp", headers: { "X-Team": "a", Authorization: "Bearer hunter2" } },
  });
  assert.deepEqual(refused, []);
  assert.deepEqual(taken.map(({ name, command, args, url }) => [name, command, args, url]), [
    ["files", "/usr/bin/node", ["server.js", "/data"], ""],
    ["remote", "", [], "https://x.test/mcp"],
  ]);
  assert.deepEqual(taken.map(({ secrets }) => secrets), [
    [{ table: "env", key: "API_KEY" }],
    [{ table: "headers", key: "Authorization" }],
  ]);
  assert.deepEqual(taken[0]?.env, { LEVEL: "2", API_KEY: "hunter2", N: "3" });
});

test("readServers() reads VS Code's files, with comments and trailing commas", () => {
  const text =
    '\uFEFF{ // mine\n "servers": { /* one */ "a": { "command": "a", "args": ["//x", "/*y*/", ",}"], }, },\n}';
  assert.deepEqual(readServers(text, new Set()).taken.map(({ args }) => args), [["//x", "/*y*/", ",}"]]);
  for (const settings of [{ mcp: { servers: { a: { command: "a" } } } }, { "mcp.servers": { a: { command: "a" } } }]) {
    assert.equal(readServers(JSON.stringify(settings), new Set()).taken.length, 1);
  }
});

test("readServers() warns about a program that is fetched at each start, and names what it calls otherwise", () => {
  const { taken } = read({ "My Notes": { command: "npx", args: ["-y", "@acme/notes"] } });
  assert.equal(taken[0]?.name, "my-notes");
  assert.match(taken[0]?.warnings[0] ?? "", /"My Notes" is called "my-notes" here/);
  assert.match(taken[0]?.warnings[1] ?? "", /postern mcp add npm:@acme\/notes --name my-notes --replace/);
});

test("readServers() warns about a secret in the arguments, and does not repeat it", () => {
  const { taken } = read({ a: { command: "a", args: ["--api-key", "hunter2", "x"] } });
  assert.match(taken[0]?.warnings[0] ?? "", /has a secret in its arguments/);
  assert.doesNotMatch(JSON.stringify(taken[0]?.warnings), /hunter2/);
});

test("servers of the projects of Claude Code are read, each once", () => {
  const [a, b] = [{ type: "stdio", command: "/bin/a", args: [], env: {} }, { type: "http", url: "https://b.test/mcp" }];
  const projects = { "/one": { mcpServers: { a, b }, history: [] }, "/two": { mcpServers: { a } }, "/three": {} };
  const { taken, refused } = readServers(JSON.stringify({ mcpServers: {}, projects }), new Set());
  assert.deepEqual([taken.map(({ name }) => name), refused], [["a", "b"], []]);
  const other = { ...projects, "/two": { mcpServers: { a: { command: "/bin/other" } } } };
  const [refusal] = readServers(JSON.stringify({ projects: other }), new Set()).refused;
  assert.match(refusal?.reason ?? "", /there is a \[mcp\.servers\.a\] already/);
});

test("names of JavaScript's own are names as any other, or are refused", () => {
  const { taken, refused } = readServers(
    '{"mcpServers":{"__proto__":{"command":"a"},"constructor":{"command":"b"}}}',
    new Set(),
  );
  assert.deepEqual([taken.map(({ name }) => name), refused], [["proto", "constructor"], []]);
});

for (
  const [what, entry, reason, name = "one"] of [
    ["that is turned off", { command: "a", disabled: true }, /turned off/],
    ["with an input", { command: "a", env: { K: "${input:key}" } }, /\$\{input:key\}/],
    ["with a folder of the other program", { command: "a", args: ["${workspaceFolder}/x"] }, /\$\{workspaceFolder\}/],
    ["with an envFile", { command: "a", envFile: ".env" }, /envFile/],
    ["with a working folder", { command: "a", cwd: "/x" }, /cwd/],
    ["with a relative path", { command: "./a" }, /relative/],
    ["with neither", {}, /either a command or a url/],
    ["with both", { command: "a", url: "https://x.test" }, /either a command or a url/],
    ["of another transport", { type: "sse", url: "https://x.test" }, /"sse"/],
    ["of another scheme", { url: "file:///etc/passwd" }, /no http or https/],
    ["with a password in its address", { url: "https://u:hunter2@x.test" }, /user or a password/],
    ["that is a text", "node", /no table/],
    ["with arguments that are a text", { command: "a", args: "x" }, /"args"/],
    ["without a usable name", { command: "a" }, /no letter or digit/, "!!!"],
    ["whose name is in use", { command: "a" }, /there is a \[mcp\.servers\.used\] already/, "used"],
  ] as readonly (readonly [what: string, entry: unknown, reason: RegExp, name?: string])[]
) {
  test(`readServers() names a server ${what} with the reason`, () => {
    const { taken, refused } = read({ [name]: entry, other: { command: "b" } }, ["used"]);
    assert.deepEqual([taken.map((server) => server.name), refused.map(({ from }) => from)], [["other"], [name]]);
    assert.match(refused[0]?.reason ?? "", reason);
    assert.doesNotMatch(JSON.stringify(refused), /hunter2/);
  });
}

test("two names that become one are not mixed up", () => {
  const { taken, refused } = read({ "a b": { command: "x" }, "a-b": { command: "y" } });
  assert.deepEqual([taken.length, refused.length], [1, 1]);
});

test("readServers() says what is wrong with a file, and quotes nothing of it", () => {
  for (const text of ["", "{", "[]", '{"mcpServers": []}', '{"mcpServers": {"hunter2": }}']) {
    assert.throws(() => readServers(text, new Set()), (error: Error) => !error.message.includes("hunter2"));
  }
  const many = Object.fromEntries(Array.from({ length: 101 }, (_, index) => [`s${index}`, { command: "a" }]));
  assert.throws(() => read(many), /more than 100 servers/);
});

test("clientConfigPaths() knows the usual places", () => {
  const linux = { home: "/h", env: {}, platform: "linux" } as const;
  assert.deepEqual(clientConfigPaths("claude", linux), ["/h/.config/Claude/claude_desktop_config.json"]);
  assert.deepEqual(clientConfigPaths("cursor", linux), ["/h/.cursor/mcp.json"]);
  assert.equal(clientConfigPaths("vscode", linux)[0], "/h/.config/Code/User/mcp.json");
  const moved = { ...linux, env: { XDG_CONFIG_HOME: "/c" } };
  assert.deepEqual(clientConfigPaths("claude", moved), ["/c/Claude/claude_desktop_config.json"]);
  const mac = { home: "/h", env: {}, platform: "darwin" } as const;
  assert.deepEqual(clientConfigPaths("claude", mac), [
    "/h/Library/Application Support/Claude/claude_desktop_config.json",
  ]);
  assert.equal(clientConfigPaths("vscode", mac)[0], "/h/Library/Application Support/Code/User/mcp.json");
});
