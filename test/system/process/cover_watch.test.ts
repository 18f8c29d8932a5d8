import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  appendFileSync,
  chmodSync,
  existsSync,
  linkSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { type Covers, CoverWatch } from "../../../lib/system/process/cover_watch.ts";
import { startGroup } from "../../../lib/system/process/process_group.ts";
import { createFakeClock, type FakeClock } from "../../support/fake_clock.ts";
import { ROOT, RUN } from "../../support/gateway_process.ts";
import { until } from "../../support/until.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

const noProc = existsSync("/proc/self/fdinfo") ? false : "only Linux tells what is watched";

interface Watched {
  readonly workspace: Workspace;
  readonly clock: FakeClock;
  /** Paths of the covers that were lost */
  readonly lost: readonly string[];
  close(): void;
}

/** Watches covers of a fresh workspace. @param covers paths relative to it */
const withWatch = (
  files: Readonly<Record<string, string>>,
  { hidden = [], copied = [], before = () => {} }: Partial<Omit<Covers, "workspace">> & {
    /** Steps before the watch begins */
    readonly before?: ((workspace: Workspace) => void) | undefined;
  },
  use: (watched: Watched) => Promise<void> | void,
) =>
  withWorkspace(files, async (workspace) => {
    before(workspace);
    const { root, path } = workspace;
    const clock = createFakeClock();
    const lost: string[] = [];
    const covers = { workspace: root, hidden: hidden.map((one) => path(one)), copied: copied.map((one) => path(one)) };
    const watch = new CoverWatch(covers, clock, (one) => void lost.push(String(one)));
    try {
      await use({ workspace, clock, lost, close: () => watch.close() });
    } finally {
      watch.close();
      assert.equal(clock.pending(), 0, "no timer is left");
    }
  });

/** Writes as editors do: another file, which then takes the name. */
function replace({ path }: Pick<Workspace, "path">, name: string, content: string): void {
  writeFileSync(path("written"), content);
  renameSync(path("written"), path(name));
}

const LOST: readonly {
  readonly what: string;
  readonly hidden: string;
  readonly change: (workspace: Workspace, clock: FakeClock) => void | Promise<void>;
  /** Default: the hidden one */
  readonly lost?: string;
  readonly before?: (workspace: Workspace) => void;
}[] = [
  { what: "a file is replaced", hidden: ".env", change: (workspace) => replace(workspace, ".env", "new") },
  {
    what: "a file is removed and made again",
    hidden: ".env",
    change({ path, write }) {
      rmSync(path(".env"));
      write(".env", "new");
    },
  },
  {
    what: "the same file comes back under a name that was gone",
    hidden: ".env",
    async change({ path }, clock) {
      linkSync(path(".env"), path("kept"));
      rmSync(path(".env"));
      await clock.advance(2_000);
      renameSync(path("kept"), path(".env"));
    },
  },
  {
    what: "a file appears that was gone while it was about to be saved",
    hidden: ".env",
    before: ({ path }) => rmSync(path(".env")),
    change: ({ write }) => write(".env", "new"),
  },
  {
    what: "a folder of credentials is exchanged",
    hidden: ".ssh",
    change({ path, write }) {
      renameSync(path(".ssh"), path("old"));
      write(".ssh/config", "new");
    },
  },
  {
    what: "a folder on the way is exchanged for another one",
    hidden: "a/b/.env",
    lost: "a",
    change({ path, write }) {
      write("other/b/.env", "new");
      renameSync(path("a"), path("old"));
      renameSync(path("other"), path("a"));
    },
  },
  {
    what: "the same file comes back in another folder of the same name",
    hidden: "a/b/.env",
    lost: "a/b",
    change({ path }) {
      renameSync(path("a/b"), path("a/old"));
      mkdirSync(path("a/b"));
      renameSync(path("a/old/.env"), path("a/b/.env"));
    },
  },
  {
    what: "the file that a link leads to is replaced",
    hidden: "key.pem",
    lost: "plain/real.txt",
    before: ({ path }) => symlinkSync("plain/real.txt", path("key.pem")),
    change: (workspace) => replace(workspace, "plain/real.txt", "new"),
  },
  {
    what: "a file takes the place of a link",
    hidden: "key.pem",
    before: ({ path }) => symlinkSync("plain/real.txt", path("key.pem")),
    change: (workspace) => replace(workspace, "key.pem", "new"),
  },
  {
    what: "a repository's configuration is exchanged for a link",
    hidden: "none",
    lost: ".git/config",
    change({ path, write }) {
      write(".git/real", "");
      rmSync(path(".git/config"));
      symlinkSync("real", path(".git/config"));
    },
  },
];

