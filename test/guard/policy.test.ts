import assert from "node:assert/strict";
import { test } from "node:test";
import fc from "fast-check";
import { parseCommandLine } from "../../lib/base/parse_command_line.ts";
import {
  type Access,
  accessesOf,
  asksAlways,
  type AutonomyRules,
  decide,
  type DecideInput,
  type Effects,
  LEVELS,
  parseLevel,
} from "../../lib/guard/policy.ts";
import { compileRules } from "../../lib/guard/rules.ts";

const ACCESSES: readonly Access[] = ["read", "state", "write", "network"];
const WORKSPACE = {
  root: "/home/me/work",
  fileRoot: "/home/me/work",
  home: "/home/me",
  ownPaths: ["/home/me/.local/share/postern"],
};

function ask(
  change: Partial<AutonomyRules> & {
    tool?: string;
    access?: Access;
    effects?: Effects;
    workspace?: DecideInput["workspace"];
    offUntil?: string;
    taint?: readonly string[];
    carriesTaint?: boolean;
    hasReadUrls?: boolean;
  },
) {
  const {
    tool = "shell",
    access = "write",
    effects = {},
    workspace = WORKSPACE,
    offUntil,
    taint = [],
    carriesTaint,
    hasReadUrls,
    ...autonomy
  } = change;
  return decide({
    tool,
    access,
    effects,
    workspace,
    offUntil,
    taint,
    carriesTaint,
    hasReadUrls,
    autonomy: {
      level: "supervised",
      rules: [],
      forbidden_paths: [],
      auto_approve: [],
      always_ask: [],
      after_outside_content: "",
      ...autonomy,
    },
  });
}

test("the level table is the contract's", () => {
  const table = {
    read_only: ["allow", "deny", "deny", "deny"],
    supervised: ["allow", "allow", "ask", "ask"],
    full: ["allow", "allow", "allow", "allow"],
  };
  for (const level of LEVELS) {
    assert.deepEqual(ACCESSES.map((access) => ask({ level, access }).kind), table[level], level);
  }
});

test("a command that reaches the network needs write and network, and every reason names both", () => {
  const effects = { command: ["npm", "install"] };
  const table = { read_only: "deny", supervised: "ask", full: "allow" };
  for (const level of LEVELS) {
    const { kind, reason, rule, path } = ask({ level, access: "network", effects });
    assert.equal(kind, table[level]);
    assert.match(reason, /it can change files or run programs and reaches the network, which level/);
    assert.equal(rule.startsWith("level:") || rule === "level", true, rule);
    assert.ok(path.length > 0);
  }
  assert.equal(ask({ access: "network", effects, auto_approve: ["shell"] }).kind, "allow");
  assert.equal(ask({ level: "full", access: "network", effects, always_ask: ["shell"] }).kind, "ask");
  // The reason of a call without a command names the network alone
  assert.match(ask({ access: "network" }).reason, /without approval: it reaches the network, which/);
  assert.deepEqual(accessesOf({ access: "network", effects }), ["write", "network"]);
  assert.deepEqual(accessesOf({ access: "write", effects }), ["write"]);
  assert.deepEqual(accessesOf({ access: "network", effects: {} }), ["network"]);
  assert.deepEqual(accessesOf({ access: "network", effects: { root: "write_file", paths: ["x"] } }), [
    "write",
    "network",
  ]);
});

test("a download to a file is approved where the list names its tool and write_file", () => {
  const effects = { root: "write_file", paths: ["x"], urls: ["https://example.com/x"] } as const;
  const saved = (more: Partial<AutonomyRules>) => ask({ tool: "http_request", access: "network", effects, ...more });
  const both = ["http_request", "write_file"];
  assert.equal(saved({ auto_approve: both }).kind, "allow");
  for (const auto_approve of [["http_request"], ["write_file"], []]) {
    const asked = saved({ auto_approve });
    assert.equal(asked.kind, "ask", auto_approve.join());
    const missing = both.filter((name) => !auto_approve.includes(name as never));
    assert.deepEqual(asked.change, missing.map((name) => `add "${name}" to [autonomy] auto_approve`));
  }
  const asked = saved({ auto_approve: both, always_ask: ["write_file"] });
  assert.equal(asked.kind, "ask");
  assert.match(asked.reason, /always_ask names "write_file", and the call writes a file; remove "write_file"/);
  assert.equal(ask({ tool: "http_request", access: "network", auto_approve: ["http_request"] }).kind, "allow");
});

