import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { startFakeServer } from "../../../fixtures/upstream/fake_server.ts";
import { mainOf, RUN, RUN_ENV } from "../../support/gateway_process.ts";
import { killIfThere } from "../../support/kill_if_there.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { until } from "../../support/until.ts";

const hasScript = process.platform === "linux" && spawnSync("script", ["--version"]).status === 0;
const skip = hasScript ? false : "there is no script of util-linux, which makes a pseudo terminal";
const KEY = "sk-right-1234567890";

/** A command at a terminal. */
interface Terminal {
  /** Everything on the screen so far */
  shown(): string;
  /** Waits for a text that is new on the screen, then types a line */
  answer(question: string, line: string): Promise<void>;
  /** @returns the exit code */
  readonly ended: Promise<number | null>;
}

/** Runs `postern` at a pseudo terminal with a home of its own. */
function atTerminal(argv: readonly string[], home: string, use: (terminal: Terminal) => Promise<void>): Promise<void> {
  const line = [...RUN, mainOf(), ...argv].map((word) => `'${word}'`).join(" ");
  const child = spawn("script", ["-qefc", line, "/dev/null"], {
    cwd: home,
    env: { ...RUN_ENV, HOME: home, TERM: "xterm", SHELL: "/bin/sh", NO_COLOR: "1" },
    stdio: "pipe",
  });
  let output = "";
  let seen = 0;
  child.stdout.setEncoding("utf8").on("data", (part: string) => output += part);
  const ended = once(child, "close").then(([code]) => code as number | null);
  const terminal: Terminal = {
    shown: () => output,
    async answer(question, line) {
      await until(() => output.includes(question, seen), () => `"${question}" never came: ${output}`);
      seen = output.indexOf(question, seen) + question.length;
      child.stdin.write(`${line}\r`);
    },
    ended,
  };
  return use(terminal).finally(() => killIfThere(child.pid));
}

test("init at a terminal shows what is typed, but never a key", { skip }, () =>
  withTemporaryFolder(async (home) => {
    const server = await startFakeServer((seen, response) => {
      const isRight = seen.headers["authorization"] === `Bearer ${KEY}`;
      response.writeHead(isRight ? 200 : 401, { "content-type": "application/json" });
      response.end(isRight ? '{"object":"list","data":[{"id":"only","object":"model"}]}' : "{}");
    });
    try {
      await atTerminal(["init"], home, async ({ answer, shown, ended }) => {
        await answer("Empty: 1\r\n> ", `${server.origin}/v1`);
        await answer("it needs none)\r\n> ", KEY);
        await answer("is started in\r\n> ", "");
        await answer("Empty: look\r\n> ", "write");
        assert.equal(await ended, 0, shown());
        assert.ok(shown().includes(`\u001b[3G${server.origin}/v1\r`), "an answer is shown");
        assert.doesNotMatch(shown(), /sk-right/);
      });
      assert.equal(
        readFileSync(join(home, ".config/postern", `${new URL(server.origin).host.replace(":", "_")}.key`), "utf8"),
        `${KEY}\n`,
      );
    } finally {
      await server.close();
    }
  }));

test(
  "answers that are typed before their question are kept, and a key among them stays hidden",
  { skip },
  () =>
    withTemporaryFolder((home) =>
      atTerminal(["init"], home, async ({ answer, shown, ended }) => {
        await answer("Empty: 1\r\n> ", `openai\r${KEY} \u0001\u000b\r\rwrite`);
        assert.equal(await ended, 0, shown());
        assert.doesNotMatch(shown(), /sk-right/);
        assert.match(readFileSync(join(home, ".config/postern/postern.toml"), "utf8"), /^enable_git = true$/m);
      })
    ),
);

test(
  "Ctrl-C at the question for a key ends init, and nothing was written",
  { skip },
  () =>
    withTemporaryFolder(async (home) => {
      await atTerminal(["init", "--preset", "look"], home, async ({ answer, shown, ended }) => {
        await answer("Empty: 1\r\n> ", "openai");
        await answer("at each start)\r\n> ", "sk-half\u0003");
        assert.equal(await ended, 2, shown());
        assert.doesNotMatch(shown(), /sk-half/);
      });
      assert.equal(existsSync(join(home, ".config/postern")), false);
    }),
);

test(
  "postern by itself at a terminal shows the state, and not all commands",
  { skip },
  () =>
    withTemporaryFolder((home) =>
      atTerminal([], home, async ({ shown, ended }) => {
        assert.equal(await ended, 0, shown());
        assert.match(shown(), /Gateway +not running\r\n[\s\S]*postern init +choose a model/);
      })
    ),
);
