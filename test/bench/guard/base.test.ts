import assert from "node:assert/strict";
import { git as gitIn, gitTest, initRepository } from "../../support/git_fixture.ts";
import { withTemporaryFolder } from "../../support/temporary_folder.ts";
import { type Base, chooseBase } from "./base.ts";

const commitOf = (folder: string, name: string) => gitIn(folder, "rev-parse", `${name}^{commit}`).trim();

/** Chooses in a repository of three commits, where the second has the tag `second` and a side branch the tag `aside`, unless it has none. */
async function withChoice(
  use: (choose: (wanted?: string) => Base, folder: string) => void,
  { isTagged = true } = {},
): Promise<void> {
  await withTemporaryFolder((folder) => {
    initRepository(folder);
    const commit = (name: string) => gitIn(folder, "commit", "-q", "--allow-empty", "-m", name);
    commit("second");
    if (isTagged) gitIn(folder, "tag", "-a", "-m", "a release", "second");
    gitIn(folder, "checkout", "-q", "-b", "side");
    commit("aside");
    if (isTagged) gitIn(folder, "tag", "aside");
    gitIn(folder, "checkout", "-q", "main");
    commit("third");
    const git = (...argv: readonly string[]) => {
      try {
        return gitIn(folder, ...argv).trim();
      } catch {
        return undefined;
      }
    };
    use((wanted) => chooseBase(wanted, git), folder);
  });
}

gitTest(
  "the base is the last tag that HEAD descends from, also when BASE is empty",
  () =>
    withChoice((choose, folder) => {
      const expected = { name: "second", commit: commitOf(folder, "HEAD~1") };
      assert.deepEqual(choose(), expected);
      assert.deepEqual(choose(""), expected);
    }),
);

gitTest("BASE names a commit, a branch or a tag, and goes before the tag", () =>
  withChoice((choose, folder) => {
    for (const name of ["HEAD~2", "side", "aside", commitOf(folder, "main").slice(0, 8)]) {
      assert.deepEqual(choose(name), { name, commit: commitOf(folder, name) });
    }
  }));

gitTest("without a tag and BASE it refuses, and says the way out", () =>
  withChoice((choose) => {
    assert.throws(() => choose(), /no git tag is reachable from HEAD; name a commit, as in BASE=HEAD~20 npm run/);
  }, { isTagged: false }));

gitTest("a BASE that is no commit is refused, and never taken for an option of git", () =>
  withChoice((choose) => {
    for (const name of ["nothing", "--all", "HEAD:", "-n1"]) {
      assert.throws(() => choose(name), {
        message: new RegExp(`^Cannot compare with "${name}": git knows no such commit`),
      });
    }
  }));