test("a level is read without case, - and _; an unknown one denies everything", () => {
  for (const text of ["read_only", "ReadOnly", "READ-ONLY", "readonly"]) {
    assert.equal(parseLevel(text), "read_only", text);
  }
  assert.equal(ask({ level: "FULL" }).kind, "allow");
  for (const access of ACCESSES) assert.equal(ask({ level: "yolo", access, auto_approve: ["shell"] }).kind, "deny");
});

test("auto_approve turns an ask into an allow, always_ask an allow into an ask and wins", () => {
  assert.equal(ask({ auto_approve: ["shell"] }).kind, "allow");
  assert.equal(ask({ auto_approve: ["shel"] }).kind, "ask");
  assert.equal(ask({ level: "full", always_ask: ["shell"] }).kind, "ask");
  assert.equal(ask({ auto_approve: ["shell"], always_ask: ["shell"] }).kind, "ask");
  assert.equal(ask({ access: "read", tool: "read_file", always_ask: ["read_file"] }).kind, "ask");
});

test("short names mean tools in the lists", () => {
  for (
    const [alias, tool] of [["glob", "glob_search"], ["search", "content_search"], [
      "memory_read",
      "memory_recall",
    ]] as const
  ) {
    assert.equal(ask({ access: "read", tool, always_ask: [alias] }).kind, "ask", alias);
    assert.equal(ask({ tool, auto_approve: [alias] }).kind, "allow", alias);
  }
});

test("forbidden paths are denied at every level, the longest match deciding", () => {
  const paths = (path: string, workspace = WORKSPACE) =>
    ask({ level: "full", effects: { paths: [path] }, workspace }).kind;
  for (const path of ["/etc/passwd", "/etc", "/ETC/passwd", "../../../etc/x", "/root/x", "/proc/1/mem", "/sys/x"]) {
    assert.equal(paths(path), "deny", path);
  }
  for (const path of ["../.ssh/config", "/home/me/.aws/x", "/home/me/.gnupg", "../.local/share/postern/postern.db"]) {
    assert.equal(paths(path), "deny", path);
  }
  for (const path of ["a.txt", "etc/passwd", "/etcetera", "../.sshx"]) assert.equal(paths(path), "allow", path);
  const checkout = { ...WORKSPACE, root: "/root/checkout", fileRoot: "/root/checkout" };
  assert.equal(paths("a.txt", checkout), "allow");
  assert.equal(paths("../x", checkout), "deny");
  assert.equal(paths("a.txt", { ...WORKSPACE, root: "/root", fileRoot: "/root" }), "deny");
});

test("a user's forbidden paths add to the built-in ones", () => {
  const forbidden_paths = ["~/private", "secrets"];
  assert.equal(ask({ level: "full", forbidden_paths, effects: { paths: ["../private/x"] } }).kind, "deny");
  assert.equal(ask({ level: "full", forbidden_paths, effects: { paths: ["secrets/x"] } }).kind, "deny");
  assert.equal(ask({ level: "full", forbidden_paths, effects: { paths: ["/etc/x"] } }).kind, "deny");
});

