import assert from "node:assert/strict";
import { chmodSync, existsSync, readFileSync, rmSync } from "node:fs";
import process from "node:process";
import { test } from "node:test";
import { CancelError } from "../../../lib/base/cancel.ts";
import { type Clock, systemClock } from "../../../lib/base/clock.ts";
import { callFilter } from "../../../lib/system/process/call_filter.ts";
import { createCommandLookup } from "../../../lib/system/process/command_lookup.ts";
import { type Containment, containmentOf, type ContainmentSettings } from "../../../lib/system/process/containment.ts";
import type { Processes } from "../../../lib/system/process/processes.ts";
import { withWorkspace, type Workspace } from "../../support/workspace.ts";
import { createWorkspaceProcesses } from "../../support/workspace_processes.ts";

const skip = process.platform === "linux" ? false : "bubblewrap is there on Linux alone";

const lookup = createCommandLookup();

/** Processes whose bubblewrap is a script of the test. */
function withBubblewrap(workspace: Workspace, script: string, clock: Clock = systemClock): Processes {
  workspace.write("../fake/bwrap", `#!/bin/sh\n${script}\n`);
  const file = workspace.path("..", "fake", "bwrap");
  chmodSync(file, 0o755);
  return createWorkspaceProcesses(workspace.root, {
    commands: { find: async (command) => (command === "bwrap" ? file : await lookup.find(command)) },
    clock,
  });
}

const touch = (root: string, sandbox: "auto" | "require" | "off", signal = new AbortController().signal) => ({
  words: ["touch", "ran"],
  scope: { workspaceRoot: root, workspaceOnly: true, forbiddenPaths: [], allowSensitive: true },
  sandbox,
  timeoutMs: 9000,
  maxOutputBytes: 1000,
  signal,
});

/** Time limits of 10 s are over at once while `hurries` says so. */
const hurried = (hurries: () => boolean): Clock => ({
  ...systemClock,
  after: (ms, fn) => systemClock.after(ms === 10_000 && hurries() ? 1 : ms, fn),
});

/** Script that answers like bubblewrap that works: it runs what comes after `--`. */
const WORKS = 'while [ "$1" != "--" ]; do shift; done; shift; exec "$@"';

test("what the walls of this machine leave open is said", () => {
  const walls = { filters: true, endsNamespaces: true, nests: true };
  const bounds = { file: "/usr/bin/prlimit", processes: 512, openFiles: 65_536, fileBytes: 2 ** 33, coreBytes: 1 };
  const all = { kind: "bubblewrap", file: "/usr/bin/bwrap", ...walls, bounds } as const;
  const textOf = (found: Containment, settings: Partial<ContainmentSettings> = {}) =>
    containmentOf({ sandbox: "auto", ...settings }, found).text;
  assert.equal(textOf(all), "Commands are contained by bubblewrap");
  assert.match(
    textOf({ ...all, filters: false }),
    /, without a filter of system calls, which this machine does not take$/,
  );
  assert.equal(textOf({ ...all, nests: false }), "Commands are contained by bubblewrap");
  assert.match(
    textOf({ ...all, nests: false }, { network: "allowlist" }),
    /, may make Unix sockets, since .*, and reach /,
  );
  assert.match(
    textOf({ ...all, bounds: undefined }),
    /, without bounds on what they take, since prlimit does not work/,
  );
  assert.match(textOf(all, { local_sockets: ["docker.sock"] }), /, and may connect to the sockets "docker\.sock"$/);
});

test(
  "a bubblewrap that takes no filter contains commands all the same",
  { skip },
  () =>
    withWorkspace({}, async (workspace) => {
      const noWalls = `case "$*" in *--seccomp*|*--disable-userns*) echo "bwrap: Unknown option" >&2; exit 1;; esac`;
      const processes = withBubblewrap(workspace, `${noWalls}\n${WORKS}`);
      const { ending, contained } = await processes.run(touch(workspace.root, "require"));
      assert.deepEqual([ending, contained], [{ kind: "exit", code: 0 }, true]);
      const { text } = await processes.containment({ sandbox: "require" });
      assert.match(text, /contained by bubblewrap, without a filter of system calls/);
    }),
);

test(
  "a bubblewrap that does not answer with all its walls is not tried with fewer",
  { skip: skip || callFilter({ localSockets: false }) === undefined && "there is no filter for this machine" },
  () =>
    withWorkspace({}, async (workspace) => {
      const seen = workspace.path("..", "tries");
      const processes = withBubblewrap(workspace, `echo "$*" >> "${seen}"\nkill -9 $$`);
      const { kind } = await processes.containment({ sandbox: "auto" });
      assert.equal(kind, "refused");
      const tries = readFileSync(seen, "utf8").trim().split("\n");
      assert.deepEqual(tries.map((args) => args.includes("--seccomp")), [true, true]);
    }),
);

