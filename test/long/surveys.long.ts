import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { systemClock } from "../../lib/base/clock.ts";
import { Surveys } from "../../lib/system/process/surveys.ts";
import { withWorkspace } from "../support/workspace.ts";

const FOLDERS = 101;
const FILES = 1000;

test("101,000 files are looked through by the threads of surveys, to the deepest one", () =>
  withWorkspace({ "z/z/z/z/.env": "a", "z/z/z/z/.agents/x": "a" }, async ({ root, path }) => {
    for (let i = 0; i < FOLDERS; i++) {
      mkdirSync(path(`f${i}`));
      for (let j = 0; j < FILES; j++) writeFileSync(join(path(`f${i}`), `${j}`), "text");
    }
    const surveys = new Surveys({ clock: systemClock });
    const request = { root, skip: [], secrets: true, home: "/nonexistent", ownPaths: [], timeoutMs: 120_000 };
    try {
      for (let round = 0; round < 3; round++) {
        const start = systemClock.monotonic();
        const survey = await surveys.survey(request, new AbortController().signal);
        console.log(`survey ${round + 1}: ${Math.round(systemClock.monotonic() - start)} ms`);
        const { finished, files, sensitive, guarded } = survey;
        // The file below the protected name counts too
        assert.deepEqual([finished, files, sensitive, guarded.length], [true, 101_001, [path("z/z/z/z/.env")], 1]);
      }
    } finally {
      await surveys.close();
    }
  }));
