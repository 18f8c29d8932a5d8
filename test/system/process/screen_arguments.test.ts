import assert from "node:assert/strict";
import { symlinkSync } from "node:fs";
import { test } from "node:test";
import fc from "fast-check";
import { ToolError } from "../../../lib/base/errors.ts";
import { type ArgumentScope, screenArguments } from "../../../lib/system/process/screen_arguments.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

const FILES = { "a.txt": "a", "src/b.txt": "b", "data/postern.db": "x", "private/c.txt": "c" };

const screen = async (workspace: Workspace, arg: string, more: Partial<ArgumentScope> = {}): Promise<string> => {
  const scope = { workspaceRoot: workspace.root, workspaceOnly: true, forbiddenPaths: [], allowSensitive: false };
  try {
    await screenArguments([arg], { ...scope, ...more }, { home: "/home/nobody", ownPaths: [workspace.path("data")] });
    return "none";
  } catch (error) {
    assert.ok(error instanceof ToolError, String(error));
    return error.code;
  }
};

test("lets through words, options and paths of the workspace", () =>
  withWorkspace(FILES, async (workspace) => {
    const args = ["", "-", "--", "-l", "-rn", "--color=auto", "a.txt", "./src/../a.txt", "src/none", "-fa.txt", "*.ts"];
    args.push(workspace.path("a.txt"), `--file=${workspace.path("src", "b.txt")}`, "https://example.com/etc/passwd");
    args.push("s/a/b/", "a b", "12:30", "--", "--no-pager", "1..3", ".env.example", "é=ü", "x".repeat(5000));
    for (const arg of args) assert.equal(await screen(workspace, arg), "none", arg.slice(0, 60));
  }));

test("refuses paths outside the workspace, alone and glued to something", () =>
  withWorkspace(FILES, async (workspace) => {
    symlinkSync("../outside", workspace.path("link"));
    symlinkSync("/usr", workspace.path("src", "usr"));
    const { outside } = workspace;
    const args = ["..", "../x", "src/../../x", "/", "/usr", outside, `--file=${outside}/x`, "-f../x", "-xvf../x"];
    args.push(`-f${outside}`, `-xvf${outside}`, `if=${outside}`, `@${outside}`, `a:${outside}`, `a,${outside}`);
    args.push("link", "link/secret.txt", "src/usr/bin", "src/usr/../x", "-flink/x", `file://${outside}`);
    args.push("https://../../../x");
    for (const arg of args) assert.equal(await screen(workspace, arg), "path_outside_root", arg);
    assert.equal(await screen(workspace, "../x", { workspaceOnly: false }), "none");
    assert.equal(await screen(workspace, "/usr/bin", { workspaceOnly: false }), "none");
  }));

test("refuses forbidden paths at every setting: built-in, the user's and Postern's own", () =>
  withWorkspace(FILES, async (workspace) => {
    symlinkSync("/etc", workspace.path("link"));
    const args = ["/etc/passwd", "--file=/etc/passwd", "-f/etc/passwd", "-xvf/etc/passwd", "link/passwd", "/proc/self"];
    args.push("/home/nobody/.ssh/config", "private/c.txt", "--in=private", "data/postern.db", "-fdata/postern.db");
    for (const arg of args) {
      const code = await screen(workspace, arg, { workspaceOnly: false, forbiddenPaths: ["private"] });
      assert.equal(code, "path_forbidden", arg);
    }
  }));

test("refuses sensitive names in any case, alone and glued to something", () =>
  withWorkspace(FILES, async (workspace) => {
    workspace.write(".env", "KEY=1");
    symlinkSync(".env", workspace.path("innocent"));
    const args = [".env", ".ENV", "src/.env.local", "id_rsa", "a/.ssh/config", "server.pem", "--file=.env", "-f.env"];
    args.push("-xf.env", "@.env", "if=.env", "a:.env:b", "innocent", "~/.aws/credentials");
    for (const arg of args) {
      assert.equal(await screen(workspace, arg), "path_sensitive", arg);
      assert.equal(await screen(workspace, arg, { allowSensitive: true }), "none", arg);
    }
  }));

test("refuses a sensitive name that is a link to an ordinary file: what it leads to may change", () =>
  withWorkspace(FILES, async (workspace) => {
    symlinkSync("a.txt", workspace.path(".env"));
    symlinkSync("../a.txt", workspace.path("src", "server.key"));
    for (const arg of [".env", "./.env", workspace.path(".env"), "--file=.env", "src/server.key", "src/../.env"]) {
      assert.equal(await screen(workspace, arg), "path_sensitive", arg);
      assert.equal(await screen(workspace, arg, { allowSensitive: true }), "none", arg);
    }
  }));

test("a link that leads to nothing counts for what a program would make there", () =>
  withWorkspace(FILES, async (workspace) => {
    symlinkSync("../outside/none", workspace.path("out"));
    symlinkSync("../.env", workspace.path("src", "env"));
    symlinkSync("round", workspace.path("round"));
    const cases = [["out", "path_outside_root"], ["src/env", "path_sensitive"], ["round", "none"]] as const;
    for (const [arg, code] of cases) {
      assert.equal(await screen(workspace, arg), code, arg);
    }
  }));

test("an argument of countless parts is refused, not searched", () =>
  withWorkspace(FILES, async (workspace) => {
    const arg = Array.from({ length: 2000 }, (_, i) => i).join(",");
    assert.equal(await screen(workspace, arg), "command_too_long");
  }));

test("whatever a forbidden path is glued to, it is refused", () =>
  withWorkspace(FILES, async (workspace) => {
    const word = fc.stringMatching(/^[a-z]{1,8}$/);
    const glue = fc.oneof(
      fc.constant(""),
      word.map((name) => `--${name}=`),
      fc.stringMatching(/^-[a-zA-Z0-9]{1,4}$/),
      fc.tuple(word, fc.constantFrom("=", ":", ",", "@")).map(([name, sign]) => `${name}${sign}`),
      fc.tuple(word, word).map(([option, name]) => `--${option}=${name}=`),
      fc.constantFrom("@", "file://", "--exclude-from=@", "-o,", "a=b:"),
    );
    const path = fc.constantFrom("/etc/passwd", "/etc/../etc/shadow", "/proc/self/environ", "private/c.txt", "data/x");
    await fc.assert(
      fc.asyncProperty(glue, path, fc.constantFrom("", "/", ":ro"), async (before, path, after) => {
        // What follows the slashes is a host
        if (before === "file://" && !path.startsWith("/")) return;
        const code = await screen(workspace, `${before}${path}${after}`, {
          workspaceOnly: false,
          forbiddenPaths: ["private"],
        });
        assert.equal(code, "path_forbidden", `${before}${path}${after}`);
      }),
      { numRuns: 200 },
    );
  }));
