import assert from "node:assert/strict";
import { rmSync } from "node:fs";
import { test } from "node:test";
import { bytesBelow } from "../../support/canaries.ts";
import {
  atEveryMoment,
  DEV_SERVER_CONFIG,
  type Exchange,
  NO_EXCHANGER,
  startDevServer,
} from "../../support/exchanger.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { OUTSIDE, withWorkspace } from "../../support/workspace.ts";

const { kind, text } = await createToolBench({ root: "/tmp" }).processes.containment({ sandbox: "auto" });
const skip = NO_EXCHANGER !== false ? NO_EXCHANGER : kind === "contained" ? false : text;

/** A script of the project, which looks for what lies outside of the sandbox. */
const HOSTILE = "cat ../outside/secret.txt; echo made > ../outside/made.txt; cat ../../outside/secret.txt; true\n";

/** Things that the dev server makes in the workspace, and exchanges while the sandbox of the next command is made. */
const TRAPS: readonly (Pick<Exchange, "by" | "other"> & {
  readonly name: string;
  readonly made: string;
  readonly target: string;
})[] = [
  {
    name: "the folder of a sensitive file",
    made: "mkdir box && echo x > box/.env",
    target: "box",
    by: "link",
    other: "..",
  },
  { name: "a repository", made: "mkdir -p box/.git", target: "box/.git", by: "link", other: "../.." },
  {
    name: "the folder of a repository",
    made: "mkdir -p box/.git && echo '[core]' > box/.git/config && echo x > box/.git/HEAD",
    target: "box",
    by: "link",
    other: "..",
  },
];

for (const { name, made, target, by, other } of TRAPS) {
  test(
    `a command sees nothing outside, whatever takes the place of ${name} while its sandbox is made`,
    { skip },
    () =>
      withWorkspace({ "hostile.sh": HOSTILE }, async (workspace) => {
        const bench = createToolBench({
          root: workspace.root,
          config: { ...DEV_SERVER_CONFIG, autonomy: { level: "full" }, shell: { sandbox: "require" } },
        });
        const before = bytesBelow(workspace.outside);
        await atEveryMoment(async (at) => {
          rmSync(workspace.path("box"), { recursive: true, force: true });
          const exchange: Exchange = { at, watched: workspace.path("box"), target: workspace.path(target), by, other };
          const server = await startDevServer({ bench, workspace }, exchange, made);
          try {
            server.ring();
            const { result } = await bench.call("shell", { command: "sh hostile.sh" });
            const what = `at ${JSON.stringify(at)}: ${result.output}`;
            assert.ok(!result.output.includes(OUTSIDE.trim()), what);
            assert.equal(bytesBelow(workspace.outside), before, what);
            return await server.report();
          } finally {
            await server.end();
          }
        });
        await bench.processes.close();
      }),
  );
}
