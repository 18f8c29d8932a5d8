import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import {
  ANSWERS,
  type CallPart,
  compileRules,
  compileWritten,
  type RuleAnswer,
  settle,
  UNKNOWN_WORD,
  type WrittenRule,
} from "../../lib/guard/rules.ts";

const PLACES = { root: "/home/me/work", home: "/home/me" };
const NOTHING: CallPart = { tool: "shell", op: null, command: undefined, path: undefined, host: undefined };

function rule(change: Partial<WrittenRule>): WrittenRule {
  return { name: "it", tool: "*", op: "", command: "", path: "", host: "", then: "allow", ...change };
}

function covers(written: Partial<WrittenRule>, part: Partial<CallPart>): boolean {
  return compileWritten(rule(written), PLACES).covers({ ...NOTHING, ...part });
}

const words = (line: string) => line.split(" ");

/** Patterns of commands, with lines that an allow covers, that a deny covers as well, and that neither does. */
const COMMANDS: readonly (readonly [
  pattern: string,
  both: readonly string[],
  denied: readonly string[],
  neither: readonly string[],
])[] = [
  [
    "git log *",
    ["git log", "git log -1", "git log --oneline src"],
    ["/usr/bin/git log", "GIT log", "env git log -1", "nobody-knows --flag git log"],
    ["git", "git logs", "git -c x=y log", "log git", "echo git log"],
  ],
  ["git log", ["git log"], ["sudo git log"], ["git log -1", "git"]],
  ["npm run test:*", ["npm run test:unit", "npm run test:"], [], [
    "npm run test",
    "npm run build",
    "npm run test:unit -x",
  ]],
  ["rm *", ["rm", "rm -rf x"], ["xargs rm -rf", "timeout 5 rm x", "git rm x"], ["rmdir x", "cat rm", "ls rm x"]],
  ["git * --force *", ["git push --force", "git push origin main --force x"], ["time git push --force"], [
    "git push",
  ]],
  ["* install *", ["npm install x", "a b install"], ["a INSTALL"], ["npm ci"]],
];

for (const [command, both, denied, neither] of COMMANDS) {
  test(`the command "${command}" is read by words: an allow as it stands, a deny wherever it may stand`, () => {
    for (const line of both) {
      for (const then of ANSWERS) assert.ok(covers({ command, then }, { command: words(line) }), `${then} ${line}`);
    }
    for (const line of denied) {
      assert.ok(covers({ command, then: "deny" }, { command: words(line) }), `deny ${line}`);
      assert.ok(covers({ command, then: "ask" }, { command: words(line) }), `ask ${line}`);
      assert.ok(!covers({ command }, { command: words(line) }), `allow ${line}`);
    }
    for (const line of neither) {
      for (const then of ANSWERS) assert.ok(!covers({ command, then }, { command: words(line) }), `${then} ${line}`);
    }
  });
}

test("a deny looks into the one word that a shell is given as a command, and an allow does not", () => {
  for (
    const shell of [
      ...[["sh", "-c"], ["bash", "-lc"], ["env", "eval"], ["x", "--command"], ["env", "-S"], ["npx", "--call"]],
      ...[["bash", "-c", "-x"], ["bash", "-c", "--"], ["watch", "-n", "1"], ["nice", "/usr/bin/ssh", "host"], [
        "parallel",
      ]],
    ]
  ) {
    const command = [...shell, "cd x && rm -rf y"];
    assert.ok(covers({ command: "rm *", then: "deny" }, { command }), shell.join(" "));
    assert.ok(!covers({ command: "rm *" }, { command }), shell.join(" "));
  }
  for (const glued of ["-Srm x", "--split-string=rm x", "--call=a; rm x", "-c`rm x`"]) {
    assert.ok(covers({ command: "rm *", then: "deny" }, { command: ["env", glued] }), glued);
  }
  for (const more of [[], ["-c", "a=b"], ["-s"]]) {
    const command = ["git", ...more, "commit", "-m", "do not rm it"];
    assert.ok(!covers({ command: "rm *", then: "deny" }, { command }), more.join(" "));
  }
  // A word with a blank is one word
  assert.ok(!covers({ command: "git log" }, { command: ["git log"] }));
});

test("a path is matched name by name from the workspace on, and outside of it from the root or the home folder", () => {
  const cases: readonly (readonly [string, readonly string[], readonly string[]])[] = [
    ["docs/**", ["docs", "docs/a.md", "docs/a/b.md"], ["doc/a", "docsx/a", "src/docs/a", "."]],
    ["docs/", ["docs", "docs/a/b.md"], ["docsx"]],
    ["./docs/*.md", ["docs/a.md", "docs/.md"], ["docs/a/b.md", "docs/a.txt"]],
    ["**/test/*", ["test/a", "src/test/a"], ["test", "src/test/a/b"]],
    ["~/notes/**", ["../notes/a"], ["notes/a"]],
    ["/srv/**", ["../../../srv/x"], ["srv/x"]],
  ];
  for (const [path, yes, no] of cases) {
    const full = (given: string) => new URL(given, "file:///home/me/work/").pathname.replace(/(.)\/$/, "$1");
    for (const then of ANSWERS) {
      for (const given of yes) assert.ok(covers({ path, then }, { path: full(given) }), `${then} ${path}: ${given}`);
      for (const given of no) assert.ok(!covers({ path, then }, { path: full(given) }), `${then} ${path}: ${given}`);
    }
  }
});

test("names of another case or form are denied with the name, and allowed by themselves alone", () => {
  for (const name of ["SECRETS", "secrets.", "ｓecrets"]) {
    assert.ok(covers({ path: "secrets/**", then: "deny" }, { path: `/home/me/work/${name}/x` }), name);
    assert.ok(!covers({ path: "secrets/**" }, { path: `/home/me/work/${name}/x` }), name);
  }
});

