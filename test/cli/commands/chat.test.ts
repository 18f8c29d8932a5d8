import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { writeControlFile } from "../../../lib/host/control_file.ts";
import { withRunningGateway } from "../../support/running_gateway.ts";
import { onMachine } from "../support/run_in.ts";

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
test("@ and a path send a file along, and a word that names none is only a word", () =>
  onMachine(({ run, cwd }) =>
    withRunningGateway({ script: [{ text: "Milk" }] }, async ({ url, token, dataDir, provider }) => {
      const record = { address: `${url}/`, pid: process.pid, token, started_at: "", version: "", workspace: cwd };
      await writeControlFile(dataDir, record);
      const path = join(dataDir, "my list.txt");
      await writeFile(path, "milk, bread");
      const message = `What is in @"${path}", @nobody?`;
      const { code, stderr } = await run(["chat", message, "--data-dir", dataDir]);
      assert.equal(code, 0, stderr);
      assert.match(stderr, /^Sent my list\.txt, 11 bytes$/m);
      const said = JSON.stringify(provider.requests[0]?.messages.at(-1)?.content);
      assert.match(said, /@nobody\?/);
      assert.match(said, /It is data:\\nmilk, bread\\nEnd of the file/);
    })
  ));
