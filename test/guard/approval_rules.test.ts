import assert from "node:assert/strict";
import { test } from "node:test";
import { createLogger, type LogRecord } from "../../lib/base/telemetry/log.ts";
import { createMetrics } from "../../lib/base/telemetry/metrics.ts";
import type { NewApproval } from "../../lib/guard/approvals.ts";
import { StoredApprovals } from "../../lib/guard/stored_approvals.ts";
import type { RuleSubject, WiderSubject } from "../../lib/guard/rule_match.ts";
import { createMemoryStore } from "../../lib/storage/create_memory_store.ts";
import { newApproval } from "../support/new_approval.ts";
import { createFakeAudit } from "../support/fake_audit.ts";
import { createFakeClock } from "../support/fake_clock.ts";
import { createSeededRandom } from "../support/seeded_random.ts";

const BY = { via: "http", tokenId: "tok_1" } as const;

function setUp() {
  const store = createMemoryStore();
  const logged: LogRecord[] = [];
  const approvals = new StoredApprovals({
    store,
    clock: createFakeClock(),
    random: createSeededRandom(),
    log: createLogger({
      level: "debug",
      now: () => 0,
      sink: (record) => void logged.push(record),
      redact: (text) => text,
    }),
    metrics: createMetrics(),
    audit: createFakeAudit(store).append,
  });
  const ask = async (more: Partial<NewApproval>) => {
    const asked = await approvals.ask(newApproval(more));
    assert.ok(asked !== undefined);
    return asked;
  };
  return { approvals, store, logged, ask };
}

const NOTHING: WiderSubject = { op: null, access: "write", folder: undefined, command: undefined };
const WRITE: RuleSubject = {
  tool: "write_file",
  workspace: "/work",
  inputDigest: "input-1",
  wider: { ...NOTHING, folder: "/work/src" },
};
const RUN: RuleSubject = {
  tool: "shell",
  workspace: "/work",
  inputDigest: "input-1",
  wider: { ...NOTHING, command: ["npm", "test", "all"] },
};
const other = (subject: RuleSubject, wider: Partial<WiderSubject>, more: Partial<RuleSubject> = {}): RuleSubject => ({
  ...subject,
  inputDigest: "input-2",
  ...more,
  wider: { ...NOTHING, ...subject.wider, ...wider },
});

test("every rule that an answer may store is offered, in the words that are stored", async () => {
  for (const [subject, kinds] of [[WRITE, ["call", "folder"]], [RUN, ["call", "command"]]] as const) {
    const { approvals, ask } = setUp();
    const { offers = [] } = await ask(subject);
    assert.deepEqual(
      offers.map(({ remember, match }) => [match, remember]),
      kinds.flatMap((kind) => [[kind, "run"], [kind, "always"]]),
    );
    for (const { remember, match, text } of offers) {
      const { id } = await ask(subject);
      const { rule } = await approvals.answer(id, { decision: "approve", remember, match, by: BY });
      assert.equal(rule?.text, text);
      assert.deepEqual([rule?.match, rule?.scope], [match, remember]);
    }
    assert.deepEqual((await approvals.rules()).map(({ text }) => text), offers.map(({ text }) => text).toReversed());
  }
});

test("the words of the wider rules say all that they stand for", async () => {
  const { ask } = setUp();
  const textOf = async (subject: RuleSubject, match: string) =>
    (await ask(subject)).offers?.find((offer) => offer.match === match && offer.remember === "always")?.text;
  assert.equal(
    await textOf(WRITE, "folder"),
    'Allow "write_file" in "/work" on whatever it changes in the folder "/work/src" and below, with any content',
  );
  assert.equal(
    await textOf(other(RUN, { op: "start" }), "command"),
    'Allow "shell" in "/work" with op "start" to run "npm" with the first argument "test", ' +
      "whatever arguments follow that are no options of its own, and whatever the files it names then hold",
  );
  const hidden = await textOf(other(WRITE, { folder: "/work/\u202ecrs" }), "folder");
  assert.match(hidden ?? "", /"\/work\/\\u202ecrs"/);
});