test("a search in a folder above is denied with what lies below, and not allowed with it", () => {
  for (
    const [tool, path, then, is] of [
      ["content_search", "/home/me/work", "deny", true],
      ["glob_search", "/", "ask", true],
      ["content_search", "/home/me/work/src", "deny", false],
      ["read_file", "/home/me/work", "deny", false],
      ["content_search", "/home/me/work", "allow", false],
    ] as const
  ) {
    assert.equal(covers({ path: "secrets/**", then }, { tool, path }), is, `${tool} ${path} ${then}`);
  }
});

test("tool, op and host are compared whole, and every pattern must fit the same part", () => {
  const part = { tool: "http_request", op: "get", host: "api.example.org", path: "/home/me/work/a" };
  for (
    const [written, is] of [
      [{ tool: "http_request" }, true],
      [{ tool: "http_*" }, true],
      [{ tool: "http" }, false],
      [{ op: "get" }, true],
      [{ op: "ge" }, false],
      [{ host: "*.example.org" }, true],
      [{ host: "*" }, true],
      [{ host: "example.org" }, false],
      [{ host: "API.example.org" }, true],
      [{ host: "*.example.org", path: "a" }, true],
      [{ host: "*.example.org", path: "b" }, false],
      [{ command: "ls" }, false],
    ] as const
  ) {
    assert.equal(covers(written, part), is, JSON.stringify(written));
  }
  assert.ok(!covers({ host: "*" }, {}), "a call without an address has no host");
});

test("a pattern takes no more time than its length and the text's multiplied", () => {
  const path = `/home/me/work/${"a/".repeat(2_000)}a`;
  const started = process.cpuUsage();
  assert.ok(!covers({ path: `${"**/a/".repeat(50)}b` }, { path }));
  assert.ok(!covers({ path: `${"*a".repeat(200)}b` }, { path: `/home/me/work/${"a".repeat(4_000)}` }));
  assert.ok(!covers({ command: `${"* a ".repeat(60)}b`, then: "deny" }, { command: Array(4_000).fill("a") }));
  assert.ok(process.cpuUsage(started).user < 5_000_000, "a pattern that goes back for each star would take years");
});

const WORD = fc.constantFrom("git", "log", "rm", "-c", "*", "l*g", "env");
const NAME = fc.constantFrom("docs", "src", "a.md", "*", "**", "*.md", "secrets");
const optional = (pattern: fc.Arbitrary<string>) => fc.oneof(fc.constant(""), pattern);
const written = fc.record({
  name: fc.constantFrom("a", "b", "c", "d"),
  tool: fc.constantFrom("*", "shell", "write_file", "http_*"),
  op: fc.constantFrom("", "", "start"),
  command: optional(fc.array(WORD, { minLength: 1, maxLength: 4 }).map((all) => all.join(" "))),
  path: optional(fc.array(NAME, { minLength: 1, maxLength: 4 }).map((all) => all.join("/"))),
  host: fc.constantFrom("", "", "example.org", "*.example.org", "*"),
  then: fc.constantFrom(...ANSWERS),
});
const tools = fc.subarray(["shell", "write_file", "http_request"]);
const settings = fc.record({ rules: fc.array(written, { maxLength: 6 }), auto_approve: tools, always_ask: tools });
const part: fc.Arbitrary<CallPart> = fc.record({
  tool: fc.constantFrom("shell", "write_file", "http_request"),
  op: fc.constantFrom(null, "start"),
  command: fc.option(
    fc.array(fc.oneof(WORD, fc.constantFrom("log rm; g", UNKNOWN_WORD)), { minLength: 1, maxLength: 5 }),
    {
      nil: undefined,
    },
  ),
  path: fc.option(fc.array(NAME, { maxLength: 4 }).map((all) => ["/home/me/work", ...all].join("/")), {
    nil: undefined,
  }),
  host: fc.constantFrom(undefined, "example.org", "a.example.org"),
});
const strictness = (then: RuleAnswer | undefined) => then === undefined ? 0 : { allow: 0, ask: 1, deny: 2 }[then];

test("the order of rules never changes an answer", () => {
  fc.assert(
    fc.property(settings, part, fc.infiniteStream(fc.nat()), (given, call, keys) => {
      const rules = compileRules(given, PLACES);
      const shuffled = rules.map((each) => ({ each, key: keys.next().value })).sort((a, b) => a.key - b.key);
      const answer = settle(rules, call);
      const other = settle(shuffled.map(({ each }) => each), call);
      assert.equal(other?.then, answer?.then);
      assert.deepEqual(other?.by.map(({ id }) => id).sort(), answer?.by.map(({ id }) => id).sort());
    }),
    { numRuns: 500 },
  );
});

test("a further deny or ask never widens, and a further allow never lifts a deny or an ask", () => {
  fc.assert(
    fc.property(settings, part, written, (given, call, more) => {
      const before = settle(compileRules(given, PLACES), call)?.then;
      const after = settle(compileRules({ ...given, rules: [...given.rules, more] }, PLACES), call)?.then;
      assert.ok(strictness(after) >= strictness(before), `${before} -> ${after}`);
      if (more.then !== "allow") assert.ok(after !== "allow" || before === "allow");
    }),
    { numRuns: 500 },
  );
});

test("what an allow covers, a deny of the same words covers too", () => {
  fc.assert(
    fc.property(written, part, (given, call) => {
      if (compileWritten({ ...given, then: "allow" }, PLACES).covers(call)) {
        for (const then of ["deny", "ask"] as const) assert.ok(compileWritten({ ...given, then }, PLACES).covers(call));
      }
    }),
    { numRuns: 1_000 },
  );
});
