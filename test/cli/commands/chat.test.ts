import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import type { JsonObject } from "../../../lib/base/json.ts";
import { writeControlFile } from "../../../lib/host/control_file.ts";
import { jsonOf } from "../../support/json_of.ts";
import { withRunningGateway } from "../../support/running_gateway.ts";
import { type Machine, onMachine, type RunOptions } from "../support/run_in.ts";

test("an interrupt cancels the reply under way and ends the command with exit 1", () =>
  onMachine(({ run, cwd }) =>
    withRunningGateway({ script: [{ text: "half an answ", hang: "after" }] }, async ({ url, token, dataDir }) => {
      const record = { address: `${url}/`, pid: process.pid, token, started_at: "", version: "", workspace: cwd };
      await writeControlFile(dataDir, record);
      let interrupted = false;
      const { code, stdout, stderr } = await run(["chat", "tell me", "--data-dir", dataDir], {
        onOutput({ stdout, interrupt }) {
          if (interrupted || !stdout.includes("half an answ")) return;
          interrupted = true;
          interrupt();
        },
      });
      assert.equal(code, 1);
      assert.equal(stdout, "half an answ\n");
      assert.match(stderr, /^\[error\] /m);
    })
  ));

test("postern chat --continue opens in the middle of a reply that was left, and an end that was cut is shown for good", () =>
  onMachine(({ run, cwd }) => {
    const go = Promise.withResolvers<void>();
    const script = [{ text: ["begun, ", "and ended"], holdUntil: go.promise }, {
      text: "half",
      hang: "after",
    }] as const;
    return withRunningGateway({ script }, async (gateway) => {
      const { url, token, dataDir } = gateway;
      const record = { address: `${url}/`, pid: process.pid, token, started_at: "", version: "", workspace: cwd };
      await writeControlFile(dataDir, record);
      const id = "left-talk";
      await writeFile(join(dataDir, "chat_history"), `${JSON.stringify({ conversation_id: id })}\n`, { mode: 0o600 });
      const client = await gateway.chat();
      client.send({ type: "message", text: "Tell me", conversation_id: id });
      await client.readUntil(({ type }) => type === "delta");
      await client.leave();
      const argv = ["chat", "--continue", "And now?", "--data-dir", dataDir];
      const stopped: string[] = [];
      const { code, stdout, stderr } = await run(argv, {
        onOutput({ stdout, interrupt }) {
          if (stdout.includes("begun, ")) go.resolve();
          if (stdout.includes("half") && stopped.push("") === 1) interrupt();
        },
      });
      assert.deepEqual([code, stdout], [1, "begun, and ended\nhalf\n"]);
      assert.match(stderr, /^This reply is at work since you left\. You asked: Tell me$/m);
      assert.match(stderr, /^Stopping the reply, for good; Ctrl-C once more ends the chat$/m);
      const shown = await run(["conversation", "show", id, "--data-dir", dataDir]);
      assert.equal(shown.stdout.match(/_Not said to its end: cancelled_/g)?.length, 1);
      assert.match(shown.stdout, /half\n\n_Not said to its end: cancelled_\n$/);
      assert.equal(gateway.provider.requests.length, 2);
    });
  }));

test("text of the model cannot drive the terminal, and reaches a pipe unchanged", () =>
  onMachine(({ run, cwd }) =>
    withRunningGateway(
      { script: [{ text: "\u001b]0;owned\u0007" }, { text: "\u001b[2J" }] },
      async ({ url, token, dataDir }) => {
        const record = { address: `${url}/`, pid: process.pid, token, started_at: "", version: "", workspace: cwd };
        await writeControlFile(dataDir, record);
        const argv = ["chat", "hello", "--data-dir", dataDir];
        assert.equal((await run(argv, { terminal: true })).stdout, "\\x1b]0;owned\\x07\n");
        assert.equal((await run(argv)).stdout, "\u001b[2J\n");
      },
    )
  ));