test(
  "a try of bubblewrap that is too slow refuses the call and never lets it run uncontained",
  { skip },
  () =>
    withWorkspace({}, async (workspace) => {
      let isSlow = true;
      const processes = withBubblewrap(
        workspace,
        `[ -e '${workspace.path("..", "slow")}' ] && exec sleep 60\n${WORKS}`,
        hurried(() => isSlow),
      );
      workspace.write("../slow", "");
      // As many as ever are tried: no number of slow tries opens the sandbox
      for (let tried = 0; tried < 5; tried++) {
        await assert.rejects(processes.run(touch(workspace.root, "auto")), {
          code: "sandbox_unavailable",
          message: /bubblewrap did not answer within 10 s; try again, or .* sandbox = "off"$/,
        });
        await assert.rejects(processes.screen(touch(workspace.root, "auto")), { code: "sandbox_unavailable" });
        assert.equal((await processes.containment({ sandbox: "auto" })).kind, "refused");
      }
      assert.equal(existsSync(workspace.path("ran")), false);
      isSlow = false;
      rmSync(workspace.path("..", "slow"));
      const { contained } = await processes.run(touch(workspace.root, "auto"));
      assert.equal(contained, true, "it answers again, and is used");
    }),
);

test(
  "bubblewrap that worked once is never taken for missing: a call it cannot contain is refused",
  { skip },
  () =>
    withWorkspace({}, async (workspace) => {
      const script = `[ -e ../broken ] && { echo "bwrap: Creating new namespace failed" >&2; exit 1; }\n${WORKS}`;
      const processes = withBubblewrap(workspace, script);
      assert.equal((await processes.containment({ sandbox: "auto" })).kind, "contained");
      workspace.write("../broken", "");
      await assert.rejects(processes.run(touch(workspace.root, "auto")), {
        code: "sandbox_unavailable",
        message: /Creating new namespace failed/,
      });
      assert.equal(existsSync(workspace.path("ran")), false);
      assert.equal((await processes.containment({ sandbox: "auto" })).kind, "contained");
    }),
);

for (
  const [what, script, kind] of [
    ["says that it may not", 'echo "bwrap: No permissions to create a new namespace" >&2; exit 1', "uncontained"],
    ["fails without a word", "exit 1", "uncontained"],
    ["lacks memory for the moment", 'echo "bwrap: clone: Cannot allocate memory" >&2; exit 1', "refused"],
    ["finds no free namespace", 'echo "bwrap: Creating new namespace failed: No space left" >&2; exit 1', "refused"],
    ["is killed", "kill -KILL $$", "refused"],
  ] as const
) {
  test(
    `bubblewrap that ${what}: a command with "auto" is ${kind}, with "require" refused`,
    { skip },
    () =>
      withWorkspace({}, async (workspace) => {
        const processes = withBubblewrap(workspace, script);
        assert.equal((await processes.containment({ sandbox: "auto" })).kind, kind);
        assert.equal((await processes.containment({ sandbox: "require" })).kind, "refused");
        assert.equal((await processes.containment({ sandbox: "off" })).kind, "uncontained");
        await assert.rejects(processes.run(touch(workspace.root, "require")), { code: "sandbox_unavailable" });
        if (kind === "refused") {
          await assert.rejects(processes.run(touch(workspace.root, "auto")), { code: "sandbox_unavailable" });
        } else {
          assert.equal((await processes.run(touch(workspace.root, "auto"))).contained, false);
        }
        assert.equal((await processes.run(touch(workspace.root, "off"))).contained, false);
      }),
  );
}

test(
  "a call that is cancelled does not wait for the try, and the gateway's end ends the try",
  { skip },
  () =>
    withWorkspace({}, async (workspace) => {
      const processes = withBubblewrap(workspace, "exec sleep 60");
      const stop = new AbortController();
      const work = processes.run(touch(workspace.root, "auto", stop.signal));
      const ended = assert.rejects(work, CancelError);
      stop.abort(new CancelError("cancelled"));
      await ended;
      await processes.close();
    }),
);

test(
  "a workspace that holds the system's own folders is refused, since nothing would be contained",
  { skip },
  () =>
    withWorkspace({}, async (workspace) => {
      const processes = withBubblewrap(workspace, WORKS);
      await assert.rejects(processes.run({ ...touch("/", "auto"), words: ["true"] }), {
        code: "sandbox_unavailable",
        message: /system's own folders/,
      });
    }),
);
