import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { type CallPart, compileRules, type RuleSettings, settle } from "../../lib/guard/rules.ts";
import { type QuestionedCall, suggestRules } from "../../lib/guard/suggest_rules.ts";

const NONE: RuleSettings = { rules: [], auto_approve: [], always_ask: [] };
const PLACES = { root: "/home/me/work", home: "/home/me" };
const part = (change: Partial<CallPart>): CallPart => ({
  ...{ tool: "shell", op: null, command: undefined, path: undefined, host: undefined },
  ...change,
});
const command = (line: string): QuestionedCall => ({ tool: "shell", parts: [part({ command: line.split(" ") })] });
const write = (...paths: readonly string[]): QuestionedCall => ({
  tool: "write_file",
  parts: paths.map((path) => part({ tool: "write_file", path: `/home/me/work/${path}` })),
});
const fetch = (host: string): QuestionedCall => ({ tool: "web_fetch", parts: [part({ tool: "web_fetch", host })] });

function suggested(approved: readonly QuestionedCall[], denied: readonly QuestionedCall[] = []): readonly string[] {
  return suggestRules({ approved, denied }, { ...PLACES, settings: NONE }).map((
    { rule: { tool, op, command, path, host }, saves },
  ) => [saves, tool, op, command, path, host].filter((text) => text !== "").join(" "));
}

test("the fewest rules are proposed, each the narrowest that saves as much, and at least two questions", () => {
  const cases: readonly (readonly [readonly QuestionedCall[], readonly string[]])[] = [
    [[command("npm test"), command("npm test")], ["2 shell npm test"]],
    [[command("npm test"), command("npm test -- a")], ["2 shell npm test *"]],
    [[command("npm run build"), command("npm run test"), command("npm run build")], ["2 shell npm run build"]],
    [[command("git log"), command("git push")], []],
    [[command("ls -l"), command("ls src")], ["2 shell ls *"]],
    [[command("sh -c x"), command("sh -c y")], []],
    [[command("npm test")], []],
    [[write("docs/a.md"), write("docs/a.md")], ["2 write_file docs/a.md"]],
    [[write("docs/a.md"), write("docs/b.md")], ["2 write_file docs/*.md"]],
    [[write("docs/a.md"), write("docs/b/c.txt"), write("docs/b.md")], ["3 write_file docs/**"]],
    [[write("docs/a.md", "docs/b.md"), write("docs/c.md", "src/a.ts")], []],
    [[write("a.md"), write("src/b.ts")], []],
    [[write("../x"), write("../x")], []],
    [[fetch("a.org"), fetch("b.org"), fetch("a.org")], ["2 web_fetch a.org"]],
    [[command("npm test"), command("npm test"), write("d/a"), write("d/a"), write("d/b")], [
      "3 write_file d/**",
      "2 shell npm test",
    ]],
  ];
  for (const [approved, rules] of cases) assert.deepEqual(suggested(approved), rules, JSON.stringify(approved));
});

test("nothing is proposed that may mean a call which was denied", () => {
  const approved = [write("docs/a.md"), write("docs/b.md"), write("docs/b.md")];
  assert.deepEqual(suggested(approved, [write("docs/c.md")]), ["2 write_file docs/b.md"]);
  assert.deepEqual(suggested(approved, [write("DOCS/C.MD")]), ["2 write_file docs/b.md"]);
  assert.deepEqual(suggested(approved, [write("src/a", "docs/b.md")]), []);
  assert.deepEqual(suggested(approved, [{ tool: "write_file", parts: undefined }]), [], "nobody knows what was denied");
  assert.deepEqual(suggested(approved, [command("rm docs/b.md")]), ["3 write_file docs/*.md"]);
  const tests = [command("npm test a"), command("npm test b")];
  assert.deepEqual(suggested(tests, [command("env npm test c")]), []);
});

test("names are those of the patterns, and not of another rule", () => {
  const approved = [command("npm test"), command("npm test")];
  const rule = { tool: "other", op: "", command: "", path: "", host: "", then: "ask" } as const;
  const names = (taken: readonly string[]) =>
    suggestRules({ approved, denied: [] }, {
      ...PLACES,
      settings: { ...NONE, rules: taken.map((name) => ({ ...rule, name })) },
    }).map(({ rule: { name } }) => name);
  assert.deepEqual(names([]), ["shell-npm-test-e444"]);
  const wider = [command("npm test a"), command("npm test b")];
  const [suggested] = suggestRules({ approved: wider, denied: [] }, { ...PLACES, settings: NONE });
  assert.equal(suggested?.rule.command, "npm test *");
  assert.match(suggested?.rule.name ?? "", /^shell-npm-test-(?!e444)[0-9a-f]{4}$/, "a wider one has another name");
  assert.deepEqual(names(["shell-npm-test-e444", "shell-npm-test-e444-2"]), ["shell-npm-test-e444-3"]);
});

test("what rules decide already is not proposed again", () => {
  const approved = [command("npm test"), command("npm test")];
  for (const settings of [{ ...NONE, auto_approve: ["shell"] }, { ...NONE, always_ask: ["shell"] }]) {
    assert.deepEqual(suggestRules({ approved, denied: [] }, { ...PLACES, settings }), []);
  }
});

test("whatever was asked, the rules allow nothing that was denied and save what they say", () => {
  const lines = fc.array(fc.constantFrom("npm", "test", "run", "ls", "-x", "a", "A", "env"), {
    minLength: 1,
    maxLength: 4,
  });
  const call: fc.Arbitrary<QuestionedCall> = fc.oneof(
    lines.map((words) => command(words.join(" "))),
    fc.array(fc.constantFrom("docs/a.md", "docs/b.md", "docs/c/d.md", "src/a.ts", "Docs/a.md"), {
      minLength: 1,
      maxLength: 3,
    })
      .map((paths) => write(...paths)),
  );
  fc.assert(
    fc.property(fc.array(call, { maxLength: 12 }), fc.array(call, { maxLength: 3 }), (approved, denied) => {
      const found = suggestRules({ approved, denied }, { ...PLACES, settings: NONE });
      const rules = compileRules({ rules: found.map(({ rule }) => rule), auto_approve: [], always_ask: [] }, PLACES);
      const isAllowed = ({ parts = [] }: QuestionedCall) =>
        parts.every((each) => settle(rules, each)?.then === "allow");
      for (const call of denied) assert.ok(!isAllowed(call));
      const saves = found.reduce((sum, { saves }) => sum + saves, 0);
      assert.ok(approved.filter(isAllowed).length >= saves);
      assert.ok(found.every(({ saves }) => saves >= 2));
    }),
    { numRuns: 300 },
  );
});
