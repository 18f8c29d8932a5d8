import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { test } from "node:test";
import { createToolBench } from "../../support/tool_bench.ts";
import { until } from "../../support/until.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";

const { kind, text } = await createToolBench({ root: "/tmp" }).processes.containment({ sandbox: "auto" });
const skip = kind === "contained" ? false : text;
const { signal: NEVER } = new AbortController();

/** Runs a command as the git tool does, on the repository of the workspace. It is at work until a file `go` is there. */
function gitAtWork({ processes }: ReturnType<typeof createToolBench>, workspace: Workspace) {
  return processes.run({
    words: ["sh", "-c", "touch up; until [ -e go ]; do sleep 0.01; done"],
    composed: { env: {}, network: false, writes: true, gitPlaces: [workspace.path(".git")] },
    ...requestOf(workspace),
    timeoutMs: 60_000,
  });
}

function requestOf({ root }: Workspace) {
  const scope = { workspaceRoot: root, workspaceOnly: true, forbiddenPaths: [], allowSensitive: false };
  return { scope, sandbox: "require", maxOutputBytes: 1_000, signal: NEVER } as const;
}

test(
  "a contained program begins once the git process is done that was at work before it",
  { skip },
  () =>
    withWorkspace({ ".git/HEAD": "ref: refs/heads/main\n" }, (workspace) =>
      withWorkspace({}, async (elsewhere) => {
        const bench = createToolBench({ root: workspace.root });
        try {
          const git = gitAtWork(bench, workspace);
          await until(() => existsSync(workspace.path("up")), "git never began");
          const touch = { words: ["touch", "begun"], timeoutMs: 60_000 };
          const program = bench.processes.run({ ...touch, ...requestOf(workspace) });
          // Two programs elsewhere, one after the other: a program that does not wait begins before the second one has ended
          for (let i = 0; i < 2; i++) await bench.processes.run({ ...touch, ...requestOf(elsewhere) });
          assert.ok(existsSync(elsewhere.path("begun")));
          assert.equal(existsSync(workspace.path("begun")), false);
          workspace.write("go", "");
          await Promise.all([git, program]);
          assert.ok(existsSync(workspace.path("begun")));
        } finally {
          await bench.processes.close();
        }
      })),
);

test(
  "a program that waits for git is cancelled by its call, and git goes on",
  { skip },
  () =>
    withWorkspace({ ".git/HEAD": "ref: refs/heads/main\n" }, (workspace) =>
      withWorkspace({}, async (elsewhere) => {
        const bench = createToolBench({ root: workspace.root });
        try {
          const git = gitAtWork(bench, workspace);
          await until(() => existsSync(workspace.path("up")), "git never began");
          const call = new AbortController();
          const touch = { words: ["touch", "begun"], timeoutMs: 60_000 };
          const program = bench.processes.run({ ...touch, ...requestOf(workspace), signal: call.signal });
          program.catch(() => {});
          // The program waits for git by the time this one has ended
          await bench.processes.run({ ...touch, ...requestOf(elsewhere) });
          call.abort();
          await assert.rejects(program, { name: "CancelError" });
          workspace.write("go", "");
          assert.equal((await git).ending.kind, "exit");
          assert.equal(existsSync(workspace.path("begun")), false);
        } finally {
          await bench.processes.close();
        }
      })),
);