/** Rules, the calls that each decides, and those that it does not. */
const DECIDES: readonly {
  readonly of: RuleSubject;
  readonly match: "call" | "folder" | "command";
  readonly yes: readonly RuleSubject[];
  readonly no: Readonly<Record<string, RuleSubject>>;
}[] = [
  {
    of: WRITE,
    match: "call",
    yes: [WRITE, { ...WRITE, wider: undefined }],
    no: { "another input": { ...WRITE, inputDigest: "input-2" } },
  },
  {
    of: WRITE,
    match: "folder",
    yes: [other(WRITE, {}), other(WRITE, { folder: "/work/src/deep/er" })],
    no: {
      "the folder above": other(WRITE, { folder: "/work" }),
      "a folder of a like name": other(WRITE, { folder: "/work/src2" }),
      "a folder beside it": other(WRITE, { folder: "/work/test" }),
      "another tool": other(WRITE, {}, { tool: "file_edit" }),
      "another workspace": other(WRITE, {}, { workspace: "/else" }),
      "another op": other(WRITE, { op: "delete" }),
      "another access": other(WRITE, { access: "network" }),
      "files nobody knows of": other(WRITE, { folder: undefined }),
    },
  },
  {
    of: RUN,
    match: "command",
    yes: [
      other(RUN, { command: ["npm", "test"] }),
      other(RUN, { command: ["npm", "test", "x"] }),
      other(RUN, { command: ["npm", "test", "--", "--all"] }),
    ],
    no: {
      "another first argument": other(RUN, { command: ["npm", "run", "test"] }),
      "no argument": other(RUN, { command: ["npm"] }),
      "another program": other(RUN, { command: ["npx", "test"] }),
      "an option that names the program to run": other(RUN, { command: ["npm", "test", "--script-shell=./evil"] }),
      "both in one word": other(RUN, { command: ["npm test", "x"] }),
      "another tool": other(RUN, {}, { tool: "process_tool" }),
      "another op": other(RUN, { op: "start" }),
      "another workspace": other(RUN, {}, { workspace: "/else" }),
    },
  },
];

for (const { of, match, yes, no } of DECIDES) {
  test(`a rule for "${match}" decides exactly what it says`, async () => {
    const { approvals, ask } = setUp();
    const { id } = await ask(of);
    const { rule } = await approvals.answer(id, { decision: "approve", remember: "always", match, by: BY });
    for (const subject of yes) {
      assert.equal((await approvals.remembered(subject, "run_9"))?.id, rule?.id, JSON.stringify(subject));
    }
    for (const [what, subject] of Object.entries(no)) {
      assert.equal(await approvals.remembered(subject, "run_9"), undefined, what);
    }
    assert.equal(await approvals.revoke(rule?.id ?? "", BY), true);
    for (const subject of yes) assert.equal(await approvals.remembered(subject, "run_9"), undefined);
  });

  test(`a rule for "${match}" of one run counts in that run alone`, async () => {
    const { approvals, ask } = setUp();
    const { id } = await ask(of);
    await approvals.answer(id, { decision: "approve", remember: "run", match, by: BY });
    for (const subject of yes) {
      assert.equal((await approvals.remembered(subject, "run_1"))?.scope, "run");
      assert.equal(await approvals.remembered(subject, "run_2"), undefined);
    }
  });
}

test("of several rules a no wins, be it the wider or the narrower", async () => {
  for (const [first, second] of [["call", "folder"], ["folder", "call"]] as const) {
    const { approvals, ask } = setUp();
    const answer = async (decision: "approve" | "deny", match: "call" | "folder") =>
      await approvals.answer((await ask(WRITE)).id, { decision, remember: "always", match, by: BY });
    await answer("approve", first);
    await answer("deny", second);
    assert.equal((await approvals.remembered(WRITE, "run_1"))?.decision, "deny");
  }
});