for (const { what, hidden, lost: expected = hidden, before, change } of LOST) {
  test(`a cover is lost when ${what}`, () => {
    const files = {
      ".env": "old",
      ".ssh/config": "old",
      "a/b/.env": "old",
      "plain/real.txt": "old",
      ".git/config": "",
    };
    return withWatch(
      files,
      { hidden: [hidden], copied: [".git/config"], before },
      async ({ workspace, lost, clock }) => {
        await change(workspace, clock);
        await until(() => lost.length > 0, "nobody noticed");
        assert.deepEqual(lost, [expected]);
      },
    );
  });
}

test("what leaves a cover in its place, or nothing to be read, ends nothing", () =>
  withWatch(
    { ".env": "old", "a/.env": "old", "b/.env": "old", "z.env": "old" },
    {
      hidden: [".env", "a/.env", "b/.env", "link.pem", "z.env"],
      // The link leads out of the workspace, where the program sees nothing
      before: ({ path }) => symlinkSync("../outside/secret.txt", path("link.pem")),
    },
    async ({ workspace, lost, clock }) => {
      const { path, write, outside } = workspace;
      appendFileSync(path(".env"), "written in its place");
      chmodSync(path(".env"), 0o600);
      linkSync(path(".env"), path("linked"));
      write("a/new.txt", "beside it");
      rmSync(path("a/.env"));
      renameSync(path("b"), path("c"));
      renameSync(path("c"), path("b"));
      renameSync(join(outside, "secret.txt"), join(outside, "old.txt"));
      writeFileSync(join(outside, "secret.txt"), "new");
      await clock.advance(4_000);
      // Looked at after all others
      replace(workspace, "z.env", "new");
      await until(() => lost.length > 0, "nobody noticed");
      assert.deepEqual(lost, ["z.env"]);
    },
  ));

const CONFIG = "[core]\n\tbare = false\n";
const PUSHED = `${CONFIG}[remote "origin"]\n\turl = https://example.com/a.git\n[branch "main"]\n\tremote = origin\n`;

test("a configuration of git that tells no credential may be replaced, and removed and made again", () =>
  withWatch(
    { ".git/config": CONFIG, ".git/z.pem": "" },
    { hidden: [".git/z.pem"], copied: [".git/config"] },
    async ({ workspace, lost, clock }) => {
      const { path, write } = workspace;
      replace(workspace, ".git/config", PUSHED);
      await clock.advance(4_000);
      rmSync(path(".git/config"));
      write(".git/config", `${PUSHED}[user]\n\tname = Ada\n`);
      // Looked at after all others
      replace(workspace, ".git/z.pem", "new");
      await until(() => lost.length > 0, "nobody noticed");
      assert.deepEqual(lost, [".git/z.pem"]);
    },
  ));

for (const how of ["replaced by", "replaced, and then changed in its place to"] as const) {
  test(`a configuration of git is lost when it is ${how} one with a credential`, () =>
    withWatch({ ".git/config": CONFIG }, { copied: [".git/config"] }, async ({ workspace, lost, clock }) => {
      const secret = "[http]\n\textraHeader = Authorization: x\n";
      if (how === "replaced by") replace(workspace, ".git/config", PUSHED + secret);
      else {
        replace(workspace, ".git/config", PUSHED);
        // The watch reads the file, in several steps
        for (let step = 0; step < 10; step++) await clock.advance(2_000);
        appendFileSync(workspace.path(".git/config"), secret);
      }
      await until(() => lost.length > 0, "nobody noticed");
      assert.deepEqual(lost, [".git/config"]);
    }));
}

