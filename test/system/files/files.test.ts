import assert from "node:assert/strict";
import { linkSync, mkdirSync, symlinkSync, unlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import type { ToolError } from "../../../lib/base/errors.ts";
import { type Clock, systemClock } from "../../../lib/base/clock.ts";
import type { Files, FileScope, FilesVariant, OpenFile } from "../../../lib/system/files/files.ts";
import { createFiles } from "../../../lib/system/files/create_files.ts";
import { OUTSIDE, withWorkspace, type Workspace } from "../../support/workspace.ts";

const NATIVE: FilesVariant = createFiles({ clock: systemClock, home: "/home/nobody", ownPaths: [] }).variant;
const VARIANTS: readonly FilesVariant[] = NATIVE === "handles" ? ["handles", "checked"] : ["checked"];

/** The checked variant waits until no folder has just changed: to this clock, all that was before the test */
const LATER: Clock = { ...systemClock, now: () => systemClock.now() + 10_000 };

interface Bench {
  readonly files: Files;
  readonly workspace: Workspace;
  /** Text of a file, or the code it is refused with */
  read(path: string, scope?: Partial<FileScope>): Promise<string>;
  walk(path?: string, scope?: Partial<FileScope>): Promise<string[]>;
}

for (const variant of VARIANTS) {
  const check = (
    name: string,
    files: Readonly<Record<string, string | Uint8Array>>,
    use: (bench: Bench) => Promise<void>,
    options: { readonly home?: string; readonly ownPaths?: (workspace: Workspace) => readonly string[] } = {},
  ) =>
    test(`${variant}: ${name}`, () =>
      withWorkspace(files, async (workspace) => {
        const door = createFiles({
          clock: LATER,
          home: options.home ?? "/home/nobody",
          ownPaths: options.ownPaths?.(workspace) ?? [],
          variant,
        });
        const scopeOf = (scope: Partial<FileScope> = {}): FileScope => ({
          workspaceRoot: workspace.root,
          allowedRoot: ".",
          forbiddenPaths: [],
          allowSensitive: false,
          ...scope,
        });
        await use({
          files: door,
          workspace,
          async read(path, scope) {
            try {
              return await textOf(await door.open(path, scopeOf(scope)));
            } catch (error) {
              return codeOf(error);
            }
          },
          async walk(path = ".", scope) {
            const found: string[] = [];
            const options = { respectGitignore: true, maxEntries: 1000, signal: new AbortController().signal };
            for await (const part of door.walk(path, scopeOf(scope), options)) {
              found.push(...part.map((file) => file.path));
            }
            return found;
          },
        });
      }));

  check("reads a file by its relative path", { "a/b.txt": "text" }, async ({ read }) => {
    for (const path of ["a/b.txt", "./a/b.txt", "a//b.txt", "a/./b.txt"]) assert.equal(await read(path), "text", path);
  });

  const [COMPOSED, APART] = ["Caf\u00e9", "Cafe\u0301"];

  check("reads and changes what has the same name in other code points", {
    [`${APART}/${APART}.txt`]: "text",
    [`two/x${APART}`]: "",
    [`${APART}.env/.env`]: "A=1",
  }, async ({ read, walk, files, workspace }) => {
    assert.equal(await read(`${COMPOSED}/${COMPOSED}.txt`), "text");
    assert.deepEqual(await walk(COMPOSED), [`${APART}/${APART}.txt`]);
    assert.equal(await read(`${COMPOSED}.env/.env`), "path_sensitive");
    const forbidden = { forbiddenPaths: [workspace.path(APART)] };
    assert.equal(await read(`${COMPOSED}/${COMPOSED}.txt`, forbidden), "path_forbidden");
    const scope = { workspaceRoot: workspace.root, allowedRoot: ".", forbiddenPaths: [], allowSensitive: false };
    const path = `${COMPOSED}/${COMPOSED}.txt`;
    const found = await files.inspect(path, scope, { maxBytes: undefined });
    assert.equal(found.path, `${APART}/${APART}.txt`);
    const change = { kind: "write", path, content: new Uint8Array([65]), expected: found.file?.version } as const;
    await files.change([change], scope, { signal: new AbortController().signal });
    assert.deepEqual(await walk(APART), [`${APART}/${APART}.txt`]);
    assert.equal(await read(`${APART}/${APART}.txt`), "A");
    workspace.write(`${COMPOSED}/${COMPOSED}.txt`, "other");
    assert.equal(await read(path), "other", "an exact name comes first");
    workspace.write("several/e\u0323\u0307", "1");
    workspace.write("several/\u1eb9\u0307", "2");
    assert.equal(await read("several/\u0117\u0323"), "not_found", "none of several is taken");
  });

  check("a name that is not there is told with the one that looks alike", {
    "Shot 3.00\u202fPM.png": "",
    "two\u00a0a": "",
    "two\u202fa": "",
    "no-entry": "",
    "way/in\u00a0it/a.txt": "",
  }, async ({ files, workspace }) => {
    symlinkSync(workspace.outside, workspace.path("out"));
    writeFileSync(join(workspace.outside, "far\u00a0off"), "");
    const scope = {
      workspaceRoot: workspace.root,
      allowedRoot: ".",
      forbiddenPaths: [workspace.path("no-entry")],
      allowSensitive: false,
    };
    const told = async (path: string) => {
      const error = await files.open(path, scope).then(() => undefined, (reason: ToolError) => reason);
      return error?.message.split("; there is ")[1] ?? error?.code;
    };
    assert.equal(await told("Shot 3.00 PM.png"), '"Shot 3.00\\u202fPM.png", with U+202F');
    assert.equal(await told("way/in it/a.txt"), '"in\\u00a0it", with U+00A0');
    for (const path of ["two a", "Shot 4.00 PM.png", "no\u2011entry"]) {
      assert.equal(await told(path), "not_found", path);
    }
    assert.match(await told("out/far off") ?? "", /^(not_found|path_outside_root)$/);
    const found = await files.inspect("Shot 3.00 PM.png", scope, { maxBytes: undefined });
    assert.deepEqual([found.file, found.like], [undefined, "Shot 3.00\u202fPM.png"]);
    assert.equal((await files.inspect("no\u2011entry", scope, { maxBytes: undefined })).like, undefined);
  });

  check("refuses paths by their text alone", { "a.txt": "text", "a/b.txt": "text" }, async ({ read, workspace }) => {
    const refused: readonly (readonly [path: string, code: string])[] = [
      ["", "path_invalid"],
      ["a\0.txt", "path_invalid"],
      ["x".repeat(5000), "path_invalid"],
      ["x".repeat(300), "path_invalid"],
      [workspace.path("a.txt"), "path_outside_root"],
      ["/etc/passwd", "path_outside_root"],
      ["C:\\a.txt", "path_outside_root"],
      ["..", "path_outside_root"],
      ["../outside/secret.txt", "path_outside_root"],
      ["a/../a.txt", "path_outside_root"],
      ["a.txt/", "not_a_file"],
      ["a.txt/.", "not_a_file"],
      ["a.txt/b", "not_found"],
      ["none.txt", "not_found"],
      ["a", "not_a_file"],
      [".", "not_a_file"],
    ];
    for (const [path, code] of refused) assert.equal(await read(path), code, path.slice(0, 40));
  });

  check("reads names of any characters", {
    "line\nbreak.txt": "1",
    "späce ünï.txt": "2",
    "\u202Eright.txt": "3",
    "back\\slash.txt": "4",
    "...": "5",
    "a..b": "6",
    "~": "7",
  }, async ({ read }) => {
    const names = ["line\nbreak.txt", "späce ünï.txt", "\u202Eright.txt", "back\\slash.txt", "...", "a..b", "~"];
    for (const [i, name] of names.entries()) assert.equal(await read(name), String(i + 1), name);
  });

  check("follows links inside the root and refuses those that leave it", {
    "real/a.txt": "text",
    "deep/er/x": "",
  }, async ({ read, workspace }) => {
    const link = (target: string, name: string) => symlinkSync(target, workspace.path(name));
    link("real/a.txt", "file");
    link("real", "folder");
    link(workspace.path("real"), "absolute");
    link("../../real/a.txt", "deep/er/up");
    link("folder/../real/./a.txt", "winding");
    for (const path of ["file", "folder/a.txt", "absolute/a.txt", "deep/er/up", "winding"]) {
      assert.equal(await read(path), "text", path);
    }
    link("../outside/secret.txt", "out");
    link(workspace.outside, "out_folder");
    link("../root/real/a.txt", "out_and_in");
    link("out", "twice");
    link(`/proc/self/root${workspace.outside}/secret.txt`, "proc_root");
    link("/proc/self/cwd", "proc_cwd");
    link("/proc/self/environ", "environ");
    link("/dev/stdin", "stdin");
    for (
      const path of ["out", "out_folder/secret.txt", "twice", "proc_root", "proc_cwd/package.json", "environ", "stdin"]
    ) {
      assert.match(await read(path), /^path_outside_root|path_forbidden|not_found$/, path);
    }
    if (variant === "handles") assert.equal(await read("out_and_in"), "path_outside_root");
  });

  check("answers link loops and dangling links", {}, async ({ read, workspace }) => {
    symlinkSync("b", workspace.path("a"));
    symlinkSync("a", workspace.path("b"));
    symlinkSync(".", workspace.path("self"));
    symlinkSync("nothing", workspace.path("dangling"));
    assert.equal(await read("a"), "path_invalid");
    assert.match(await read("self/".repeat(60) + "x"), /^path_invalid|not_found$/);
    assert.equal(await read("dangling"), "not_found");
  });

  check("follows 40 links in one path and refuses the 41st", { "a.txt": "text" }, async ({ read, workspace }) => {
    symlinkSync("a.txt", workspace.path("link_1"));
    for (let i = 2; i <= 41; i++) symlinkSync(`link_${i - 1}`, workspace.path(`link_${i}`));
    assert.equal(await read("link_40"), "text");
    assert.equal(await read("link_41"), "path_invalid");
  });

  check("refuses to open a walked file with a second hard link", { "a/own.txt": "own" }, async (bench) => {
    const { files, workspace } = bench;
    linkSync(join(workspace.outside, "secret.txt"), workspace.path("a", "linked.txt"));
    const scope = { workspaceRoot: workspace.root, allowedRoot: ".", forbiddenPaths: [], allowSensitive: false };
    const options = { respectGitignore: false, maxEntries: 100, signal: new AbortController().signal };
    const found: string[] = [];
    for await (const part of files.walk(".", scope, options)) {
      for (const file of part) found.push(`${file.path}=${await file.open().then(textOf).catch(codeOf)}`);
    }
    assert.deepEqual(found, ["a/linked.txt=hard_link", "a/own.txt=own"]);
  });

  check("refuses a file with a second hard link", {}, async ({ read, workspace }) => {
    linkSync(join(workspace.outside, "secret.txt"), workspace.path("linked.txt"));
    assert.equal(await read("linked.txt"), "hard_link");
    unlinkSync(join(workspace.outside, "secret.txt"));
    assert.equal(await read("linked.txt"), OUTSIDE);
  });

  check("answers special files at once", {}, async ({ read, workspace }) => {
    execFileSync("mkfifo", [workspace.path("fifo")]);
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(workspace.path("socket"), resolve));
    try {
      assert.equal(await read("fifo"), "not_a_file");
      assert.equal(await read("socket"), "not_a_file");
    } finally {
      server.close();
    }
  });

  check("refuses sensitive names at any depth, unless they are allowed", {
    ".env": "s",
    "a/.ENV": "s",
    "a/.env.local": "s",
    ".env.example": "fine",
    ".aws/credentials": "s",
    "x/.SSH/known": "s",
    ".kube/config": "s",
    "server.PEM": "s",
    "id_rsa": "s",
    "id_rsa.pub": "fine",
    "id_generator.ts": "fine",
    "plain.txt": "fine",
  }, async ({ read, walk, workspace }) => {
    symlinkSync(".env", workspace.path("innocent"));
    symlinkSync("plain.txt", workspace.path("key.pem"));
    const sensitive = [
      ".env",
      "a/.ENV",
      "a/.env.local",
      ".aws/credentials",
      "x/.SSH/known",
      ".kube/config",
      "server.PEM",
      "id_rsa",
      "innocent",
    ];
    for (const path of sensitive) {
      assert.equal(await read(path), "path_sensitive", path);
      assert.notEqual(await read(path, { allowSensitive: true }), "path_sensitive", path);
    }
    assert.equal(await read("key.pem"), "path_sensitive");
    for (const path of [".env.example", "id_rsa.pub", "id_generator.ts"]) assert.equal(await read(path), "fine", path);
    assert.deepEqual(await walk(), [".env.example", "id_generator.ts", "id_rsa.pub", "plain.txt"]);
  });

  check("refuses forbidden paths, the longest match deciding", {
    "private/a.txt": "s",
    "private/open/b.txt": "fine",
    "postern.toml": "s",
    "c.txt": "fine",
  }, async ({ read, walk, workspace }) => {
    const forbiddenPaths = [workspace.path("private")];
    symlinkSync("private/a.txt", workspace.path("link"));
    assert.equal(await read("private/a.txt", { forbiddenPaths }), "path_forbidden");
    assert.equal(await read("link", { forbiddenPaths }), "path_forbidden");
    assert.equal(await read("postern.toml"), "path_forbidden");
    assert.equal(await read("b.txt", { forbiddenPaths, workspaceRoot: workspace.path("private", "open") }), "fine");
    assert.deepEqual(await walk(".", { forbiddenPaths }), ["c.txt"]);
  }, { ownPaths: (workspace) => [workspace.path("postern.toml")] });

  check("refuses to walk a forbidden folder, by its name, through a link and as the root itself", {
    "private/a.txt": "s",
    "b.txt": "fine",
  }, async ({ walk, workspace }) => {
    symlinkSync("private", workspace.path("link"));
    symlinkSync(workspace.path("private"), workspace.path("absolute"));
    const forbiddenPaths = [workspace.path("private")];
    for (const path of ["private", "private/.", "link", "absolute"]) {
      assert.equal(await walk(path, { forbiddenPaths }).catch(codeOf), "path_forbidden", path);
    }
    assert.equal(await walk(".", { forbiddenPaths: [workspace.root] }).catch(codeOf), "path_forbidden");
    assert.deepEqual(await walk(".", { forbiddenPaths }), ["b.txt"]);
  });

  check("forbids a workspace that is a forbidden path itself", { "a.txt": "s" }, async ({ read, workspace }) => {
    assert.equal(await read("a.txt", { forbiddenPaths: [workspace.root] }), "path_forbidden");
    assert.equal(await read("a.txt", { forbiddenPaths: [join(workspace.root, "..")] }), "s");
  });

  check("takes an allowed root inside the workspace, or an absolute one", {
    "docs/a.txt": "doc",
    "b.txt": "no",
  }, async ({ read, walk, workspace }) => {
    symlinkSync("../b.txt", workspace.path("docs", "up"));
    assert.equal(await read("a.txt", { allowedRoot: "docs" }), "doc");
    assert.equal(await read("up", { allowedRoot: "docs" }), "path_outside_root");
    assert.equal(await read("a.txt", { allowedRoot: workspace.path("docs") }), "doc");
    assert.equal(await read("secret.txt", { allowedRoot: workspace.outside }), OUTSIDE);
    assert.equal(await read("a.txt", { allowedRoot: "none" }), "not_found");
    assert.deepEqual(await walk(".", { allowedRoot: "docs" }), ["a.txt"]);
  });

  check("follows no link in the place of the allowed root out of the workspace, and none to credentials", {
    "docs/a.txt": "doc",
    ".aws/sub/config": "s",
  }, async ({ read, walk, workspace }) => {
    symlinkSync("..", workspace.path("out"));
    symlinkSync("docs", workspace.path("in"));
    symlinkSync(".aws/sub", workspace.path("keys"));
    for (const allowedRoot of ["out", workspace.path("out"), "out/outside", workspace.path("out", "outside")]) {
      assert.equal(await read("outside/secret.txt", { allowedRoot }), "path_outside_root", allowedRoot);
      assert.equal(await walk(".", { allowedRoot }).catch(codeOf), "path_outside_root", allowedRoot);
    }
    assert.equal(await read("a.txt", { allowedRoot: "in" }), "doc");
    assert.equal(await read("config", { allowedRoot: "keys" }), "path_sensitive");
    assert.equal(await walk(".", { allowedRoot: "keys" }).catch(codeOf), "path_sensitive");
  });

  check("walks in order, respecting .gitignore and leaving links out", {
    ".gitignore": "*.log\n/build/\n!keep.log\n",
    ".git/config": "x",
    "b.txt": "",
    "a.txt": "",
    "keep.log": "",
    "x.log": "",
    "build/out.js": "",
    "src/build/in.js": "",
    "src/.gitignore": "secret.*\n!x.log\n",
    "src/secret.txt": "",
    "src/x.log": "",
    "src/z.ts": "",
  }, async ({ walk, workspace }) => {
    symlinkSync("src", workspace.path("linked"));
    symlinkSync("..", workspace.path("src", "loop"));
    const below = ["src/.gitignore", "src/x.log", "src/z.ts", "src/build/in.js"];
    assert.deepEqual(await walk(), [".gitignore", "a.txt", "b.txt", "keep.log", ...below]);
    assert.deepEqual(await walk("src"), below);
    assert.deepEqual(await walk("linked"), below);
    assert.deepEqual(await walk("src/build"), ["src/build/in.js"]);
    assert.deepEqual(await walk("a.txt"), ["a.txt"]);
  });

  check(
    "a walk stops at its bound and at the signal",
    { "a/1": "", "a/2": "", "b/3": "", "c": "" },
    async ({ files, workspace }) => {
      const scope: FileScope = {
        workspaceRoot: workspace.root,
        allowedRoot: ".",
        forbiddenPaths: [],
        allowSensitive: false,
      };
      const { signal } = new AbortController();
      const walk = files.walk(".", scope, { respectGitignore: false, maxEntries: 4, signal });
      const found: string[] = [];
      let step = await walk.next();
      for (; !step.done; step = await walk.next()) found.push(...step.value.map((file) => file.path));
      assert.equal(step.value.truncated, true);
      assert.ok(found.length <= 4, found.join());
      const controller = new AbortController();
      const stopped = files.walk(".", scope, { respectGitignore: false, maxEntries: 100, signal: controller.signal });
      await stopped.next();
      controller.abort();
      await assert.rejects(stopped.next(), { name: "CancelError" });
    },
  );

  check(
    "a walk opens the files it met, until it goes on",
    { "a/1.txt": "one", "b/2.txt": "two" },
    async ({ files, workspace }) => {
      const scope: FileScope = {
        workspaceRoot: workspace.root,
        allowedRoot: ".",
        forbiddenPaths: [],
        allowSensitive: false,
      };
      const { signal } = new AbortController();
      const texts: string[] = [];
      for await (const part of files.walk(".", scope, { respectGitignore: true, maxEntries: 100, signal })) {
        for (const file of part) texts.push(`${file.below}=${await textOf(await file.open())}`);
      }
      assert.deepEqual(texts, ["a/1.txt=one", "b/2.txt=two"]);
    },
  );

  check("walks a very deep folder to its bound", {}, async ({ walk, workspace }) => {
    mkdirSync(workspace.path(...new Array<string>(100).fill("d")), { recursive: true });
    workspace.write("d/d/a.txt", "");
    assert.deepEqual(await walk(), ["d/d/a.txt"]);
  });
}

async function textOf(file: OpenFile): Promise<string> {
  try {
    const buffer = new Uint8Array(file.size);
    return new TextDecoder().decode(buffer.subarray(0, await file.read(buffer, 0)));
  } finally {
    await file.close();
  }
}

function codeOf(error: unknown): string {
  assert.ok(error instanceof Error && error.name === "ToolError" && "code" in error, String(error));
  return String(error.code);
}
