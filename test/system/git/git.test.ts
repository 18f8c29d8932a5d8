import assert from "node:assert/strict";
import { ToolError } from "../../../lib/base/errors.ts";
import type { OpenOptions } from "../../../lib/system/git/git.ts";
import { createGit } from "../../../lib/system/git/create_git.ts";
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
  return { seen, requests, git: createGit({ processes: { run }, home: "/home/nobody", ownPaths: [] }) };
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

test("a command that reaches no remote has no stored credentials, and stays in the sandbox, also where a remote may have them", () =>
  withWorkspace({}, async ({ root }) => {
    initRepository(root);
    const { git, requests } = scripted({ version: "git version 3.0\n", config: "", status: "", fetch: "" });
    const opened = opening(root);
    const remote = { url: new URL("https://git.test/a.git"), addresses: ["192.0.2.1"] };
    for (const credentials of [false, true]) {
      const repository = await git.open({ ...opened, scope: { ...opened.scope, sandbox: "auto", credentials } });
      requests.length = 0;
      await repository.run(["status"]);
      await repository.run(["fetch"], { remote });
      const seen = requests.map(({ sandbox, composed }) => ({
        sandbox,
        home: composed?.env["HOME"] === "/home/nobody",
        network: composed?.network,
        pinned: JSON.stringify(composed?.env).includes("git.test:443:192.0.2.1"),
      }));
      assert.deepEqual(seen, [
        { sandbox: "auto", home: false, network: false, pinned: false },
        { sandbox: credentials ? "off" : "auto", home: credentials, network: true, pinned: true },
      ]);
    }
    const strict = await git.open({ ...opened, scope: { ...opened.scope, sandbox: "require", credentials: true } });
    await strict.run(["status"]);
    await assert.rejects(strict.run(["fetch"], { remote }), { code: "sandbox_unavailable" });
  }));
