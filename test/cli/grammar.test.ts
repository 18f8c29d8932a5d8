import assert from "node:assert/strict";
import { test } from "node:test";
import { findVerb } from "../../cli/find_verb.ts";
import { manPage } from "../../cli/man_page.ts";
import { HELP_GROUPS, VERBS } from "../../cli/verbs.ts";
import { onMachine } from "./support/run_in.ts";

const NOUNS = [
  "mcp",
  "plugin",
  "skill",
  "schedule",
  "token",
  "conversation",
  "memory",
  "procedure",
  "run",
  "approval",
  "tool",
];

test("every noun is listed and shown, in singular and plural", () => {
  for (const noun of NOUNS) {
    const plural = noun === "memory" ? "memories" : `${noun}s`;
    for (const verb of ["list", "show"]) {
      for (const word of [noun, plural]) {
        const found = findVerb([word, verb, "x"]);
        assert.deepEqual([found?.name, found?.words, found?.oldSpelling], [`${noun} ${verb}`, 2, undefined], word);
      }
    }
  }
});

for (
  const [typed, name, isOld] of [
    ["token create", "token add", true],
    ["token revoke", "token remove", true],
    ["tools info", "tool show", true],
    ["plugin info", "plugin show", true],
    ["plugin install", "plugin add", true],
    ["skill install", "skill add", true],
    ["skill trust", "skill enable", true],
    ["cron list", "schedule list", false],
    ["cron history", "schedule history", false],
    ["schedule pause", "schedule disable", false],
    ["conversation delete", "conversation remove", false],
    ["memory forget", "memory remove", false],
    ["node list", "nodes list", false],
    // Verbs of these names are there
    ["mcp forget", "mcp forget", false],
    ["approvals revoke", "approval revoke", false],
    ["models trust", "models trust", false],
    ["plugin trust-key", "plugin trust-key", false],
  ] as const
) {
  test(`"postern ${typed}" is "postern ${name}"${isOld ? ", and says so" : ""}`, () => {
    const found = findVerb(typed.split(" "));
    assert.deepEqual([found?.name, found?.oldSpelling], [name, isOld ? typed : undefined]);
  });
}

test("an old spelling works, and says the new one on stderr alone", () =>
  onMachine(async ({ run }) => {
    const { code, stdout, stderr } = await run(["token", "create", "--label", "ci"]);
    assert.deepEqual([code, /^pst_[\w-]{43}\n$/.test(stdout)], [0, true]);
    assert.match(stderr, /^"postern token create" is now "postern token add"\n/);
    assert.match((await run(["token", "revoke", "--help"])).stdout, /Usage: postern token remove/);
    assert.equal((await run(["tokens", "list"])).stderr, "");
  }));

test("a name may be given as a flag, as it was before", () =>
  onMachine(async ({ run }) => {
    assert.match((await run(["skill", "show", "--name", "nowhere"])).stderr, /nowhere/);
    assert.match((await run(["skill", "add", "--source", "x"])).stderr, /"skill add": <name> is missing/);
    assert.match(
      (await run(["skill", "add", "x", "--source=/no/where"])).stderr,
      /Cannot read the skill "\/no\/where"/,
    );
  }));

test("the help says each command below its noun, and the man page has each with its flags and example", () =>
  onMachine(async ({ run }) => {
    const { stdout: help } = await run(["--help"]);
    const page = await manPage();
    const shown = page.replaceAll("\\-", "-").replaceAll("\\&", "");
    for (const name of Object.keys(VERBS)) {
      const [noun = "", verb = ""] = name.split(" ");
      assert.match(help, new RegExp(`^  ${noun} .*\\b${verb}`, "m"), name);
      assert.ok(shown.includes(`\n.B postern ${name}`), `man: ${name}`);
      const own = (await run([...name.split(" "), "--help"])).stdout;
      for (const [flag] of own.split("Flags for every command")[0]?.matchAll(/--[a-z][a-z-]*/g) ?? []) {
        assert.ok(shown.includes(flag), `man: ${name} ${flag}`);
      }
    }
    for (const heading of Object.keys(HELP_GROUPS)) {
      assert.ok(help.includes(`\n${heading}:\n`), heading);
      assert.ok(page.includes(`\n.SS "${heading}"\n`), heading);
    }
    // No line of text may look like a request to the formatter
    const requests = [...page.matchAll(/^[.'](\S*)/gm)].map(([, name]) => name);
    assert.deepEqual(
      [...new Set(requests)].toSorted(),
      ["B", "SH", "SS", "TH", "TP", "ad", "br"].filter((name) => requests.includes(name)),
    );
  }));