test("each decision names its rule and the smallest change that flips it", () => {
  const cases = [
    [
      ask({}),
      "level:supervised/write",
      'Cannot call "shell" without approval: it can change files or run programs, which level "supervised" asks about; ' +
      'add "shell" to [autonomy] auto_approve to allow it without asking',
    ],
    [
      ask({ level: "read_only" }),
      "level:read_only/write",
      'Cannot call "shell": it can change files or run programs, which level "read_only" never allows; ' +
      'set [autonomy] level = "supervised"',
    ],
    [
      ask({ always_ask: ["shell"] }),
      "always_ask:shell",
      'Cannot call "shell" without approval: [autonomy] always_ask names it; remove "shell" from [autonomy] always_ask ' +
      'and add "shell" to [autonomy] auto_approve to allow it without asking',
    ],
    [
      ask({ access: "read", tool: "glob_search", always_ask: ["glob"] }),
      "always_ask:glob_search",
      'Cannot call "glob_search" without approval: [autonomy] always_ask names it; ' +
      'remove "glob" from [autonomy] always_ask to allow it without asking',
    ],
    [
      ask({ level: "x" }),
      "level:unknown",
      'Cannot call "shell": "x" is no level, which are read_only, supervised and full; set [autonomy] level = "supervised"',
    ],
    [
      ask({ effects: { paths: ["/etc/x"] } }),
      "forbidden_path:/etc",
      'Cannot call "shell": "/etc/x" lies in the forbidden path "/etc"; ' +
      'no setting opens "/etc" to tools, except where the workspace itself lies in it',
    ],
    [
      ask({ effects: { paths: ["/home/me/.local/share/postern/x"] } }),
      "forbidden_path:/home/me/.local/share/postern",
      'Cannot call "shell": "/home/me/.local/share/postern/x" lies in the forbidden path "/home/me/.local/share/postern"; ' +
      'no setting opens "/home/me/.local/share/postern" to tools: it is Postern\'s own',
    ],
    [
      ask({ forbidden_paths: ["p"], effects: { paths: ["p/x"] } }),
      "forbidden_path:/home/me/work/p",
      'Cannot call "shell": "p/x" lies in the forbidden path "/home/me/work/p"; remove "p" from [autonomy] forbidden_paths',
    ],
    [
      ask({ offUntil: "set [probe] enabled = true", level: "read_only" }),
      "enabled",
      'Cannot call "shell": it is off; set [probe] enabled = true and set [autonomy] level = "supervised"',
    ],
    [
      ask({ auto_approve: ["shell"] }),
      "auto_approve:shell",
      'Can call "shell" without asking: [autonomy] auto_approve names it; ' +
      'remove "shell" from [autonomy] auto_approve to be asked first',
    ],
    [
      ask({ access: "state", tool: "task_plan" }),
      "level:supervised/state",
      'Can call "task_plan" without asking: it changes the agent\'s own records, which level "supervised" allows; ' +
      'add "task_plan" to [autonomy] always_ask to be asked first',
    ],
  ] as const;
  for (const [decision, rule, reason] of cases) {
    assert.equal(decision.reason, reason);
    assert.equal(decision.rule, rule);
    assert.equal(decision.path.findLast(({ says }) => says !== "pass")?.rule, rule);
  }
});

test("a written rule is named as the one that decided, and no answer to its question is remembered", () => {
  const rule = { name: "it", tool: "shell", op: "", command: "ls *", path: "", host: "", then: "ask" } as const;
  const effects = { command: ["ls", "-l"] };
  const asked = ask({ level: "full", effects, rules: [rule] });
  assert.deepEqual([asked.kind, asked.rule, asked.change], ["ask", "rule:it", ['remove "it" from [[autonomy.rules]]']]);
  assert.ok(asksAlways(asked.rule));
  const denied = ask({
    level: "full",
    effects,
    rules: [{ ...rule, then: "deny" }, { ...rule, name: "b", then: "deny" }],
  });
  assert.deepEqual(denied.path.at(-1), { rule: "rule:it", says: "deny" });
  assert.deepEqual(denied.change.length, 2, "both must go");
  const allowed = ask({ effects, rules: [{ ...rule, then: "allow" }] });
  assert.deepEqual([allowed.kind, allowed.rule], ["allow", "rule:it"]);
  assert.equal(
    allowed.reason,
    'Can call "shell" without asking: the rule "it" allows it; remove "it" from [[autonomy.rules]] to be asked first',
  );
  assert.equal(
    ask({ level: "read_only", effects, rules: [{ ...rule, then: "allow" }] }).kind,
    "deny",
    "no rule lifts a level",
  );
  assert.deepEqual(ask({ effects: {}, rules: [rule] }).path.at(3), { rule: "level:supervised/write", says: "ask" });
});

