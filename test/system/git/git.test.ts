import assert from "node:assert/strict";
import { ToolError } from "../../../lib/base/errors.ts";
import type { OpenOptions } from "../../../lib/system/git/git.ts";
import { CheckedGit } from "../../../lib/system/git/checked_git.ts";
import type { Processes } from "../../../lib/system/process/processes.ts";
import { gitTest as test, initRepository } from "../../support/git_fixture.ts";
import { withWorkspace } from "../../support/workspace.ts";

const captured = (text: string) => ({ text, bytes: text.length, truncated: false });

/** Git that answers by a table of its first word. */
function scripted(answers: Readonly<Record<string, string | "timeout">>) {
  const seen: string[] = [];
  const requests: Parameters<Processes["run"]>[0][] = [];
  const run: Processes["run"] = (request) => {
    const { words } = request;
    requests.push(request);
    const verb = words.find((word) => word in answers) ?? "";
    seen.push(verb);
    const answer = answers[verb] ?? "";
    return Promise.resolve({
      ending: answer === "timeout" ? { kind: "timeout" } : { kind: "exit", code: 0 },
      stdout: captured(answer),
      stderr: captured(""),
      contained: false,
      quarantined: [],
      unchecked: false,
      refused: [],
    });
  };
  return { seen, requests, git: new CheckedGit({ processes: { run }, home: "/home/nobody", ownPaths: [] }) };
}

const opening = (root: string): OpenOptions => ({
  folder: ".",
  files: false,
  scope: { workspaceRoot: root, forbiddenPaths: [], sandbox: "off", credentials: false },
  use: { content: false, merges: false, network: false },
  writes: false,
  signal: new AbortController().signal,
});

test("open() refuses a git that is too old, and asks for the version once", () =>
  withWorkspace({}, async ({ root }) => {
    initRepository(root);
    const old = scripted({ version: "git version 2.36.9\n", config: "" });
    await assert.rejects(old.git.open(opening(root)), { code: "git_too_old", message: /older than 2\.37/ });
    const fine = scripted({ version: "git version 2.50.1 (Apple Git-155)\n", config: "" });
    await fine.git.open(opening(root));
    await fine.git.open(opening(root));
    assert.deepEqual(fine.seen, ["version", "config", "config"]);
  }));

test("a command that takes too long is an error that names the limit", () =>
  withWorkspace({}, async ({ root }) => {
    initRepository(root);
    const { git } = scripted({ version: "git version 3.0\n", config: "", status: "timeout" });
    const repository = await git.open(opening(root));
    await assert.rejects(repository.run(["status"]), (error) => {
      assert.ok(error instanceof ToolError);
      assert.match(error.message, /^Cannot finish git: it was stopped after 60 s; if it left a "\.lock" file/);
      return error.code === "git_timeout";
    });
  }));

const ASK = 'printf "url=%s\\n" "$POSTERN_URL" | git credential fill | base64';

test("a command that reaches no remote has no stored credential, and each stays in the sandbox", () =>
  withWorkspace({}, async ({ root }) => {
    initRepository(root);
    const filled = Buffer.from("protocol=https\nhost=git.test\nusername=ada\npassword=s\xe9cret\n", "latin1");
    const { git, requests } = scripted({
      ...{ version: "git version 3.0\n", config: "", status: "", fetch: "" },
      [ASK]: filled.toString("base64"),
    });
    const opened = opening(root);
    const remote = { url: new URL("https://git.test/a.git"), addresses: ["192.0.2.1"] };
    for (const credentials of [false, true]) {
      const repository = await git.open({ ...opened, scope: { ...opened.scope, sandbox: "auto", credentials } });
      requests.length = 0;
      await repository.run(["status"]);
      await repository.run(["fetch"], { remote });
      await repository.run(["fetch"], { remote });
      const query = requests.filter(({ words }) => words[0] === "sh");
      assert.deepEqual(
        query.map(({ sandbox, composed }) => [sandbox, composed?.env["HOME"], composed?.env["POSTERN_URL"]]),
        credentials ? [["off", "/home/nobody", "https://git.test/a.git"]] : [],
      );
      const seen = requests.filter(({ words }) => words[0] === "git").map(({ sandbox, composed }) => ({
        sandbox,
        home: "HOME" in (composed?.env ?? {}),
        network: composed?.network,
        pinned: JSON.stringify(composed?.env).includes("git.test:443:192.0.2.1"),
        secret: JSON.stringify(composed?.env).includes("cret"),
        given: composed?.given === undefined ? undefined : Buffer.from(composed.given).toString("latin1"),
      }));
      const more = {
        network: true,
        pinned: true,
        given: credentials ? "username=ada\npassword=s\xe9cret\n" : undefined,
      };
      const fetched = { sandbox: "auto", home: false, secret: false, ...more };
      assert.deepEqual(seen, [
        { sandbox: "auto", home: false, network: false, pinned: false, secret: false, given: undefined },
        ...[fetched, fetched],
      ]);
    }
  }));

test("where nothing is stored for an address, or it has a password of its own, git is given none", () =>
  withWorkspace({}, async ({ root }) => {
    initRepository(root);
    const answers = { version: "git version 3.0\n", config: "", fetch: "" };
    const opened = opening(root);
    const scope = { ...opened.scope, credentials: true };
    for (
      const [url, answer, queries] of [
        ["https://git.test/a.git", "timeout", 1],
        ["https://git.test/a.git", "username=ada\n", 1],
        ["https://ada%40home@git.test:8443/a%20b.git", "password=s3cret\n", 1],
        ["https://ada:own@git.test/a.git", "password=s3cret\n", 0],
        ["https://ada%0Dhost=evil.test@git.test/a.git", "password=s3cret\n", 0],
        ["https://git.test/a%0ahost=evil.test", "password=s3cret\n", 0],
      ] as const
    ) {
      const { git, requests } = scripted({ ...answers, [ASK]: answer === "timeout" ? answer : btoa(answer) });
      const repository = await git.open({ ...opened, scope });
      await repository.run(["fetch"], { remote: { url: new URL(url), addresses: ["192.0.2.1"] } });
      const asked = requests.filter(({ words }) => words[0] === "sh");
      assert.equal(asked.length, queries);
      const { given, env } = requests.at(-1)?.composed ?? {};
      if (!url.includes("8443")) assert.equal(given, undefined);
      else {
        assert.equal(asked[0]?.composed?.env["POSTERN_URL"], url);
        assert.ok(Object.values(env ?? {}).includes("credential.https://git.test:8443.helper"));
      }
    }
  }));