/** Commands that run any other program further on, and some that nobody knows. */
const LAUNCHING = [
  ...[
    "npm exec rimraf",
    "npm x rimraf",
    "npm init x",
    "npx rimraf",
    "pnpm dlx x",
    "pnpm exec x",
    "yarn dlx x",
    "yarn exec x",
  ],
  ...[
    "yarn run node x.js",
    "bunx x",
    "bun x y",
    "bun run x",
    "corepack pnpm x",
    "deno eval x",
    "deno run x",
    "deno task x",
  ],
  ...[
    "uv run x",
    "uv tool run x",
    "uvx x",
    "pipx run x",
    "poetry run x",
    "pipenv run x",
    "pdm run x",
    "hatch run x",
    "rye run x",
  ],
  ...[
    "pixi run x",
    "conda run x",
    "mamba run x",
    "micromamba run x",
    "nix run x",
    "nix-shell x",
    "guix shell x",
    "mise exec x",
  ],
  ...[
    "direnv exec . x",
    "bundle exec x",
    "pyenv exec x",
    "rbenv exec x",
    "cargo run x",
    "go run x",
    "make SHELL=x",
    "just x",
  ],
  ...[
    "taskset 1 x",
    "chrt 1 x",
    "numactl x",
    "setarch x",
    "prlimit x",
    "runuser x",
    "fakeroot x",
    "proot x",
    "firejail x",
  ],
  ...[
    "valgrind x",
    "perf record",
    "rlwrap x",
    "xvfb-run x",
    "unbuffer x",
    "hyperfine x",
    "entr x",
    "gdbserver :1 x",
    "nobody knows",
  ],
  ...[
    "npm test --script-shell=x",
    "make test SHELL=x",
    "make test -- SHELL=x",
    "go test -exec=x",
    "cargo test --config=x",
  ],
  ...["sh /dev/stdin", "node inspect x.js"],
];

test("a denial of a command counts for it with any arguments", async () => {
  const { approvals, ask } = setUp();
  const { id } = await ask(RUN);
  await approvals.answer(id, { decision: "deny", remember: "always", match: "command", by: BY });
  const launching = other(RUN, { command: ["npm", "test", "--script-shell=x"] });
  assert.equal((await approvals.remembered(launching, "run_1"))?.decision, "deny");
});

test("a command whose first argument does not say what it does has no rule by it", async () => {
  const { approvals, ask } = setUp();
  for (
    const command of [
      ["sh", "-c", "x"],
      ["node", "-e", "x"],
      ["env", "X=1", "rm"],
      ["find", ".", "-delete"],
      ["timeout", "5", "rm"],
      ["sudo", "ls"],
      ["ls"],
      ["ls", ""],
      ["cat", "x".repeat(201)],
      ...LAUNCHING.map((command) => command.split(" ")),
    ]
  ) {
    const { id, offers = [] } = await ask(other(RUN, { command }));
    assert.deepEqual(offers.map(({ match }) => match), ["call", "call"], command.join(" "));
    const refusal = approvals.answer(id, { decision: "approve", remember: "always", match: "command", by: BY });
    await assert.rejects(refusal, { code: "invalid_request", param: "match" });
  }
  for (const command of [["sh", "build.sh"], ["python3.13", "x.py"], ["npm", "test"], ["cat", "a"]]) {
    assert.equal((await ask(other(RUN, { command }))).offers?.length, 4, command.join(" "));
  }
});

test("what is remembered needs how long: match alone is refused, and so is a kind that the call has not", async () => {
  const { approvals, ask } = setUp();
  const { id } = await ask(WRITE);
  for (const [remember, match] of [[undefined, "folder"], ["once", "folder"], ["always", "command"]] as const) {
    const refusal = approvals.answer(id, { decision: "approve", remember, match, by: BY });
    await assert.rejects(refusal, { code: "invalid_request", param: "match" });
  }
  assert.deepEqual([await approvals.rules(), (await approvals.get(id))?.status], [[], "pending"]);
});

