import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { openSqliteStore } from "../../../lib/storage/open_sqlite_store.ts";
import { ask, supervised } from "../../support/supervised.ts";
import { type Machine, onMachine } from "../support/run_in.ts";

const WAYS: readonly (readonly [name: string, (machine: Machine, use: () => Promise<void>) => Promise<unknown>])[] = [
  ["through the running gateway", (machine, use) => machine.withGateway([], use)],
  ["without a gateway", (_machine, use) => use()],
];
const ID = /^run_\w+$/m;
const idIn = (text: string) => ID.exec(text)?.[0] ?? assert.fail(`no run in ${text}`);

for (const [name, way] of WAYS) {
  test(`a run is started, listed, shown and its events read, ${name}`, () =>
    onMachine(async (machine) => {
      writeFileSync(join(machine.cwd, "garden.md"), "Water the beans on Tuesday.\n");
      await way(machine, async () => {
        const { run } = machine;
        assert.equal((await run(["runs", "list"])).stdout, "There is no run yet\n");
        const started = await run(["runs", "start", "/read_file", "garden.md"]);
        assert.equal(started.code, 0, started.stderr);
        const id = idIn(started.stdout);
        const followed = await run(["runs", "events", id, "--follow"]);
        assert.match(followed.stdout, /Water the beans on Tuesday\./);
        assert.match(followed.stderr, /\[tool\] read_file .*garden\.md/);
        assert.equal((await run(["runs", "events", id])).stdout, followed.stdout);
        assert.match((await run(["runs", "list"])).stdout, new RegExp(`^${id} +completed +chat .* assistant `, "m"));
        assert.equal((await run(["runs", "list", "--status", "failed"])).stdout, "There is no such run\n");
        const shown = await run(["runs", "show", id]);
        assert.match(shown.stdout, /status +completed[\s\S]*\n> \/read_file garden\.md\n[\s\S]*Water the beans/);
        assert.match((await run(["runs", "list"])).stdout, / assistant +\/read_file garden\.md +/);
        assert.equal(JSON.parse((await run(["runs", "show", id, "--json"])).stdout).message, "/read_file garden.md");
        const lines = (await run(["runs", "events", id, "--after", "1", "--json"])).stdout.trim().split("\n");
        assert.deepEqual(lines.map((line) => JSON.parse(line).seq), lines.map((_, index) => index + 2));
        const ended = await run(["runs", "cancel", id]);
        assert.deepEqual([ended.code, ended.stdout], [1, ""]);
        assert.match(ended.stderr, /completed already/);
      });
    }));

  test(`--follow shows the answer as it comes; a message may be piped in, ${name}`, () =>
    onMachine(async (machine) => {
      writeFileSync(join(machine.cwd, "garden.md"), "Water the beans on Tuesday.\n");
      await way(machine, async () => {
        const { code, stdout, stderr } = await machine.run(["runs", "start", "--follow"], {
          stdin: "/read_file garden.md",
        });
        assert.deepEqual([code, /Water the beans/.test(stdout)], [0, true]);
        assert.match(stderr, /^Started run_\w+$/m);
      });
    }));

  test(`what is not there says so, ${name}`, () =>
    onMachine((machine) =>
      way(machine, async () => {
        for (const argv of [["show", "run_none"], ["events", "run_none"], ["cancel", "run_none"]]) {
          const { code, stderr } = await machine.run(["runs", ...argv]);
          assert.equal(code, 1);
          assert.match(stderr, /Cannot (find|follow) this run/);
        }
        assert.equal((await machine.run(["runs", "events", "run_none", "--after", "x"])).code, 2);
        assert.equal((await machine.run(["runs", "list", "--status", "odd"])).code, 2);
        assert.match((await machine.run(["runs", "start", " "])).stderr, /message is empty/);
      }).then(() => {})
    ));
}

test("Ctrl-C leaves a followed run at work, tells how to come back, and runs cancel stops it", () =>
  onMachine((machine) =>
    machine.withGateway([], async () => {
      const { run } = machine;
      const id = idIn((await run(["runs", "start", "/shell", "echo hi"])).stdout);
      let interrupted = false;
      const { code, stderr } = await run(["runs", "events", id, "--follow"], {
        onOutput({ stderr, interrupt }) {
          if (interrupted || !stderr.includes("[approval]")) return;
          interrupted = true;
          interrupt();
        },
      });
      assert.equal(code, 0);
      assert.match(stderr, new RegExp(`The run goes on: postern run events ${id} --follow --after \\d+`));
      assert.equal((await run(["runs", "cancel", id])).stdout, `${id}: cancelled\n`);
      assert.match((await run(["runs", "show", id])).stdout, /status +cancelled/);
    }).then(() => {})
  ));

