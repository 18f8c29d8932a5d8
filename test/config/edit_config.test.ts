import assert from "node:assert/strict";
import { chmodSync, mkdirSync, readdirSync, readFileSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import fc from "fast-check";
import { changeConfigFile, removeConfigTable, setConfigValue } from "../../lib/config/edit_config.ts";
import { parseToml } from "../../lib/config/toml.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const FILE = `# My gateway
enable_git = true   # yes

[gateway] # where it listens
  port   =  3   # do not change
  host = 'localhost'
allowed_hosts = [ # two
  "a", # first
  "b",
]

[gateway.websocket]
heartbeat_secs = 1_0

[provider]
kind = "offline"

[[model_routes]]
hint = "fast"
provider = "p"
model = "m"

[security]
read_file = { max_read_bytes = 10 } # inline
shell.max_args = 3
`;

for (
  const [key, value, before, after] of [
    [["gateway", "port"], 8080, "port   =  3   # do", "port   =  8080   # do"],
    [["enable_git"], false, "enable_git = true   # yes", "enable_git = false   # yes"],
    [["gateway", "allowed_hosts"], ["c"], '[ # two\n  "a", # first\n  "b",\n]', '["c"]'],
    [["gateway", "require_pairing"], true, '  "b",\n]\n', '  "b",\n]\nrequire_pairing = true\n'],
    [["enable_composio"], true, "true   # yes\n", "true   # yes\nenable_composio = true\n"],
    [["model_routes", "0", "model"], "x", 'model = "m"', 'model = "x"'],
    [["security", "read_file", "max_read_bytes"], 20, "{ max_read_bytes = 10 }", "{ max_read_bytes = 20 }"],
    [["security", "read_file", "allow_binary"], true, "= 10 }", "= 10, allow_binary = true }"],
    [["security", "shell", "max_args"], 4, "shell.max_args = 3", "shell.max_args = 4"],
    [["security", "shell", "sandbox"], "off", "max_args = 3\n", 'max_args = 3\nshell.sandbox = "off"\n'],
    [["provider", "model"], 'a "b"\n', 'kind = "offline"\n', 'kind = "offline"\nmodel = "a \\"b\\"\\n"\n'],
    [["logging", "level"], "debug", "shell.max_args = 3\n", 'shell.max_args = 3\n\n[logging]\nlevel = "debug"\n'],
    [
      ["tools", "my.tool", "access"],
      "read",
      "shell.max_args = 3\n",
      'shell.max_args = 3\n\n[tools."my.tool"]\naccess = "read"\n',
    ],
  ] as const
) {
  test(`setting ${key.join(".")} changes that one place of the text`, async () => {
    assert.equal(FILE.split(before).length, 2, "the expected place is there once");
    assert.equal(await setConfigValue(FILE, key, value), FILE.replace(before, () => after));
  });
}

test("a key is added in the line ends of the file, after a byte order mark that stays", async () => {
  const after = await setConfigValue("\uFEFF[gateway]\r\nport = 1\r\n", ["gateway", "host"], "h");
  assert.equal(after, '\uFEFF[gateway]\r\nport = 1\r\nhost = "h"\r\n');
});

test("a top-level key goes before the first table, below the comment that heads the file", async () => {
  const after = await setConfigValue("# My gateway\n\n# where\n[gateway]\nport = 1\n", ["enable_git"], true);
  assert.equal(after, "# My gateway\n\nenable_git = true\n\n# where\n[gateway]\nport = 1\n");
});

test("a key that a comment of its table shows goes below that comment", async () => {
  const text =
    "# port = 1\n\n[gateway]\n# Where it listens\n# port = 42617\n# host = 'a'\n\n[provider]\n# model = ''\n";
  const at = (value: string) =>
    text.replace(`${value}\n`, (shown) => `${shown}${value.slice(2)}!\n`).replaceAll(/= .*!/g, "= 2");
  assert.equal(await setConfigValue(text, ["gateway", "port"], 2), at("# port = 42617"));
  assert.equal(await setConfigValue(text, ["provider", "model"], 2), at("# model = ''"));
  assert.equal(await setConfigValue(text, ["port"], 2), at("# port = 1"));
  const listed = "[gateway]\nallowed_hosts = [\n# port = 3\n]\n";
  assert.equal(await setConfigValue(listed, ["gateway", "port"], 2), `${listed}port = 2\n`);
});

test("tables, lists' items and keys inside a value cannot be set", async () => {
  for (
    const key of [["gateway"], ["model_routes"], ["gateway", "port", "x"], ["gateway", "allowed_hosts", "0"], [
      "model_routes",
      "1",
      "hint",
    ]]
  ) {
    const value = key[0] === "model_routes" && key.length === 1 ? undefined : 1;
    if (value !== undefined) {
      await assert.rejects(setConfigValue(FILE, key, value), { code: "config_edit" }, key.join("."));
    }
  }
});

test("a text that is no TOML is not edited", async () => {
  await assert.rejects(setConfigValue("[gateway\nport = 1", ["gateway", "port"], 2), { code: "config_syntax" });
});

const NAMES = ["port", "host", "a b", "x"] as const;
const scalar = fc.oneof(
  fc.integer(),
  fc.boolean(),
  fc.string({ unit: "grapheme" }).filter((text) => text.isWellFormed()),
  fc.array(fc.string({ unit: "grapheme-ascii" }), { maxLength: 3 }),
  fc.double({ noNaN: true, noDefaultInfinity: true }).filter((value) => !Object.is(value, -0)),
);
const line = fc.tuple(fc.constantFrom(...NAMES), scalar, fc.constantFrom("", " # why", "\t#"));
const table = fc.tuple(
  fc.constantFrom("[t1]", '[ t2."u v" ]', "[t3] # c"),
  fc.uniqueArray(line, { selector: ([name]) => name }),
);
const tomlText = fc.tuple(
  fc.uniqueArray(line, { selector: ([name]) => name }),
  fc.uniqueArray(table, { selector: ([header]) => header }),
  fc.constantFrom("\n", "\r\n"),
).map(([top, tables, newline]) => {
  const write = (lines: typeof top) =>
    lines.map(([name, value, comment]) => `${JSON.stringify(name)} = ${JSON.stringify(value)}${comment}`);
  return ["# head", ...write(top), ...tables.flatMap(([header, lines]) => ["", header, "# inside", ...write(lines)])]
    .join(newline) + newline;
}).filter((text) => {
  try {
    return parseToml(text, "f") !== undefined;
  } catch {
    return false;
  }
});
const path = fc.oneof(
  fc.tuple(fc.constantFrom(...NAMES)),
  fc.tuple(fc.constantFrom("t1", "t3", "new"), fc.constantFrom(...NAMES)),
  fc.tuple(fc.constant("t2"), fc.constant("u v"), fc.constantFrom(...NAMES)),
);

/** Comments of a generated text, in order. No line ends so by its value: those end in a quote, a bracket, a digit or `e`. */
function commentsOf(text: string): readonly string[] {
  return text.match(/#(?: head| inside| c| why)?(?=\r?\n)/g) ?? [];
}

test("what was set is what is read, and no other key or comment changes", async () => {
  await fc.assert(
    fc.asyncProperty(tomlText, path, scalar, async (text, key, value) => {
      const after = await setConfigValue(text, key, value);
      let found: unknown = parseToml(after, "f");
      for (const part of key) found = (found as Record<string, unknown>)[part];
      assert.deepEqual(found, value);
      // Whole lines of the old text remain, save the one with the value
      const lines = new Set(after.split(/\r?\n/));
      const lost = text.split(/\r?\n/).filter((one) => !lines.has(one));
      assert.ok(lost.length <= 1, `lost ${JSON.stringify(lost)}`);
      assert.deepEqual(commentsOf(after), commentsOf(text));
      // Setting the same again changes nothing
      assert.equal(await setConfigValue(after, key, value), after);
    }),
    { numRuns: 150, examples: [['# head\n"a b" = ["#","#"]\n', ["a b"], 0]] },
  );
});

test("a written file is checked first, keeps its mode, and is replaced whole", () =>
  withTemporaryFolder(async (folder) => {
    const file = join(folder, "postern.toml");
    writeFileSync(file, "[gateway]\nport = 1\n");
    chmodSync(file, 0o640);
    await changeConfigFile(file, (text) => setConfigValue(text, ["gateway", "port"], 2));
    assert.equal(readFileSync(file, "utf8"), "[gateway]\nport = 2\n");
    assert.equal(statSync(file).mode & 0o777, 0o640);
    await assert.rejects(changeConfigFile(file, (text) => setConfigValue(text, ["gateway", "port"], 70_000)), {
      code: "config_invalid",
      key: "gateway.port",
      line: 2,
    });
    assert.equal(readFileSync(file, "utf8"), "[gateway]\nport = 2\n");
    assert.deepEqual(readdirSync(folder), ["postern.toml"]);
  }));

test("a file that something else writes while a change is made stays as that wrote it", () =>
  withTemporaryFolder(async (folder) => {
    for (const name of ["there.toml", "new.toml"]) {
      const file = join(folder, name);
      if (name === "there.toml") writeFileSync(file, "[gateway]\nport = 1\n");
      const changed = changeConfigFile(file, (text) => {
        writeFileSync(file, "[gateway]\nport = 2\n");
        return setConfigValue(text, ["enable_git"], true);
      });
      await assert.rejects(changed, { code: "config_edit", message: /is being changed; try again$/ }, name);
      assert.equal(readFileSync(file, "utf8"), "[gateway]\nport = 2\n");
    }
  }));

test("a file that is not there is made for its user alone", () =>
  withTemporaryFolder(async (folder) => {
    const file = join(folder, "deep/postern.toml");
    await changeConfigFile(file, (text) => setConfigValue(text, ["gateway", "port"], 2));
    assert.equal(readFileSync(file, "utf8"), "[gateway]\nport = 2\n");
    assert.equal(statSync(file).mode & 0o777, 0o600);
  }));

test("a symbolic link to the file stays one", () =>
  withTemporaryFolder(async (folder) => {
    mkdirSync(join(folder, "dotfiles"));
    writeFileSync(join(folder, "dotfiles/p.toml"), "");
    symlinkSync("dotfiles/p.toml", join(folder, "postern.toml"));
    await changeConfigFile(join(folder, "postern.toml"), (text) => setConfigValue(text, ["enable_git"], true));
    assert.equal(readFileSync(join(folder, "dotfiles/p.toml"), "utf8"), "enable_git = true\n");
  }));

for (
  const [what, text, left] of [
    [
      "with its own tables, and leaves the rest",
      '# top\n[mcp.servers.a]\ncommand = "x" # c\n\n[mcp.servers.a.env]\nK = "v"\n\n[gateway] # g\nport = 1\n',
      "# top\n\n[gateway] # g\nport = 1\n",
    ],
    [
      "that dotted keys make",
      'mcp.servers.a.command = "x"\nmcp.servers.a.args = [\n  "y",\n]\nenable_git = true\n',
      "enable_git = true\n",
    ],
    [
      "beside another whose name begins like it",
      '[mcp.servers.ab]\ncommand = "x"\n[mcp.servers.a]\nurl = "http://x"\n',
      '[mcp.servers.ab]\ncommand = "x"\n',
    ],
    [
      "that is a key of its parent",
      '[mcp.servers]\na = { command = "x" }\n\n[gateway]\nport = 1\n',
      "[mcp.servers]\n\n[gateway]\nport = 1\n",
    ],
    ["nowhere when there is none", "[gateway]\nport = 1\n", "[gateway]\nport = 1\n"],
  ] as const
) {
  test(`removeConfigTable() removes a table ${what}`, async () => {
    assert.equal(await removeConfigTable(text, ["mcp", "servers", "a"]), left);
  });
}

test("removeConfigTable() refuses a table inside of a value on one line", async () => {
  const text = 'mcp = { servers = { a = { command = "x" }, b = { command = "y" } } }\n';
  await assert.rejects(removeConfigTable(text, ["mcp", "servers", "a"]), { code: "config_edit" });
});