test("what no event tells of is found within two seconds", () =>
  withWorkspace({ "one/.env": "old", "two/.env": "new" }, async ({ path }) => {
    const clock = createFakeClock();
    const lost: string[] = [];
    // Nothing happens in the folder that is watched: its name leads elsewhere
    symlinkSync("one", path("place"));
    const covers = { workspace: path("place"), hidden: [path("place/.env")], copied: [] };
    const watch = new CoverWatch(covers, clock, (one) => void lost.push(String(one)));
    rmSync(path("place"));
    symlinkSync("two", path("place"));
    await clock.advance(1_999);
    assert.deepEqual(lost, []);
    await clock.advance(1);
    await until(() => lost.length > 0, "nobody looked");
    assert.deepEqual(lost, [".env"]);
    watch.close();
  }));

/** Folders that the system watches for this process. */
function watchedFolders(): number {
  const lines = readdirSync("/proc/self/fdinfo").flatMap((id) => {
    try {
      return readFileSync(`/proc/self/fdinfo/${id}`, "utf8").split("\n");
    } catch {
      // The descriptor of the listing itself is closed by now
      return [];
    }
  });
  return lines.filter((line) => line.startsWith("inotify wd:")).length;
}

test("a watch covers each folder on the way, and leaves none watched", { skip: noProc }, async () => {
  await until(() => watchedFolders() === 0, "the tests before it leave folders watched");
  await withWatch({ "a/b/.env": "old" }, { hidden: ["a/b/.env"] }, async ({ close }) => {
    assert.equal(watchedFolders(), 3);
    close();
    await until(() => watchedFolders() === 0, "they stay watched");
  });
});

test("a watch begins before its program, and ends with it or when it cannot be started", async () => {
  for (const file of ["/bin/true", "/nonexistent"]) {
    const steps: string[] = [];
    const watch = () => {
      steps.push("begun");
      return { close: () => void steps.push("closed") };
    };
    const { exited } = startGroup({ file, args: [], cwd: "/", env: {}, watchCovers: watch });
    assert.deepEqual(steps, ["begun"]);
    await exited.catch(() => {});
    assert.deepEqual(steps, ["begun", "closed"], file);
  }
  const refuse = () => {
    throw new Error("no watch");
  };
  assert.throws(() => startGroup({ file: "/bin/true", args: [], cwd: "/", env: {}, watchCovers: refuse }), /no watch/);
});

test("a closed watch tells nothing", () =>
  withWatch({ ".env": "old" }, { hidden: [".env"] }, async (watched) => {
    const other: string[] = [];
    const { root, path } = watched.workspace;
    const covers = { workspace: root, hidden: [path(".env")], copied: [] };
    const open = new CoverWatch(covers, createFakeClock(), (one) => void other.push(String(one)));
    watched.close();
    replace(watched.workspace, ".env", "new");
    await until(() => other.length > 0, "nobody noticed");
    open.close();
    assert.deepEqual(watched.lost, []);
  }));

test("more folders than are watched refuse the program", () =>
  withWorkspace({}, ({ root, path }) => {
    const hidden = Array.from({ length: 4_097 }, (_, index) => path(`d${index}`, ".env"));
    const clock = createFakeClock();
    assert.throws(() => new CoverWatch({ workspace: root, hidden, copied: [] }, clock, () => {}), {
      code: "sandbox_unavailable",
      message: /4098 folders lead to them, and 4096 can be watched.*take such files out of the workspace$/,
    });
    assert.equal(clock.pending(), 0);
  }));

const LIMITED = ["unshare", "-Ur", "sh", "-c", 'echo 1 > /proc/sys/user/max_inotify_watches && exec "$@"', "sh"];
const [unshare = "", ...apart] = LIMITED;
const skip = spawnSync(unshare, [...apart, "bwrap", "--ro-bind", "/", "/", "true"]).status === 0
  ? false
  : "unshare or bubblewrap is missing, or not allowed";

test(
  "where the system watches no more folders, a command is refused, and none of it runs",
  { skip },
  () =>
    withWorkspace({ ".env": "old", "a/.env": "old" }, ({ root, path }) => {
      const words = [...apart, ...RUN, join(ROOT, "test/system/process/run_contained.ts"), root, "touch ran"];
      const { stdout, stderr } = spawnSync(unshare, words, { cwd: ROOT, encoding: "utf8" });
      assert.match(stdout, /^sandbox_unavailable Cannot run .* raise fs\.inotify\.max_user_watches/, stderr);
      assert.throws(() => readFileSync(path("ran")), { code: "ENOENT" });
    }),
);
