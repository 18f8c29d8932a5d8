import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { linkSync, lstatSync, mkdirSync, renameSync, statSync, symlinkSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { describe, test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { createCommandLookup } from "../../../lib/system/process/command_lookup.ts";
import { type Survey, type SurveyRequest, Surveys, UNFINISHED } from "../../../lib/system/process/surveys.ts";
import { Preparation } from "../../../lib/system/process/prepare_command.ts";
import { WorkspaceWatch } from "../../../lib/system/process/workspace_watch.ts";
import { createSurveyor } from "../../../lib/system/process/survey_folder.ts";
import { createFakeClock, type FakeClock } from "../../support/fake_clock.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { until } from "../../support/until.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

const KEY = `-----BEGIN PRIVATE KEY-----\n${"QUFB".repeat(16)}\n-----END PRIVATE KEY-----\n`;

const requestOf = (root: string, more: Partial<SurveyRequest> = {}): SurveyRequest => ({
  root,
  skip: [],
  secrets: true,
  home: "/nonexistent",
  ownPaths: [],
  timeoutMs: 60_000,
  ...more,
});

/** A surveyor for which every file has been as it is for a long time. */
const surveyor = () =>
  createSurveyor({ now: () => systemClock.now() + 60_000, monotonic: () => systemClock.monotonic() });

const below = ({ root }: Workspace, paths: readonly string[]) =>
  paths.map((path) => path.slice(root.length + 1)).sort();

test("files and folders of credentials are found by name, content and hard link, at any depth", () =>
  withWorkspace({
    ".env": "a",
    "a/b/c/d/server.key.bak": "a",
    "a/.kube/config": "a",
    "a/.kube/deeper/.env": "a",
    "a/key.txt": KEY,
    "a/plain.txt": "a",
    "x/.cargo/credentials.toml": "a",
    "hidden/.env": "a",
  }, (workspace) => {
    linkSync(workspace.path("a/.kube/config"), workspace.path("a/linked"));
    linkSync(workspace.path("a/plain.txt"), workspace.path("a/plain2.txt"));
    symlinkSync("plain.txt", workspace.path("a/id_rsa"));
    const found = surveyor()(requestOf(workspace.root, { skip: [workspace.path("hidden")] }));
    assert.equal(found.finished, true);
    // Both names of the file that a sensitive link leads to are secrets
    const expected = [".env", "a/b/c/d/server.key.bak", "a/.kube", "a/key.txt", "a/linked", "a/id_rsa"];
    expected.push("x/.cargo/credentials.toml", "a/plain.txt", "a/plain2.txt");
    assert.deepEqual(below(workspace, found.sensitive), expected.sort());
    assert.deepEqual(found.guarded, []);
  }));

test("files that changed since a time are found, but none of git's own", () =>
  withWorkspace({ "a.txt": "a", "sub/b.txt": "b", ".env": "c", ".git/HEAD": "d" }, (workspace) => {
    const ctimes = ["a.txt", "sub/b.txt", ".env"].map((name) => lstatSync(workspace.path(name)).ctimeMs);
    const look = surveyor();
    const since = (changedSince?: number) =>
      below(workspace, look(requestOf(workspace.root, { secrets: false, changedSince })).changed);
    assert.deepEqual(since(Math.min(...ctimes)), [".env", "a.txt", "sub/b.txt"]);
    // Whole seconds count as the end of their second
    assert.deepEqual(since(Math.max(...ctimes) + 1000), []);
    assert.deepEqual(since(), []);
    writeFileSync(workspace.path("sub/b.txt"), "changed in place");
    assert.ok(since(Math.min(...ctimes)).includes("sub/b.txt"), "though its folder is remembered");
  }));

test("protected names are found, those of a git file included, and none below another", () =>
  withWorkspace({
    ".git/HEAD": "a",
    ".git/config": "a",
    ".git/objects/aa/id_rsa": "a",
    ".git/modules/sub/config": "a",
    "sub/.git": "gitdir: ../.git/modules/sub\n",
    "other/.git": "gitdir: ../store\n",
    "store/config": "a",
    "far/.git": "gitdir: /etc\n",
    "src/plugins/a": "a",
    "plugins/a": "a",
    "deep/.agents/.git/x": "a",
    "postern.toml": "",
    "src/postern.toml": "",
  }, (workspace) => {
    const found = surveyor()(requestOf(workspace.root));
    const paths = new Set(below(workspace, found.guarded.map(({ path }) => path)));
    for (
      const path of [".git", "sub/.git", "other/.git", "far/.git", "store", "plugins", "deep/.agents", "postern.toml"]
    ) {
      assert.ok(paths.delete(path), path);
    }
    assert.deepEqual([...paths], [".git/modules/sub"]);
    assert.deepEqual(below(workspace, found.sensitive), [".git/config", ".git/modules/sub/config", "store/config"]);
    assert.deepEqual(below(workspace, found.gitConfigs), [".git/config"], "beside a HEAD alone");
    const names = surveyor()(requestOf(workspace.root, { secrets: false }));
    assert.deepEqual(names.guarded, found.guarded);
    assert.deepEqual(names.sensitive, []);
  }));

test("the configuration of a bare repository is found by what lies beside it, or by what it says", () =>
  withWorkspace({
    "a/HEAD": "a",
    "a/config": "a",
    "a/objects/x": "a",
    "a/refs/x": "a",
    "a/worktrees/t/HEAD": "a",
    "a/worktrees/t/commondir": "../..",
    "a/worktrees/t/config.worktree": "a",
    "b/HEAD": "a",
    "b/config": "a",
    "b/refs/x": "a",
    "c/config": "a",
    "c/objects/x": "a",
    "c/refs/x": "a",
    "d/config": "[core]\n\tRepositoryFormatVersion = 0\n",
  }, (workspace) => {
    const expected = ["a/config", "a/worktrees/t/config.worktree", "d/config"];
    const look = surveyor();
    for (const found of [look(requestOf(workspace.root)), look(requestOf(workspace.root))]) {
      assert.deepEqual([below(workspace, found.gitConfigs), below(workspace, found.sensitive)], [expected, expected]);
    }
    assert.deepEqual(look(requestOf(workspace.root, { secrets: false })).gitConfigs, []);
  }));

/** Waits until a change gets another time than what is there: the surveyor of these tests does not mind how young it is. */
async function nextTimeStamp({ path, write }: Workspace): Promise<void> {
  const { ctimeMs } = statSync(path("a/b"));
  await until(() => {
    write("c/clock", "");
    return statSync(path("c/clock")).ctimeMs > ctimeMs;
  });
}

describe("what is remembered", () => {
  const CHANGES: readonly (readonly [what: string, change: (workspace: Workspace) => void])[] = [
    ["a new file", ({ write }) => write("a/b/new.txt", KEY)],
    ["a file that is written over", ({ write }) => write("a/b/plain.txt", KEY)],
    ["a file whose times are set back", ({ write, path }) => {
      write("a/b/plain.txt", KEY.padEnd(600));
      utimesSync(path("a/b/plain.txt"), 1, 1);
    }],
    ["a folder whose times are set back", ({ write, path }) => {
      write("a/b/new.txt", KEY);
      utimesSync(path("a/b"), 1, 1);
    }],
    ["another folder of the same name", ({ write, path }) => {
      renameSync(path("a/b"), path("a/old"));
      write("a/b/plain.txt", KEY);
    }],
    ["another file of the same name", ({ write, path }) => {
      write("a/key.tmp.txt", KEY);
      renameSync(path("a/key.tmp.txt"), path("a/b/plain.txt"));
    }],
    ["a name that becomes sensitive", ({ path }) => renameSync(path("a/b/plain.txt"), path("a/b/.env"))],
    ["a folder that becomes sensitive", ({ path }) => renameSync(path("a/b"), path("a/.ssh"))],
  ];
  for (const [what, change] of CHANGES) {
    test(`never hides ${what}`, () =>
      withWorkspace({ "a/b/plain.txt": "a".repeat(600), "c/x.txt": "a" }, async (workspace) => {
        const survey = surveyor();
        assert.deepEqual(survey(requestOf(workspace.root)).sensitive, []);
        assert.deepEqual(survey(requestOf(workspace.root)).sensitive, []);
        await nextTimeStamp(workspace);
        change(workspace);
        assert.equal(survey(requestOf(workspace.root)).sensitive.length, 1);
      }));
  }
});

test("more entries than are remembered are looked through each time, to the deepest one", () =>
  withWorkspace({ "z/z/z/z/.env": "a", "z/z/z/z/.agents/x": "a" }, ({ root, path, write }) => {
    for (let i = 0; i < 300; i++) write(`f${i % 30}/${i}`, "a");
    const survey = createSurveyor({
      now: () => systemClock.now() + 60_000,
      monotonic: () => systemClock.monotonic(),
      maxRemembered: 5,
    });
    for (let round = 0; round < 2; round++) {
      const { finished, files, sensitive, guarded } = survey(requestOf(root));
      assert.deepEqual([finished, files, sensitive, guarded.length], [true, 301, [path("z/z/z/z/.env")], 1]);
    }
    for (let i = 0; i < 30; i++) write(`f${i}/new`, KEY);
    assert.equal(survey(requestOf(root)).sensitive.length, 31);
  }));

test("a survey whose time is over says so, and the next one is faster by what is remembered", () =>
  withWorkspace(Object.fromEntries(Array.from({ length: 600 }, (_, i) => [`d${i}/a.txt`, "a"])), ({ root }) => {
    let looks = 0;
    const survey = createSurveyor({ now: () => systemClock.now() + 60_000, monotonic: () => looks++ * 1000 });
    assert.equal(survey(requestOf(root, { timeoutMs: 999 })).finished, false);
    assert.equal(survey(requestOf(root, { timeoutMs: 60_000 })).finished, true);
  }));

test("hard links of the user's secrets are found wherever these lie, and of nothing else at home", () =>
  withTemporaryFolder((home) =>
    withWorkspace({}, (workspace) => {
      const places = [
        ".ssh/a",
        ".aws/sso/x/a",
        ".netrc",
        ".config/gcloud/a",
        ".cargo/credentials",
        "own/db",
        "notes.txt",
      ];
      for (const [index, place] of places.entries()) {
        mkdirSync(join(home, place, ".."), { recursive: true });
        writeFileSync(join(home, place), "a");
        linkSync(join(home, place), workspace.path(`link${index}`));
      }
      const { sensitive } = surveyor()(requestOf(workspace.root, { home, ownPaths: [join(home, "own")] }));
      assert.deepEqual(below(workspace, sensitive), ["link0", "link1", "link2", "link3", "link4", "link5"]);
    })
  ));

/** Makes a folder or file whose name has a byte that is no UTF-8. */
function makeUnnamable(folder: string, name: string, content?: string): void {
  if (content !== undefined) return writeFileSync(latin(folder, name), content);
  mkdirSync(latin(folder, name));
  writeFileSync(latin(folder, `${name}/.env`), "a");
}

function latin(folder: string, name: string): Buffer {
  return Buffer.concat([Buffer.from(`${folder}/`), Buffer.from(name, "latin1")]);
}

// Deno opens no path that is not UTF-8, and cannot make one for this test; it lists names as Node does
const noBytes = "Deno" in globalThis || process.platform !== "linux" ? "needs names of any bytes" : false;

test(
  "what has a name that is not UTF-8 is told, though the same name stands beside it",
  { skip: noBytes },
  () =>
    withWorkspace({ "plain/\ufffd.txt": "a", "both/k\ufffdy.txt": "a" }, (workspace) => {
      makeUnnamable(workspace.root, "Schl\u00fcssel");
      makeUnnamable(workspace.path("plain"), "k\u00fcy.txt", KEY);
      makeUnnamable(workspace.path("both"), "k\u00fcy.txt", KEY);
      const survey = surveyor();
      const both = ["both/k\ufffdy.txt", "both/k\ufffdy.txt"];
      const expected = ["Schl\ufffdssel", ...both, "plain/k\ufffdy.txt"];
      assert.deepEqual(below(workspace, survey(requestOf(workspace.root)).unnamable), expected);
      assert.deepEqual(below(workspace, survey(requestOf(workspace.root)).unnamable), expected);
      const names = survey(requestOf(workspace.root, { secrets: false }));
      assert.deepEqual(below(workspace, names.unnamable), ["Schl\ufffdssel"]);
    }),
);

test(
  "a file whose name is not UTF-8 is judged by its bytes: only what may hold credentials is told",
  { skip: noBytes },
  () =>
    withTemporaryFolder((home) =>
      withWorkspace({ "plain/a.txt": "a", "both/k\ufffdy.txt": "a" }, (workspace) => {
        mkdirSync(join(home, ".ssh"));
        writeFileSync(join(home, ".ssh/id"), "a");
        for (const folder of ["plain", "both"]) makeUnnamable(workspace.path(folder), "k\u00fcy.txt", "a");
        const survey = surveyor();
        const told = () => below(workspace, survey(requestOf(workspace.root, { home })).unnamable);
        assert.deepEqual(told(), []);
        makeUnnamable(workspace.path("plain"), ".env.k\u00fcy", "a");
        linkSync(join(home, ".ssh/id"), latin(workspace.path("plain"), "l\u00fcnk"));
        assert.deepEqual(told(), ["plain/.env.k\ufffdy", "plain/l\ufffdnk"]);
      })
    ),
);

const preparationWith = (survey: (request: SurveyRequest) => Promise<Survey>) => {
  const clock = systemClock;
  const commands = createCommandLookup();
  const walls = { filters: true, endsNamespaces: true, nests: true, bounds: undefined };
  const found = () => Promise.resolve({ kind: "bubblewrap", file: "/usr/bin/bwrap", ...walls } as const);
  return new Preparation({
    commands,
    clock,
    home: "/nonexistent",
    ownPaths: [],
    marker: "test",
    containment: { known: found, find: found },
    launcher: () => Promise.resolve([]),
    watch: new WorkspaceWatch({
      clock,
      home: "/nonexistent",
      ownPaths: [],
      surveys: { survey },
      quarantine: { folder: "/nonexistent", isFull: () => Promise.resolve(false), take: () => Promise.resolve([]) },
      notes: { write: () => Promise.resolve(() => Promise.resolve()) },
    }),
    relays: { open: () => Promise.reject(new Error("No command here has a network")) },
  });
};

test("an unfinished search refuses a command of the sandbox, and an argument without one", () =>
  withWorkspace({ "sub/a.txt": "a" }, async ({ root }) => {
    const preparation = preparationWith(() => Promise.resolve(UNFINISHED));
    const request = {
      words: ["ls", "sub"],
      scope: { workspaceRoot: root, workspaceOnly: true, forbiddenPaths: [], allowSensitive: false },
      maxOutputBytes: 100,
      signal: new AbortController().signal,
    };
    const unfinished = { code: "sandbox_unavailable", message: /could not be searched for credentials within 20 s/ };
    await assert.rejects(preparation.prepare({ ...request, sandbox: "off" }), unfinished);
    await assert.rejects(preparation.screen({ ...request, sandbox: "off" }), unfinished);
    await assert.rejects(preparation.prepare({ ...request, words: ["ls"], sandbox: "auto" }), unfinished);
    await assert.rejects(preparation.prepare({ ...request, words: ["ls"], sandbox: "require" }), unfinished);
    const { contained, after } = await preparation.prepare({ ...request, words: ["ls"], sandbox: "off" });
    assert.equal(contained, false);
    assert.deepEqual(await after(), { quarantined: [], unchecked: true });
  }));

test("a name that is not UTF-8 refuses what could read it, and is no sign that nothing appeared", () =>
  withWorkspace({ "sub/a.txt": "a", "other/a.txt": "a" }, async ({ root, path }) => {
    const unnamable = [path("sub/\ufffd")];
    const survey: Survey = {
      finished: true,
      sensitive: [],
      gitConfigs: [],
      changed: [],
      guarded: [],
      sockets: [],
      unnamable,
      files: 0,
    };
    const preparation = preparationWith(() => Promise.resolve(survey));
    const request = {
      words: ["ls", "sub"],
      scope: { workspaceRoot: root, workspaceOnly: true, forbiddenPaths: [], allowSensitive: false },
      maxOutputBytes: 100,
      signal: new AbortController().signal,
    };
    const refused = { code: "sandbox_unavailable", message: /sub\/\ufffd" is not UTF-8.*; rename it/ };
    await assert.rejects(preparation.prepare({ ...request, words: ["ls"], sandbox: "auto" }), refused);
    await assert.rejects(preparation.prepare({ ...request, sandbox: "off" }), refused);
    await assert.rejects(preparation.screen({ ...request, sandbox: "off" }), refused);
    const { after } = await preparation.prepare({ ...request, words: ["ls", "other"], sandbox: "off" });
    assert.deepEqual(await after(), { quarantined: [], unchecked: true });
  }));

test("the parts of a survey find together what one survey finds", () =>
  withWorkspace({
    ".git/HEAD": "a",
    ".git/config": "a",
    ".env": "a",
    ...Object.fromEntries(Array.from({ length: 40 }, (_, i) => [`a/f${i}.txt`, i % 3 === 0 ? KEY : "a"])),
    "b/x.txt": "a",
  }, (workspace) => {
    linkSync(workspace.path(".env"), workspace.path("b/linked.txt"));
    for (let i = 0; i < 10; i++) linkSync(workspace.path("a/f3.txt"), workspace.path(`b/other${i}.txt`));
    const whole = surveyor()(requestOf(workspace.root));
    const parts = [0, 1, 2].map((index) => surveyor()(requestOf(workspace.root, { part: { index, count: 3 } })));
    assert.ok(parts.every(({ files }) => files > 0 && files < whole.files));
    assert.equal(parts.reduce((sum, { files }) => sum + files, 0), whole.files);
    assert.deepEqual([...new Set(parts.flatMap(({ sensitive }) => sensitive))].sort(), whole.sensitive);
    for (const { guarded, gitConfigs } of parts) {
      assert.deepEqual([guarded, gitConfigs], [whole.guarded, whole.gitConfigs]);
    }
  }));

describe("threads that share a survey", () => {
  test("find what has changed since the last one", () =>
    withWorkspace(
      Object.fromEntries(Array.from({ length: 2100 }, (_, i) => [`d${i % 20}/f${i}.txt`, "a"])),
      async (workspace) => {
        const surveys = new Surveys({ clock: systemClock, maxThreads: 3 });
        const look = () => surveys.survey(requestOf(workspace.root), new AbortController().signal);
        try {
          for (let round = 0; round < 2; round++) {
            const { finished, files, sensitive } = await look();
            assert.deepEqual([finished, files, sensitive], [true, 2100, []]);
          }
          const changed = Array.from({ length: 12 }, (_, i) => `d${i}/f${i}.txt`);
          for (const name of changed) workspace.write(name, KEY);
          workspace.write("d1/.env", "a");
          assert.deepEqual(below(workspace, (await look()).sensitive), [...changed, "d1/.env"].sort());
        } finally {
          await surveys.close();
        }
      },
    ));

  /** Surveys of threads that find many files. Their `home` tells the second thread to end, or not to answer. */
  const scripted = async (
    use: (look: (home: string, signal?: AbortSignal) => Promise<boolean>, clock: FakeClock) => Promise<void>,
  ) => {
    const clock = createFakeClock();
    const module = new URL("./survey_job.ts", import.meta.url);
    const surveys = new Surveys({ clock, maxThreads: 2, module });
    const look = async (home: string, signal = new AbortController().signal) =>
      (await surveys.survey(requestOf("/nonexistent", { home }), signal)).finished;
    try {
      assert.equal(await look("answer"), true);
      await use(look, clock);
      assert.equal(await look("answer"), true, "the next survey is whole again");
    } finally {
      await surveys.close();
    }
  };

  test("leave it unfinished when one of them ends", () =>
    scripted(async (look) => assert.equal(await look("end"), false)));

  test("leave it unfinished when one of them is late", () =>
    scripted(async (look, clock) => {
      const late = look("hang");
      await until(() => clock.pending() === 1);
      await clock.advance(62_000);
      assert.equal(await late, false);
    }));

  test("are left alone by who cancels", () =>
    scripted(async (look) => {
      const cancel = new AbortController();
      const cancelled = look("hang", cancel.signal);
      cancel.abort();
      await assert.rejects(cancelled, { name: "CancelError" });
    }));
});

test("a thread answers one survey after the other, and none once it is closed", () =>
  withWorkspace({ ".env": "a", "a.txt": "a" }, async ({ root, path }) => {
    const surveys = new Surveys({ clock: systemClock });
    const { signal } = new AbortController();
    const all = await Promise.all([1, 2, 3].map(() => surveys.survey(requestOf(root), signal)));
    for (const { finished, sensitive } of all) assert.deepEqual([finished, sensitive], [true, [path(".env")]]);
    await assert.rejects(surveys.survey(requestOf(root), AbortSignal.abort()), { name: "CancelError" });
    await surveys.close();
    assert.deepEqual(await surveys.survey(requestOf(root), signal), UNFINISHED);
  }));