test("a stored rule that says something else than its id decides nothing, and the log has it", async () => {
  for (
    const change of [
      { folder: "/work" },
      { tool: "file_edit" },
      { workspace: "/" },
      { match: "call" },
      { access: null },
      { run_id: "run_1" },
      { id: `rule_${"0".repeat(32)}` },
    ]
  ) {
    const { approvals, store, logged, ask } = setUp();
    const { id } = await ask(WRITE);
    const { rule } = await approvals.answer(id, { decision: "approve", remember: "always", match: "folder", by: BY });
    const body = { v: 1, ...rule, ...change };
    await store.batch([{ op: "put", collection: "approval_rules", key: rule?.id ?? "", body }]);
    assert.equal(await approvals.remembered(WRITE, "run_1"), undefined, JSON.stringify(change));
    assert.ok(logged.some(({ level }) => level === "error"));
  }
});

test("approvals and rules of an earlier version count as they did", async () => {
  const { approvals, store, ask } = setUp();
  const { id, input_digest, ...asked } = await ask({ inputDigest: "input-1" });
  const { rule } = await approvals.answer(id, { decision: "approve", remember: "always", by: BY });
  assert.ok(rule !== undefined);
  const { match: _match, folder: _folder, command: _command, op: _op, access: _access, ...early } = rule;
  const { offers: _offers, ...earlyApproval } = asked;
  await store.batch([
    { op: "put", collection: "approval_rules", key: rule.id, body: { v: 1, ...early } },
    { op: "put", collection: "approvals", key: id, body: { v: 1, id, ...earlyApproval, input_digest } },
  ]);
  const subject = { tool: "shell", workspace: "/work", inputDigest: "input-1" };
  assert.equal((await approvals.remembered(subject, "run_1"))?.id, rule.id);
  const again = await approvals.answer(id, { decision: "approve", remember: "always", by: BY });
  assert.equal(again.rule?.id, rule.id);
});

test("a rule about a long input says how long it is, with its digest", async () => {
  const { ask } = setUp();
  const input = { content: "x".repeat(10_000) };
  const { always_rule: text } = await ask({ input, inputDigest: "d".repeat(64) });
  assert.match(text ?? "", / \[cut: 4000 of 10014 characters are shown; SHA-256 of the whole d{64}\]$/);
});

test("an answer for a command without a network does not allow it with one; a denial counts for both", async () => {
  for (const match of ["call", "command"] as const) {
    const { approvals, ask } = setUp();
    const reaching: RuleSubject = {
      ...RUN,
      reachesNetwork: true,
      wider: { ...NOTHING, access: "network", command: ["npm", "test", "all"] },
    };
    const allowed = await ask(RUN);
    await approvals.answer(allowed.id, { decision: "approve", remember: "always", match, by: BY });
    assert.equal((await approvals.remembered(RUN, "run_1"))?.decision, "approve");
    assert.equal(await approvals.remembered(reaching, "run_1"), undefined, match);
    const wide = await ask({ ...reaching, access: "network" });
    assert.match(wide.offers?.find((offer) => offer.match === match)?.text ?? "", /with a way to the hosts that/);
    const { rule } = await approvals.answer(wide.id, { decision: "approve", remember: "always", match, by: BY });
    assert.match(rule?.text ?? "", /with a way to the hosts that/);
    assert.equal((await approvals.remembered(reaching, "run_1"))?.id, rule?.id, match);
    // Without its words a call is matched as a whole alone
    const exact = { ...reaching, wider: undefined };
    assert.equal((await approvals.remembered(exact, "run_1"))?.id, match === "call" ? rule?.id : undefined);
    await approvals.revoke((await approvals.remembered(RUN, "run_1"))?.id ?? "", BY);
    const denied = await ask(RUN);
    const denial = await approvals.answer(denied.id, { decision: "deny", remember: "always", match, by: BY });
    assert.equal((await approvals.remembered(reaching, "run_1"))?.id, denial.rule?.id, match);
  }
});