test("a download is as far as its furthest part: the address for its tool, the file for write_file", () => {
  const rule = {
    name: "a",
    tool: "http_request",
    op: "",
    command: "",
    path: "",
    host: "*.example.org",
    then: "allow",
  } as const;
  const file = { ...rule, name: "b", tool: "write_file", host: "", path: "in/**" } as const;
  const saved = (path: string, rules: AutonomyRules["rules"]) =>
    ask({
      tool: "http_request",
      access: "network",
      effects: { root: "write_file", paths: [path], urls: ["https://a.example.org/x"] },
      rules,
    });
  assert.equal(saved("in/x", [rule, file]).kind, "allow");
  assert.deepEqual(saved("in/x", [rule]).change, ['add "write_file" to [autonomy] auto_approve']);
  assert.equal(saved("out/x", [rule, file]).kind, "ask");
  const denied = saved("in/x", [rule, file, { ...file, name: "c", then: "deny" }]);
  assert.match(denied.reason, /the rule "c" denies "write_file", and the call writes a file; remove "c" from/);
});

test("a line of bash is as far as its furthest part, and what is not understood asks", () => {
  const rule = { name: "log", tool: "shell", op: "", command: "git log *", path: "", host: "", then: "allow" } as const;
  const rules = [
    rule,
    { ...rule, name: "echo", command: "echo *" },
    { ...rule, name: "out", command: "echo *", path: "out/**" },
    { ...rule, name: "push", command: "git push *", then: "deny" },
    { ...rule, name: "rm", command: "rm *", then: "deny" },
  ] as const;
  const kindOf = (line: string) => {
    const command = ["bash", "--noprofile", "--norc", "-c", line];
    const { kind, reason } = ask({ effects: { command, line: parseCommandLine(line) }, rules });
    return `${kind} ${/the rule "(\w+)"/.exec(reason)?.[1] ?? ""}`.trim();
  };
  for (
    const [line, kind] of [
      ["git log -1 | echo x && git log", "allow log"],
      ["git log && ls", "ask"],
      ["git log; git push origin", "deny push"],
      ["git log $(rm -rf x)", "deny rm"],
      ["echo x > out/a", "allow out"],
      ["echo x > src/a", "ask"],
      ["cd src && echo x > out/a", "ask"],
      ["echo x > /dev/null", "allow echo"],
      ["echo $x", "allow echo"],
      ["git log $x", "ask push"],
      ["$x log", "ask push"],
      ["echo x; eval y", "ask push"],
      ["", "ask push"],
      // Builtins that start no program and write no file need no allow beside that of the commands
      ["cd './src' || exit\ngit log -1 && printf a", "allow log"],
      ["cd src && rm x", "deny rm"],
      ["cd src && true", "ask"],
      ["git log && printf a > out/a", "ask"],
      ["git log | xargs rm", "deny rm"],
      ["git log | xargs git push", "deny push"],
      // xargs adds words that it reads
      ["git log | xargs git", "ask push"],
    ] as const
  ) {
    assert.equal(kindOf(line), kind, line);
  }
  const all = ask({
    effects: { command: ["bash", "-c", "x > y"], line: parseCommandLine("x > y") },
    auto_approve: ["shell"],
  });
  assert.equal(all.kind, "allow", "a list names all that its tool does");
  const task = { ...rule, name: "task", command: "npm test" } as const;
  for (const [line, kind] of [["npm test", "allow"], ["cd other && npm test", "ask"]] as const) {
    const effects = { command: ["bash", "-c", line], line: parseCommandLine(line) };
    assert.equal(ask({ effects, rules: [task] }).kind, kind, line);
  }
  const kept = { ...rule, name: "kept", command: "", path: "kept/**", then: "deny" } as const;
  for (
    const [line, kind] of [
      ["ls > kept/a", "deny"],
      ["ls > a", "allow"],
      ["cd kept && ls > a", "deny"],
      ['v=kept/a; ls > "$v"', "ask"],
      ["cd kept && ls > /dev/null", "allow"],
    ] as const
  ) {
    const effects = { command: ["bash", "-c", line], line: parseCommandLine(line) };
    assert.equal(ask({ effects, rules: [kept], auto_approve: ["shell"] }).kind, kind, line);
    const other = { ...kept, command: "rm *" };
    const said = ask({ effects, rules: [other], auto_approve: ["shell"] }).kind;
    assert.equal(said, "allow", `${line}: a rule for another program`);
  }
});

