import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdirSync, rmSync } from "node:fs";
import { test } from "node:test";
import { bytesBelow } from "../../support/canaries.ts";
import {
  atEveryMoment,
  DEV_SERVER_CONFIG,
  type Exchange,
  NO_EXCHANGER,
  startDevServer,
} from "../../support/exchanger.ts";
import { startSh, uncontained } from "../../support/sh_server.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { OUTSIDE, withWorkspace } from "../../support/workspace.ts";

const skip = NO_EXCHANGER !== false ? NO_EXCHANGER : uncontained;

/** Each attempt starts two sandboxes. */
const FEW_FLURRIES = 2;
/** Looks for what lies outside of the folder that the server was given. */
const HOSTILE = "cat secret.txt .env a.txt; echo made > made.txt; cat ../outside/secret.txt ../.env; true";

/** Things that take the place of the folder in the server's `paths` while its program starts, and links in it. */
const TRAPS = [
  { name: "a link out of the workspace", target: "data", other: "../outside" },
  { name: "a link to the workspace", target: "data", other: "." },
  { name: "a link in the place of a folder in it", target: "data/sub", other: "../../outside" },
] as const;

for (const { name, target, other } of TRAPS) {
  test(
    `a server's program reaches nothing but its paths, whatever a dev server exchanges: ${name}`,
    { skip },
    () =>
      withWorkspace({ ".env": "KEY=s3cret\n" }, async (workspace) => {
        const { root, path, outside } = workspace;
        const bench = createToolBench({
          root,
          config: { ...DEV_SERVER_CONFIG, autonomy: { level: "full" }, shell: { sandbox: "require" } },
        });
        const before = bytesBelow(outside);
        await atEveryMoment(async (at) => {
          rmSync(path("data"), { recursive: true, force: true });
          mkdirSync(path("data"));
          const exchange: Exchange = { at, watched: path("data"), target: path(target), by: "link", other };
          // The dev server cannot exchange files that were there before it started
          const made = "mkdir -p data/sub && echo KEY=theirs > data/sub/.env && echo one > data/a.txt";
          const server = await startDevServer({ bench, workspace }, exchange, made);
          try {
            server.ring();
            let output = "";
            const script = `cd '${path("data")}'; ${HOSTILE}; cd sub; ${HOSTILE}`;
            const program = await startSh(workspace, bench.processes, { paths: [path("data")], script })
              .catch(() => undefined);
            if (program !== undefined) {
              program.stdout.on("data", (part) => void (output += part));
              program.stderr.resume();
              await once(program.stdout, "end");
              await program.end();
            }
            assert.ok(
              !output.includes(OUTSIDE.trim()) && !output.includes("s3cret"),
              `${JSON.stringify(at)}: ${output}`,
            );
            assert.equal(bytesBelow(outside), before, JSON.stringify(at));
            return await server.report();
          } finally {
            await server.end();
          }
        }, FEW_FLURRIES);
        await bench.processes.close();
      }),
  );
}