test("a run that is followed shows the question it waits for, and how to answer it", () =>
  onMachine((machine) =>
    machine.withGateway([], async () => {
      const { run } = machine;
      let answered: Promise<unknown> | undefined;
      const { code, stdout, stderr } = await run(["runs", "start", "--follow", "/shell", "echo hi"], {
        onOutput({ stderr }) {
          const approve = /^ {2}postern approval approve (apr_\w+)$/m.exec(stderr)?.[1];
          if (approve !== undefined) answered ??= run(["approvals", "approve", approve]);
        },
      });
      await answered;
      assert.equal(code, 0, stderr);
      assert.match(stderr, /shell \(write\) in [\s\S]*"command": "echo hi"[\s\S]*The run waits for an answer until/);
      assert.match(stderr, /\n {2}postern approval deny apr_/);
      assert.match(stdout, /hi/);
      const id = /run_\w+/.exec(stderr)?.[0] ?? "";
      const again = await run(["runs", "events", id, "--follow"]);
      assert.doesNotMatch(again.stderr, /The run waits/, "what was answered is not asked about again");
    }).then(() => {})
  ));

test("without a gateway a run's question is asked in place; left open, it is answered later and a gateway goes on", () =>
  onMachine(async (machine) => {
    const { run } = machine;
    const asked = await run(["runs", "start", "/shell", "echo", "hi"], { answers: ["y"] });
    assert.equal(asked.code, 0, asked.stderr);
    assert.match((await run(["runs", "show", idIn(asked.stdout)])).stdout, /status +completed[\s\S]*hi/);
    for (const follow of [[], ["--follow"]]) {
      const left = await run(["runs", "start", ...follow, "/shell", "echo", "later"]);
      assert.equal(left.code, 0, left.stderr);
      const id = /run_\w+/.exec(left.stdout + left.stderr)?.[0] ?? assert.fail();
      const approval = /postern approval approve (apr_\w+)/.exec(left.stderr)?.[1] ?? assert.fail(left.stderr);
      assert.match((await run(["runs", "show", id])).stdout, /status +waiting_for_approval/);
      assert.equal((await run(["approvals", "approve", approval])).code, 0);
      await machine.withGateway([], async () => {
        const { stdout } = await run(["runs", "events", id, "--follow"]);
        assert.match(stdout, /later/);
      });
    }
  }));

/** Leaves a run behind that a crash cut off in the middle of a command. */
async function leaveCutOff({ dataDir }: Machine): Promise<string> {
  const store = await openSqliteStore({ path: join(dataDir, "postern.db"), clock: systemClock });
  const began = Promise.withResolvers<void>();
  const run = () => {
    began.resolve();
    return new Promise<string>(() => {});
  };
  const call = { name: "shell", arguments: { command: "ls" } };
  const crashed = supervised([{ toolCalls: [call] }], { store, tools: [{ name: "shell", access: "write", run }] });
  const { id } = await crashed.runs.start(ask("List", { durable: true }));
  await began.promise;
  await supervised([], { store, seed: 2 }).runs.recover();
  await store.close();
  return id;
}

test("a run that was cut off is shown with what to do, and resolved", () =>
  onMachine(async (machine) => {
    const { run } = machine;
    await run(["runs", "list"]);
    const id = await leaveCutOff(machine);
    assert.match(
      (await run(["runs", "list", "--status", "needs_review"])).stdout,
      new RegExp(`^${id} +needs_review`, "m"),
    );
    assert.match((await run(["runs", "show", id])).stdout, new RegExp(`postern run resolve ${id} resume --outcome`));
    assert.equal((await run(["runs", "resolve", id, "forget"])).code, 2);
    assert.equal((await run(["runs", "resolve", id, "close", "--outcome", "maybe"])).code, 2);
    const closed = await run(["runs", "resolve", id, "close", "--note", "looked at it"]);
    assert.deepEqual([closed.code, closed.stdout], [0, `${id}: failed\n`], closed.stderr);
    assert.match((await run(["runs", "show", id])).stdout, /closed: A person \(.*\) closed it after .*looked at it/);
    assert.match((await run(["runs", "resolve", id, "resume"])).stderr, /failed already/);
  }));
