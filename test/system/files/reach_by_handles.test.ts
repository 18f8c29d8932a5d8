import assert from "node:assert/strict";
import { mkdirSync, renameSync, symlinkSync, writeFileSync } from "node:fs";
import { test } from "node:test";
import { systemClock } from "../../../lib/base/clock.ts";
import { createFiles } from "../../../lib/system/files/create_files.ts";
import { loadPathRules } from "../../../lib/system/files/path_rules.ts";
import { createReachByHandles } from "../../../lib/system/files/reach_by_handles.ts";
import { type SystemCalls, waitingCalls } from "../../../lib/system/files/system_calls.ts";
import { openHandles } from "../../support/open_handles.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

const NATIVE = createFiles({ clock: systemClock, home: "/home/nobody", ownPaths: [] }).variant;
const skip = NATIVE === "handles" ? false : "there are no folder handles here";

/** Reaches with `move` done once between the opening of a file and the question where it lies. */
async function reachWhile(workspace: Workspace, names: readonly string[], move: () => void) {
  let looks = 0;
  const calls: SystemCalls = {
    ...waitingCalls,
    readlink(path) {
      // The first look is where the root lies
      if (++looks === 2) move();
      return waitingCalls.readlink(path);
    },
  };
  const scope = {
    workspaceRoot: workspace.root,
    allowedRoot: ".",
    forbiddenPaths: [workspace.path("private")],
    allowSensitive: false,
  };
  const rules = await loadPathRules(scope, { home: "/home/nobody", ownPaths: [] });
  return await createReachByHandles(calls)(names, rules);
}

/** Targets that an open file or folder is moved to, with the code of the refusal. */
const MOVES: readonly (readonly [what: string, to: (workspace: Workspace) => string, code: string])[] = [
  ["out of the root", ({ outside }) => `${outside}/moved`, "path_outside_root"],
  ["into a forbidden folder", ({ path }) => path("private", "moved"), "path_forbidden"],
];

for (const [what, to, code] of MOVES) {
  test(
    `a file that is moved ${what} after it was opened is not read`,
    { skip },
    () =>
      withWorkspace({ "a.txt": "text", "private/x": "" }, async (workspace) => {
        const move = () => renameSync(workspace.path("a.txt"), to(workspace));
        await assert.rejects(reachWhile(workspace, ["a.txt"], move), { code });
        assert.deepEqual([...openHandles(workspace.root), ...openHandles(workspace.outside)], []);
      }),
  );

  test(
    `a file of a folder that is moved ${what} while it is walked is not read`,
    { skip },
    () =>
      withWorkspace({ "a/b/c.txt": "text", "private/x": "" }, async (workspace) => {
        const move = () => renameSync(workspace.path("a", "b"), to(workspace));
        const reached = await reachWhile(workspace, ["a", "b"], move);
        assert.ok(reached.kind === "folder");
        await assert.rejects(reached.folder.file("c.txt"), { code });
        await reached.folder.close();
        assert.deepEqual([...openHandles(workspace.root), ...openHandles(workspace.outside)], []);
      }),
  );
}

test(
  "a root that a link above it leads elsewhere, since its path was found out, is not opened",
  { skip },
  () =>
    withWorkspace({ "a/docs/c.txt": "text" }, async (workspace) => {
      mkdirSync(`${workspace.outside}/docs`);
      writeFileSync(`${workspace.outside}/docs/c.txt`, "outside");
      const scope = { workspaceRoot: workspace.root, allowedRoot: "a/docs", forbiddenPaths: [], allowSensitive: false };
      const rules = await loadPathRules(scope, { home: "/home/nobody", ownPaths: [] });
      renameSync(workspace.path("a"), workspace.path("b"));
      symlinkSync("../outside", workspace.path("a"));
      for (const names of [["c.txt"], []]) {
        await assert.rejects(createReachByHandles(waitingCalls)(names, rules), { code: "path_outside_root" });
      }
      assert.deepEqual(openHandles(workspace.outside), []);
    }),
);
