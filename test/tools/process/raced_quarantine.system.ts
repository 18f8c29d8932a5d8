import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { bytesBelow } from "../../support/canaries.ts";
import { atEveryMoment, DEV_SERVER_CONFIG, NO_EXCHANGER, startDevServer } from "../../support/exchanger.ts";
import { createToolBench } from "../../support/tool_bench.ts";
import { withWorkspace } from "../../support/workspace.ts";

/** A folder of another file system than the workspace's: what is moved there is copied, and then removed. */
const elsewhere = ["/dev/shm", "/var/tmp"].find((path) =>
  existsSync(path) && statSync(path).dev !== statSync(tmpdir()).dev
);
const { kind, text } = await createToolBench({ root: "/tmp" }).processes.containment({ sandbox: "auto" });
const skip = NO_EXCHANGER !== false
  ? NO_EXCHANGER
  : kind !== "contained"
  ? text
  : elsewhere === undefined
  ? "there is one file system alone"
  : false;

const NAMES = ["secret.txt", "a", "b", "c"];

test("what a dev server exchanges in a protected name on its way to another file system changes nothing outside", {
  skip,
}, () =>
  withWorkspace({}, async (workspace) => {
    const { path, root, outside } = workspace;
    const quarantine = mkdtempSync(join(elsewhere ?? "", "postern-test-"));
    const bench = createToolBench({
      ...{ root, quarantine },
      config: {
        ...DEV_SERVER_CONFIG,
        autonomy: { level: "full" },
        shell: { sandbox: "require" },
      },
    });
    for (const name of NAMES) writeFileSync(join(outside, name), `outside ${name}`);
    const before = bytesBelow(outside);
    try {
      await atEveryMoment(async (at) => {
        rmSync(path("box"), { recursive: true, force: true });
        rmSync(quarantine, { recursive: true });
        mkdirSync(quarantine);
        for (const name of NAMES) workspace.write(`box/made/deep/${name}`, "inside");
        const exchange = { at, watched: ".", target: "deep", by: "link", other: outside } as const;
        const server = await startDevServer({ bench, workspace }, exchange, "cd box/made");
        try {
          server.ring();
          const { result } = await bench.call("shell", { command: "mv box/made box/.git" });
          assert.match(result.output, /quarantine/);
          assert.equal(bytesBelow(outside), before, JSON.stringify(at));
          return await server.report();
        } finally {
          await server.end();
        }
      });
    } finally {
      rmSync(quarantine, { recursive: true, force: true });
      await bench.processes.close();
    }
  }));