test("a line that begins with /interrupt stops the reply at work, and /steer waits for a step, else it is the next turn", () =>
  onMachine(({ run, cwd }) => {
    const go = Promise.withResolvers<void>();
    const script = [
      { text: "half", hang: "after" },
      { text: ["another ", "answer"], holdUntil: go.promise },
      { text: "the last" },
    ] as const;
    return withRunningGateway({ script }, async (gateway) => {
      const { url, token, dataDir } = gateway;
      const record = { address: `${url}/`, pid: process.pid, token, started_at: "", version: "", workspace: cwd };
      await writeControlFile(dataDir, record);
      const typed = new Set<string>();
      const { code, stdout, stderr } = await run(["chat", "--data-dir", dataDir], {
        answers: ["Tell me", "/steer too early"],
        onOutput({ stdout, stderr, type }) {
          const once = (seen: boolean, line: string) =>
            void (seen && !typed.has(line) && typed.add(line) && type(line));
          once(stdout.includes("half"), "/interrupt No, this");
          once(stdout.includes("another "), "/steer And that");
          if (stderr.includes("or it is the next turn")) go.resolve();
        },
      });
      assert.deepEqual([code, stdout], [0, "half\nanother answer\nthe last\n"], stderr);
      assert.match(stderr, /^\[error\] A person interrupted the reply with another message$/m);
      assert.match(stderr, /^No reply is at work: send the message without the command$/m);
      const said = gateway.provider.requests.at(-1)?.messages.map(({ role, content }) => `${role}: ${content}`);
      assert.deepEqual(said?.filter((line) => line.startsWith("user")), [
        "user: Tell me",
        "user: No, this",
        "user: And that",
      ]);
    });
  }));

/** Runs chats beside files, and returns what the model was told in each request. */
function withFiles(
  use: (parts: {
    readonly chat: (argv: readonly string[], options?: RunOptions) => ReturnType<Machine["run"]>;
    readonly told: () => string;
    readonly dataDir: string;
    /** Values of a field of what a list of the gateway has */
    readonly listed: (path: string, field: string) => Promise<readonly unknown[]>;
  }) => Promise<void>,
) {
  return onMachine(({ run, cwd }) =>
    withRunningGateway(
      { script: Array.from({ length: 6 }, () => ({ text: "Milk" })) },
      async ({ url, token, dataDir, provider, call }) => {
        const record = { address: `${url}/`, pid: process.pid, token, started_at: "", version: "", workspace: cwd };
        await writeControlFile(dataDir, record);
        await writeFile(join(dataDir, "my list.txt"), "milk, bread");
        await writeFile(join(dataDir, "id_rsa"), "the key");
        await use({
          chat: (argv, options) => run(["chat", ...argv, "--data-dir", dataDir], options),
          told: () => JSON.stringify(provider.requests.at(-1)?.messages.at(-1)?.content),
          dataDir,
          listed: async (path, field) => (await jsonOf(call(path))).data.map((one: JsonObject) => one[field]),
        });
      },
    )
  );
}

test("@ and a path send a file along, and a word that names none is only a word", () =>
  withFiles(async ({ chat, told, dataDir, listed }) => {
    const path = join(dataDir, "my list.txt");
    for (const word of [`@${path}`, `@"${path}"`]) {
      const { code, stderr } = await chat(["What is in it, @nobody? Write to me@example.org", word]);
      assert.equal(code, 0, stderr);
      assert.ok(stderr.includes(`Sent ${path}, 11 bytes\n`), stderr);
      assert.match(told(), /@nobody\?/);
      assert.match(told(), /It is data:\\nmilk, bread\\nEnd of the file/);
    }
    const typed = await chat([], { answers: [`What is in @"${path}"?`] });
    assert.match(typed.stderr, /^Sent .*my list\.txt, 11 bytes$/m);
    assert.match(told(), /milk, bread/);
    const places = await listed("/v1/files", "conversation_id");
    assert.equal(places.length, 3);
    assert.deepEqual(places.toSorted(), (await listed("/v1/conversations", "id")).toSorted(), "each goes with its own");
  }));

test("a file that somebody else's text names is asked about, and goes nowhere where nobody can be asked", () =>
  withFiles(async ({ chat, told, dataDir }) => {
    const path = join(dataDir, "id_rsa");
    const foreign = `Read @${path}.`;
    const cases: readonly (readonly [what: string, argv: readonly string[], options: RunOptions])[] = [
      ["piped", [], { stdin: foreign }],
      ["put into an argument by a script", [`Sum this up: ${foreign}`], {}],
      ["pasted, and the answer is no", [], { answers: [`Sum this up: \x1b[200~${foreign}\x1b[201~`, "n"] }],
      ["pasted up to the middle of a name", [], { answers: [`\x1b[200~${foreign.slice(0, -3)}\x1b[201~sa.`, ""] }],
    ];
    for (const [what, argv, options] of cases) {
      const { code, stderr } = await chat(argv, options);
      assert.equal(code, 0, stderr);
      assert.ok(stderr.includes(`Not sent: ${path}. `), `${what}: ${stderr}`);
      assert.doesNotMatch(told(), /the key/, what);
    }
    assert.doesNotMatch(await readFile(join(dataDir, "chat_history"), "utf8"), /id_rsa/, "another chat may recall it");
    const { stderr } = await chat([], { answers: [`\x1b[200~${foreign}\x1b[201~`, "y"] });
    assert.match(stderr, /^Sent .*id_rsa, 7 bytes$/m);
    assert.match(told(), /the key/);
  }));