test("the rule path names every rule that was looked at, in order", () => {
  assert.deepEqual(ask({ auto_approve: ["shell"] }).path, [
    { rule: "enabled", says: "pass" },
    { rule: "forbidden_path", says: "pass" },
    { rule: "level:supervised/write", says: "ask" },
    { rule: "always_ask", says: "pass" },
    { rule: "outside_content", says: "pass" },
    { rule: "auto_approve:shell", says: "allow" },
  ]);
  assert.deepEqual(ask({ effects: { paths: ["/etc/x"] } }).path, [
    { rule: "enabled", says: "pass" },
    { rule: "forbidden_path:/etc", says: "deny" },
  ]);
});

const TAINT = ["web_fetch example.com"];

test("after content from outside a list no longer lets a call write, reach the network or leave records", () => {
  const kindOf = (tool: string, access: Access, more = {}) =>
    ask({ tool, access, auto_approve: [tool], taint: TAINT, ...more }).kind;
  for (const [tool, access] of [["shell", "write"], ["http_request", "network"], ["mcp__a__b", "network"]] as const) {
    assert.equal(kindOf(tool, access), "ask", tool);
    assert.equal(kindOf(tool, access, { taint: [] }), "allow", tool);
    assert.equal(kindOf(tool, access, { after_outside_content: "allow" }), "allow", tool);
  }
  for (const tool of ["web_fetch", "web_search"]) {
    assert.equal(kindOf(tool, "network", { hasReadUrls: true }), "allow", tool);
    assert.equal(kindOf(tool, "network"), "ask", `${tool} with an address that nothing names`);
  }
  assert.equal(kindOf("http_request", "network", { hasReadUrls: true }), "ask");
  assert.equal(kindOf("memory_store", "state"), "ask");
  assert.equal(kindOf("task_plan", "state", { carriesTaint: true }), "allow");
  assert.equal(kindOf("shell", "write", { carriesTaint: true }), "ask");
  assert.equal(kindOf("read_file", "read"), "allow");
});

test("at level full content from outside asks only where the file says ask", () => {
  const kindOf = (after: "" | "ask" | "allow") =>
    ask({ level: "full", taint: TAINT, after_outside_content: after }).kind;
  assert.deepEqual([kindOf(""), kindOf("ask"), kindOf("allow")], ["allow", "ask", "allow"]);
  assert.equal(ask({ level: "read_only", taint: TAINT, after_outside_content: "allow" }).kind, "deny");
});

test("a question after content from outside names the origin and every edit that flips it", () => {
  const asked = ask({ taint: TAINT });
  assert.equal(asked.rule, "outside_content");
  assert.match(asked.reason, /content from outside \(web_fetch example\.com\)/);
  assert.deepEqual(asked.change, [
    'add "shell" to [autonomy] auto_approve',
    'set [autonomy] after_outside_content = "allow"',
  ]);
  const flipped = { auto_approve: ["shell"], after_outside_content: "allow" } as const;
  assert.equal(ask({ taint: TAINT, ...flipped }).kind, "allow");
  assert.deepEqual(ask({ taint: TAINT, ...flipped, always_ask: ["shell"] }).change, [
    'remove "shell" from [autonomy] always_ask',
  ]);
  assert.ok(asksAlways(asked.rule), "no remembered answer counts");
  // A rule of the workspace's own file may not hide it
  const listed = ask({ taint: TAINT, always_ask: ["shell"] });
  assert.equal(listed.rule, "always_ask:shell");
  assert.match(listed.reason, /names it, and the run has read content from outside \(web_fetch example\.com\); remove/);
  assert.doesNotMatch(ask({ always_ask: ["shell"] }).reason, /outside/);
});

