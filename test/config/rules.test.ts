import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { ConfigError } from "../../lib/base/errors.ts";
import { loadConfig } from "../../lib/config/load_config.ts";
import { validateConfig } from "../../lib/config/validate_config.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";

const rule = (name: string, then: string, more = "") =>
  `[[autonomy.rules]]\nname = "${name}"\ntool = "shell"\nthen = "${then}"\n${more}`;
const COMMAND = 'command = "ls *"\n';

/** Loads the configuration of a home folder with these files, from its folder `work`. */
async function load(
  files: Readonly<Record<string, string>>,
  { env = {}, config }: { env?: Readonly<Record<string, string>>; config?: string } = {},
): Promise<readonly (readonly [name: string, then: string])[] | string> {
  let result: readonly (readonly [string, string])[] | string = [];
  await withTemporaryFolder(async (home) => {
    for (const [path, text] of Object.entries({ "work/.keep": "", ...files })) {
      mkdirSync(dirname(join(home, path)), { recursive: true });
      writeFileSync(join(home, path), text);
    }
    try {
      const cwd = join(home, "work");
      const { config: { autonomy }, sources } = await loadConfig({ flags: { config }, env, cwd, home });
      result = autonomy.rules.map(({ name, then }) => [name, then]);
      for (const { name } of autonomy.rules) {
        assert.equal(sources.has(`autonomy.rules.${name}`), !name.startsWith("workspace/"), name);
      }
    } catch (error) {
      assert.ok(error instanceof ConfigError);
      result = error.message.replaceAll(home, "~");
    }
  });
  return result;
}

const USER = ".config/postern/postern.toml";

test("rules of layers add up, and the same name takes the earlier one's place", async () => {
  const env = {
    POSTERN__AUTONOMY__RULES:
      '[{ name = "b", tool = "shell", then = "ask" }, { name = "c", tool = "shell", then = "deny" }]',
  };
  const text = rule("a", "allow", COMMAND) + rule("b", "deny");
  assert.deepEqual(await load({ [USER]: text }, { env }), [["a", "allow"], ["b", "ask"], ["c", "deny"]]);
});

test("a workspace's own file adds rules beside the user's, under names of its own, and may not allow", async () => {
  const mine = rule("a", "allow", COMMAND);
  assert.deepEqual(await load({ [USER]: mine, "work/postern.toml": `[gateway]\nport = 1\n${rule("a", "deny")}` }), [
    ["a", "allow"],
    ["workspace/a", "deny"],
  ]);
  const refused =
    'Cannot use "autonomy.rules.0.then" (~/work/postern.toml:4): a rule in a file of the workspace may only ' +
    '"ask" or "deny"; write it to your own file, ~/.config/postern/postern.toml, or remember an answer (rule "b")';
  const theirs = rule("b", "allow", COMMAND);
  assert.equal(await load({ [USER]: mine, "work/postern.toml": theirs }), refused);
  assert.equal(await load({ "work/postern.toml": theirs }, { config: "postern.toml" }), refused);
  assert.equal(await load({ "work/postern.toml": theirs }, { config: "../work/postern.toml" }), refused);
  assert.deepEqual(await load({ "work/postern.toml": rule("b", "ask") }, { config: "postern.toml" }), [["b", "ask"]]);
  assert.match(
    String(await load({ [USER]: mine, "work/postern.toml": rule("b", "perhaps") })),
    /~\/work\/postern\.toml:4\): it must be `allow`, `ask` or `deny`, not "perhaps"/,
  );
  assert.match(String(await load({ [USER]: mine, "work/postern.toml": "[" })), /~\/work\/postern\.toml/);
});

test("a rule that can match nothing, or allows every command, is refused with its name and its field", () => {
  const refusal = (change: Readonly<Record<string, unknown>>) => {
    const rules = [{ name: "it", tool: "shell", then: "allow", command: "ls *", ...change }];
    const result = validateConfig([{ autonomy: { rules } }]);
    return "findings" in result
      ? result.findings.map(({ path, reason }) => `${path.slice(3).join(".")}: ${reason}`).join("\n")
      : "";
  };
  const every = /: it would allow every command; begin "command" with the program, such as "git log \*" \(rule "it"\)$/;
  for (
    const [change, said] of [
      [{ command: "*" }, every],
      [{ command: "* log" }, every],
      [{ command: "g* log" }, every],
      [{ command: "" }, every],
      [{ command: "", tool: "*" }, every],
      [{ command: "", tool: "process_*", op: "start" }, every],
      [{ command: " " }, /^command: it must be words/],
      [{ command: "ls\nrm" }, /^command: it must be words/],
      [{ path: "../x", command: "" }, /^path: it must not have "\.\."/],
      [{ path: "a\\b", command: "" }, /^path: it must have "\/" between names/],
      [{ path: "docs/a**", command: "" }, /^path: "\*\*" must be a name of its own, such as "docs\/\*\*", not "a\*\*"/],
      [{ host: "https://example.org", command: "" }, /^host: it must be a host without scheme, port and path/],
      [{ host: "example.org:80", command: "" }, /^host: it must be a host/],
      [{ host: "a.*.org", command: "" }, /^host: it must be a host/],
      [{ name: "It" }, /^name: it must be 1-64 of a-z/],
      [{ tool: "a*b" }, /^tool: /],
      [{ then: "" }, /^then: it must be `allow`, `ask` or `deny`/],
    ] as const
  ) {
    assert.match(refusal(change), said, JSON.stringify(change));
  }
  for (
    const change of [
      {},
      { command: "*", then: "deny" },
      { command: "", then: "ask" },
      { command: "", tool: "process_tool", op: "list" },
      { command: "", tool: "mcp__files__*" },
      { command: "", tool: "*", path: "docs/**" },
      { command: "", tool: "*", host: "*" },
      { command: "", path: "~/x/**" },
      { command: "", host: "[::1]" },
    ]
  ) {
    assert.equal(refusal(change), "", JSON.stringify(change));
  }
  const contained = {
    autonomy: { rules: [{ name: "it", tool: "shell", then: "allow", command: "*" }] },
    security: { shell: { syntax: "contained" } },
  };
  assert.ok("config" in validateConfig([contained]), "the sandbox bounds what a contained line does");
  const twice = validateConfig([{ autonomy: { rules: [{ name: "a", tool: "x", then: "ask" }] } }, {
    autonomy: { rules: [{ name: "a", tool: "x", then: "ask" }, { name: "a", tool: "y", then: "ask" }] },
  }]);
  assert.match("findings" in twice ? twice.findings[0]?.reason ?? "" : "", /^another rule has this name \(rule "a"\)/);
});
