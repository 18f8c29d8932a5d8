import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { until } from "../../support/until.ts";
import { type Machine, onMachine, type RunOptions } from "../support/run_in.ts";

const TOKEN = "token-of-the-nodes-0123456789";
const CONTROL = {
  POSTERN__GATEWAY__NODE_CONTROL__ENABLED: "true",
  POSTERN__GATEWAY__NODE_CONTROL__AUTH_TOKEN_ENV: "NODE_SECRET",
  POSTERN__GATEWAY__NODE_CONTROL__ALLOWED_NODE_IDS: '["pi"]',
  POSTERN__PROVIDER__KIND: "offline",
  NODE_SECRET: TOKEN,
};

/** Runs a node beside the gateway, with a data directory of its own. */
const runNode = (machine: Machine, address: string, more: readonly string[], options: RunOptions) =>
  machine.run(
    ["node", "--connect", address, "--id", "pi", "--data-dir", join(machine.home, "node-data"), ...more],
    options,
  );

test("node connects, is shown by nodes list and show, and ends with 0 at Ctrl-C", async () => {
  await onMachine(async (machine) => {
    await machine.withGateway([], async ({ address }) => {
      writeFileSync(join(machine.cwd, "token"), `${TOKEN}\n`);
      let asked: Promise<unknown> | undefined;
      const seen: string[] = [];
      const node = await runNode(machine, address, ["--token-file", "token", "--tools", "read_file,glob*", "--json"], {
        onOutput({ stdout, interrupt }) {
          if (!stdout.includes("connected")) return;
          asked ??= (async () => {
            seen.push((await machine.run(["nodes", "list"])).stdout);
            seen.push((await machine.run(["nodes", "show", "pi"])).stdout);
            interrupt();
          })();
        },
      });
      await asked;
      assert.equal(node.code, 0, node.stderr);
      const told = JSON.parse(node.stdout);
      assert.deepEqual([told.event, told.id, told.tools], ["connected", "pi", ["glob_search", "read_file"]]);
      assert.match(seen[0] ?? "", /^ID +STATE +TOOLS +VERSION\npi +connected since \S+ from 127\.0\.0\.1 +2 /);
      assert.match(seen[1] ?? "", /node__pi__glob_search +read /);
      assert.match(node.stderr, /Stopping: calls have up to 30 s to finish\n/);
      // The gateway learns of it a moment later
      await until(async () => /gone since/.test((await machine.run(["nodes", "list"])).stdout), "it is never gone");
      assert.ok(!`${node.stdout}${node.stderr}`.includes(TOKEN));
    }, { env: CONTROL });
  });
});

test("policy explain judges a node's tool by the gateway's configuration, also while the node is away", async () => {
  await onMachine(async (machine) => {
    const explain = async (name: string, input: string) => {
      const { stdout, stderr } = await machine.run(["policy", "explain", name, "--input", input]);
      return stdout + stderr;
    };
    const told: string[] = [];
    await machine.withGateway([], async ({ address }) => {
      let asked: Promise<unknown> | undefined;
      await runNode(machine, address, ["--tools", "read_file"], {
        env: { POSTERN_NODE_TOKEN: TOKEN },
        onOutput({ stdout, interrupt }) {
          if (!stdout.includes("Connected")) return;
          asked ??= (async () => {
            told.push(await explain("node__pi__read_file", "a.txt"));
            told.push(await explain("node__pi__read_file", '{"colour":1}'));
            told.push(await explain("node__pi__shell", "ls"));
            interrupt();
          })();
        },
      });
      await asked;
      let away = "";
      await until(async () => (away = await explain("node__pi__read_file", "a.txt")).startsWith("deny"), () => away);
      told.push(away);
    }, { env: CONTROL });
    assert.match(told[0] ?? "", /^ask\n.* it reaches the network, /);
    assert.match(told[1] ?? "", /^Cannot call "node__pi__read_file": "path" is missing/);
    assert.match(told[2] ?? "", /^Cannot find the tool "node__pi__shell": /);
    assert.match(told[3] ?? "", /^deny\n.* it is off; set up the link of the node "pi"/);
  });
});

test("a refused node says why and ends with 1", async () => {
  await onMachine(async (machine) => {
    await machine.withGateway([], async ({ address }) => {
      const wrong = await runNode(machine, address, [], { env: { POSTERN_NODE_TOKEN: "wrong-token-0123" } });
      assert.equal(wrong.code, 1);
      assert.match(wrong.stderr, /Cannot connect to \S+: Cannot connect: this is not the token of node control/);
      assert.ok(!wrong.stderr.includes("wrong-token-0123"));
      const stranger = await machine.run(
        ["node", "--connect", address, "--id", "gpu", "--data-dir", join(machine.home, "node-data")],
        { env: { POSTERN_NODE_TOKEN: TOKEN } },
      );
      assert.equal(stranger.code, 1);
      assert.match(stranger.stderr, /allowed_node_ids does not name it/);
    }, { env: CONTROL });
    await machine.withGateway([], async ({ address }) => {
      const off = await runNode(machine, address, [], { env: { POSTERN_NODE_TOKEN: TOKEN } });
      assert.equal(off.code, 1);
      assert.match(off.stderr, /node control is off; set \[gateway\.node_control\] enabled = true/);
      const list = await machine.run(["nodes", "list"]);
      assert.match(list.stderr, /node control is off/);
    }, { env: { POSTERN__PROVIDER__KIND: "offline" } });
  });
});

test("what is wrong on the command line is said before anything is opened", async () => {
  await onMachine(async (machine) => {
    const env = { POSTERN_NODE_TOKEN: TOKEN };
    const cases: readonly [argv: readonly string[], code: number, message: RegExp, env?: Record<string, string>][] = [
      [["--id", "pi"], 2, /connect/],
      [["--connect", "http://127.0.0.1:1"], 2, /id/],
      [["--connect", "http://127.0.0.1:1", "--id", "Pi 1"], 2, /lower-case letters/],
      [["--connect", "127.0.0.1:1", "--id", "pi"], 2, /must be an address/],
      [["--connect", "ftp://127.0.0.1", "--id", "pi"], 2, /must be an address/],
      [["--connect", "http://user:secret-word@127.0.0.1", "--id", "pi"], 2, /no credentials/],
      [["--connect", "http://127.0.0.1/?token=secret-word", "--id", "pi"], 2, /no query/],
      [["--connect", "http://127.0.0.1", "--id", "pi", "--token", "secret-word"], 2, /--token/],
      [["--connect", "http://127.0.0.1", "--id", "pi"], 2, /set POSTERN_NODE_TOKEN, or give --token-file/, {}],
      [["--connect", "http://127.0.0.1", "--id", "pi"], 1, /one word of visible ASCII/, { POSTERN_NODE_TOKEN: "a b" }],
      [["--connect", "http://127.0.0.1", "--id", "pi", "--token-file", "none"], 1, /Cannot read ".*none": /],
      [["--connect", "http://127.0.0.1", "--id", "pi", "--token-file", "."], 1, /it is no small file/],
    ];
    for (const [argv, code, message, given = env] of cases) {
      const { code: got, stderr } = await machine.run(["node", ...argv], { env: given });
      assert.equal(got, code, `${argv.join(" ")}: ${stderr}`);
      assert.match(stderr, message);
      assert.ok(!/user:secret-word/.test(stderr));
    }
  });
});
