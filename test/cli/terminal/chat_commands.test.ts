import assert from "node:assert/strict";
import { readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { type Machine, onMachine } from "../support/run_in.ts";

const WAYS: readonly (readonly [name: string, (machine: Machine, use: () => Promise<void>) => Promise<unknown>])[] = [
  ["through the running gateway", (machine, use) => machine.withGateway([], use)],
  ["without a gateway", (_machine, use) => use()],
];

function onGarden(way: (typeof WAYS)[number][1], use: (machine: Machine) => Promise<void>) {
  return onMachine(async (machine) => {
    writeFileSync(join(machine.cwd, "garden.md"), "Water the beans on Tuesday.\n");
    await way(machine, () => use(machine));
  });
}

const READ = "/read_file garden.md";
const ID = /^Conversation (conv_\w+): postern chat --continue goes on with it/m;
const idIn = (text: string) => ID.exec(text)?.[1] ?? assert.fail(`no conversation in ${text}`);

for (const [name, way] of WAYS) {
  test(`a chat says its conversation at the end, --continue and --conversation go on with it, ${name}`, () =>
    onGarden(way, async ({ run }) => {
      const none = await run(["chat", "--continue", "hello"]);
      assert.deepEqual([none.code, /no chat was held/.test(none.stderr)], [1, true]);
      const first = await run(["chat"], { answers: [READ, "hello"] });
      assert.equal(first.code, 0, first.stderr);
      assert.match(first.stdout, /Water the beans on Tuesday/);
      const id = idIn(first.stderr);
      for (const flags of [["--continue"], ["--conversation", id]]) {
        const again = await run(["chat", ...flags], { answers: ["thanks"] });
        assert.equal(idIn(again.stderr), id, "the same conversation");
      }
      const one = await run(["chat", "--continue", "one message"], { terminal: true });
      assert.equal(idIn(one.stderr), id);
      assert.doesNotMatch((await run(["chat", "one message"])).stderr, ID, "a script is told nothing it did not ask");
      const both = await run(["chat", "--continue", "--conversation", id, "x"]);
      assert.equal(both.code, 2);
    }));

  test(`/new begins another conversation, /resume lists them and goes on with one, ${name}`, () =>
    onGarden(way, async ({ run }) => {
      const first = idIn((await run(["chat"], { answers: ["about the beans"] })).stderr);
      const chat = await run(["chat", "--continue"], {
        answers: ["/resume 1", "/new", "about the roses", "/resume", "/resume 2", "/resume conv_none", "/resume 9"],
      });
      assert.match(chat.stderr, /There is no conversation number 1: \/resume lists them/);
      assert.match(chat.stderr, /A new conversation begins with the next message/);
      assert.match(chat.stderr, new RegExp(`^1 +conv_\\w+ .*about the roses\\n2 +${first} .*about the beans$`, "m"));
      assert.match(chat.stderr, new RegExp(`Goes on with ${first}, of \\d+ messages`));
      assert.match(chat.stderr, /Cannot find this conversation: "\/resume" in "postern chat" and GET/);
      assert.match(chat.stderr, /There is no conversation number 9/);
      assert.equal(idIn(chat.stderr), first, "a mistyped id changed nothing");
    }));

  test(`/model lists and sets the model, /tools lists the tools, /help the commands, ${name}`, () =>
    onGarden(way, async ({ run }) => {
      const { stderr, stdout } = await run(["chat"], {
        answers: [
          "/help",
          "/tools",
          "/model",
          "/model none/such",
          "/model",
          "hello",
          "/model default",
          READ,
          "/exit",
          "never",
        ],
      });
      for (const command of ["/help", "/new", "/resume", "/model", "/tools", "/exit"]) {
        assert.match(stderr, new RegExp(`^ {2}${command} `, "m"));
      }
      assert.match(stderr, /^read_file +Returns the text of a file/m);
      assert.match(stderr, /^\d+ more are off: postern tools list says how to turn each on$/m);
      assert.match(stderr, /^assistant$/m);
      assert.match(stderr, /In use: default\./);
      assert.match(stderr, /"none\/such" is not among the models/);
      assert.match(stderr, /In use: none\/such\./);
      assert.match(stderr, /The configured model answers from now on/);
      assert.match(stdout, /Water the beans/);
      assert.doesNotMatch(stderr + stdout, /never/);
    }));

  test(`a slip is no message, a tool of the offline assistant is, and a space first sends anything, ${name}`, () =>
    onGarden(way, async ({ run, dataDir }) => {
      const chat = await run(["chat"], { answers: ["/hlep", READ, " /hlep", "   "] });
      assert.match(chat.stderr, /There is no command \/hlep: \/help lists them/);
      assert.match(chat.stdout, /Water the beans/);
      let history: readonly string[] = [];
      const again = await run(["chat"], { answers: ["first\nsecond"], onHistory: (lines) => void (history = lines) });
      assert.equal(again.code, 0);
      assert.deepEqual(history, [READ, "/hlep"], "a line that begins with a space is not kept");
      const path = join(dataDir, "chat_history");
      assert.equal(statSync(path).mode & 0o777, 0o600);
      assert.doesNotMatch(readFileSync(path, "utf8"), /first/, "nor is a paste of several lines");
    }));
}