test("a question after content from outside names the rule that lets the call through where there is none", () => {
  const rule = {
    name: "tests",
    tool: "shell",
    op: "",
    command: "npm test *",
    path: "",
    host: "",
    then: "allow",
  } as const;
  const call = { taint: TAINT, effects: { command: ["npm", "test"] } };
  const way = (start: string) =>
    `; in a conversation without such content ${start}, or set [autonomy] after_outside_content`;
  assert.ok(ask({ ...call, rules: [rule] }).reason.includes(way('the rule "tests" allows it')));
  assert.ok(ask({ ...call, auto_approve: ["shell"] }).reason.includes(way("[autonomy] auto_approve names it")));
  const full = { ...call, level: "full", after_outside_content: "ask" } as const;
  assert.ok(ask(full).reason.includes(way('level "full" allows it')));
  assert.doesNotMatch(ask(call).reason, /in a conversation/, "nothing lets it through anywhere");
});

test("a page that is handed over asks at each level, and no list or answer stands for the person", () => {
  for (const level of ["read_only", "supervised", "full"] as const) {
    const effects = { handoff: "Solve the puzzle" };
    const asked = ask({ tool: "browser", access: "read", effects, level, auto_approve: ["browser"] });
    assert.deepEqual([asked.kind, asked.rule, asked.change], ["ask", "handoff:browser", []], level);
    assert.match(asked.reason, /without a person, who is asked to: Solve the puzzle$/);
    assert.ok(asksAlways(asked.rule), "no remembered answer counts");
  }
});

test("a long path is shortened in the sentence", () => {
  const { reason } = ask({ effects: { paths: [`/etc/${"x".repeat(100_000)}`] } });
  assert.ok(reason.length < 500);
});

test("no list turns a deny into anything else, and no write passes for a read", () => {
  const tool = fc.constantFrom("shell", "read_file", "glob_search", "mcp__a__b");
  const names = fc.array(fc.constantFrom("shell", "read_file", "glob", "glob_search", "*", "mcp__a__b"), {
    maxLength: 5,
  });
  const path = fc.constantFrom("a.txt", "/etc/passwd", "../.ssh/id", "x/../../y");
  const input = fc.record({
    tool,
    access: fc.constantFrom(...ACCESSES),
    level: fc.constantFrom(...LEVELS),
    auto_approve: names,
    always_ask: names,
    effects: fc.record({ paths: fc.array(path, { maxLength: 2 }) }),
  });
  fc.assert(
    fc.property(input, (change) => {
      const plain = ask({ ...change, auto_approve: [], always_ask: [] });
      const listed = ask(change);
      if (plain.kind === "deny") assert.equal(listed.kind, "deny");
      else assert.notEqual(listed.kind, "deny");
      if (change.level === "read_only" && change.access !== "read") assert.equal(listed.kind, "deny");
      if (
        change.level === "supervised" && (change.access === "write" || change.access === "network") &&
        listed.kind === "allow"
      ) {
        assert.ok(change.auto_approve.length > 0);
      }
    }),
    { numRuns: 200 },
  );
});

test("the list of rules is compiled once for a decision", () => {
  for (const then of ["deny", "ask", "allow"] as const) {
    let looks = 0;
    const rule = { name: "it", tool: "shell", op: "", command: "ls *", host: "", then };
    const counted = {
      ...rule,
      get path() {
        looks++;
        return "";
      },
    };
    const once = () => {
      looks = 0;
      ask({ rules: [counted] });
      return looks;
    };
    const compiled = once();
    looks = 0;
    compileRules({ rules: [counted], auto_approve: [], always_ask: [] }, { root: "/w", home: "/h" });
    assert.equal(compiled, looks, then);
  }
});
