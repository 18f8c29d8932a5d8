import assert from "node:assert/strict";
import { existsSync, mkdirSync, realpathSync, rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { RunTaint } from "../../../lib/base/taint.ts";
import type { Config } from "../../../lib/config/config.ts";
import type { ApprovalRequest } from "../../../lib/tools/runtime/tool_call.ts";
import { createToolBench, type ToolBenchOptions } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

type Written = Config["autonomy"]["rules"][number];

const rule = (name: string, then: Written["then"], more: Partial<Written>): Written => ({
  ...{ name, then, tool: "write_file", op: "", command: "", path: "", host: "" },
  ...more,
});

type CallingOptions = Partial<ToolBenchOptions> & { readonly autonomy?: Partial<Config["autonomy"]> };
type Said = readonly [what: "ran" | "asked" | "denied", said: string];

/** Returns what calls under rules with one bench. The reason of a question comes back in place of the output. */
function callerOf(root: string, rules: readonly Written[], { autonomy = {}, ...more }: CallingOptions) {
  const bench = createToolBench({
    root,
    config: { write_file: { enabled: true }, autonomy: { ...autonomy, rules } },
    ...more,
  });
  return async ([tool, input]: readonly [string, unknown], taint?: RunTaint): Promise<Said> => {
    const asked: ApprovalRequest[] = [];
    const { ran, result } = await bench.call(tool, input, {
      taint,
      approver: (request) => {
        asked.push(request);
        return Promise.resolve({ decision: "deny", rule: "approval", reason: "No" });
      },
    });
    const [request] = asked;
    return request !== undefined
      ? ["asked", `${request.rule}: ${request.reason}`]
      : [ran ? "ran" : "denied", result.output];
  };
}

/** Calls once under rules, as `callerOf` does. */
function calling(
  root: string,
  rules: readonly Written[],
  call: readonly [string, unknown],
  { taint, ...options }: CallingOptions & { readonly taint?: RunTaint } = {},
): Promise<Said> {
  return callerOf(root, rules, options)(call, taint);
}

const write = (path: string) => ["write_file", { path, content: "x" }] as const;
const DOCS = rule("docs", "allow", { path: "docs/**" });

test("a rule lets a call through for its path alone, where the path really leads", () =>
  withWorkspace({ "docs/a.md": "a", "src/b.ts": "b" }, async ({ root }) => {
    symlinkSync("../src", join(root, "docs/link"));
    assert.equal((await calling(root, [DOCS], write("docs/new.md")))[0], "ran");
    assert.match(
      (await calling(root, [DOCS], write("src/new.ts")))[1],
      /^level:supervised\/write: .* asks about; add "write_file"/,
    );
    const [what, said] = await calling(root, [DOCS], write("docs/link/new.ts"));
    assert.equal(what, "asked");
    assert.match(said, /: "[^"]*docs\/link\/new\.ts" leads to "[^"]*src\/new\.ts", and it can change files/);
    assert.equal(existsSync(join(root, "src/new.ts")), false);
    const { executor } = createToolBench({
      root,
      config: { write_file: { enabled: true }, autonomy: { rules: [DOCS] } },
    });
    const { signal } = new AbortController();
    const judged = await executor.explain("write_file", JSON.stringify(write("docs/link/new.ts")[1]), { signal });
    assert.equal(judged?.kind === "judged" && judged.decision.kind, "ask", "explain looks where the link leads too");
  }));

test("a rule that denies a path counts for every way to it, and wins over every list", () =>
  withWorkspace({ "docs/a.md": "a" }, async ({ root }) => {
    mkdirSync(join(root, "keep"));
    symlinkSync("../keep", join(root, "docs/link"));
    const rules = [rule("keep", "deny", { tool: "*", path: "keep/**" }), DOCS];
    const autonomy = { auto_approve: ["write_file"], level: "full" as const };
    for (const path of ["keep/a", "Keep/a", "docs/../keep/a", "docs/link/a"]) {
      const [what, said] = await calling(root, rules, write(path), { autonomy });
      assert.equal(what, "denied", path);
      if (!path.includes("..")) {
        assert.match(said, /the rule "keep" denies it; remove "keep" from \[\[autonomy\.rules\]\]$/, path);
      }
    }
    assert.equal((await calling(root, rules, ["read_file", { path: "docs/link/a" }]))[0], "denied");
    assert.equal((await calling(root, rules, ["content_search", { pattern: "a", path: "." }]))[0], "denied");
    assert.equal((await calling(root, rules, write("docs/b.md"), { autonomy }))[0], "ran");
  }));

test("a rule that denies a path counts for a file that is uploaded to a page", () =>
  withWorkspace({ "keep/a": "a", "docs/b": "b" }, async ({ root }) => {
    const bench = createToolBench({
      root,
      config: {
        browser: { enabled: true },
        autonomy: { rules: [rule("keep", "deny", { tool: "*", path: "keep/**" })] },
      },
    });
    const judged = (path: string) => {
      const given = bench.executor.judge("browser", JSON.stringify({ op: "upload", ref: "e1", path }));
      return given?.kind === "judged" ? given.decision.rule : given?.kind;
    };
    assert.deepEqual([judged("keep/a"), judged("docs/b")], ["rule:keep", "level:supervised/write"]);
  }));

test("every file of a patch must be allowed", () =>
  withWorkspace({ "docs/a.md": "a\n", "src/b.ts": "b\n" }, async ({ root }) => {
    const patch = (...paths: readonly string[]) =>
      ["apply_patch", {
        patch: ["*** Begin Patch", ...paths.flatMap((path) => [`*** Add File: ${path}`, "+x"]), "*** End Patch"].join(
          "\n",
        ),
      }] as const;
    const rules = [rule("docs", "allow", { tool: "apply_patch", path: "docs/**" })];
    assert.equal((await calling(root, rules, patch("docs/1", "src/1")))[0], "asked");
    assert.equal((await calling(root, rules, patch("docs/1", "docs/2")))[0], "ran");
  }));

const LS = rule("ls", "allow", { tool: "shell", command: "ls *" });

test("a rule lets a command through by its words, and content from outside suspends it", () =>
  withWorkspace({ "a.txt": "a" }, async ({ root }) => {
    assert.equal((await calling(root, [LS], ["shell", { command: "ls -a ." }]))[0], "ran");
    assert.match((await calling(root, [LS], ["shell", { command: "cat a.txt" }]))[1], /^level:supervised\/write: /);
    const [what, said] = await calling(root, [LS], ["shell", { command: "ls" }], {
      taint: new RunTaint(["web_fetch a"]),
    });
    assert.equal(what, "asked");
    assert.match(said, /^outside_content: /);
    const autonomy = { after_outside_content: "allow" as const };
    const tainted = { taint: new RunTaint(["web_fetch a"]), autonomy };
    assert.equal((await calling(root, [LS], ["shell", { command: "ls" }], tainted))[0], "ran");
    // No rule brings in a program that allowed_commands does not name
    const rm = rule("rm", "allow", { tool: "shell", command: "rm *" });
    assert.match((await calling(root, [rm], ["shell", { command: "rm a.txt" }]))[1], /allowed_commands/);
  }));

test("a rule that asks wins over one that allows, and at every level", () =>
  withWorkspace({}, async ({ root }) => {
    const rules = [rule("look", "ask", { tool: "shell", command: "ls -R *" }), LS];
    const [what, said] = await calling(root, rules, ["shell", { command: "ls -R" }], { autonomy: { level: "full" } });
    assert.equal(what, "asked");
    assert.match(
      said,
      /^rule:look: Cannot call "shell" without approval: the rule "look" asks about it; remove "look" from/,
    );
    assert.equal((await calling(root, rules, ["shell", { command: "ls" }]))[0], "ran");
  }));

test("a denial that is remembered counts where a list, a rule or the level allows the call", () =>
  withWorkspace({}, async ({ root }) => {
    const remembered = () => Promise.resolve({ id: "rule_1", decision: "deny" as const });
    for (
      const [rules, autonomy] of [[[DOCS], {}], [[], { auto_approve: ["write_file"] }], [[], {
        level: "full",
      }]] as const
    ) {
      const [what, said] = await calling(root, rules, write("docs/a.md"), { remembered, autonomy });
      assert.equal(what, "denied");
      assert.match(said, /a person denied such a call before; "postern approval revoke rule_1" lifts that$/);
    }
    assert.equal((await calling(root, [], ["memory_recall", {}], { remembered }))[0], "ran", "nobody is asked to read");
    const approved = () => Promise.resolve({ id: "rule_1", decision: "approve" as const });
    // Any deny wins, else any ask: no rule of a workspace, and no page, makes a question of it
    const asks = [rule("each", "ask", { path: "docs/**" })];
    assert.equal((await calling(root, asks, write("docs/a.md"), { remembered }))[0], "denied");
    const taint = new RunTaint(["web_fetch a"]);
    assert.equal((await calling(root, [], write("docs/a.md"), { remembered, taint }))[0], "denied");
    const never = [rule("never", "deny", { path: "docs/**" })];
    assert.equal((await calling(root, never, write("docs/a.md"), { remembered: approved }))[0], "denied");
    const each = [rule("each", "ask", { path: "docs/**" })];
    assert.equal((await calling(root, each, write("docs/a.md"), { remembered: approved }))[0], "asked");
  }));

test("a rule that denies a path counts for where a link leads once a person has approved the call", () =>
  withWorkspace({ "docs/a.md": "a", "keep/key": "KEPT" }, async ({ root, path }) => {
    const rules = [
      rule("docs", "ask", { tool: "*", path: "docs/**" }),
      rule("keep", "deny", { tool: "*", path: "keep/**" }),
    ];
    const bench = createToolBench({ root, config: { autonomy: { rules } } });
    const { ran, result } = await bench.call("read_file", { path: "docs/a.md" }, {
      approver: () => {
        rmSync(path("docs/a.md"));
        symlinkSync("../keep/key", path("docs/a.md"));
        return Promise.resolve({ decision: "approve", reason: "" });
      },
    });
    assert.equal(ran, false, result.output);
    assert.match(result.output, /docs\/a\.md" leads to "[^"]*keep\/key", and the rule "keep" denies it/);
  }));

test("a secret among the words of a command hides it from no remembered denial", () =>
  withWorkspace({}, async ({ root }) => {
    const bench = createToolBench({
      root,
      config: { autonomy: { auto_approve: ["shell"] } },
      remembered: ({ wider }) =>
        Promise.resolve(wider?.command?.[0] === "ls" ? { id: "rule_1", decision: "deny" } : undefined),
    });
    bench.redactor.add("canary-secret-in-a-word");
    for (const command of ["ls -a", "ls canary-secret-in-a-word"]) {
      const { ran, result } = await bench.call("shell", { command });
      assert.deepEqual([ran, /a person denied such a call before/.test(result.output)], [false, true], command);
    }
  }));

test("a rule that denies or asks about a path counts for the words of a plain command, and one that allows does not", () =>
  withWorkspace({ "docs/a.md": "a", "keep/key": "k" }, async ({ root }) => {
    const autonomy = { level: "full" as const };
    for (const then of ["deny", "ask"] as const) {
      const rules = [rule("keep", then, { tool: "*", path: "keep/**" })];
      const what = then === "deny" ? "denied" : "asked";
      for (const command of ["cat keep/key", "cat docs/../keep/key", "ls keep", 'cat "keep/key"']) {
        const [got, said] = await calling(root, rules, ["shell", { command }], { autonomy });
        assert.deepEqual(
          [got, /the rule "keep" (?:denies|asks about) "/.test(said)],
          [what, true],
          `${command} ${said}`,
        );
      }
      const [got, said] = await calling(root, rules, ["shell", { command: "ls -R ." }], { autonomy });
      assert.deepEqual([got, /the rule "keep" may mean what/.test(said)], ["asked", true], said);
      assert.equal((await calling(root, rules, ["shell", { command: "cat docs/a.md" }], { autonomy }))[0], "ran");
    }
    const docs = rule("docs", "allow", { tool: "shell", path: "docs/**" });
    const keep = rule("keep", "deny", { tool: "*", path: "keep/**" });
    assert.equal((await calling(root, [docs, keep], ["shell", { command: "cat docs/a.md" }]))[0], "asked");
    const bench = createToolBench({ root, config: { autonomy: { ...autonomy, rules: [keep] } } });
    const { signal } = new AbortController();
    const judged = await bench.executor.explain("shell", '{"command":"cat keep/key"}', { signal });
    assert.equal(judged?.kind === "judged" && judged.decision.rule, "rule:keep", "explain sees it too");
  }));

/** Lines under a rule that denies `keep/**`, from the workspace on. `keep` is what docs/link leads to. */
const KEPT: readonly (readonly [line: string, what: "asked" | "denied"])[] = [
  ["echo x > keep/a", "denied"],
  ["> keep/a", "denied"],
  ["> b; echo x > keep/a", "denied"],
  ["{ echo x; } > keep/a", "denied"],
  ["cat < keep/a", "denied"],
  ["cd keep && echo x > a", "denied"],
  ["cd './keep' || exit\necho x > a", "denied"],
  ["cd docs; cat < ../keep/a", "denied"],
  ["echo x > docs/link/a", "denied"],
  ["cd docs/link && echo x > a", "denied"],
  ["echo x > docs/in/../a", "denied"],
  ["cd docs/in && cat < ../a", "denied"],
  ["echo x > docs/new", "denied"],
  ["f=keep/a; echo x > $f", "asked"],
  ["cat < k*/a", "asked"],
  ["cd $d; echo x > a", "asked"],
  ["echo x > docs/{a,b}", "asked"],
  ["eval 'echo x > keep/a'", "asked"],
  ["cat keep/a", "denied"],
  ["cat KEEP/a", "denied"],
  ["cd keep && cat a", "denied"],
  ["cat docs/link/a", "denied"],
  ["sort --output=keep/a docs/a.md", "denied"],
  ["./keep/run.sh", "denied"],
  ["ls docs | xargs cat keep/a", "denied"],
  ["rm keep/*", "asked"],
  ["cat $f", "asked"],
  ["cp -r . /tmp/x", "asked"],
  ["cd docs && tar c ..", "asked"],
  ["grep -r x", "asked"],
  ["sh -c 'cat keep/a'", "asked"],
  ["sh -c 'cat<keep/a'", "asked"],
  ["eval 'cat<keep/a'", "asked"],
  ["sh -c 'cat${IFS}keep/a'", "asked"],
  ["sh -c 'cat k*/a'", "asked"],
  ["sh -c 'cat ke\"\"ep/a'", "asked"],
  ["sh -c 'cat \"$x\"'", "asked"],
  ["sh -c 'cp -r . /tmp/x'", "asked"],
  ["env sh -c 'tar c .'", "asked"],
];

const probe = await createToolBench({ root: realpathSync(".") }).processes.containment({ sandbox: "auto" });
// Nobody is asked about a line that no sandbox would hold
const skip = probe.kind === "contained" ? false : probe.text;

test(
  "a rule about a path counts for what a line names and is redirected from and to, wherever it may be",
  { skip },
  () =>
    withWorkspace({ "docs/a.md": "a" }, async ({ root }) => {
      mkdirSync(join(root, "keep/in"), { recursive: true });
      symlinkSync("../keep", join(root, "docs/link"));
      symlinkSync("../keep/in", join(root, "docs/in"));
      // bash makes the file that a link leads to
      symlinkSync("../keep/new", join(root, "docs/new"));
      const config = (rules: readonly Written[]) => ({
        config: {
          autonomy: { rules, level: "full" as const },
          allowed_commands: ["*"],
          shell: { syntax: "contained" as const },
        },
      });
      const never = [rule("keep", "deny", { tool: "*", path: "keep/**" })];
      const keeping = callerOf(root, [], config(never));
      for (const [command, wanted] of KEPT) {
        const [what, said] = await keeping(["shell", { command }]);
        assert.equal(what, wanted, `${command}: ${said}`);
        assert.match(said, /the rule "keep" (?:denies|may mean)/, command);
      }
      const plain = ["cat docs/a.md", "echo keep/a", "echo $HOME", "ls docs", "pwd", "cd docs"];
      const texts = [`sh -c 'ls docs; echo "a b"'`, "git log --grep 'a . b'", `python3 -c 'print("a*")'`];
      for (const command of [...plain, ...texts]) {
        assert.equal((await keeping(["shell", { command }]))[0], "ran", command);
      }
      const files = [rule("keep", "deny", { tool: "write_file", path: "keep/**" })];
      assert.equal((await calling(root, [], ["shell", { command: "ls keep" }], config(files)))[0], "ran");
      const echo = rule("echo", "allow", { tool: "shell", command: "echo *", path: "docs/**" });
      const asking = (command: string, rules: readonly Written[]) => {
        const { autonomy, ...more } = config(rules).config;
        return calling(root, [], ["shell", { command }], {
          config: { ...more, autonomy: { ...autonomy, level: "supervised" } },
        });
      };
      // An allow of a folder does not reach where a link leads
      assert.match((await asking("echo x > docs/link/a", [echo]))[1], /docs\/link\/a" leads to "[^"]*keep\/a", and /);
      assert.equal((await asking("cd keep/in; echo x > docs/a", [echo]))[0], "asked");
      // Nor does that of a program by its path reach into another folder
      const build = rule("build", "allow", { tool: "shell", command: "./build.sh *" });
      assert.equal((await asking("cd docs && ./build.sh", [build]))[0], "asked");
      assert.equal(
        (await asking("cd docs && ls", [rule("ls", "allow", { tool: "shell", command: "ls *" })]))[0],
        "ran",
      );
      assert.notEqual((await asking("./build.sh; echo done", [build]))[0], "asked");
    }),
);
